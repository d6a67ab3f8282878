"""`ludus/calls-v0`: the policy says which functions to call, with which arguments.

    user       Set the light in the hall to 40 per cent, in amber. Also: Track KX204418.
    assistant  set_light(room="hall", brightness=40, colour="amber")
               track_parcel(number="KX204418")              reward 1

An episode is one turn; nothing is executed. The calls are compared with the expected ones by name
and argument, in any order, by the rules of the Berkeley Function Calling Leaderboard, whose files
load as they are. Without a file, requests are generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ...protocol import Briefing, Info, TextEnv
from ...splits import ProblemSet
from ...tasks import TaskSet
from .generated import GeneratedCallProblems
from .matching import example_of, fault_of_calls
from .rows import CallProblem, load_problems

NO_CALL = "None of these functions can do that."


class Calls(TextEnv):
    """An environment that asks for function calls; problems come from BFCL files or are generated.

    Args:
        source: a .jsonl file of problems, or several; empty generates problems.
        answers: the file of their answers; empty looks in `possible_answer/` beside the problems.
        seed: seeds the shuffle and the split of the files.
        validation: the share of the files' problems for validation.
        test: the share of the files' problems for test.
        min_calls: the fewest calls a generated request asks for.
        max_calls: the most calls a generated request asks for.
        functions: how many functions a generated problem offers.
        irrelevant: the share of generated requests that no offered function can meet; then the
            right answer is text without a call, and any such text earns the reward.

    Raises:
        ConfigError: a file cannot be used, or a setting is out of range.
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
        self.problems: ProblemSet[CallProblem] | GeneratedCallProblems = (
            ProblemSet(load_problems(sources, answers), seed=seed, validation=validation, test=test)
            if any(sources)
            else GeneratedCallProblems((min_calls, max_calls), functions, irrelevant)
        )
        # An empty problem until the first reset.
        self.problem = CallProblem(id="", messages=[], functions=[], expected=[])

    def tasks(self, split: str) -> TaskSet:
        """Return the problems of a split; generated problems never run out."""
        return self.problems.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], Info]:
        """Show the request; its functions are the tools of this episode."""
        self.problem = self.problems.problem(self.task)
        briefing = Briefing(
            system_prompt=self.system_prompt, tools=self.problem.functions, max_turns=1
        )
        return list(self.problem.messages), {"briefing": briefing}

    def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Compare the calls with the expected calls; the episode ends."""
        calls = [] if isinstance(action, str) else action.tool_calls
        text = action if isinstance(action, str) else action.text
        schemas = {function.name: function.parameters for function in self.problem.functions}
        fault = fault_of_calls(calls, self.problem.expected, schemas)
        if not fault and not calls and not text.strip():
            fault = "nothing is said"
        verdict = Verdict.of(float(not fault), fault, metrics={"calls": float(len(calls))})
        return "", verdict, True, False, {}

    def gold(self) -> object | None:
        """Return each expected call as text, `(name, arguments)`; None where no call is right."""
        return [str((call.name, call.arguments)) for call in self.problem.expected] or None

    def demonstrate(self) -> str | Message:
        """Make the expected calls, without optional arguments."""
        required = {
            function.name: function.parameters.get("required", [])
            for function in self.problem.functions
        }
        calls = [
            ToolCall(
                name=call.name,
                arguments=example_of(call, required.get(call.name, [])),
                id=f"call_{index}",
            )
            for index, call in enumerate(self.problem.expected)
        ]
        return assistant("", calls) if calls else NO_CALL
