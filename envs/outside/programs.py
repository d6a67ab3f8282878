"""Runs the programs of a policy for a peer's environment, in the sandbox of ludus."""

from __future__ import annotations

from typing import Any

from ludus import sandboxes
from ludus.sandboxes.protocol import ExecutionStatus


def run_program(question: dict[str, Any], left_s: float) -> dict[str, Any]:
    """Run the Python program that a peer's environment asks to be run.

    Args:
        question: `run`, the program; `stdin`; `timeout_s`, the peer's own limit.
        left_s: the seconds that are left of the step.

    Returns:
        `ok`, `stdout` and `stderr`.

    Raises:
        RuntimeError: the sandbox failed, so that nothing is known of the program.
    """
    limit = max(0.1, min(float(question["timeout_s"]), left_s))
    ran = sandboxes.execute(str(question["run"]), stdin=str(question["stdin"]), timeout_s=limit)
    if ran.status is ExecutionStatus.INFRA_ERROR:
        raise RuntimeError(f"the sandbox failed: {ran.stderr[-300:]}")
    return {"ok": ran.status is ExecutionStatus.OK, "stdout": ran.stdout, "stderr": ran.stderr}
