"""The experience of an update: the trajectories of a step, and the rows of each.

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

from ..recipes import Inputs
from ..rollout.collect import Group
from .batch import Batch, Row, pad
from .turn_rewards import UNTRAINED, RewardedRow, rewarded_rows

CUT = frozenset({Stop.LENGTH, Stop.CONTEXT_FULL, Stop.MAX_TURNS, Stop.MAX_SUMMARIES})
"""Stops by a limit, which recipes call truncated."""


@dataclass(frozen=True, slots=True)
class Experience:
    """The N trajectories of a step, and the B rows of all trajectories."""

    rewards: Tensor
    """[N], rewards of the trajectories that count in the baseline."""
    groups: Tensor
    """[N] int: the group of each trajectory."""
    truncated: Tensor
    """[N] bool: whether a limit cut the trajectory short."""
    excluded: Tensor
    """[N] bool: trajectories that count in the statistics and stay out of the loss."""
    rollouts: Tensor
    """[B] int: the trajectory of each row."""
    batch: Batch
    turn_rewards: Tensor
    """[B, T]: the reward of each turn, on its last trained token. The rest of a rollout's reward,
    such as a verifier's, came at the rollout's end.
    """
    turns: Tensor
    """[B, T] int: the turn of each trained token, counted over the rows of its trajectory; -1
    elsewhere.
    """
    states: Batch | None
    """M windows, each the state in which a limit cut a trajectory, plus one token whose value is
    that of the state; None where the environment ended all trajectories.
    """
    states_of: Tensor
    """[M] int: the trajectory of each state."""
    tasks: tuple[str, ...] = ()
    """N ids: the task of each trajectory."""
    episodes: tuple[Episode, ...] = ()
    """N episodes, one for each trajectory."""
    version: int | None = None
    """The version of the weights that learn from the step; None where it is not known."""


def gather(groups: Sequence[Group], *, version: int | None = None) -> Experience | None:
    """Flatten a step's groups; None if no trajectory trains a token.

    `version` is that of the weights that learn, where it is known.

    A trajectory that is out of the baseline is left out altogether: without a reward there is
    nothing to credit.
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
        of_trajectory = rewarded_rows(trajectory)
        rows += of_trajectory
        owners += [number] * len(of_trajectory)
    if not rows:
        return None
    batch = pad([rewarded.row for rewarded in rows])
    states = {
        number: state
        for number, (_, _, trajectory) in enumerate(kept)
        if (state := _state_after(trajectory)) is not None
    }
    return Experience(
        rewards=torch.tensor([trajectory.verdict.unwrap() for _, _, trajectory in kept]),
        groups=torch.tensor([index for index, _, _ in kept]),
        truncated=torch.tensor([trajectory.stop in CUT for _, _, trajectory in kept]),
        excluded=torch.tensor([trajectory.exclude_from_loss for _, _, trajectory in kept]),
        rollouts=torch.tensor(owners),
        batch=batch,
        turn_rewards=_padded([rewarded.rewards for rewarded in rows], 0),
        turns=_padded([rewarded.turns for rewarded in rows], UNTRAINED),
        states=pad(list(states.values())) if states else None,
        states_of=torch.tensor(list(states), dtype=torch.long),
        tasks=tuple(groups[index].task.id for index, _, _ in kept),
        episodes=tuple(episode for _, episode, _ in kept),
        version=version,
    )


def played(experience: Experience) -> Inputs:
    """Return what a recipe's functions may read of rollouts alone, before any model is asked."""
    batch, rewards = experience.batch, experience.rewards
    tokens = batch.mask.sum(1)
    return Inputs(
        rewards=rewards,
        groups=experience.groups,
        lengths=tokens.new_zeros(len(rewards)).index_add(0, experience.rollouts, tokens),
        truncated=experience.truncated,
        correct=(rewards > 0).to(rewards.dtype),
        rollouts=experience.rollouts,
        mask=batch.mask,
        turn_rewards=experience.turn_rewards,
        turns=experience.turns,
    )


def _state_after(trajectory: Trajectory) -> Row | None:
    """Return the state in which a limit cut a trajectory, plus a token to read the value at.

    None where the environment ended the trajectory. Without a record of the state, the state is the
    last window as far as it was sampled.
    """
    if trajectory.terminated or trajectory.stop not in TRUNCATED or not trajectory.segments:
        return None
    last = trajectory.segments[-1]
    ids = trajectory.state_ids or last.ids()
    images = trajectory.state_images if trajectory.state_ids else last.images()
    if not ids:
        return None
    # A value is read before a trained token, hence the token behind the state; its id does not
    # matter.
    return Row([*ids, 0], [*([0] * len(ids)), 1], [0.0] * (len(ids) + 1), tuple(images))


def _padded(rows: Sequence[Sequence[float]], filler: int) -> Tensor:
    """Stack lists of numbers into [B, T], padded with `filler`."""
    return pad_sequence([torch.tensor(row) for row in rows], True, filler)


def prompt_tokens(mask: Tensor, experience: Experience) -> Tensor:
    """Return, for each row [B], the number of trained tokens of the row's group in the whole
    batch.
    """
    row_groups = experience.groups[experience.rollouts]
    tokens = mask.sum(1)
    return tokens.new_zeros(int(row_groups.max()) + 1).index_add(0, row_groups, tokens)[row_groups]


def responses_of(experience: Experience, logp: Tensor) -> list[list[Row]]:
    """Return the rows of each of the N trajectories, with `logp` [B, T] as log-probabilities."""
    batch = experience.batch
    responses: list[list[Row]] = [[] for _ in experience.tasks]
    owners, lengths = experience.rollouts.tolist(), batch.lengths.tolist()
    for row, (owner, length) in enumerate(zip(owners, lengths, strict=True)):
        mask = [int(trained) for trained in batch.mask[row, :length].tolist()]
        ids, logprobs = batch.ids[row, :length].tolist(), logp[row, :length].tolist()
        images = batch.images[row] if batch.images else ()
        responses[owner].append(Row(ids, mask, logprobs, images))
    return responses
