"""Tracks the success rate of each task, for single-stream SPO. An older result counts less, the
more the policy has moved since.

    values = tracker.counts(tasks)                       # before the update
    drift = tracker.drift(tasks, learner.score)
    tracker.remember(tasks, rewards, drift, responses)

A tracker is not thread-safe; each run has its own. The memory of a task is replaced and never
changed in place, so `state()` is a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ludus.agent.images import PlacedImage
from ludus.errors import TrainingFailed
from ludus.messages import ImagePart

from ..algorithms import (
    single_stream_spo_memory,
    single_stream_spo_prior,
    single_stream_spo_sampling_weights,
    single_stream_spo_update,
)
from ..recipes.recipe import TrackerSettings
from .batch import Batch, Row, pad

Score = Callable[[Batch], Tensor]
"""A function from a batch to log-probabilities [B, T] of its trained tokens."""


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """The tracker's memory of a task: a Beta posterior, and the last response."""

    alpha: float
    beta: float
    rows: tuple[Row, ...] = ()
    """Rows of the last response, one for each segment; `logprobs` are the learner's at the time of
    sampling.
    """


class SuccessTracker:
    """Success rates of tasks, by id.

    Args:
        settings: the tracker settings of the recipe.
    """

    def __init__(self, settings: TrackerSettings) -> None:
        self.settings = settings
        self._memories: dict[str, TaskMemory] = {}
        self._unknown = self._prior(0.0, 0)

    def begin(self, task: str, successes: float, attempts: int) -> None:
        """Start a task from rollouts that were played before training.

        Raises:
            TrainingFailed: successes are outside of [0, attempts].
        """
        if not 0 <= successes <= attempts:
            raise TrainingFailed(_not_a_rate(task, successes / max(attempts, 1)))
        self._memories[task] = self._prior(successes, attempts)

    def counts(self, tasks: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return (alpha, beta) of the Beta posteriors, [N] each."""
        memories = [self._memories.get(task, self._unknown) for task in tasks]
        return torch.tensor([memory.alpha for memory in memories]), torch.tensor(
            [memory.beta for memory in memories]
        )

    def rates(self, tasks: Sequence[str]) -> Tensor:
        """Return the tracked success rates, [N]."""
        alpha, beta = self.counts(tasks)
        return alpha / (alpha + beta)

    def weights(self, tasks: Sequence[str]) -> Tensor:
        """Return the preference for each task, [N]; uncertain tasks weigh more."""
        return single_stream_spo_sampling_weights(*self.counts(tasks), floor=self.settings.floor)

    def drift(self, tasks: Sequence[str], score: Score) -> Tensor:
        """Return how far the policy has moved on each task's last response, [N].

        The drift is the mean over the response's tokens of |log-probability then - now|, and 0 for
        a task without a response.
        """
        rows = [
            (n, row)
            for n, task in enumerate(tasks)
            for row in self._memories.get(task, self._unknown).rows
        ]
        moved, tokens = torch.zeros(len(tasks)), torch.zeros(len(tasks))
        if rows:
            batch = pad([row for _, row in rows])
            owners = torch.tensor([n for n, _ in rows])
            gap = ((score(batch) - batch.sampler_logp).abs() * batch.mask).sum(1)
            moved = moved.index_add(0, owners, gap)
            tokens = tokens.index_add(0, owners, batch.mask.sum(1))
        return moved / tokens.clamp(min=1)

    def remember(
        self,
        tasks: Sequence[str],
        rewards: Tensor,
        drift: Tensor,
        responses: Sequence[Sequence[Row]],
    ) -> None:
        """Count a rollout of each task; if a task comes twice, the last rollout counts.

        Args:
            tasks: N ids.
            rewards: [N] in [0, 1].
            drift: [N], the result of `drift`.
            responses: N lists of the rows of the rollout, with the learner's log-probabilities.

        Raises:
            TrainingFailed: a reward is no success rate.
        """
        for task, reward in zip(tasks, rewards.tolist(), strict=True):
            if not 0 <= reward <= 1:
                raise TrainingFailed(_not_a_rate(task, reward))
        settings = self.settings
        rho = single_stream_spo_memory(
            drift, half_life=settings.half_life, low=settings.rho_low, high=settings.rho_high
        )
        alpha, beta = single_stream_spo_update(rewards, *self.counts(tasks), rho)
        updated = zip(tasks, alpha.tolist(), beta.tolist(), responses, strict=True)
        self._memories |= {task: TaskMemory(a, b, tuple(rows)) for task, a, b, rows in updated}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, in plain lists."""
        return {
            task: [memory.alpha, memory.beta, [_as_list(row) for row in memory.rows]]
            for task, memory in self._memories.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint has kept."""
        self._memories = {
            task: TaskMemory(alpha, beta, tuple(_as_row(*row) for row in rows))
            for task, (alpha, beta, rows) in state.items()
        }

    def _prior(self, successes: float, attempts: int) -> TaskMemory:
        alpha, beta = single_stream_spo_prior(
            torch.tensor(successes), attempts, rho_min=self.settings.rho_low
        )
        return TaskMemory(float(alpha), float(beta))


def _as_list(row: Row) -> list[Any]:
    images = [
        [placed.image.data, placed.image.url, placed.start, placed.tokens] for placed in row.images
    ]
    return [row.ids, row.mask, row.logprobs, images]


def _as_row(
    ids: list[int],
    mask: list[int],
    logprobs: list[float],
    images: Sequence[tuple[bytes, str, int, int]] = (),  # states of older versions have none
) -> Row:
    placed = tuple(
        PlacedImage(ImagePart(data=data, url=url), start, tokens)
        for data, url, start, tokens in images
    )
    return Row(ids, mask, logprobs, placed)


def _not_a_rate(task: str, reward: float) -> str:
    return (
        f"task {task!r} was rewarded {reward:g}, but single-stream SPO tracks success rates; scale "
        "rewards into [0, 1], or use another recipe"
    )
