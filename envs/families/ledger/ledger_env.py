"""The memory of a demonstrator: the known part of a ledger, and how faithfully summaries keep this
part.

    user       go
    assistant  n
    user       b4            a write: register b holds 4 now
    assistant  n
    user       a7
    assistant  n
    ...
    user       ?b            after T writes
    assistant  4             reward 1

Before the question the one legal action is `n`; anything else ends the episode with reward 0. The
register asked for was last written at least `gap` turns before the question, at a turn drawn
uniformly.

That is the tier `copy`. In `sum` later writes add (`a+5`), in `pointer` registers may hold names of
registers (`ab`), in `fetch` writes are asked for one by one (`g3`). `drawing.py` and `courses.py`
explain these tiers, and why the proposition holds in them too (in `fetch` only where no line can be
asked for again; decision 0503).

**Proposition.** A policy that acts from the first prompt and at most the last `gap` observations,
with the actions between them, succeeds with probability at most 1/10.

*Proof.* Let d be the digit asked for, uniform and independent of everything else drawn (call it
rest). The write of d is at turn t <= T - gap and the question at turn T, so the last `gap`
observations, those of turns T - gap + 1 .. T, do not show it; nor does the first prompt. An episode
that reaches the question has had the action `n` at every turn, so its actions show nothing either:
what the policy sees at the question is a function of rest alone. Let p_x(rest) be the probability
that it then answers x, and s_x(rest) <= 1 that it gets there when d = x. Success has probability
E_rest [1/10 sum_x s_x p_x] <= 1/10 E_rest [sum_x p_x] = 1/10.

In a window of W tokens, where a turn (observation, action and the template around them) takes at
least c, at most floor(W / c) observations are seen: the bound holds for every truncating manager
where that is at most `gap`. It needs that `n` can be said in one way only. Environments read text,
so a tokenizer that has several encodings of `n`, or a free-text action, would let a policy write
notes to itself into its own actions; the trainer's tiny tokenizer has one.

With summaries 2 R characters carry all registers, and with the whole episode in view the answer is
there to be worked out: success 1 is reached either way.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import msgspec

from ludus.errors import ConfigError

from ...protocol import Briefing, TextEnv
from ...tasks import GeneratedTasks, Task
from .courses import (
    DIGITS,
    Course,
    Fetched,
    Ledger,
    Tier,
    ToldCourse,
    digit_of,
    draw_ledger,
    earliest_last_write,
    write,
)


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


OPENING = "go"

WRITES_AT_ONCE = 512
"""The most writes that a reset may draw and still be quick enough for an event loop."""

PROMPTS = {
    Tier.COPY: "Each line sets a register to a digit: say n. When asked ?r, say its digit.",
    Tier.SUM: "Each line sets a register to a digit, or adds to it modulo 10: say n. "
    "When asked ?r, say its digit.",
    Tier.POINTER: "Each line sets a register to a digit or to a register: say n. "
    "When asked ?r, follow it to a digit and say that.",
    Tier.FETCH: "Each line #k is an item: say gk to see it, then n. Say n to see a line again. "
    "An item sets a register to a digit. When asked ?r, say its digit.",
}


class LedgerTasks(GeneratedTasks):
    """A task set with a ledger per seed; the difficulty is the number of turns."""

    def __init__(self, split: str, turns: int, doublings: int, spread: int) -> None:
        super().__init__(split)
        self.turns = turns
        self.doublings = doublings
        self.spread = spread

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        turns = float(self.turns_of(task))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=turns)

    def turns_of(self, task: Task) -> int:
        """Return how many writes the ledger of `task` has."""
        # Drawn apart from the ledger, so that the length is known without drawing all writes.
        rng = random.Random(f"turns/{task.seed}")
        turns = self.turns << rng.randint(0, self.doublings)
        return turns + rng.randint(0, self.spread) if self.spread else turns


class LedgerRelay(TextEnv):
    """An environment that writes to registers, and asks for the content of a register at the end.

    Args:
        tier: copy, sum, pointer or fetch; see `Tier`.
        registers: R, the number of registers, from 2 to 26; at least 3 in pointer.
        turns: T, the number of writes before the question.
        doublings: T is drawn from turns, 2 turns, 4 turns ... up to this many doublings.
        spread: up to so many more turns, drawn uniformly. If all episodes had the same length, the
            question could always be at the same place of the window, and a policy would learn the
            place.
        gap: the fewest turns from the write that decides the answer to the question; no window that
            shows at most `hidden_from` observations can hold the answer.
        requeries: in fetch, how often an episode may have a line shown again. 0 is for context
            managers that drop nothing unseen (`last_pair = "carry"`), and the demonstrator then
            takes what it has not summed up as seen.
        demo: how the demonstrator sums up: clean, noisy, recency or wordy.
    """

    never_blocks = True  # except for courses that take too long to draw: see __init__
    forks = "copy"
    system_prompt = PROMPTS[Tier.COPY]
    answer_format = ""

    def __init__(
        self,
        *,
        tier: str = Tier.COPY,
        registers: int = 3,
        turns: int = 16,
        doublings: int = 0,
        spread: int = 0,
        gap: int = 8,
        requeries: int = 16,
        demo: str = Demonstrator.CLEAN,
    ) -> None:
        if tier not in list(Tier):
            raise ConfigError(f"tier must be one of {', '.join(Tier)}, got {tier!r}")
        if demo not in list(Demonstrator):
            raise ConfigError(f"demo must be one of {', '.join(Demonstrator)}, got {demo!r}")
        if not 0 <= doublings <= 16:
            raise ConfigError(f"doublings must be from 0 to 16, got {doublings}")
        if spread < 0:
            raise ConfigError(f"spread must be at least 0, got {spread}")
        if requeries < 0:
            raise ConfigError(f"requeries must be at least 0, got {requeries}")
        self.tier = Tier(tier)
        _check_sizes(self.tier, registers, turns, gap)
        # In `pointer` each write also follows the chains of all registers.
        max_draws = ((turns << doublings) + spread) * (
            registers if self.tier is Tier.POINTER else 1
        )
        self.never_blocks = max_draws <= WRITES_AT_ONCE
        self.registers = registers
        self.turns = turns
        self.doublings = doublings
        self.spread = spread
        self.gap = gap
        self.requeries = requeries
        self.demo = Demonstrator(demo)
        self._open(Ledger((("a", "0"),), "a", 0))  # stands in until the first reset draws one

    @property
    def bound(self) -> Fraction | None:
        """The highest success rate of a policy that sees a truncated context; None where unproved.

        The policy sees the first prompt and at most the last `hidden_from` observations. Nothing is
        proved for fetch with `requeries`.
        """
        proved = self.tier is not Tier.FETCH or self.requeries == 0
        return Fraction(1, 10) if proved else None

    @property
    def hidden_from(self) -> int:
        """How many last observations, the question included, never show what decides the answer."""
        return 2 * self.gap - 1 if self.tier is Tier.FETCH else self.gap

    def briefing(self) -> Briefing:
        """Return the briefing with the rules of the tier."""
        return msgspec.structs.replace(super().briefing(), system_prompt=PROMPTS[self.tier])

    def tasks(self, split: str) -> LedgerTasks:
        """Return an endless task set; no ledger is in two splits."""
        return LedgerTasks(split, self.turns, self.doublings, self.spread)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Say `go`; the first line follows the first action."""
        tasks = self.tasks(self.task.split)
        ledger = draw_ledger(
            random.Random(f"ledger/{self.task.seed}"),
            registers=self.registers,
            turns=tasks.turns_of(self.task),
            gap=self.gap,
            tier=self.tier,
        )
        self._open(ledger)
        return OPENING, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Show the next line or the question, or score the answer, which ends the episode."""
        self._learn_newest()
        self._lost = False
        observation, reward, has_ended = self.course.act(action)
        return observation, reward, has_ended, False, {}

    def gold(self) -> str:
        """Return the digit asked for."""
        return self.ledger.answer

    def demonstrate(self) -> str:
        """Return the right action; at the question, the digit that the summaries have kept."""
        may_repeat = isinstance(self.course, Fetched) and self.course.requeries > 0
        was_lost = self._lost and may_repeat
        if self.course.turn == len(self.ledger.writes) and not was_lost:
            return self.memory.answer(self.ledger.asked)
        return self.course.expected(lost=was_lost)

    def demonstrate_summary(self, *, newest: bool) -> str:
        """Write the registers, such as `a7b4c1`, as faithfully as the demonstrator can.

        Then follows the question, or the number of an item that is still to be fetched.
        """
        if newest:
            self._learn_newest()
        self._lost = not newest and self.tier is Tier.FETCH and self.requeries > 0
        return self.memory.sum_up(self.rng) + self.course.pending(newest=newest)

    def _open(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.memory = RegisterMemory(self.demo)
        """What the demonstrator knows, without the newest observation."""
        self._learned = -1
        """The turn of the newest write that the demonstrator's memory holds."""
        self._lost = False
        """Whether the demonstrator takes the newest observation as dropped by the context manager.
        It is not told; with `requeries` it assumes so and asks again (decision 0503).
        """
        self.course: Course = ToldCourse(ledger)
        if self.tier is Tier.FETCH:
            # Drawn apart from the ledger, so that the numbers that a policy has to say tell nothing
            # about the writes; see `courses.py`.
            rng = random.Random(f"numbers/{self.task.seed}")
            numbers = "".join(rng.choices(DIGITS, k=len(ledger.writes)))
            self.course = Fetched(ledger, numbers, self.requeries)

    def _learn_newest(self) -> None:
        if not self._lost and self.course.shows_write and self._learned < self.course.turn:
            self._learned = self.course.turn
            self.memory.learn(*self.ledger.writes[self._learned])


def _check_sizes(tier: Tier, registers: int, turns: int, gap: int) -> None:
    fewest = 3 if tier is Tier.POINTER else 2
    if not fewest <= registers <= 26:
        raise ConfigError(f"registers must be from {fewest} to 26 in {tier}, got {registers}")
    if not 1 <= gap <= turns or turns < registers:
        raise ConfigError(
            f"need turns >= registers and 1 <= gap <= turns, got turns={turns}, "
            f"registers={registers}, gap={gap}"
        )
    if turns - gap < earliest_last_write(tier, registers):
        raise ConfigError(
            f"{tier} needs turns - gap >= registers, got turns={turns}, gap={gap}, "
            f"registers={registers}"
        )
