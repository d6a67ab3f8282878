"""Runs a client's own extraction logic where any other untrusted code runs: in a slot."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec

from ludus.wire.faults import Refused

from ..protocol import MIB, ExecutionStatus, Limits, Program
from ..serving.runner import Runner
from .extraction import JOB_FILE, CodeBlock

LIMITS = Limits(timeout_s=10, cpu_s=10, memory_bytes=512 * MIB, output_bytes=4 * MIB, compile_s=10)
_reader = msgspec.json.Decoder(list[CodeBlock])


async def extract_custom(
    runner: Runner, completion: str, logic: str, *, patience_s: float
) -> list[CodeBlock]:
    """Return the code blocks that `logic` submits for `completion`.

    Raises:
        Refused: the logic failed (422), or the sandbox did (503).
        QueueFull: no slot was free in time.
    """
    job = json.dumps({"completion": completion, "logic": logic}).encode()
    program = Program(code=extraction_source(), limits=LIMITS, files={JOB_FILE: job})
    execution = await runner.run(program, patience_s=patience_s, operation="extract", bounded=False)
    if execution.status is ExecutionStatus.INFRA_ERROR:
        raise Refused(f"the sandbox failed: {execution.detail}", "sandbox_failed")
    if not execution.ok:
        problem = (execution.detail or execution.stderr[-400:]).strip()
        raise Refused(f"custom_extract_logic failed ({execution.status}): {problem}", "invalid")
    try:
        return _reader.decode(execution.stdout)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(
            f"custom_extract_logic submitted no code blocks: {error}", "invalid"
        ) from None


@cache
def extraction_source() -> str:
    """Return the source of the program that runs the logic."""
    return Path(__file__).with_name("extraction.py").read_text("utf-8")
