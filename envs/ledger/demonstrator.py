"""What a demonstrator knows of a ledger, and how well its summaries keep it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from .entries import DIGITS, digit_of, write


class Demonstrator(StrEnum):
    """How `demonstrate_summary` writes; the actions are always right for what it wrote."""

    CLEAN = "clean"
    """Every register with what it holds."""
    NOISY = "noisy"
    """Demo A: each digit is right with probability 0.6, else random."""
    RECENCY = "recency"
    """Demo B: right with probability 0.35, else mostly the digit of the register written last: the
    most likely summary is a wrong one.
    """
    WORDY = "wordy"
    """As `recency`, and every other summary says everything twice: whoever has few summaries runs
    out of them.
    """


@dataclass(frozen=True, slots=True)
class Habit:
    """How often a summary errs and repeats itself."""

    right: float = 1.0
    recent: float = 0.0
    """Of the wrong digits, the share that are the digit of the register written last."""
    twice: float = 0.0
    """Of the summaries, the share that say everything twice."""


HABITS = {
    Demonstrator.CLEAN: Habit(),
    Demonstrator.NOISY: Habit(right=0.6),
    Demonstrator.RECENCY: Habit(right=0.35, recent=0.8),
    Demonstrator.WORDY: Habit(right=0.35, recent=0.8, twice=0.5),
}


class Memory:
    """The registers as far as they are known; it errs in digits, not in names."""

    def __init__(self, demo: Demonstrator) -> None:
        self.habit = HABITS[demo]
        self.known: dict[str, str] = {}
        """Register to digit or register, that written last at the end."""

    def learn(self, name: str, value: str) -> None:
        """Take in one write."""
        write(self.known, name, value)

    def answer(self, asked: str) -> str:
        """The digit asked for, by what is known."""
        return digit_of(self.known, asked)

    def sum_up(self, rng: random.Random) -> str:
        """Write all registers down, such as `a7b4c1`; from here on that is what is known."""
        digits = [value for value in self.known.values() if value in DIGITS]
        recent = digits[-1] if digits else "0"
        self.known = {
            name: self._recalled(rng, value, recent) for name, value in sorted(self.known.items())
        }
        summary = "".join(name + value for name, value in self.known.items())
        return summary * 2 if self.habit.twice and rng.random() < self.habit.twice else summary

    def _recalled(self, rng: random.Random, value: str, recent: str) -> str:
        right, recency = self.habit.right, self.habit.recent
        if right == 1 or value not in DIGITS or rng.random() < right:
            return value
        if recency and rng.random() < recency:
            return recent
        return rng.choice(DIGITS)
