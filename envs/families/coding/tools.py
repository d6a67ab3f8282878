r"""`ludus/coding-tools-v0`: the policy writes a program and may run it; hidden tests decide.

    user       Write a Python function `solve(items: list[int]) -> int` that ...
    assistant  run(code="def solve(items): ...\nsolve([1, 2])")
    tool       Traceback ... NameError: name 'item' is not defined
    assistant  run(code=...)
    tool       3
    assistant  submit(code=...)                       reward 1

Code runs in a sandbox session that keeps its names from call to call; hidden tests grade the
submission in a separate sandbox. An answer without a call is submitted as it is.

A `Workbench` holds the session, for other environments too. It is opened when it is first needed,
and lives on the process-wide background loop, whatever loop the environment runs on.

*Who is at fault*: if the code that ran ended the session, the policy is told, and the next call
begins a new session. If the sandbox is unavailable or breaks, the episode is unusable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from ludus.background import on_background
from ludus.errors import (
    ConfigError,
    RemoteError,
    RewardUnavailable,
    SessionGone,
    SessionLost,
    ToolError,
)
from ludus.messages import Message, ToolCall, assistant
from ludus.sandboxes import Execution, ExecutionStatus, Limits, Session, SlotSandbox
from ludus.sandboxes.api import default_sandbox
from ludus.sandboxes.local.slots import SlotLost
from ludus.sandboxes.protocol import MIB, Sandbox
from ludus.sandboxes.remote import RemoteSandbox
from ludus.sandboxes.serving.remote_repl import RemoteRepl
from ludus.verdict import Verdict

from ...protocol import Info
from ...tools import ToolResult, tool
from .coding_env import Coding, text_of

T = TypeVar("T")
AnySession = Session | RemoteRepl

OPEN_TIMEOUT_S = 60.0
"""Seconds that an episode waits for a free session before the episode is given up."""
OPENINGS = 4
"""How many sessions are opened where each is lost before any code of the policy has run there: a
slot may die unnoticed while nobody uses it.
"""
FILE_TIMEOUT_S = 30.0
"""Seconds that reading or writing a file may take. Code that ran in a session can keep it from
answering, so a late answer is charged to the policy; an honest session answers in milliseconds.
"""
TOOL_TIMEOUT_S = 180.0
"""A limit above the time to open a session plus the longest run. The limits that matter are inside
the tool, where it is known whose fault a delay is.
"""
MAX_RUN_S = 60.0
"""The longest `run_timeout_s` an environment may offer."""

_LIMITS = Limits(timeout_s=6 * 3600, cpu_s=600, memory_bytes=512 * MIB, output_bytes=MIB)
_IDLE_TTL_S = 3600.0


class Workbench:
    """Holds at most a single open sandbox session.

    Args:
        files: written into each new session; path -> content.
        prepare: code that is run in each new session.
    """

    def __init__(self, files: Mapping[str, str] | None = None, *, prepare: str = "") -> None:
        self._files = dict(files or {})
        self._prepare = prepare
        self._session: AnySession | None = None

    async def run(self, code: str, *, timeout_s: float) -> Execution:
        """Run a cell of Python.

        Raises:
            ToolError: the code that ran ended the session; the text tells the policy.
            RewardUnavailable: there is no sandbox, or it broke.
        """
        patience = timeout_s + FILE_TIMEOUT_S
        return await on_background(
            self._within(lambda session: session.run(code, timeout_s=timeout_s), patience)
        )

    async def write(self, path: str, content: str) -> None:
        """Write a file.

        Raises:
            ToolError: the path is not allowed or taken, or the session ended.
            RewardUnavailable: there is no sandbox, or it broke.
        """
        files = {path: content.encode("utf-8", "replace")}
        await on_background(self._within(lambda session: session.write(files), FILE_TIMEOUT_S))

    async def read(self, path: str) -> str:
        """Read a file, as UTF-8 with undecodable bytes replaced.

        Raises:
            ToolError: there is no such file, or the session ended.
            RewardUnavailable: there is no sandbox, or it broke.
        """
        data = await on_background(self._within(lambda session: session.read(path), FILE_TIMEOUT_S))
        return data.decode("utf-8", "replace")

    async def close(self) -> None:
        """End the session. The workbench may be used again and then opens a new session."""
        if self._session is not None:
            await on_background(self._drop())

    async def _within(self, work: Callable[[AnySession], Awaitable[T]], timeout_s: float) -> T:
        session = self._session or await self._open()
        try:
            async with asyncio.timeout(timeout_s):
                return await work(session)
        except RemoteError as error:
            await self._drop()
            if isinstance(error, SessionGone) and not isinstance(error, SessionLost):
                raise ToolError(f"{error}; the next call begins a new one") from error
            raise _unusable(f"the sandbox failed: {error}") from error
        except TimeoutError as error:
            await self._drop()
            raise ToolError("the session did not answer and was ended") from error
        # a late answer would be taken for the answer to the next request
        except asyncio.CancelledError:
            await self._drop()
            raise
        except (ConfigError, OSError) as error:
            raise ToolError(str(error)) from error

    async def _open(self) -> AnySession:
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                left = OPENINGS
                while True:
                    left -= 1
                    session = self._session = await _open_session(await default_sandbox())
                    try:
                        if self._files:
                            await session.write(self._files)
                        if self._prepare:
                            await session.run(self._prepare)
                        return session
                    except SessionGone as error:
                        await self._drop()
                        if not left or not isinstance(error, SessionLost):
                            raise
        except (ConfigError, SlotLost, RemoteError, OSError) as error:  # OSError: TimeoutError too
            await self._drop()
            reason = str(error) or f"no free session within {OPEN_TIMEOUT_S:g} s"
            raise _unusable(f"no sandbox session: {reason}") from error
        except asyncio.CancelledError:  # the session is only half prepared
            await self._drop()
            raise

    async def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _open_session(sandbox: Sandbox) -> AnySession:
    """Open a session in the sandbox. Raises ConfigError: the tier has no sessions."""
    if isinstance(sandbox, SlotSandbox):
        return await Session.open(sandbox, limits=_LIMITS, idle_ttl_s=_IDLE_TTL_S)
    if isinstance(sandbox, RemoteSandbox):
        return await sandbox.open_repl(cpu_s=_LIMITS.cpu_s)
    raise ConfigError(f"the tier {sandbox.tier!r} has no sessions")


def _unusable(reason: str) -> RewardUnavailable:
    return RewardUnavailable(Verdict.unavailable(reason))


def shown(execution: Execution, *, timeout_s: float, max_letters: int) -> str:
    """Return what a policy is shown of a run: the output, and how the run ended if not normally."""
    parts = [execution.stdout, execution.stderr]
    text = "".join(f"{part.rstrip()}\n" for part in parts if part.strip())
    cut_text = shortened(text, max_letters)
    ending = _ENDINGS.get(execution.status, "").format(timeout_s=timeout_s)
    return (cut_text + ending).rstrip() or "(no output)"


_ENDINGS = {
    ExecutionStatus.TIMEOUT: "[stopped after {timeout_s:g} s]",
    ExecutionStatus.OUTPUT_LIMIT: "[stopped: too much output]",
    ExecutionStatus.OOM: "[stopped: out of memory]",
}


def shortened(text: str, max_letters: int) -> str:
    r"""Shorten a text to about `max_letters` characters: the beginning and the end are kept.

    >>> shortened("abcdefgh", 4)
    'ab\n[... 4 letters left out ...]\ngh'
    """
    if len(text) <= max_letters:
        return text
    half = max_letters // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} letters left out ...]\n{text[-half:]}"


class ProblemSettings(TypedDict, total=False):
    """The arguments of `Coding` besides the source."""

    test_source: str
    seed: int
    validation: float
    test: float
    partial: bool
    timeout_s: float
    shown_tests: int
    compare: str
    min_steps: int
    max_steps: int
    forms: str


class CodingTools(Coding):
    """An environment to write a program with an interpreter; hidden tests grade the submission.

    Args:
        source: the source of the problems, as in `ludus/coding-v0`; so is `problems`.
        turns: the most turns; an episode without a submission by then earns nothing.
        submissions: how many submissions are allowed. After a wrong one that is not the last, the
            policy is told how many tests passed.
        run_timeout_s: the time limit of a single run, in seconds.
        max_letters: how many characters of a run's output are shown, about.
    """

    system_prompt = (
        "Solve the programming problem in Python (its standard library and numpy are installed). "
        "Try your code with `run`, then hand the whole program in with `submit`; hidden tests "
        "decide."
    )
    answer_format = ""
    deterministic = False  # programs may read the clock, and hash seeds differ

    def __init__(
        self,
        source: str = "",
        *,
        turns: int = 8,
        submissions: int = 1,
        run_timeout_s: float = 10.0,
        max_letters: int = 4000,
        **problems: Unpack[ProblemSettings],
    ) -> None:
        super().__init__(source, **problems)
        if turns < 1 or submissions < 1 or max_letters < 100:
            raise ConfigError(
                "need turns >= 1, submissions >= 1 and max_letters >= 100, got "
                f"{turns}, {submissions}, {max_letters}"
            )
        if not 0 < run_timeout_s <= MAX_RUN_S:
            raise ConfigError(
                f"run_timeout_s must be above 0, at most {MAX_RUN_S:g}, got {run_timeout_s}"
            )
        self.turns = turns
        self.submissions = submissions
        self.run_timeout_s = run_timeout_s
        self.max_letters = max_letters
        self.bench = Workbench()
        self.submitted = 0
        self.has_run = False

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the problem; the first run opens the sandbox session."""
        await self.bench.close()
        self.submitted, self.has_run = 0, False
        shown_problem, info = await super().reset(seed=seed, options=options)
        briefing = msgspec.structs.replace(self.briefing(), max_turns=self.turns)
        return shown_problem, {**info, "briefing": briefing}

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def run(self, code: str, stdin: str = "") -> str:
        """Run Python code and see what it prints. Names stay defined from one call to the next;
        the value of a last expression is shown.

        Args:
            code: Python source
            stdin: what the code reads from standard input
        """
        self.has_run = True
        if stdin:
            # A cell that makes `text` the standard input of the next cell and defines no name.
            data = stdin.encode("utf-8", "replace")
            stream = f"__import__('io').TextIOWrapper(__import__('io').BytesIO({data!r}), 'utf-8')"
            await self.bench.run(
                f"__import__('sys').stdin = {stream}\n", timeout_s=self.run_timeout_s
            )
        execution = await self.bench.run(code, timeout_s=self.run_timeout_s)
        return shown(execution, timeout_s=self.run_timeout_s, max_letters=self.max_letters)

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def submit(self, code: str) -> ToolResult:
        """Hand in the whole program to be graded by hidden tests.

        Args:
            code: Python source
        """
        verdict = await self._submitted(code)
        return ToolResult(
            content=self._feedback(verdict),
            reward=verdict.unwrap() if self._over(verdict) else 0.0,
            terminated=self._over(verdict),
        )

    async def step(self, action: str | Message) -> tuple[str, Verdict | float, bool, bool, Info]:
        """Treat an answer without a call as a submission."""
        verdict = await self._submitted(text_of(action))
        has_ended = self._over(verdict)
        return self._feedback(verdict), verdict if has_ended else 0.0, has_ended, False, {}

    async def _submitted(self, response: str) -> Verdict:
        verdict = await self.graded(response)
        if not verdict.ok:
            raise RewardUnavailable(verdict)
        self.submitted += 1
        if self._over(verdict):
            await self.bench.close()  # other episodes may be waiting for a session
        return verdict

    def _over(self, verdict: Verdict) -> bool:
        return verdict.reward == 1.0 or self.submitted >= self.submissions

    def _feedback(self, verdict: Verdict) -> str:
        """Say how many tests passed, never which: the details would show what the tests expect."""
        if self._over(verdict):
            return "Graded."
        passed = verdict.metrics.get("tests_passed", 0.0)
        total = verdict.metrics.get("tests_total", 0.0)
        progress = f"{passed:g} of {total:g} tests passed before one failed"
        if not total:
            progress = "There is no code in it"
        elif self.partial:
            progress = f"{passed:g} of {total:g} tests passed"
        return f"{progress}; submissions left: {self.submissions - self.submitted}."

    async def close(self) -> None:
        """Close the sandbox session, if open."""
        await self.bench.close()

    def demonstrate(self) -> str | Message | None:
        """Run a right program, then submit the same program."""
        code = self.problem.solution
        if not code:
            return None
        if self.has_run:
            return assistant("", [ToolCall(name="submit", arguments={"code": code})])
        return assistant("", [ToolCall(name="run", arguments=_trial(code, self.problem.gold))])


def _trial(code: str, gold: dict[str, Any]) -> dict[str, str]:
    """Return the arguments of a run that tries a program on the first, public test, or of one that
    only defines it where that test has no short form.
    """
    first = gold["tests"][0]
    if isinstance(first, dict):
        stdin = first.get("input")
        return {"code": code, "stdin": stdin} if isinstance(stdin, str) else {"code": code}
    shows = isinstance(first, str) and first.startswith("assert ") and "\n" not in first
    return {"code": f"{code}\n{first.removeprefix('assert ')}\n" if shows else code}
