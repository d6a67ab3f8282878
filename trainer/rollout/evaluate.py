"""Measures a policy on held-out tasks, which are not trained on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ludus.agent import Episode
from ludus.agent.evaluation import LOOKED, pass_rates, too_few
from ludus.envs import Task
from ludus.envs.tasks import distinct
from ludus.estimates import Estimate

from ..config import EvalConfig
from .collect import Collector
from .mixture import environment_of
from .scoring import mean_metrics
from .source import EnvSource


@dataclass(frozen=True, slots=True)
class HeldOutScores:
    """The scores of held-out tasks. Failed episodes are counted apart, since a failure is not a
    zero.
    """

    episodes: list[Episode]
    note: str = ""
    """What a person should know about the tasks; empty if there is nothing to tell."""
    samples: int = 1
    """Number of episodes that were played of each task."""
    passing: float = 1.0
    """The reward from which an episode passes."""

    @property
    def rewards(self) -> list[float]:
        """The reward of every episode that has a reward."""
        return [reward for task in self.by_task for reward in task]

    @property
    def by_task(self) -> list[list[float]]:
        """The rewards of the episodes of each task that has at least one reward."""
        rewards: dict[str, list[float]] = {}
        for number, episode in enumerate(self.episodes):
            reward = episode.trajectories[0].verdict.reward
            if reward is not None:
                task = episode.task if self.samples > 1 else str(number)
                rewards.setdefault(task, []).append(reward)
        return list(rewards.values())

    @property
    def mean(self) -> float | None:
        """Mean over tasks of the mean reward; None if every episode failed."""
        means = [sum(rewards) / len(rewards) for rewards in self.by_task]
        return sum(means) / len(means) if means else None

    @property
    def failed(self) -> int:
        """Number of episodes without a reward."""
        return len(self.episodes) - len(self.rewards)

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean over tasks; None, for unknown, below two tasks. Episodes of
        one task are not independent of each other.
        """
        means, mean = [sum(rewards) / len(rewards) for rewards in self.by_task], self.mean
        if mean is None or len(means) < 2:
            return None
        variance = sum((task_mean - mean) ** 2 for task_mean in means) / (len(means) - 1)
        return math.sqrt(variance / len(means))

    @property
    def pass_at(self) -> dict[int, Estimate]:
        """Unbiased pass@k with 95 % intervals for k = 1, 2, 4 ... samples; empty for one sample."""
        return pass_rates(self.by_task, self.passing) if self.samples > 1 else {}

    @property
    def versions(self) -> tuple[int, int] | None:
        """The oldest and the newest version of the weights that sampled a token; None without a
        token.
        """
        versions = {
            version
            for episode in self.episodes
            for trajectory in episode.trajectories
            for turn in trajectory.turns
            for version in turn.versions
        }
        return (min(versions), max(versions)) if versions else None

    @property
    def told(self) -> str:
        """The mean with the standard error, in words: `0.500 ± 0.118 (18 episodes)`, with the
        largest pass@k, and with the versions where the weights changed meanwhile.
        """
        count = len(self.rewards)
        failed = f", {self.failed} failed" if self.failed else ""
        if self.mean is None:
            return f"unknown (0 episodes{failed})"
        error = self.standard_error
        single = "one episode" if count == 1 else "one task"
        uncertainty = f"error unknown from {single}" if error is None else f"± {error:.3f}"
        text = f"{self.mean:.3f} {uncertainty} ({count} episode{'s' * (count != 1)}{failed})"
        for k, rate in list(self.pass_at.items())[-1:]:
            value, interval = rate.cells()
            text += f", pass@{k} {value} ({interval})"
        if self.versions and len(set(self.versions)) > 1:
            text += f", by weights of version {self.versions[0]} to {self.versions[1]}"
        return text

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers for `metrics.jsonl`: `eval/mean` and `eval/standard_error` where known,
        `eval/metric/NAME` (the mean of a metric of the verdicts), `eval/episodes` (with a reward),
        `eval/failed`, `eval/oldest_version` and `eval/newest_version` of the weights, and for more
        than one sample `eval/pass@K` with `eval/pass@K/low` and `eval/pass@K/high`.
        """
        means = {"eval/mean": self.mean, "eval/standard_error": self.standard_error}
        numbers = {name: value for name, value in means.items() if value is not None}
        for k, rate in self.pass_at.items():
            numbers[f"eval/pass@{k}"] = rate.value
            numbers |= {f"eval/pass@{k}/low": rate.low, f"eval/pass@{k}/high": rate.high}
        for name in sorted({environment_of(episode.task) for episode in self.episodes} - {""}):
            own = [each for each in self.episodes if environment_of(each.task) == name]
            part = replace(self, episodes=own)
            if part.mean is not None:
                numbers[f"eval/{name}/mean"] = part.mean
            numbers[f"eval/{name}/failed"] = float(part.failed)
        verdicts = [episode.trajectories[0].verdict for episode in self.episodes]
        numbers |= {f"eval/metric/{name}": mean for name, mean in mean_metrics(verdicts).items()}
        if self.versions:
            oldest, newest = self.versions
            numbers |= {"eval/oldest_version": float(oldest), "eval/newest_version": float(newest)}
        return numbers | {
            "eval/episodes": float(len(self.rewards)),
            "eval/failed": float(self.failed),
        }


async def evaluate(
    collector: Collector,
    settings: EvalConfig,
    *,
    seed: int = 0,
    done: Callable[[Episode], None] | None = None,
) -> HeldOutScores:
    """Play `settings.tasks` different problems of a split, `settings.samples` times each.

    The same split and count give the same tasks, whatever the seed of the run, so that results
    compare across runs.

    Args:
        collector: plays the episodes.
        settings: the split, the number of tasks (fewer are played where the split has fewer, with
            a note), the episodes of each task, which share the environment's seed, and the reward
            from which an episode passes.
        seed: seed of the sampling.
        done: called with each finished episode.
    """
    tasks, note = await held_out(collector.source, settings.split, settings.tasks)
    groups = await collector.collect(tasks, group_size=settings.samples, seed=seed, done=done)
    episodes = [episode for group in groups for episode in group.episodes]
    scores = HeldOutScores(episodes, note, settings.samples, settings.passing)
    if not note and len(scores.by_task) == 1:
        single = "one episode" if len(scores.rewards) == 1 else "one task"
        note = f"held-out tasks: the error of a mean is unknown from {single}; raise eval.tasks"
    return replace(scores, note=note)


async def held_out(source: EnvSource, split: str, count: int) -> tuple[Sequence[Task], str]:
    """Return `count` tasks that are different problems, and a note if some are lacking.

    The tasks are evenly spread over a finite split, or the first tasks of an endless split. If the
    split has fewer different problems, fewer are returned and the note says so.
    """
    size = await source.size(split)
    tasks: list[Task] = []
    seen: set[str] = set()
    looked = 0
    for index in _order(size, count):
        tasks += distinct(await source.tasks(split, [index]), seen)
        looked += 1
        if len(tasks) == count:
            return tasks, ""
    note = too_few(source.id, split, wanted=count, problems=len(tasks), looked=looked)
    return tasks, f"held-out tasks: {note}"


def _order(size: int | None, count: int) -> Iterator[int]:
    """Yield the indices to look at: evenly spread indices first, then the rest, which replace tasks
    that turn out to be the same problem.
    """
    if size is None:
        return iter(range(LOOKED * count))
    first = min(size, count)
    spread = [index * size // first for index in range(first)]
    taken = frozenset(spread)
    return itertools.chain(spread, (index for index in range(size) if index not in taken))
