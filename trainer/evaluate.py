"""How good a policy is on tasks it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.agent import Episode
from ludus.envs import Task

from .rollout.collect import Collector
from .rollout.source import EnvSource


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of some tasks, with the failed episodes apart: they are nobody's zero."""

    episodes: list[Episode]

    @property
    def rewards(self) -> list[float]:
        """The reward of every episode that has one."""
        verdicts = [episode.trajectories[0].verdict for episode in self.episodes]
        return [verdict.reward for verdict in verdicts if verdict.reward is not None]

    @property
    def mean(self) -> float:
        """Mean reward; NaN if every episode failed."""
        rewards = self.rewards
        return sum(rewards) / len(rewards) if rewards else math.nan

    @property
    def failed(self) -> int:
        """Episodes without a reward."""
        return len(self.episodes) - len(self.rewards)

    @property
    def standard_error(self) -> float:
        """Of the mean; NaN below two episodes."""
        rewards = self.rewards
        if len(rewards) < 2:
            return math.nan
        spread = sum((reward - self.mean) ** 2 for reward in rewards) / (len(rewards) - 1)
        return math.sqrt(spread / len(rewards))


async def evaluate(collector: Collector, split: str, count: int, *, seed: int = 0) -> Evaluation:
    """Play `count` tasks of `split`, once each.

    The same split and count are the same tasks, whatever the seed of the run: results compare
    across runs.
    """
    tasks = await held_out(collector.source, split, count)
    groups = await collector.collect(tasks, group_size=1, seed=seed)
    return Evaluation([episode for group in groups for episode in group.episodes])


async def held_out(source: EnvSource, split: str, count: int) -> Sequence[Task]:
    """The first `count` tasks of a finite split, evenly spread over it; the first of an endless
    one.
    """
    size = await source.size(split)
    if size is None:
        return await source.tasks(split, list(range(count)))
    stride = max(1, size // count)
    return await source.tasks(split, list(range(0, size, stride))[:count])
