r"""`ludus/maths-tools-v0`: final-answer mathematics with Python at hand.

    user       How many multiples of 7 are there from 100 to 400, both included?
    assistant  run(code="found = [n for n in range(100, 401) if n % 7 == 0]\nlen(found)")
    tool       43
    assistant  There are 43. \boxed{43}             reward 1

Code runs in a sandbox session that keeps its names from call to call. An answer without a call ends
the episode, and a verifier scores it, by default `maths`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ..protocol import Info
from ..tools import tool
from .coding.tools import MAX_RUN_S, TOOL_TIMEOUT_S, Workbench, shown
from .maths import Maths

IMPORTS = "import math\nfrom fractions import Fraction\n"
"""What the expression of a generated problem needs."""


class MathsSettings(TypedDict, total=False):
    """The arguments of `Maths` besides the source."""

    test_source: str
    seed: int
    validation: float
    test: float
    question: str
    answer: str
    verifier: str
    verifier_options: Mapping[str, Any] | None


class MathsTools(Maths):
    r"""An environment that asks for a final answer in \boxed{}, with Python at hand.

    Args:
        source: the source of the problems, as in `ludus/maths-v0`; so is `problems`.
        turns: the most turns; an episode without an answer by then earns nothing.
        run_timeout_s: the time limit of a run, in seconds.
        max_letters: how many characters of a run's output are shown, about.
    """

    system_prompt = (
        "Solve the problem. `run` runs Python (its standard library and numpy are installed); "
        "names stay defined from one call to the next."
    )
    deterministic = False  # programs may read the clock, and hash seeds differ

    def __init__(
        self,
        source: str = "",
        *,
        turns: int = 8,
        run_timeout_s: float = 10.0,
        max_letters: int = 4000,
        **problems: Unpack[MathsSettings],
    ) -> None:
        super().__init__(source, **problems)
        if turns < 1 or max_letters < 100:
            raise ConfigError(f"need turns >= 1, max_letters >= 100, got {turns}, {max_letters}")
        if not 0 < run_timeout_s <= MAX_RUN_S:
            raise ConfigError(
                f"run_timeout_s must be above 0, at most {MAX_RUN_S:g}, got {run_timeout_s}"
            )
        self.turns, self.run_timeout_s, self.max_letters = turns, run_timeout_s, max_letters
        self.bench = Workbench()
        self.runs = 0

    async def reset(  # type: ignore[override] # an environment's methods are plain or async
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the problem; the first run opens the sandbox session."""
        await self.bench.close()
        self.runs = 0
        question, info = super().reset(seed=seed, options=options)
        briefing = msgspec.structs.replace(self.briefing(), max_turns=self.turns)
        return question, {**info, "briefing": briefing}

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def run(self, code: str) -> str:
        """Run Python code and see what it prints. Names stay defined from one call to the next;
        the value of a last expression is shown.

        Args:
            code: Python source
        """
        self.runs += 1
        execution = await self.bench.run(code, timeout_s=self.run_timeout_s)
        return shown(execution, timeout_s=self.run_timeout_s, max_letters=self.max_letters)

    async def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Score the final answer; the episode ends."""
        await self.bench.close()  # other episodes may be waiting for a session
        observation, verdict, terminated, truncated, info = await super().step(action)
        metrics = {**verdict.metrics, "runs": float(self.runs)}
        verdict = msgspec.structs.replace(verdict, metrics=metrics)
        return observation, verdict, terminated, truncated, info

    async def close(self) -> None:
        """Close the sandbox session, if open."""
        await self.bench.close()

    def demonstrate(self) -> str | Message:
        """Work the answer out by Python where the problem has a program, in a name that the next
        call still knows; then answer.
        """
        cells = [f"{IMPORTS}answer = {self.problem.program}", "answer"]
        if self.problem.program and self.runs < len(cells):
            return assistant("", [ToolCall(name="run", arguments={"code": cells[self.runs]})])
        return super().demonstrate()
