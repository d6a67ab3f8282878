"""What an update is made from: the trajectories of a step, and their rows.

Axes: N trajectories, B rows (segments), T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ludus.agent import Stop, Trajectory

from .batch import Batch, Row, as_row, pad
from .rollout.collect import Group

CUT = frozenset({Stop.LENGTH, Stop.CONTEXT_FULL, Stop.MAX_TURNS, Stop.MAX_SUMMARIES})
"""Ends by a limit: what recipes call truncated."""


@dataclass(frozen=True, slots=True)
class Experience:
    """The trajectories of a step, flat, and their rows."""

    rewards: Tensor
    """[N], of those that count in the baseline."""
    groups: Tensor
    """[N] int."""
    truncated: Tensor
    """[N] bool."""
    excluded: Tensor
    """[N] bool: in the statistics, not in the loss."""
    rollouts: Tensor
    """[B] int: the trajectory of each row."""
    batch: Batch
    tasks: tuple[str, ...] = ()
    """N ids: what each trajectory played."""


def gather(groups: Sequence[Group]) -> Experience | None:
    """Flatten a step's groups; None if no trajectory trains a token.

    A trajectory that is out of the baseline is out altogether: without a reward there is nothing to
    credit.
    """
    kept: list[tuple[int, Trajectory]] = [
        (index, trajectory)
        for index, group in enumerate(groups)
        for episode in group.episodes
        for trajectory in episode.trajectories
        if not trajectory.exclude_from_baseline and trajectory.verdict.ok
    ]
    rows: list[Row] = []
    owners: list[int] = []
    for number, (_, trajectory) in enumerate(kept):
        made = [row for row in map(as_row, trajectory.segments) if row is not None]
        rows += made
        owners += [number] * len(made)
    if not rows:
        return None
    return Experience(
        rewards=torch.tensor([trajectory.verdict.unwrap() for _, trajectory in kept]),
        groups=torch.tensor([index for index, _ in kept]),
        truncated=torch.tensor([trajectory.stop in CUT for _, trajectory in kept]),
        excluded=torch.tensor([trajectory.exclude_from_loss for _, trajectory in kept]),
        rollouts=torch.tensor(owners),
        batch=pad(rows),
        tasks=tuple(groups[index].task.id for index, _ in kept),
    )


def prompt_tokens(mask: Tensor, experience: Experience) -> Tensor:
    """[B]: the trained tokens of each row's group in the whole batch."""
    row_groups = experience.groups[experience.rollouts]
    totals = torch.zeros(int(row_groups.max()) + 1).index_add(0, row_groups, mask.sum(1))
    return totals[row_groups]


def responses_of(experience: Experience, logp: Tensor) -> list[list[Row]]:
    """N times the rows of a trajectory, with `logp` [B, T] for log-probabilities."""
    batch = experience.batch
    found: list[list[Row]] = [[] for _ in experience.tasks]
    owners, lengths = experience.rollouts.tolist(), batch.lengths.tolist()
    for row, (owner, length) in enumerate(zip(owners, lengths, strict=True)):
        mask = [int(one) for one in batch.mask[row, :length].tolist()]
        ids, logprobs = batch.ids[row, :length].tolist(), logp[row, :length].tolist()
        found[owner].append(Row(ids, mask, logprobs))
    return found
