"""What an update finds out about the tokens of kept episodes: advantage, and how the learner's
log-probability and entropy differ from the sampler's. A line an episode in
`annotations/learner.jsonl`, since an episode is written once and what is learned comes later.

Axes: B rows (segments), T tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
from torch import Tensor

from ludus.agent import Trajectory

from ..rollout.batch import Batch, as_row
from .experience import Experience
from .reader import Predicted


class LearnedWindow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The learner's numbers of a window. Each list has an entry for each trained token of the
    window, in order, cut to 4 decimals; empty where not known.
    """

    role: int
    """The number of the trajectory in its episode."""
    window: int
    """The number of the window in its trajectory."""
    advantage: list[float] = []
    logp: list[float] = []
    """The learner's log-probabilities before its first update, in nats."""
    entropy: list[float] = []
    """The learner's entropies, in nats, where the recipe computes them."""


class LearnedEpisode(msgspec.Struct, frozen=True):
    """The learner's numbers of a kept episode, at a step."""

    step: int
    ordinal: int
    windows: list[LearnedWindow]


class SeenRow(NamedTuple):
    """The learner's reading of a row, at the trained tokens."""

    rollout: int
    ids: list[int]
    logp: list[float]
    entropy: list[float]


def seen_rows(batch: Batch, predicted: Predicted, watched: Collection[int]) -> list[SeenRow]:
    """Return the rows of watched rollouts in a pass.

    Args:
        batch: the rows of the pass.
        predicted: what the learner says of them.
        watched: numbers of rollouts, as `batch.inputs.rollouts` counts them.
    """
    owners = batch.inputs.rollouts
    if not watched or owners is None:
        return []
    return [
        SeenRow(
            owner,
            batch.ids[row, : int(batch.lengths[row])].tolist(),
            _at(predicted.logp.detach(), batch.mask, row),
            [] if predicted.entropy is None else _at(predicted.entropy.detach(), batch.mask, row),
        )
        for row, owner in enumerate(owners.tolist())
        if owner in watched
    ]


def learned_episodes(
    experience: Experience,
    trained: Batch,
    watched: Collection[int],
    seen: Sequence[SeenRow],
    old_logp: Tensor | None = None,
) -> list[LearnedEpisode]:
    """Return the learner's numbers of the watched rollouts, an item for each episode.

    Args:
        experience: the experience of the step.
        trained: its rows with their credit.
        watched: numbers of trajectories of the experience.
        seen: the rows that were read in the first update; those of other ranks are missing.
        old_logp: [B, T], the learner's log-probabilities before its first update, where known.
    """
    read = {(row.rollout, tuple(row.ids)): row for row in seen}
    windows: dict[int, list[LearnedWindow]] = {}
    for number in sorted(watched):
        episode, trajectory, role = _trajectory(experience, number)
        rows = (experience.rollouts == number).nonzero().flatten().tolist()
        segments = enumerate(trajectory.segments)
        windows_trained = [place for place, segment in segments if as_row(segment) is not None]
        for row, place in zip(rows, windows_trained, strict=False):
            ids = trained.ids[row, : int(trained.lengths[row])].tolist()
            known = read.get((number, tuple(ids)))
            if known and len(known.logp) != int(experience.batch.mask[row].sum()):
                known = None  # the recipe trains a part of the tokens: these have no places
            windows.setdefault(episode, []).append(
                LearnedWindow(
                    role,
                    place,
                    _of(trained.inputs.advantages, experience.batch.mask, row),
                    _of(old_logp, experience.batch.mask, row) or (known.logp if known else []),
                    known.entropy if known else [],
                )
            )
    step = (experience.version or 0) + 1
    return [LearnedEpisode(step, ordinal, of_it) for ordinal, of_it in windows.items()]


def _trajectory(experience: Experience, number: int) -> tuple[int, Trajectory, int]:
    """Return a trajectory by its number, with the episode's ordinal and its place there."""
    episode = experience.episodes[number]
    before = sum(other is episode for other in experience.episodes[:number])
    kept = [
        (role, candidate)
        for role, candidate in enumerate(episode.trajectories)
        if not candidate.exclude_from_baseline and candidate.verdict.ok
    ]
    role, trajectory = kept[before]
    return episode.ordinal, trajectory, role


def _of(values: Tensor | None, mask: Tensor, row: int) -> list[float]:
    return [] if values is None else _at(values, mask, row)


def _at(values: Tensor, mask: Tensor, row: int) -> list[float]:
    """Return the values of a row at the trained tokens, with 4 decimals."""
    chosen = values[row][mask[row, : values.shape[1]].bool()]
    return [round(value, 4) for value in chosen.float().tolist()]
