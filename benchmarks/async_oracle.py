"""What better orders of play could gain under the trainer's rule of admission, with hindsight.

The same virtual clock, lengths and learner as in `ludus.trainer.plan.simulation`, and nothing of
the trainer's code: the engines hold the rollouts with the highest claim, and change them at no cost
whenever a rollout ends. So each number is an upper bound for that order.

- `issue`: the oldest rollout first, which is what the trainer does;
- `least`: the rollout with the fewest tokens so far, which needs no foresight and pauses others;
- `shortest`: the rollout with the fewest tokens left, which nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ludus.trainer.plan.simulation import Schedule, length_of

Claim = Callable[[float, float, int], tuple[float, ...]]
"""From tokens so far, tokens left and ordinal of a rollout: smaller is first."""

QUANTUM = 50
"""Tokens after which `least` looks again who has the fewest."""
ORDERS: dict[str, Claim] = {
    "issue": lambda done, left, ordinal: (ordinal,),
    "least": lambda done, left, ordinal: (done // QUANTUM, ordinal),
    "shortest": lambda done, left, ordinal: (left, ordinal),
}


@dataclass
class _Machine:
    """Engines and learner, and what is outstanding."""

    schedule: Schedule
    now: float = 0.0
    frontier: int = 0
    left: dict[int, float] = field(default_factory=dict)
    """Tokens left of each rollout that is issued and not finished."""
    open: dict[int, int] = field(default_factory=dict)
    """Rollouts left of each group in flight."""
    waiting: list[int] = field(default_factory=list)
    training: list[int] = field(default_factory=list)
    free_at: float = math.inf
    """When the update ends; infinity without one."""

    def issue(self) -> None:
        """Issue groups up to the bound on what is outstanding."""
        most = (self.schedule.max_staleness + 1) * self.schedule.groups
        while len(self.open) + len(self.waiting) + len(self.training) < most:
            self.open[self.frontier] = self.schedule.group_size
            for ordinal in self._members(self.frontier):
                self.left[ordinal] = float(length_of(self.schedule, ordinal))
            self.frontier += 1

    def learn(self) -> bool:
        """Begin an update if there is none and a step's groups wait; says whether it began."""
        if self.training or len(self.waiting) < self.schedule.groups:
            return False
        self.waiting.sort()
        self.training = self.waiting[: self.schedule.groups]
        self.waiting = self.waiting[self.schedule.groups :]
        self.free_at = self.now + self.tokens() / self.schedule.generation + self.schedule.publish_s
        return True

    def tokens(self) -> int:
        """Return the tokens of the update."""
        return sum(length_of(self.schedule, n) for g in self.training for n in self._members(g))

    def play(self, claim: Claim) -> None:
        """Play the rollouts of the highest claim until one ends, or the update ends."""
        slots = self.schedule.slots * self.schedule.engines

        def of(ordinal: int) -> tuple[float, ...]:
            left = self.left[ordinal]
            return claim(length_of(self.schedule, ordinal) - left, left, ordinal)

        running = sorted(self.left, key=of)[:slots]
        rows = len(running) / self.schedule.engines
        step_s = self.schedule.base_s + self.schedule.row_s * rows
        ends = min((self.left[ordinal] for ordinal in running), default=math.inf) * step_s
        if claim is ORDERS["least"]:
            ends = min(ends, QUANTUM * step_s)
        seconds = min(ends, self.free_at - self.now)
        self.now += seconds
        for ordinal in running:
            self.left[ordinal] -= seconds / step_s
            if self.left[ordinal] < 1e-6:
                self._end(ordinal)

    def _end(self, ordinal: int) -> None:
        group = ordinal // self.schedule.group_size
        del self.left[ordinal]
        self.open[group] -= 1
        if not self.open[group]:
            del self.open[group]
            self.waiting.append(group)

    def _members(self, group: int) -> range:
        return range(group * self.schedule.group_size, (group + 1) * self.schedule.group_size)


def oracle(schedule: Schedule, order: str) -> float:
    """Return the trained tokens of a schedule over the bound, in the same window of steps."""
    machine, started, trained, step = _Machine(schedule), 0.0, 0, 0
    while step < schedule.steps:
        machine.issue()
        if machine.learn() and step == schedule.skipped:
            started = machine.now
        machine.play(ORDERS[order])
        if machine.free_at <= machine.now + 1e-9:
            trained += machine.tokens() if step >= schedule.skipped else 0
            machine.training, machine.free_at = [], math.inf
            step += 1
    return trained / (machine.now - started) / schedule.generation
