"""`execute` and `grade` without setting anything up: one sandbox for the whole process, on a loop
of its own.

The strongest tier that holds is probed and chosen on the first call; `LUDUS_SANDBOX` names another
one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from ludus.errors import ConfigError
from ludus.verdict import Verdict

from . import grading
from .grading import DEFAULT_OPTIONS, GradeOptions
from .protocol import MIB, Execution, Limits, Sandbox
from .slot_sandbox import SlotSandbox
from .tiers import open_sandbox

ENVIRONMENT_VARIABLE = "LUDUS_SANDBOX"

_Result = TypeVar("_Result")


class _Background:
    """An event loop in a daemon thread, and the sandbox that lives on it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="ludus-sandbox", daemon=True
        )
        self._thread.start()
        self._sandbox: Sandbox | None = None
        self._opening = asyncio.Lock()

    async def sandbox(self) -> Sandbox:
        async with self._opening:
            if self._sandbox is None:
                self._sandbox = await open_sandbox(os.environ.get(ENVIRONMENT_VARIABLE) or None)
            return self._sandbox

    def close(self) -> None:
        if self._sandbox and os.getpid() == self.pid:
            asyncio.run_coroutine_threadsafe(self._sandbox.close(), self.loop).result(30)
        self._sandbox = None


_background: _Background | None = None
_guard = threading.Lock()


def _shared() -> _Background:
    global _background
    with _guard:
        if _background is None or _background.pid != os.getpid():  # a forked process needs its own
            _background = _Background()
        return _background


@atexit.register
def close_default() -> None:
    """End the process-wide sandbox; the next call opens a new one."""
    if _background:
        _background.close()


def _wait(work: Coroutine[Any, Any, _Result]) -> _Result:
    return asyncio.run_coroutine_threadsafe(work, _shared().loop).result()


async def _join(work: Coroutine[Any, Any, _Result]) -> _Result:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _shared().loop))


def execute(
    code: str,
    language: str = "python",
    *,
    timeout_s: float = 10.0,
    cpu_s: float | None = None,
    memory_bytes: int = 512 * MIB,
    output_bytes: int = MIB,
    stdin: str | bytes = "",
    files: Mapping[str, bytes | str] | None = None,
    fetch_files: Sequence[str] = (),
    network: bool = False,
) -> Execution:
    """Run untrusted `code` and return what it did.

    Args:
        timeout_s: wall limit. cpu_s: CPU limit of all its processes; the wall limit if left out.
        memory_bytes: of all its processes and files together. output_bytes: of each output stream.
        files: written to its work directory first. fetch_files: read back afterwards.

    Raises:
        ConfigError: a path, the limits or the language cannot be tried; `network=True` is not
            offered by this tier.
    """
    limits = _limits(timeout_s, cpu_s, memory_bytes, output_bytes, network)
    return _wait(_execute(code, language, limits, stdin, files, fetch_files))


async def execute_async(
    code: str,
    language: str = "python",
    *,
    timeout_s: float = 10.0,
    cpu_s: float | None = None,
    memory_bytes: int = 512 * MIB,
    output_bytes: int = MIB,
    stdin: str | bytes = "",
    files: Mapping[str, bytes | str] | None = None,
    fetch_files: Sequence[str] = (),
    network: bool = False,
) -> Execution:
    """`execute` for callers on an event loop."""
    limits = _limits(timeout_s, cpu_s, memory_bytes, output_bytes, network)
    return await _join(_execute(code, language, limits, stdin, files, fetch_files))


def grade(
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    partial: bool = False,
    stop_early: bool | None = None,
    timeout_s: float = 10.0,
    memory_bytes: int = 512 * MIB,
    entry_point: str = "",
    prelude: str = "",
    compare: str = "exact",
    language: str = "python",
) -> Verdict:
    """Grade `solution` by `tests` it never sees; see `GradeOptions` and `grade_in_detail` for what
    each means.
    """
    options = GradeOptions(
        partial=partial,
        stop_early=stop_early,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        entry_point=entry_point,
        prelude=prelude,
        compare=compare,
        language=language,
    )
    return _wait(_grade(solution, tests, kind, options))


async def grade_async(
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Verdict:
    """`grade` for callers on an event loop."""
    return await _join(_grade(solution, tests, kind, options))


async def _execute(
    code: str,
    language: str,
    limits: Limits,
    stdin: str | bytes,
    files: Mapping[str, bytes | str] | None,
    fetch_files: Sequence[str],
) -> Execution:
    sandbox = await _shared().sandbox()
    return await sandbox.execute(
        code, language, limits=limits, stdin=stdin, files=files, fetch_files=fetch_files
    )


async def _grade(
    solution: str, tests: Sequence[object], kind: str, options: GradeOptions
) -> Verdict:
    sandbox = await _shared().sandbox()
    if not isinstance(sandbox, SlotSandbox):
        raise ConfigError(f"grading needs slots; the sandbox here is {sandbox.tier!r}")
    return await grading.grade(sandbox, solution, tests, kind=kind, options=options)


def _limits(
    timeout_s: float, cpu_s: float | None, memory_bytes: int, output_bytes: int, network: bool
) -> Limits:
    if network:
        raise ConfigError("network=True: no tier that runs here offers a network")
    return Limits(
        timeout_s=timeout_s,
        cpu_s=cpu_s or timeout_s,
        memory_bytes=memory_bytes,
        output_bytes=output_bytes,
    )
