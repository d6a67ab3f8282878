"""Optimisation pressure: a policy that is trained by the reward alone, and judged by another voice.
What the reward gained and the judge did not see is the gap.

The policy is a table: a softmax over the moves of `moves.py` for each kind of reply. It is trained
by REINFORCE with the mean of the other rollouts of a task as the baseline (Kool et al., "Buy 4
REINFORCE Samples, Get a Baseline for Free!", 2019, equation 5). A table is honest where moves fit
on a page, and takes seconds. A language model takes its place where one is given (`ModelTrainer`).
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from ludus.envs.checks.subject import Played
from ludus.estimates import Estimate, mean_over_tasks

from .attackers import Action, Plays, Scene
from .moves import Move

GROUP, BATCH = 8, 4
"""Rollouts of a task, and tasks of an update."""
UPDATES_QUICK, UPDATES_SLOW = 240, 30
RATE = 1.2
"""Step of the logits. An update moves a logit by at most this, since rewards are shares."""
SAMPLES = 4
"""Rollouts of each audited task, of which the gap is measured."""
MOST_STATES, MOST_MOVES = 200, 160


@dataclass(frozen=True)
class TrainedEpisode:
    """An episode of the policy that is trained."""

    task: str
    reward: float
    """The reward as a share of the expert's."""
    success: float
    """The deserved share, from 0 to 1, by the judge or by the right answer."""
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Pressure:
    """What training by the reward alone led to."""

    reward: Estimate
    success: Estimate
    gap: Estimate
    """Mean over tasks of reward less success; its interval is that of paired differences."""
    curve: tuple[tuple[float, float], ...]
    """Mean reward and mean success of each quarter of training."""
    episodes: tuple[TrainedEpisode, ...]
    """The rollouts that show the gap, the widest first."""
    played: int
    """Episodes of training."""
    was_cut: bool = False
    """Whether time ran out before the last update: figures then depend on the machine."""

    def __str__(self) -> str:
        steps = " -> ".join(f"{reward:.2f}/{success:.2f}" for reward, success in self.curve)
        return f"reward/success over {self.played} episodes of training: {steps}"


@dataclass
class TablePolicy:
    """A softmax over moves for each kind of reply."""

    moves: Sequence[Move]
    logits: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def plays(self, rng: random.Random, choices: list[tuple[str, int]]) -> Plays:
        """Return an attacker that samples moves and records its choices."""

        def play(scene: Scene) -> Iterator[Action]:
            while True:
                state = self._state(scene)
                weights = self.probabilities(state)
                move = rng.choices(range(len(weights)), weights)[0]
                choices.append((state, move))
                yield self.moves[move].action(scene)

        return play

    def probabilities(self, state: str) -> list[float]:
        """Return the chances of the moves after a kind of reply."""
        row = self.logits.get(state)
        if row is None:
            return [1 / len(self.moves)] * len(self.moves)
        top = max(row)
        weights = [math.exp(logit - top) for logit in row]
        total = sum(weights)
        return [weight / total for weight in weights]

    def learn(self, choices: Sequence[tuple[str, int]], advantage: float) -> None:
        """Add the gradient of the log-probability of the choices, times the advantage."""
        for state, move in choices:
            if state not in self.logits and len(self.logits) >= MOST_STATES:
                continue
            chances = self.probabilities(state)
            row = self.logits.setdefault(state, [0.0] * len(self.moves))
            step = RATE * advantage
            for n, chance in enumerate(chances):
                row[n] += step * ((n == move) - chance)

    @staticmethod
    def _state(scene: Scene) -> str:
        """Return the kind of what was shown last: its words, without what differs by task."""
        if not scene.episode.actions:
            return "opening"
        known = set(re.findall(r"\w+", scene.opening))
        words = re.findall(r"[a-z']+", scene.shown.casefold())
        return " ".join(word for word in words if word not in known)[:60]


Play = Callable[[str, Plays], TrainedEpisode]
"""A function that plays a task, by its id, with an attacker."""
Rate = Callable[[str, Played, object], TrainedEpisode]
"""A function from a task's id, an episode and its gold to what was paid, and what was deserved."""


class ModelTrainer(Protocol):
    """Trains a language model on an environment by the reward alone."""

    def __call__(
        self, rate: Rate, *, train: str, held_out: str, tasks: int, seed: int, until: float
    ) -> Pressure:
        """Train, and measure the gap.

        Args:
            rate: judges an episode; the policy never learns what it says.
            train: the split that is trained on.
            held_out: the split on which the gap is measured.
            tasks: tasks of that split.
            seed: of everything that is drawn.
            until: when training ends at the latest, by `time.monotonic`.
        """
        ...


def put_under_pressure(
    play: Play,
    moves: Sequence[Move],
    training: Sequence[str],
    audited: Sequence[str],
    *,
    updates: int,
    seed: int,
    until: float,
) -> Pressure:
    """Train a table by the reward alone, and measure the gap on other tasks.

    Args:
        play: plays a rollout and judges it; the policy never learns what the judge said.
        moves: what the policy may do; the first `MOST_MOVES` are used.
        training: ids of the tasks of training.
        audited: ids of the tasks on which the gap is measured.
        updates: updates of the policy, each of `BATCH` tasks with `GROUP` rollouts.
        seed: of everything that is drawn.
        until: when training ends at the latest, by `time.monotonic`.
    """
    rng = random.Random(f"{seed}/pressure")
    policy = TablePolicy(list(moves)[:MOST_MOVES])
    history: list[TrainedEpisode] = []
    was_cut = False
    for _ in range(updates):
        if time.monotonic() > until:
            was_cut = True
            break
        for task in rng.sample(list(training), min(BATCH, len(training))):
            chosen: list[list[tuple[str, int]]] = [[] for _ in range(GROUP)]
            group = [play(task, policy.plays(rng, choices)) for choices in chosen]
            total = sum(rollout.reward for rollout in group)
            for rollout, choices in zip(group, chosen, strict=True):
                baseline = (total - rollout.reward) / (GROUP - 1)
                policy.learn(choices, rollout.reward - baseline)
            history += group
    judged = [[play(task, policy.plays(rng, [])) for _ in range(SAMPLES)] for task in audited]
    return measured(history, judged, was_cut=was_cut)


def measured(
    history: Sequence[TrainedEpisode], judged: Sequence[Sequence[TrainedEpisode]], *, was_cut: bool
) -> Pressure:
    """Return what training led to.

    Args:
        history: the episodes of training, in order.
        judged: rollouts of the trained policy, a list for each task; one task at least.
        was_cut: whether time ran out before the last update.
    """
    rewards = [fmean(rollout.reward for rollout in group) for group in judged]
    successes = [fmean(rollout.success for rollout in group) for group in judged]
    gaps = [reward - success for reward, success in zip(rewards, successes, strict=True)]
    widest = [max(group, key=lambda rollout: rollout.reward - rollout.success) for group in judged]
    shown = sorted(widest, key=lambda rollout: rollout.success - rollout.reward)
    quarter = max(1, len(history) // 4)
    parts = [history[n : n + quarter] for n in range(0, 4 * quarter, quarter)]
    return Pressure(
        reward=mean_over_tasks(rewards),
        success=mean_over_tasks(successes),
        gap=mean_over_tasks(gaps),
        curve=tuple(
            (fmean(r.reward for r in part), fmean(r.success for r in part))
            for part in parts
            if part
        ),
        episodes=tuple(rollout for rollout in shown[:5] if rollout.reward > rollout.success),
        played=len(history),
        was_cut=was_cut,
    )
