"""The messages of SandboxFusion's protocol, in the form that SandboxFusion's clients send and read.

Clients index replies by name, so no field is left out here. Unknown fields of a request are
ignored, as SandboxFusion's server does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from ludus.wire.faults import Refused

from ..protocol import MIB, Execution, ExecutionStatus

FINISHED, TIMED_OUT, BROKEN = "Finished", "TimeLimitExceeded", "Error"
SUCCESS, FAILED, SANDBOX_ERROR = "Success", "Failed", "SandboxError"

KILLED = -9
"""The return code of a program that was stopped for its memory, output or processes."""

LANGUAGES = frozenset(
    """
    python cpp nodejs go go_test java php csharp bash typescript sql rust cuda lua R perl D_ut ruby
    scala julia pytest junit kotlin_script jest verilog python_gpu lean swift racket
    """.split()  # noqa: SIM905 - a list literal would take a line a name
)
"""The languages that the protocol names; this server runs some of them."""

IGNORED_FILE = "IGNORE_THIS_FILE"
UNLIMITED = -1


class RunCodeBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /run_code`."""

    code: str
    language: str
    compile_timeout: float = 10.0
    run_timeout: float = 10.0
    memory_limit_MB: int = UNLIMITED
    stdin: str | None = None
    files: dict[str, str | None] = {}
    """The content of each file in base64, by path."""
    fetch_files: list[str] = []
    args: list[str] = []
    """Arguments for pytest."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command, such as a compiler or the program."""

    status: str
    """Finished, TimeLimitExceeded, or Error: the sandbox's fault."""
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunCodeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to `POST /run_code`."""

    status: str
    """Success, Failed (the program's fault), or SandboxError (ours)."""
    message: str
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


class JupyterBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /run_jupyter`."""

    cells: list[str]
    cell_timeout: float = 0.0
    """The limit of a cell in seconds; 0 means no limit."""
    total_timeout: float = 45.0
    memory_limit_MB: int = UNLIMITED
    kernel: str = "python3"
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a cell."""

    stdout: str = ""
    stderr: str = ""
    display: list[dict[str, Any]] = []
    """MIME bundles; the value of a last expression is among them."""
    error: list[dict[str, Any]] = []
    """Each error, with `ename`, `evalue` and `traceback`."""


class JupyterReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to `POST /run_jupyter`."""

    status: str
    message: str
    driver: CommandResult | None = None
    cells: list[CellResult] = []
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


class SubmitConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a completion is to be judged."""

    dataset_type: str | None = None
    language: str | None = None
    compile_timeout: float | None = None
    run_timeout: float | None = None
    custom_extract_logic: str | None = None
    """Python code that calls `submit_code_blocks`; run in a slot."""
    provided_data: dict[str, Any] | list[dict[str, Any]] | None = None
    extra: dict[str, Any] = {}


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /submit`."""

    dataset: str
    id: int | str
    completion: str
    config: SubmitConfig


class TestCase(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test."""

    passed: bool
    exec_info: RunCodeReply
    test_info: dict[str, Any] | None = None


class SubmitReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to `POST /submit`."""

    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: str | None = None
    tests: list[TestCase]
    extracted_type: str | None = None
    extra: dict[str, Any] | None = None


def read_files(files: Mapping[str, str | None]) -> dict[str, bytes]:
    """Decode the files of a request.

    Raises:
        Refused: the content of a file is not base64.
    """
    read: dict[str, bytes] = {}
    for path, content in files.items():
        if content is None or IGNORED_FILE in path:
            continue
        try:
            read[path] = base64.b64decode(content)
        except (binascii.Error, ValueError) as error:
            raise Refused(f"files[{path!r}] is not base64: {error}", "invalid") from None
    return read


def write_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Encode fetched files for a reply."""
    return {path: base64.b64encode(data).decode() for path, data in files.items()}


def memory_bytes(limit_mb: int, max_bytes: int) -> int:
    """Return the memory limit of a request in bytes; `max_bytes` where the request sets none."""
    return limit_mb * MIB if limit_mb > 0 else max_bytes


def command_result(execution: Execution) -> CommandResult:
    """Express the end of an execution's command in the protocol's terms."""
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return CommandResult(status=BROKEN, stderr=execution.detail)
    timed_out = execution.status is ExecutionStatus.TIMEOUT
    code = execution.exit_code if execution.exit_code is not None else KILLED
    return CommandResult(
        status=TIMED_OUT if timed_out else FINISHED,
        execution_time=execution.usage.wall_s,
        return_code=None if timed_out else code,
        stdout=execution.stdout,
        stderr=execution.stderr,
    )


def run_code_reply(execution: Execution, *, compiles: bool) -> RunCodeReply:
    """Make the reply to `/run_code`.

    An infrastructure error is `SandboxError`, without a result that could be taken for the
    program's.

    Args:
        compiles: whether the language has a compiler.
    """
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return RunCodeReply(status=SANDBOX_ERROR, message=f"the sandbox failed: {execution.detail}")
    result = command_result(execution)
    if not execution.compiled:
        return RunCodeReply(status=FAILED, message=execution.detail, compile_result=result)
    compiled = CommandResult(status=FINISHED, return_code=0, stdout="", stderr="")
    return RunCodeReply(
        status=SUCCESS if execution.ok else FAILED,
        message=execution.detail,
        compile_result=compiled if compiles else None,
        run_result=result,
        files=write_files(execution.files),
    )
