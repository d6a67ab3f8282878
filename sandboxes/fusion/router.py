"""The route `/execute_batch`: many scripts at once, for open-r1's router clients.

The two router clients read different fields of the same answer, `execution` and `text`; both are
filled. The result of a script is the value of its last expression.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..protocol import ExecutionStatus
from .notebook import Notebook


class RouterBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /execute_batch`."""

    scripts: list[str]
    languages: list[str]
    timeout: float
    """The limit of each script, in seconds."""
    request_timeout: float
    """How long the client waits for the whole batch, in seconds."""


class RouterLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a script."""

    stdout: list[str]
    stderr: list[str]


class RouterExecution(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a script."""

    results: list[dict[str, Any]]
    """Displayed values, with `text` and `is_main_result`; the latter marks a last expression."""
    logs: RouterLogs
    error: dict[str, Any] | None = None
    """The error, with `name`, `value` and `traceback`."""
    execution_count: int | None = None


class RouterItem(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a script of the batch."""

    execution: RouterExecution | None = None
    """None where nothing is known about the script: the client then leaves the script out."""
    text: str | None = None
    exception_str: str | None = None


def router_item(notebook: Notebook) -> RouterItem:
    """Make the answer to a script that was run as the only cell of a notebook."""
    execution = notebook.execution
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return RouterItem(exception_str=f"the sandbox failed: {execution.detail}")
    if not notebook.complete:
        return _stopped(
            str(execution.status),
            execution.detail or f"exit code {execution.exit_code}",
            execution.stderr,
        )
    (cell,) = notebook.cells
    texts = [str(bundle.get("text/plain", "")) for bundle in cell.display]
    last = len(texts) - 1
    results: list[dict[str, Any]] = [
        {"text": text, "is_main_result": number == last} for number, text in enumerate(texts)
    ]
    text = results[-1]["text"] if results else cell.stdout
    error = cell.error[0] if cell.error else {}
    error_of_cell = {
        "name": str(error.get("ename", "")),
        "value": str(error.get("evalue", "")),
        "traceback": "".join(map(str, error.get("traceback", []))),
    }
    return RouterItem(
        execution=RouterExecution(
            results=results,
            logs=RouterLogs(stdout=_lines(cell.stdout), stderr=_lines(cell.stderr)),
            error=error_of_cell if cell.error else None,
            execution_count=1,
        ),
        text=None if cell.error else text,
        exception_str=str(error.get("ename", "error")) if cell.error else None,
    )


def plain_item(status: ExecutionStatus, stdout: str, stderr: str, detail: str) -> RouterItem:
    """Make the answer to a script in another language than Python: the output."""
    if status is ExecutionStatus.INFRA_ERROR:
        return RouterItem(exception_str=f"the sandbox failed: {detail}")
    if status is not ExecutionStatus.OK:
        return _stopped(str(status), detail or stderr[-400:], stderr)
    logs = RouterLogs(stdout=_lines(stdout), stderr=_lines(stderr))
    return RouterItem(execution=RouterExecution(results=[], logs=logs), text=stdout)


def _stopped(name: str, value: str, stderr: str) -> RouterItem:
    """Make the answer to a script that was stopped or ended early, by the script's fault."""
    error = {"name": name, "value": value, "traceback": ""}
    logs = RouterLogs(stdout=[], stderr=_lines(stderr))
    return RouterItem(
        execution=RouterExecution(results=[], logs=logs, error=error),
        exception_str=f"{name}: {value}",
    )


def _lines(text: str) -> list[str]:
    return [text] if text else []
