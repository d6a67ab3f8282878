"""The functions `execute` and `grade`, which need no setup: all calls share a process-wide sandbox.

The sandbox lives on an event loop in the background. The strongest tier that holds is probed and
chosen on the first call. The operator chooses otherwise by the environment: `LUDUS_SANDBOX` names
another tier, a server or a sandbox of their own (`module:attribute`), `LUDUS_SANDBOX_IMAGE` and
`LUDUS_SANDBOX_RUNTIME` the image and the runtime of the tier `docker`, `LUDUS_SANDBOX_NETWORK` the
hosts that runs with `network=True` may reach ("example.org,*.example.net", or "*" for the public
web).
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Sequence
from typing import Unpack

from ludus.background import on_background, run_on_loop
from ludus.verdict import Verdict

from .grading.hidden_tests import DEFAULT_OPTIONS, GradeOptions, grade_in_detail
from .grading.options import GradingOptions
from .open import open_with
from .protocol import Execution, Program, RunOptions, Sandbox, program_of
from .settings import TIER_VARIABLE, SandboxSettings


class _Default:
    """The process-wide sandbox, which is used on the background loop only."""

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._opening = asyncio.Lock()

    @property
    def in_use(self) -> bool:
        """Whether the sandbox is open."""
        return self._sandbox is not None

    async def sandbox(self) -> Sandbox:
        """Return the sandbox, which is opened on the first call."""
        async with self._opening:
            if self._sandbox is None:
                tier = os.environ.get(TIER_VARIABLE) or None
                self._sandbox = await open_with(tier, SandboxSettings.from_environment())
            return self._sandbox

    async def close(self) -> None:
        """Close the sandbox; the next call of `sandbox` opens another."""
        async with self._opening:
            sandbox, self._sandbox = self._sandbox, None  # one that cannot be closed goes too
            if sandbox is not None:
                await sandbox.close()


_default = _Default()
_of_parents: list[_Default] = []
"""Those of the processes that this one was forked from, which are left alone."""


def _begin_anew() -> None:
    global _default
    _of_parents.append(_default)
    _default = _Default()


os.register_at_fork(after_in_child=_begin_anew)


def close_default() -> None:
    """Close the process-wide sandbox; the next call of `execute` or `grade` opens another.

    This is called when the interpreter exits.
    """
    if _default.in_use:
        run_on_loop(_default.close(), timeout_s=30)


atexit.register(close_default)


async def default_sandbox() -> Sandbox:
    """Return the process-wide sandbox, for use on the background loop only."""
    return await _default.sandbox()


def execute(code: str, language: str = "python", **options: Unpack[RunOptions]) -> Execution:
    """Run untrusted `code` and return the status, output and usage.

    Args:
        code: the source text.
        language: one of `LANGUAGES`.
        options: limits, and what the program is given; see `program_of`.

    Raises:
        ConfigError: a path, the limits or the language cannot be tried.
        NetworkNotAllowed: `network=True`, and `LUDUS_SANDBOX_NETWORK` does not name what may be
            reached.
    """
    return run_on_loop(_run(program_of(code, language, **options)))


async def execute_async(
    code: str, language: str = "python", **options: Unpack[RunOptions]
) -> Execution:
    """Run untrusted `code` as `execute` does, without blocking the caller's event loop."""
    return await on_background(_run(program_of(code, language, **options)))


def grade(
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    **options: Unpack[GradingOptions],
) -> Verdict:
    """Grade `solution` by hidden `tests`, and return the verdict.

    See `GradeOptions` for the meaning of the options, and `grade_in_detail` for the kinds of tests
    and the errors.
    """
    return run_on_loop(_grade(solution, tests, kind, GradeOptions(**options)))


async def grade_async(
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Verdict:
    """Grade `solution` as `grade` does, without blocking the caller's event loop."""
    return await on_background(_grade(solution, tests, kind, options))


async def _run(program: Program) -> Execution:
    return await (await _default.sandbox()).run(program)


async def _grade(
    solution: str, tests: Sequence[object], kind: str, options: GradeOptions
) -> Verdict:
    sandbox = await _default.sandbox()
    return (await grade_in_detail(sandbox, solution, tests, kind=kind, options=options)).verdict
