"""Measures a policy on held-out tasks, which are not trained on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ludus.agent import Episode
from ludus.agent.evaluation import LOOKED, too_few
from ludus.envs import Task
from ludus.envs.tasks import distinct

from .collect import Collector
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

    @property
    def rewards(self) -> list[float]:
        """The reward of every episode that has a reward."""
        verdicts = [episode.trajectories[0].verdict for episode in self.episodes]
        return [verdict.reward for verdict in verdicts if verdict.reward is not None]

    @property
    def mean(self) -> float | None:
        """Mean reward; None if every episode failed."""
        rewards = self.rewards
        return sum(rewards) / len(rewards) if rewards else None

    @property
    def failed(self) -> int:
        """Number of episodes without a reward."""
        return len(self.episodes) - len(self.rewards)

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None, for unknown, below two episodes."""
        rewards, mean = self.rewards, self.mean
        if mean is None or len(rewards) < 2:
            return None
        spread = sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
        return math.sqrt(spread / len(rewards))

    @property
    def told(self) -> str:
        """The mean with the standard error, in words: `0.500 ± 0.118 (18 episodes)`."""
        count = len(self.rewards)
        failed = f", {self.failed} failed" if self.failed else ""
        if self.mean is None:
            return f"unknown (0 episodes{failed})"
        error = self.standard_error
        spread = "error unknown from one episode" if error is None else f"± {error:.3f}"
        return f"{self.mean:.3f} {spread} ({count} episode{'s' * (count != 1)}{failed})"

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers for `metrics.jsonl`: `eval/mean` and `eval/standard_error` where known,
        `eval/metric/NAME` (the mean of a metric of the verdicts), `eval/episodes` (with a reward),
        `eval/failed`.
        """
        known = {"eval/mean": self.mean, "eval/standard_error": self.standard_error}
        found = {name: value for name, value in known.items() if value is not None}
        verdicts = [episode.trajectories[0].verdict for episode in self.episodes]
        found |= {f"eval/metric/{name}": mean for name, mean in mean_metrics(verdicts).items()}
        return found | {
            "eval/episodes": float(len(self.rewards)),
            "eval/failed": float(self.failed),
        }


async def evaluate(collector: Collector, split: str, count: int, *, seed: int = 0) -> HeldOutScores:
    """Play `count` different problems of `split`, once each.

    The same split and count give the same tasks, whatever the seed of the run, so that results
    compare across runs.
    """
    tasks, note = await held_out(collector.source, split, count)
    groups = await collector.collect(tasks, group_size=1, seed=seed)
    found = HeldOutScores([episode for group in groups for episode in group.episodes], note)
    if not note and len(found.rewards) == 1:
        note = "held-out tasks: the error of a mean is unknown from one episode; raise eval.tasks"
    return HeldOutScores(found.episodes, note)


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
    note = too_few(source.id, split, wanted=count, found=len(tasks), looked=looked)
    return tasks, f"held-out tasks: {note}"


def _order(size: int | None, count: int) -> Iterator[int]:
    """Yield the indices to look at: evenly spread indices first, then the rest."""
    if size is None:
        return iter(range(LOOKED * count))
    stride = max(1, size // count)
    rest = (index for index in range(size) if index % stride)
    return itertools.chain(range(0, size, stride), rest)
