"""The experience of an update: the trajectories of a step, and the rows of each.

Axes: N trajectories, B rows (segments), T tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn, TurnKind
from ludus.agent.trajectory import TRUNCATED

from ..recipes.inputs import Inputs
from ..rollout.batch import Batch, Row, as_row, pad
from ..rollout.collect import Group
from ..rollout.mixture import BETWEEN, environment_of
from .texts import GivenTexts

CUT = frozenset({Stop.LENGTH, Stop.CONTEXT_FULL, Stop.MAX_TURNS, Stop.MAX_SUMMARIES})
"""Stops by a limit, which recipes call truncated."""
UNTRAINED = -1


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
    anchors: Tensor
    """[B, T] int: a number for what was read before the turn of each trained token."""
    turn_counts: Tensor
    """[N] int: the turns of each trajectory."""
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
    asked: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """[N] each: what the sampling policy asked of the trajectories, by name; NaN where nothing."""
    nodes: Tensor | None = None
    """[B, T] int: the node of each sampled token, in a step with trees; -1 elsewhere."""
    leaves: Tensor | None = None
    """[N] int: the node in which each trajectory ended."""
    parents: Tensor | None = None
    """[M] int: the node above each node; -1 above that of a task."""
    version: int | None = None
    """The version of the weights that learn from the step; None where it is not known."""
    texts: dict[str, Batch] = field(default_factory=dict[str, Batch])
    """Given texts to be scored, by name, each with a row for each trajectory; see `GivenTexts`."""


def gather(
    groups: Sequence[Group], *, version: int | None = None, texts: GivenTexts | None = None
) -> Experience | None:
    """Flatten a step's groups; None if no trajectory trains a token.

    `version` is that of the weights that learn, where it is known; `texts` makes the given texts
    that a recipe asks for.

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
        anchors=_padded([rewarded.anchors for rewarded in rows], UNTRAINED),
        turn_counts=torch.tensor([len(trajectory.turns) for _, _, trajectory in kept]),
        states=pad(list(states.values())) if states else None,
        states_of=torch.tensor(list(states), dtype=torch.long),
        tasks=tuple(groups[index].task.id for index, _, _ in kept),
        episodes=tuple(episode for _, episode, _ in kept),
        **_forest([(index, trajectory) for index, _, trajectory in kept]),
        asked=_asked([trajectory for _, _, trajectory in kept]),
        texts={} if texts is None else texts.rows([trajectory for _, _, trajectory in kept]),
        version=version,
    )


def _forest(kept: Sequence[tuple[int, Trajectory]]) -> dict[str, Tensor]:
    """Return the trees of a step: `nodes`, `leaves` and `parents`; empty where there is none. A
    group's roots are the children of a node that stands for its task.
    """
    if not any(trajectory.node for _, trajectory in kept):
        return {}
    numbers: dict[tuple[int, str], int] = {}
    parents: list[int] = []

    def number(group: int, node: str) -> int:
        if (group, node) not in numbers:
            above = number(group, node.rpartition("/")[0]) if node else -1
            numbers[group, node] = len(parents)
            parents.append(above)
        return numbers[group, node]

    rows: list[list[int]] = []
    for group, trajectory in kept:
        for segment in trajectory.segments:
            if as_row(segment) is None:
                continue
            row = [-1] * len(segment.ids())
            for start, turn in segment.spans():
                end = start + len(turn.out_ids)
                row[start:end] = [number(group, turn.node)] * len(turn.out_ids)
            rows.append(row)
    leaves = torch.tensor([number(group, trajectory.node) for group, trajectory in kept])
    return {"nodes": _padded(rows, -1), "leaves": leaves, "parents": torch.tensor(parents)}


def _asked(trajectories: Sequence[Trajectory]) -> dict[str, Tensor]:
    names = sorted({name for trajectory in trajectories for name in trajectory.asked})
    nothing = float("nan")
    return {
        name: torch.tensor([trajectory.asked.get(name, nothing) for trajectory in trajectories])
        for name in names
    }


@dataclass(frozen=True, slots=True)
class RewardedRow:
    """A row of a rollout with the rewards of the turns."""

    row: Row
    rewards: list[float]
    """Reward at each token: the reward of a turn is on the turn's last trained token."""
    turns: list[int]
    """Turn of each trained token, counted over all rows of the rollout; -1 elsewhere."""
    anchors: list[int]
    """A number for what was read before the turn of each trained token; -1 elsewhere."""


def rewarded_rows(trajectory: Trajectory) -> list[RewardedRow]:
    """Return the rows of a rollout that train a token, with the rewards of the turns.

    A turn may have no trained token: an answer that left the window before its summary, a span that
    is not trained, an empty answer. Its reward goes to the last trained token before the turn, or
    else to the first one after the turn, so that the rewards of the rows sum up to those of the
    turns.
    """
    rows: list[RewardedRow] = []
    # `waiting` is the reward of turns before the first trained token; `last` is the row and the
    # position of the last trained token so far.
    number, waiting = -1, 0.0
    last: tuple[RewardedRow, int] | None = None
    for segment in trajectory.segments:
        row = as_row(segment)
        if row is not None:
            length = len(row.ids)
            rows.append(
                RewardedRow(row, [0.0] * length, [UNTRAINED] * length, [UNTRAINED] * length)
            )
        for start, turn in _in_order(segment):
            places: list[int] = []
            if row is not None and start is not None:
                own = range(start, start + len(turn.out_ids))
                places = [place for place in own if row.mask[place]]
            if places:
                number += 1
                rewarded = rows[-1]
                # The state that the turn began in: its anchor, or what was read before it. The
                # first turns of a group have read the same task, and nothing since.
                state = turn.anchor or repr(turn.obs_ids)
                anchor = int.from_bytes(hashlib.blake2b(state.encode(), digest_size=7).digest())
                for place in places:
                    rewarded.turns[place], rewarded.anchors[place] = number, anchor
                rewarded.rewards[places[0]] += waiting
                waiting, last = 0.0, (rewarded, places[-1])
            if last is None:
                waiting += turn.reward
            else:
                last[0].rewards[last[1]] += turn.reward
    return rows


def _in_order(segment: Segment) -> Iterator[tuple[int | None, Turn]]:
    """Yield the turns of a window in the order of play, with None as the start of turns that left
    the window.
    """
    spans: list[tuple[int | None, Turn]] = list(segment.spans())
    gone: list[tuple[int | None, Turn]] = [(None, turn) for turn in segment.discarded]
    summary = spans[-1:] if spans and spans[-1][1].kind is TurnKind.SUMMARY else []
    yield from spans[: len(spans) - len(summary)]
    yield from gone
    yield from summary


def played(experience: Experience) -> Inputs:
    """Return the inputs of a recipe's functions that rollouts alone give, before any model is
    asked.
    """
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
        anchors=experience.anchors,
        turn_counts=experience.turn_counts,
        nodes=experience.nodes,
        leaves=experience.leaves,
        parents=experience.parents,
        environments=_environments(experience.tasks),
        target=experience.asked.get("target"),
        shortest=experience.asked.get("shortest", torch.full_like(rewards, float("nan"))),
        granted=experience.asked.get("granted"),
        continuations=_marked(experience, "continuation"),
    )


def _marked(experience: Experience, name: str) -> Tensor:
    """Return the trajectories with a mark, [N] bool."""
    marks = experience.asked.get(name)
    none = torch.zeros(len(experience.rewards), dtype=torch.bool)
    return none if marks is None else ~marks.isnan()


def _environments(tasks: Sequence[str]) -> Tensor | None:
    """Return the number of each task's environment, [N]; None in a run with one environment."""
    if not any(BETWEEN in task for task in tasks):
        return None
    names = [environment_of(task) for task in tasks]
    known = sorted(set(names))
    return torch.tensor([known.index(name) for name in names])


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
