"""`ludus/coding-v0`: the policy writes a program, and hidden tests decide.

    user       Write a Python function `solve(items: list[int]) -> int` that ...
    assistant  ```python
               def solve(items): ...
               ```                                   reward 1

An episode is one turn. The verifier `coding` grades the answer in a sandbox. Problems come from a
JSONL file, from a data hub, or, without a source, from a generator.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from ludus.messages import Message
from ludus.rewards import Sample
from ludus.rewards.score import shared_verifier
from ludus.verdict import Verdict

from ...problem_files import ProblemFiles, ProblemSet
from ...protocol import Info, TextEnv
from ...tasks import TaskSet
from .generated import GeneratedCodingProblems
from .problems import CodingProblem, CodingRows


class Coding(TextEnv):
    """An environment that asks for a program; problems come from a file, a hub or a generator.

    Args:
        source: a .jsonl or .jsonl.gz path (the layouts of HumanEval, MBPP, LiveCodeBench, APPS and
            CommonOJ are recognised), or a hub's `owner/name[/config][@split]`; empty draws
            generated problems.
        test_source: a source like `source`, for the test split alone.
        seed: seeds the shuffle and the split.
        validation: the share of `source` for validation.
        test: the share of `source` for test, where `test_source` is empty.
        partial: reward the fraction of passed tests instead of all or nothing.
        timeout_s: the time limit in seconds for the tests of a function; for each input of a
            program.
        shown_tests: how many of its tests an MBPP question shows.
        compare: how outputs of programs are compared: `exact` lines, `tokens`, or `float:1e-6`.
        min_steps: the fewest steps of a generated problem.
        max_steps: the most steps of a generated problem.
        forms: what generated problems ask for: `function`, `program`, or both.
    """

    system_prompt = (
        "Solve the programming problem in Python. The standard library and numpy are installed."
    )
    answer_format = "Give the whole program in one ```python block."
    max_turns = 1

    def __init__(
        self,
        source: str = "",
        *,
        test_source: str = "",
        seed: int = 0,
        validation: float = 0.05,
        test: float = 0.1,
        partial: bool = False,
        timeout_s: float = 10.0,
        shown_tests: int = 1,
        compare: str = "",
        min_steps: int = 1,
        max_steps: int = 3,
        forms: str = "function,program",
    ) -> None:
        files = ProblemFiles(
            source=source, test_source=test_source, seed=seed, validation=validation, test=test
        )
        self.problems: ProblemSet[CodingProblem] | GeneratedCodingProblems = (
            files.load(CodingRows(shown_tests=shown_tests, compare=compare))
            if source
            else GeneratedCodingProblems(min_steps=min_steps, max_steps=max_steps, forms=forms)
        )
        self.partial = partial
        self.verifier = shared_verifier("coding", partial=partial, timeout_s=timeout_s)
        self.problem = CodingProblem(id="", question="", gold={})

    def tasks(self, split: str) -> TaskSet:
        """Return the problems of a split, shuffled; generated problems never run out."""
        return self.problems.tasks(split)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the problem of the task."""
        self.problem = self.problems.problem(self.task)
        return self.problem.question, {}

    async def step(self, action: str | Message) -> tuple[str, Verdict | float, bool, bool, Info]:
        """Grade the program; the episode ends."""
        return "", await self.graded(text_of(action)), True, False, {}

    async def graded(self, response: str) -> Verdict:
        """Return the hidden tests' verdict on a response."""
        sample = Sample(response=response, gold=self.problem.gold, prompt=self.problem.question)
        scoring = self.verifier.score(sample)
        return without_times(await scoring if inspect.isawaitable(scoring) else scoring)

    def gold(self) -> dict[str, Any]:
        """Return the hidden tests, in the form the verifier `coding` reads."""
        return self.problem.gold

    def demonstrate(self) -> str | Message | None:
        """Answer with a right program, where the data has a solution."""
        return fenced(self.problem.solution) if self.problem.solution else None


def fenced(source: str) -> str:
    """Wrap a program in a ```python block, as a response."""
    return f"```python\n{source.rstrip()}\n```"


def without_times(verdict: Verdict) -> Verdict:
    """Return the verdict without the metric `seconds`, which would differ in a replay."""
    metrics = {name: value for name, value in verdict.metrics.items() if name != "seconds"}
    return msgspec.structs.replace(verdict, metrics=metrics)


def text_of(action: str | Message) -> str:
    """Return the text of an action."""
    return action if isinstance(action, str) else action.text
