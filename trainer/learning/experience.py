"""What an update is made from: the trajectories of a step, and their rows.

Axes: N trajectories, B rows (segments), T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ludus.agent import Episode, Stop, Trajectory
from ludus.agent.trajectory import TRUNCATED

from ..rollout.collect import Group
from .batch import Batch, Row, pad
from .turn_rewards import UNTRAINED, RewardedRow, rewarded_rows

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
    turn_rewards: Tensor
    """[B, T]: what each turn earned, on its last trained token. A rollout's reward less the sum of
    these came at its end (a verifier's).
    """
    turns: Tensor
    """[B, T] int: the turn of each trained token, counted over the rows of its trajectory; -1
    elsewhere.
    """
    states: Batch | None
    """M windows, each the state that a limit cut a trajectory in, and one token more, whose value
    is that of the state; None where the environment ended all.
    """
    states_of: Tensor
    """[M] int: the trajectory of each state."""
    tasks: tuple[str, ...] = ()
    """N ids: what each trajectory played."""
    episodes: tuple[Episode, ...] = ()
    """N: the episode of each trajectory."""


def gather(groups: Sequence[Group]) -> Experience | None:
    """Flatten a step's groups; None if no trajectory trains a token.

    A trajectory that is out of the baseline is out altogether: without a reward there is nothing to
    credit.
    """
    kept: list[tuple[int, Episode, Trajectory]] = [
        (index, episode, trajectory)
        for index, group in enumerate(groups)
        for episode in group.episodes
        for trajectory in episode.trajectories
        if not trajectory.exclude_from_baseline and trajectory.verdict.ok
    ]
    rows: list[RewardedRow] = []
    owners: list[int] = []
    for number, (_, _, trajectory) in enumerate(kept):
        made = rewarded_rows(trajectory)
        rows += made
        owners += [number] * len(made)
    if not rows:
        return None
    batch = pad([one.row for one in rows])
    cut = {
        n: state for n, (_, _, one) in enumerate(kept) if (state := _state_after(one)) is not None
    }
    return Experience(
        rewards=torch.tensor([trajectory.verdict.unwrap() for _, _, trajectory in kept]),
        groups=torch.tensor([index for index, _, _ in kept]),
        truncated=torch.tensor([trajectory.stop in CUT for _, _, trajectory in kept]),
        excluded=torch.tensor([trajectory.exclude_from_loss for _, _, trajectory in kept]),
        rollouts=torch.tensor(owners),
        batch=batch,
        turn_rewards=_padded([one.rewards for one in rows], 0),
        turns=_padded([one.turns for one in rows], UNTRAINED),
        states=pad(list(cut.values())) if cut else None,
        states_of=torch.tensor(list(cut), dtype=torch.long),
        tasks=tuple(groups[index].task.id for index, _, _ in kept),
        episodes=tuple(episode for _, episode, _ in kept),
    )


def _state_after(trajectory: Trajectory) -> Row | None:
    """The state a limit cut a trajectory in, and one token more to read its value at; None where
    the environment ended it.

    Without a record of that state, it is the last window as far as it was sampled.
    """
    if trajectory.terminated or trajectory.stop not in TRUNCATED or not trajectory.segments:
        return None
    ids = trajectory.state_ids or trajectory.segments[-1].ids()
    if not ids:
        return None
    return Row([*ids, 0], [*([0] * len(ids)), 1], [0.0] * (len(ids) + 1))


def _padded(rows: Sequence[Sequence[float]], filler: int) -> Tensor:
    """[B, T]."""
    return pad_sequence([torch.tensor(row) for row in rows], True, filler)


def prompt_tokens(mask: Tensor, experience: Experience) -> Tensor:
    """[B]: the trained tokens of each row's group in the whole batch."""
    row_groups = experience.groups[experience.rollouts]
    tokens = mask.sum(1)
    return tokens.new_zeros(int(row_groups.max()) + 1).index_add(0, row_groups, tokens)[row_groups]


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
