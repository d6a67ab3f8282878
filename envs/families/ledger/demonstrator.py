"""The memory of a demonstrator: the part of a ledger it knows, and how faithfully its summaries
keep that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from .entries import DIGITS, digit_of, write


class Demonstrator(StrEnum):
    """How `demonstrate_summary` writes; the actions are always right for what the summary says."""

    CLEAN = "clean"
    """Writes every register with the value it holds."""
    NOISY = "noisy"
    """Demo A: writes each digit right with probability 0.6, else a random digit."""
    RECENCY = "recency"
    """Demo B: each digit is right with probability 0.35, else mostly the digit written last.

    The most likely summary is therefore a wrong one.
    """
    WORDY = "wordy"
    """As `recency`, but half of the summaries say everything twice.

    A policy that may write few summaries then runs out of them.
    """


@dataclass(frozen=True, slots=True)
class Habit:
    """How often a summary errs and how often everything is said twice."""

    right: float = 1.0
    recent: float = 0.0
    """Among wrong digits, the share that are the digit of the register written last."""
    twice: float = 0.0
    """The share of summaries that say everything twice."""


HABITS = {
    Demonstrator.CLEAN: Habit(),
    Demonstrator.NOISY: Habit(right=0.6),
    Demonstrator.RECENCY: Habit(right=0.35, recent=0.8),
    Demonstrator.WORDY: Habit(right=0.35, recent=0.8, twice=0.5),
}


class RegisterMemory:
    """The demonstrator's knowledge of the registers; summaries err in digits, not in names."""

    def __init__(self, demo: Demonstrator) -> None:
        self.habit = HABITS[demo]
        self.known: dict[str, str] = {}
        """Register -> digit or register; the register written last is at the end."""

    def learn(self, name: str, value: str) -> None:
        """Record a write to a register."""
        write(self.known, name, value)

    def answer(self, question: str) -> str:
        """Return the digit asked for, by what is known."""
        return digit_of(self.known, question)

    def sum_up(self, rng: random.Random) -> str:
        """Write all registers down, such as `a7b4c1`; from then on, only the summary is known."""
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
