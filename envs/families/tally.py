"""The tally environment: add numbers step by step, where checking again and again costs tokens.

    user       a3b4c2
    assistant  a33b42c24,=4                      reward 1

Each letter carries a digit below `base` (here 5); the answer is the sum modulo `base`, behind the
last `=`. The text before is working, and is not scored: a pass `a33b42c24,` writes each
letter, its digit and the sum so far. A second pass says nothing new, so all its tokens are
wasted; an answer without a pass is a guess, right one time in `base`. Brevity alone earns nothing.

The demonstrator checks too often and, at times, answers with the last digit instead of the sum. A
policy that copies it greedily, with `demo_recheck` at one half or above, never ends and is cut by
the token budget. No task is in two splits: a digest of the task's text decides its split.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from ludus.errors import ConfigError

from ..protocol import TextEnv
from ..tasks import SPLITS, GeneratedTasks, Task, TaskSet
from .arithmetic import split_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MAX_DRAWS = 10_000
"""How many tasks are drawn before giving up on the split; in small splits one in ten fits."""


class TallyTasks(GeneratedTasks):
    """A task set with a list of digits per seed; the difficulty is the number of digits."""

    def __init__(
        self, split: str, items: tuple[int, int], digits_of: Callable[[Task], tuple[int, ...]]
    ) -> None:
        super().__init__(split)
        self._digits_of = digits_of
        self.items = items

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty and the text."""
        task = super().at(index)
        difficulty = float(self.items_of(task))
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=difficulty,
            problem=labelled(self._digits_of(task)),
        )

    def items_of(self, task: Task) -> int:
        """Return how many digits `task` has."""
        return random.Random(f"items/{task.seed}").randint(*self.items)


class Tally(TextEnv):
    """An environment that asks for a sum of labelled digits modulo a base; checking costs tokens.

    Args:
        min_items: the fewest digits of a task.
        max_items: the most digits of a task.
        base: the modulus; all digits are below.
        demo_recheck: the probability that the demonstrator adds another pass after each pass.
        demo_slip: the probability that the demonstrator answers with the last digit instead of the
            sum.

    Raises:
        ConfigError: a setting is out of range, or so few tasks are possible that a split has none.
    """

    forks = "copy"
    system_prompt = "Add up the digits, letter by letter."
    answer_format = "End with = and the sum."
    max_turns = 1

    def __init__(
        self,
        *,
        min_items: int = 3,
        max_items: int = 5,
        base: int = 10,
        demo_recheck: float = 0.0,
        demo_slip: float = 0.0,
    ) -> None:
        if not 1 <= min_items <= max_items <= len(LETTERS):
            raise ConfigError(
                f"need 1 <= min_items <= max_items <= {len(LETTERS)}, got {min_items}, {max_items}"
            )
        if not 2 <= base <= 10:
            raise ConfigError(f"base must be from 2 to 10, got {base}")
        for name, rate in (("demo_recheck", demo_recheck), ("demo_slip", demo_slip)):
            if not 0 <= rate < 1:
                raise ConfigError(f"{name} must be in [0, 1), got {rate}")
        self.items = (min_items, max_items)
        self.base = base
        self.demo_recheck = demo_recheck
        self.demo_slip = demo_slip
        self.digits: tuple[int, ...] = (0,)
        # More digits make more tasks: where the fewest suffice, all do.
        for split in SPLITS:
            self._draw(random.Random(f"probe/{split}"), min_items, split)

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no task is in two splits."""
        return TallyTasks(split, self.items, self._digits_of)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Show the letters, each with a digit."""
        self.digits = self._digits_of(self.task)
        return labelled(self.digits), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Score the text behind the last `=`: 1 for the sum, else 0. The episode ends."""
        return "", float(read_sum(action) == self.gold()), True, False, {}

    def gold(self) -> str:
        """Return the sum modulo the base, as text."""
        return str(sum(self.digits) % self.base)

    def demonstrate(self) -> str:
        """Write passes over the letters, then the sum, or the last digit in case of a slip."""
        action = self._pass
        while self.rng.random() < self.demo_recheck:
            action += self._pass
        slips = self.rng.random() < self.demo_slip
        return f"{action}={self.digits[-1] if slips else self.gold()}"

    @property
    def _pass(self) -> str:
        """A pass: for each letter the letter, the digit and the sum so far."""
        sums = [total % self.base for total in accumulate(self.digits)]
        steps = zip(LETTERS, self.digits, sums, strict=False)
        return "".join(f"{letter}{digit}{total}" for letter, digit, total in steps) + ","

    def _digits_of(self, task: Task) -> tuple[int, ...]:
        count = TallyTasks(task.split, self.items, self._digits_of).items_of(task)
        return self._draw(random.Random(f"digits/{task.seed}"), count, task.split)

    def _draw(self, rng: random.Random, count: int, split: str) -> tuple[int, ...]:
        """Return the first drawn digits that belong to `split`."""
        for _ in range(MAX_DRAWS):
            digits = tuple(rng.randrange(self.base) for _ in range(count))
            if split_of(labelled(digits)) == split:
                return digits
        raise ConfigError(
            f"too few tasks have {count} digits below {self.base}: none was found for split "
            f"{split!r}; raise min_items or base"
        )


def labelled(digits: tuple[int, ...]) -> str:
    """Write each digit after the letter of the digit's position.

    >>> labelled((3, 4, 2))
    'a3b4c2'
    """
    return "".join(letter + str(digit) for letter, digit in zip(LETTERS, digits, strict=False))


def read_sum(text: str) -> str:
    """Return the text behind the last `=`, without a full stop; empty if the text has no `=`.

    >>> read_sum("a33b42,=2"), read_sum("= 2.")
    ('2', '2')
    """
    return text.rpartition("=")[2].strip().removesuffix(".") if "=" in text else ""
