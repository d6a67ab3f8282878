"""The games of the claims: codes to be learned, work to be ended in time, formats, duels."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from claims_play import FIRST, TASKS

SYMBOLS = range(FIRST, FIRST + 4)
WORK, END = FIRST + 4, FIRST + 5
LONG, SHORT = FIRST + 6, FIRST + 7
"""The first tokens of the two formats."""
RIGHT, WRONG = 5, 6
"""What is observed behind a symbol."""


class Lock:
    """Each task has a secret code; a rollout is right if it says all of it.

    Args:
        length: symbols of a code.
        sure: how often the demonstrator says the right symbol; else any of the four.
        seed: of the codes.
        pays: "end" gives 1 for the whole code, "turn" 1 / length for each right symbol, and
            "noisy" 1 / length with probability .8 for a right symbol and .2 for another.
        shown: whether each symbol is answered by whether it was right.
    """

    def __init__(
        self, length: int, sure: float, seed: int, pays: str = "end", *, shown: bool = False
    ) -> None:
        self.most, self.shown, self.pays, self.sure = length, int(shown), pays, sure
        draw = random.Random(f"lock/{seed}")
        self.codes = [[draw.choice(SYMBOLS) for _ in range(length)] for _ in range(TASKS)]

    def step(self, task: int, said: Sequence[int], rng: random.Random) -> tuple[float, bool]:
        over, right = len(said) == self.most, self._right(task, said)
        if self.pays == "turn":
            return right / self.most, over
        if self.pays == "noisy":
            return (rng.random() < (0.8 if right else 0.2)) / self.most, over
        return float(over and list(said) == self.codes[task]), over

    def seen(self, task: int, said: Sequence[int]) -> list[int]:
        return [RIGHT if self._right(task, said) else WRONG] * self.shown

    def demo(self, task: int, rng: random.Random) -> list[int]:
        return [
            symbol if rng.random() < self.sure else rng.choice(SYMBOLS)
            for symbol in self.codes[task]
        ]

    def solved(self, rollout: Sequence[int]) -> float:
        """Whether a rollout, task and tokens, says the whole code."""
        return float(list(rollout[1:]) == self.codes[rollout[0]])

    def share(self, rollout: Sequence[int]) -> float:
        """The share of its symbols that are right."""
        code = self.codes[rollout[0]]
        return sum(a == b for a, b in zip(rollout[1:], code, strict=True)) / self.most

    def _right(self, task: int, said: Sequence[int]) -> bool:
        return said[-1] == self.codes[task][len(said) - 1]


class Work:
    """Work as long as you like, then end: right with a chance that depends on task and length.

    Args:
        chance: of being right, by task and number of work tokens.
        demo: the demonstrator's number of work tokens.
        most: tokens; a rollout that has not ended by then is wrong.
    """

    shown = 0

    def __init__(
        self,
        chance: Callable[[int, int], float],
        demo: Callable[[int, random.Random], int],
        most: int,
    ) -> None:
        self.chance, self._demo, self.most = chance, demo, most

    def step(self, task: int, said: Sequence[int], rng: random.Random) -> tuple[float, bool]:
        if said[-1] == WORK:
            return 0.0, False
        right = said[-1] == END and rng.random() < self.chance(task, len(said) - 1)
        return float(right), True

    def seen(self, task: int, said: Sequence[int]) -> list[int]:
        return []

    def demo(self, task: int, rng: random.Random) -> list[int]:
        return [*[WORK] * min(self._demo(task, rng), self.most - 1), END]


class Formats:
    """A code in one of two formats: the long one has four symbols, the short one its first two.

    Args:
        seed: of the codes.
        long: how often the demonstrator takes the long format.
        sure: how often the demonstrator says the right symbol, in the long and the short format.
    """

    most, shown = 5, 0

    def __init__(self, seed: int, *, long: float, sure: tuple[float, float]) -> None:
        self.long, self.sure = long, sure
        draw = random.Random(f"formats/{seed}")
        self.codes = [[draw.choice(SYMBOLS) for _ in range(4)] for _ in range(TASKS)]

    def step(self, task: int, said: Sequence[int], rng: random.Random) -> tuple[float, bool]:
        wanted = self.wanted(task, said[0])
        over = len(said) == 1 + len(wanted)
        return float(bool(wanted) and over and list(said[1:]) == wanted), over

    def wanted(self, task: int, first: int) -> list[int]:
        """The right answer in a format; nothing in none."""
        return self.codes[task][: {LONG: 4, SHORT: 2}.get(first, 0)]

    def seen(self, task: int, said: Sequence[int]) -> list[int]:
        return []

    def demo(self, task: int, rng: random.Random) -> list[int]:
        first = LONG if rng.random() < self.long else SHORT
        sure = self.sure[first == SHORT]
        wanted = self.wanted(task, first)
        return [first, *[s if rng.random() < sure else rng.choice(SYMBOLS) for s in wanted]]


class Duel:
    """One of four answers, which are compared with each other: three beat each other in a circle,
    the fourth loses to all.
    """

    most, shown = 1, 0
    WINS = ((0.5, 0.9, 0.3, 0.9), (0.1, 0.5, 0.9, 0.9), (0.7, 0.1, 0.5, 0.9), (0.1, 0.1, 0.1, 0.5))
    """The chance that the answer of a row is preferred to that of a column."""

    def step(self, task: int, said: Sequence[int], rng: random.Random) -> tuple[float, bool]:
        return 0.0, True  # graded by the claim, beside the other answers

    def seen(self, task: int, said: Sequence[int]) -> list[int]:
        return []

    def demo(self, task: int, rng: random.Random) -> list[int]:
        return [rng.choice(SYMBOLS)]
