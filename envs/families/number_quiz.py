"""The number quiz: short questions about whole numbers, for released models of little skill.

Each function draws one question. `largest` is the largest number that the question may show; the
answer may be larger (the number after it, or a sum).

    user       Which number comes after 383?
    assistant  384                                   reward 1

The quiz is for small released models, which know such numbers and wrap them in sentences. The
reward therefore has steps (`worth`): a number alone is worth something even where it is wrong, and
a right number in a short sentence is worth half. Only the right number alone is worth 1, so the
steps lead there and none of them is a place to stay. Where several numbers are said, none is taken
for the answer: the last word of "69 is the next number after 70" earns nothing.

No question is in two splits: a digest of the question's text decides its split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ludus.errors import ConfigError
from ludus.verdict import Verdict

from ..protocol import TextEnv
from ..tasks import GeneratedTasks, Task, TaskSet
from .arithmetic import split_of

LEAST = 10
"""The smallest number that a question shows; addends alone may be smaller, down to 1."""
SPAN = 20
"""The distance between the two ends of the range in a `between` question."""
LARGEST_ADDEND = 30
"""The largest number to be added, however large the numbers of the other questions may be."""


@dataclass(frozen=True, slots=True)
class NumberQuestion:
    """A question and all right answers."""

    kind: str
    """The name of the question's kind, a key of `KINDS`."""
    text: str
    """The question as the policy reads it."""
    answers: Collection[int]
    """All right answers; only questions of the kind `between` have several."""
    equation: str = ""
    """The left side of the equation that the answer completes, without spaces: `7+8=`. Empty for
    questions that are not sums.
    """


def after(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the number after a given number."""
    number = rng.randint(LEAST, largest)
    return NumberQuestion("after", f"Which number comes after {number}?", (number + 1,))


def before(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the number before a given number."""
    number = rng.randint(LEAST, largest)
    return NumberQuestion("before", f"Which number comes before {number}?", (number - 1,))


def between(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for any number inside a range; the two ends are not right answers."""
    first = rng.randint(LEAST, largest - SPAN)
    text = f"Name a number between {first} and {first + SPAN}."
    return NumberQuestion("between", text, range(first + 1, first + SPAN))


def larger(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the larger of two numbers."""
    first, second = rng.sample(range(LEAST, largest + 1), 2)
    return NumberQuestion(
        "larger", f"Which number is larger, {first} or {second}?", (max(first, second),)
    )


def total(rng: random.Random, largest: int) -> NumberQuestion:
    """Ask for the sum of two numbers from 1 to `LARGEST_ADDEND`."""
    first, second = (rng.randint(1, LARGEST_ADDEND) for _ in range(2))
    return NumberQuestion(
        "sum", f"What is {first} + {second}?", (first + second,), f"{first}+{second}="
    )


KINDS: dict[str, Callable[[random.Random, int], NumberQuestion]] = {
    "after": after,
    "before": before,
    "between": between,
    "larger": larger,
    "sum": total,
}
"""The functions by the name of their kind. Each takes a random number generator and `largest`."""


ALONE, WRONG_ALONE = 1.0, 0.1
"""Rewards of a number that is said alone, if it is right and if it is wrong."""
IN_A_SENTENCE, WRONG_IN_A_SENTENCE = 0.5, 0.05
"""Rewards of a number in a short sentence without another number, if right and if wrong."""
MAX_WORDS = 8
"""The most words of a short sentence."""
MAX_DIGITS = 6
"""The most digits of a number; a longer one is not an answer."""
MAX_NUMBER = 99_999
MAX_DRAWS = 10_000
"""How many questions are drawn before giving up on the split; one in ten fits the smaller ones."""

_NUMBER = re.compile(rf"[0-9]{{1,{MAX_DIGITS}}}|[0-9]{{1,3}},[0-9]{{3}}", re.ASCII)
_AROUND = "\"'()*.,:;!?"


class NumberQuizTasks(GeneratedTasks):
    """A task set with a question per seed; the difficulty is the length of the longest answer."""

    def __init__(self, split: str, question_of: Callable[[Task], NumberQuestion]) -> None:
        super().__init__(split)
        self._question_of = question_of

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty and the text of the question."""
        task = super().at(index)
        question = self._question_of(task)
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=float(len(str(max(question.answers)))),
            problem=question.text,
        )


class NumberQuiz(TextEnv):
    """An environment with questions about whole numbers; the answer is a number and nothing else.

    Args:
        kinds: which questions are asked, separated by commas: after, before, between, larger, sum.
        max_number: the largest number in a question.

    Raises:
        ConfigError: a kind is unknown, or the largest number is out of range.
    """

    never_blocks = True
    forks = "copy"
    system_prompt = "Answer with one number only, without a sentence."
    max_turns = 1

    def __init__(self, *, kinds: str = ",".join(KINDS), max_number: int = 499) -> None:
        names = kinds.split(",")
        if set(names) - set(KINDS):
            raise ConfigError(f"kinds must be some of {','.join(KINDS)}, got {kinds!r}")
        if not LEAST + 3 * SPAN <= max_number <= MAX_NUMBER:
            raise ConfigError(
                f"max_number must be from {LEAST + 3 * SPAN} to {MAX_NUMBER}, got {max_number}"
            )
        self.kinds = [KINDS[name] for name in names]
        self.max_number = max_number
        self.question = NumberQuestion("", "", (0,))

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no question is in two splits."""
        return NumberQuizTasks(split, self.question_of)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Ask the question of the task."""
        self.question = self.question_of(self.task)
        return self.question.text, {}

    def step(self, action: str) -> tuple[str, Verdict, bool, bool, dict[str, Any]]:
        """Score the answer by `worth`. The episode ends.

        The verdict's metrics are `right` (the right number alone), also for the kind of the
        question.
        """
        reward = worth(action, self.question)
        right = float(reward == ALONE)
        metrics = {"right": right, f"right_{self.question.kind}": right}
        return "", Verdict.of(reward, metrics=metrics), True, False, {}

    def gold(self) -> str | None:
        """Return the only right answer; None if several are right, or if the question shows the
        answer.
        """
        answers = self.question.answers
        is_larger = self.question.kind == "larger"
        return None if is_larger or len(answers) > 1 else str(next(iter(answers)))

    def demonstrate(self) -> str:
        """Say a right answer."""
        return str(self.rng.choice(list(self.question.answers)))

    def question_of(self, task: Task) -> NumberQuestion:
        """Return the question of a task: the first question drawn from the task's seed that belongs
        to the task's split.
        """
        rng = random.Random(f"number-quiz/{task.seed}")
        for _ in range(MAX_DRAWS):
            question = rng.choice(self.kinds)(rng, self.max_number)
            if split_of(question.text) == task.split:
                return question
        raise ConfigError(f"no question was found for split {task.split!r}; raise max_number")


def worth(answer: str, question: NumberQuestion) -> float:
    """Return the reward of an answer.

    A number alone, perhaps with a full stop or a comma behind the thousands, is worth 1 if right
    and 0.1 if wrong. A sentence of at most eight words with a single number in it, or the
    question's sum written out, is worth 0.5 and 0.05. Everything else is worth 0.

    >>> question = NumberQuestion("after", "Which number comes after 69?", (70,))
    >>> worth("70", question), worth("71.", question), worth("The answer is 70.", question)
    (1.0, 0.1, 0.5)
    >>> worth("69 is the next number after 70", question)
    0.0
    """
    text = answer.strip()
    if (number := _number(text.removesuffix("."))) is not None:
        return ALONE if number in question.answers else WRONG_ALONE
    number = _stated_number(text, question.equation)
    if number is None:
        return 0.0
    return IN_A_SENTENCE if number in question.answers else WRONG_IN_A_SENTENCE


def _number(text: str) -> int | None:
    return int(text.replace(",", "")) if _NUMBER.fullmatch(text) else None


def _stated_number(text: str, equation: str) -> int | None:
    """Return the number that a short sentence states; None for no number or several numbers."""
    closed = "".join(text.split()).removesuffix(".")
    if equation and closed.startswith(equation):
        return _number(closed.removeprefix(equation))
    words = [word.strip(_AROUND) for word in text.split()]
    numbers = [word for word in words if any(letter.isdigit() for letter in word)]
    return _number(numbers[0]) if len(words) <= MAX_WORDS and len(numbers) == 1 else None
