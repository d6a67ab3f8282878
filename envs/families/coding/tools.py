r"""`ludus/coding-tools-v0`: the policy runs code, reads the error, and submits a program.

    user       Write a Python function `solve(items: list[int]) -> int` that ...
    assistant  run(code="def solve(items): ...\nsolve([1, 2])")
    tool       Traceback ... NameError: name 'item' is not defined
    assistant  run(code=...)
    tool       3
    assistant  submit(code=...)                       reward 1

Code runs in a sandbox session that keeps its names from call to call; hidden tests grade the
submission in a separate sandbox. An answer without a call is submitted as it is.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import msgspec

from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ...protocol import Info
from ...tools import ToolResult, tool
from .coding_env import Coding, text_of
from .workbench import MAX_RUN_S, TOOL_TIMEOUT_S, Workbench, shown


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
        "Solve the programming problem in Python. Try your code with `run`, then hand the whole "
        "program in with `submit`; hidden tests decide."
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
            content=self._told(verdict),
            reward=verdict.unwrap() if self._over(verdict) else 0.0,
            terminated=self._over(verdict),
        )

    async def step(self, action: str | Message) -> tuple[str, Verdict | float, bool, bool, Info]:
        """Treat an answer without a call as a submission."""
        verdict = await self._submitted(text_of(action))
        has_ended = self._over(verdict)
        return self._told(verdict), verdict if has_ended else 0.0, has_ended, False, {}

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

    def _told(self, verdict: Verdict) -> str:
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
    """Return the arguments of a run that tries a program on the first, public test."""
    first = gold["tests"][0]
    if isinstance(first, dict):
        return {"code": code, "stdin": first["input"]}
    shows = isinstance(first, str) and first.startswith("assert ") and "\n" not in first
    return {"code": f"{code}\n{first.removeprefix('assert ')}\n" if shows else code}
