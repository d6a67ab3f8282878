"""`ludus/calls-v0`: say which function to call, with which arguments.

    user       Set the light in the hall to 40 per cent, in amber. Also: Track KX204418.
    assistant  set_light(room="hall", brightness=40, colour="amber")
               track_parcel(number="KX204418")              reward 1

One turn; nothing is executed. The calls are compared with those asked for, by name and argument by
argument, in any order, by the rules of the Berkeley Function Calling Leaderboard, whose files load
as they are. With no file, requests are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ..protocol import Briefing, Info, TextEnv
from ..splits import ProblemSet
from ..tasks import TaskSet
from .generated import GeneratedProblems
from .matching import example_of, fault_of_calls
from .rows import Problem, load_problems

NO_CALL = "None of these functions can do that."


class Calls(TextEnv):
    """Call the right functions with the right arguments; problems from BFCL files or drawn.

    Args:
        source: a .jsonl file of problems, or several; empty draws them.
        answers: the file of their answers; empty looks in `possible_answer/` beside the problems.
        seed: of shuffle and split of a file.
        validation: its share for validation.
        test: its share for test.
        min_calls: fewest calls a drawn request asks for.
        max_calls: most.
        functions: on offer in a drawn problem.
        irrelevant: the share of drawn requests for which no function on offer will do; then the
            right answer is text without a call, and any such text earns the reward.

    Raises:
        ConfigError: a file cannot be used, or a setting cannot be.
    """

    system_prompt = (
        "Call the functions that do what is asked for, each with the arguments the request gives. "
        "If none can, say so."
    )
    max_turns = 1

    def __init__(
        self,
        source: str | Sequence[str] = "",
        *,
        answers: str = "",
        seed: int = 0,
        validation: float = 0.05,
        test: float = 0.1,
        min_calls: int = 1,
        max_calls: int = 3,
        functions: int = 5,
        irrelevant: float = 0.0,
    ) -> None:
        sources = [source] if isinstance(source, str) else list(source)
        self.problems: ProblemSet[Problem] | GeneratedProblems = (
            ProblemSet(load_problems(sources, answers), seed=seed, validation=validation, test=test)
            if any(sources)
            else GeneratedProblems((min_calls, max_calls), functions, irrelevant)
        )
        self.problem = Problem(id="", messages=[], functions=[], expected=[])

    def tasks(self, split: str) -> TaskSet:
        """The problems of a split; drawn ones are without end."""
        return self.problems.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], Info]:
        """Show the request; the functions are the tools of this episode."""
        self.problem = self.problems.problem(self.task)
        briefing = Briefing(
            system_prompt=self.system_prompt, tools=self.problem.functions, max_turns=1
        )
        return list(self.problem.messages), {"briefing": briefing}

    def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Compare the calls with those asked for; the episode ends."""
        calls = [] if isinstance(action, str) else action.tool_calls
        said = action if isinstance(action, str) else action.text
        return "", self._verdict(calls, said), True, False, {}

    def _verdict(self, calls: Sequence[ToolCall], said: str) -> Verdict:
        schemas = {one.name: one.parameters for one in self.problem.functions}
        fault = fault_of_calls(calls, self.problem.expected, schemas)
        if not fault and not calls and not said.strip():
            fault = "nothing is said"
        return Verdict.of(float(not fault), fault, metrics={"calls": float(len(calls))})

    def gold(self) -> object | None:
        """The calls asked for, as `name(arguments)`."""
        return [str((one.name, one.arguments)) for one in self.problem.expected] or None

    def demonstrate(self) -> str | Message:
        """The calls, without what may be left out."""
        required = {one.name: one.parameters.get("required", []) for one in self.problem.functions}
        calls = [
            ToolCall(
                name=one.name,
                arguments=example_of(one, required.get(one.name, [])),
                id=f"call_{index}",
            )
            for index, one in enumerate(self.problem.expected)
        ]
        return assistant("", calls) if calls else NO_CALL
