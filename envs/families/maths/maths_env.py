r"""`ludus/maths-v0`: the policy solves a problem and gives the final answer in \boxed{}.

    user       Solve for x: 3x + 4 = 19.
    assistant  3x = 15, so x = 5. \boxed{5}         reward 1

An episode is one turn. A verifier scores the answer, by default `maths`. Problems come from a
JSONL file, from a data hub, or, without a source, from a generator.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ludus.messages import Message
from ludus.rewards import Sample
from ludus.rewards.score import shared_verifier
from ludus.verdict import Verdict

from ...problem_files import ProblemFiles
from ...protocol import Info, TextEnv
from ...splits import ProblemSet, check_shares
from ...tasks import TaskSet
from .generated import GeneratedMathsProblems
from .problems import Gold, MathsProblem, MathsRows, last_boxed


class Maths(TextEnv):
    r"""An environment that asks for a final answer in \boxed{}.

    Args:
        source: a .jsonl or .jsonl.gz path (the layouts of GSM8K, MATH, AIME and others are
            recognised), or a hub's `owner/name[/config][@split]`; empty draws generated problems.
        test_source: a source like `source`, for the test split alone.
        seed: seeds the shuffle and the split.
        validation: the share of `source` for validation.
        test: the share of `source` for test, where `test_source` is empty.
        question: the field with the question; empty recognises known layouts.
        answer: the field with the answer; empty recognises known layouts.
        verifier: the name of the verifier that scores the answer.
        verifier_options: the verifier's options.
    """

    system_prompt = "Solve the problem."
    answer_format = "Think step by step. Give the final answer in \\boxed{}."
    max_turns = 1

    def __init__(
        self,
        source: str = "",
        *,
        test_source: str = "",
        seed: int = 0,
        validation: float = 0.05,
        test: float = 0.1,
        question: str = "",
        answer: str = "",
        verifier: str = "maths",
        verifier_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_shares(validation, test)
        self.problems: ProblemSet[MathsProblem] | GeneratedMathsProblems = (
            ProblemFiles(
                source=source, test_source=test_source, seed=seed, validation=validation, test=test
            ).load(MathsRows(question=question, answer=answer))
            if source
            else GeneratedMathsProblems()
        )
        self.verifier = shared_verifier(verifier, **(verifier_options or {}))
        self.problem = MathsProblem(id="", question="", gold="")

    def tasks(self, split: str) -> TaskSet:
        """Return the problems of a split, shuffled; generated problems never run out."""
        return self.problems.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the problem of the task."""
        self.problem = self.problems.problem(self.task)
        return self.problem.question, {}

    async def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Score the final answer; the episode ends."""
        response = action if isinstance(action, str) else action.text
        sample = Sample(response=response, gold=self.problem.gold, prompt=self.problem.question)
        scoring = self.verifier.score(sample)
        return "", await scoring if inspect.isawaitable(scoring) else scoring, True, False, {}

    def gold(self) -> Gold:
        """Return the final answer, or several that are all right."""
        return self.problem.gold

    def demonstrate(self) -> str:
        """Answer with the final answer, after the worked solution where the data has that."""
        gold = self.problem.gold
        answer = gold if isinstance(gold, str) else gold[0]
        solution = self.problem.solution
        if last_boxed(solution) == answer:
            return solution
        return f"{solution}\n\\boxed{{{answer}}}".strip()
