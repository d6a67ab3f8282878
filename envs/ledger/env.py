"""`ludus/ledger-v0`: LedgerRelay, a task on which truncating the context provably fails.

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
there to be copied: success 1 is reached either way.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Any

from ludus.errors import ConfigError

from ..protocol import TextEnv
from ..tasks import GeneratedTasks, Task, TaskSet
from .entries import DIGITS, Ledger, draw_ledger

PASS = "n"
OPENING = "go"


WRITES_AT_ONCE = 512
"""Most writes drawn by a reset that is quick enough for an event loop."""


class Demonstrator(StrEnum):
    """How `demonstrate_summary` writes; the actions are always right for what it wrote."""

    CLEAN = "clean"
    """Every register with its digit."""
    NOISY = "noisy"
    """Demo A: each digit is right with probability 0.6, else random."""
    RECENCY = "recency"
    """Demo B: right with probability 0.35, else mostly the digit written last, whatever the
    register: the most likely summary is a wrong one.
    """


RIGHT = {Demonstrator.CLEAN: 1.0, Demonstrator.NOISY: 0.6, Demonstrator.RECENCY: 0.35}
RECENT = 0.8
"""Of the wrong digits of `recency`, the share that are the digit written last."""


class LedgerTasks(GeneratedTasks):
    """One ledger per seed; difficulty is its number of turns."""

    def __init__(self, split: str, turns: int, doublings: int) -> None:
        super().__init__(split)
        self.turns = turns
        self.doublings = doublings

    def at(self, index: int) -> Task:
        """The task at `index`."""
        task = super().at(index)
        turns = float(self.turns_of(task))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=turns)

    def turns_of(self, task: Task) -> int:
        """How many writes the ledger of `task` has."""
        return self.turns << random.Random(f"turns/{task.seed}").randint(0, self.doublings)


class LedgerRelay(TextEnv):
    """Remember what was written to registers until one of them is asked for.

    Args:
        registers: R, from 2 to 26.
        turns: T, writes before the question.
        doublings: T is drawn from turns, 2 turns, 4 turns ... up to this many doublings.
        gap: fewest turns from the last write of the register asked for to the question; no window
            that shows at most this many observations can hold the answer.
        demo: how the demonstrator sums up: clean, noisy or recency.
    """

    system_prompt = "Each line sets a register to a digit: say n. When asked ?r, say its digit."
    answer_format = ""

    def __init__(
        self,
        *,
        registers: int = 3,
        turns: int = 16,
        doublings: int = 0,
        gap: int = 8,
        demo: str = Demonstrator.CLEAN,
    ) -> None:
        if not 2 <= registers <= 26:
            raise ConfigError(f"registers must be from 2 to 26, got {registers}")
        if not 0 <= doublings <= 16:
            raise ConfigError(f"doublings must be from 0 to 16, got {doublings}")
        if not 1 <= gap <= turns or turns < registers:
            raise ConfigError(
                f"need turns >= registers and 1 <= gap <= turns, got turns={turns}, "
                f"registers={registers}, gap={gap}"
            )
        if demo not in list(Demonstrator):
            raise ConfigError(f"demo must be one of {', '.join(Demonstrator)}, got {demo!r}")
        self.never_blocks = turns << doublings <= WRITES_AT_ONCE
        self.registers = registers
        self.turns = turns
        self.doublings = doublings
        self.gap = gap
        self.demo = Demonstrator(demo)
        self.ledger = Ledger((("a", "0"),), "a", 0)
        self.turn = -1
        self._learned = -1
        self.known: dict[str, str] = {}
        """What the demonstrator knows, the newest observation left out."""

    def tasks(self, split: str) -> TaskSet:
        """Endless, disjoint by split."""
        return LedgerTasks(split, self.turns, self.doublings)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Say go; the first write follows the first action."""
        tasks = LedgerTasks(self.task.split, self.turns, self.doublings)
        self.ledger = draw_ledger(
            random.Random(f"ledger/{self.task.seed}"),
            registers=self.registers,
            turns=tasks.turns_of(self.task),
            gap=self.gap,
        )
        self.turn, self.known, self._learned = -1, {}, -1
        return OPENING, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The next write, or the question; its answer is scored and ends the episode."""
        if self._asking:
            return "", float(action == self.ledger.answer), True, False, {}
        if action != PASS:
            return "", 0.0, True, False, {}
        self._learn_newest()
        self.turn += 1
        return self._shown, 0.0, False, False, {}

    def gold(self) -> str:
        """The digit asked for."""
        return self.ledger.answer

    def demonstrate(self) -> str:
        """Say n, and in the end the digit as far as the demonstrator's summaries have kept it."""
        return self.known.get(self.ledger.asked, "0") if self._asking else PASS

    def demonstrate_summary(self, *, newest: bool) -> str:
        """Registers with their digits, such as `a7b4c1`, as well as the demonstrator can; the
        question too, if it has been seen.
        """
        if newest:
            self._learn_newest()
        recent = next(reversed(self.known.values()), "0")
        self.known = {
            name: self._recalled(digit, recent) for name, digit in sorted(self.known.items())
        }
        text = "".join(name + digit for name, digit in self.known.items())
        return f"{text}?{self.ledger.asked}" if newest and self._asking else text

    @property
    def _asking(self) -> bool:
        return self.turn == len(self.ledger.writes)

    @property
    def _shown(self) -> str:
        return f"?{self.ledger.asked}" if self._asking else "".join(self.ledger.writes[self.turn])

    def _learn_newest(self) -> None:
        if self._learned < self.turn < len(self.ledger.writes):
            self._learned = self.turn
            name, digit = self.ledger.writes[self.turn]
            self.known.pop(name, None)  # the newest is the last in the order of the dict
            self.known[name] = digit

    def _recalled(self, digit: str, recent: str) -> str:
        if self.demo is Demonstrator.CLEAN or self.rng.random() < RIGHT[self.demo]:
            return digit
        if self.demo is Demonstrator.RECENCY and self.rng.random() < RECENT:
            return recent
        return self.rng.choice(DIGITS)
