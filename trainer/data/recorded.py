"""Recorded episodes as examples, with the ids that were sampled.

Ids are never decoded and encoded again, so they must be those of the model that is trained.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ludus.agent import ChatFormat, Trajectory
from ludus.agent.data.loading import Distinct
from ludus.agent.episodes import episode_files, read_episodes
from ludus.errors import ConfigError

from .encoding import rows_of_segments
from .examples import Example

logger = logging.getLogger(__name__)

CHECKED = 20
"""How many turns are decoded to see whose ids they are."""


def holds_episodes(source: str) -> bool:
    """Whether a source is a run's folder, or a file of episodes."""
    path = Path(source)
    if path.is_dir():
        return True
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline(1 << 16).lstrip().startswith((b'{"task":', b'{"trajectories":'))


def recorded_trajectories(
    source: str, *, min_reward: float | None = None
) -> Iterator[tuple[str, Trajectory]]:
    """Yield the trajectories that a policy played to an end and that earned enough, each with its
    task.

    Args:
        source: a run's folder, or a file of episodes.
        min_reward: the least reward; None takes every trajectory that has one.

    Raises:
        ConfigError: there are no episodes, or a file cannot be read.
    """
    files = episode_files(Path(source))
    if not files:
        raise ConfigError(
            f"{source!r} holds no recorded episodes; name a run's folder, or a file of episodes "
            "(run.episodes_every says how often a run keeps them)"
        )
    for path in files:
        for episode in read_episodes(path):
            for trajectory in episode.trajectories:
                reward = trajectory.verdict.reward
                if reward is None or trajectory.exclude_from_loss:
                    continue
                if min_reward is None or reward >= min_reward:
                    yield episode.task, trajectory


def recorded_groups(source: str) -> list[list[Trajectory]]:
    """Return the trajectories with a reward that began alike, group by group.

    Raises:
        ConfigError: there are no episodes, or a file cannot be read.
    """
    groups: dict[tuple[str, str, bytes], list[Trajectory]] = defaultdict(list)
    for task, trajectory in recorded_trajectories(source):
        if trajectory.segments:
            opening = msgspec.msgpack.encode(trajectory.segments[0].prompt_ids)
            groups[task, trajectory.role, opening].append(trajectory)
    return list(groups.values())


def without_repetitions(
    trajectories: Iterable[Trajectory], tokenizer: SameTokenizer
) -> tuple[list[Trajectory], str]:
    """Return trajectories once each, and a digest of all. Rollouts of the same ids teach the same.

    Raises:
        ConfigError: ids are of another tokenizer, or there is no trajectory.
    """
    distinct = Distinct()
    kept: list[Trajectory] = []
    for trajectory in trajectories:
        tokenizer.check(trajectory)
        if distinct.is_new([segment.ids() for segment in trajectory.segments]):
            kept.append(trajectory)
    if not kept:
        raise ConfigError(
            f"no episode of {tokenizer.source!r} earned enough to learn from; lower min_reward"
        )
    if distinct.repeated:
        logger.warning("%s: left out %d repeated episodes", tokenizer.source, distinct.repeated)
    return kept, distinct.digest


def example_of(trajectory: Trajectory) -> Example:
    """Return a trajectory as an example; its prompt is that of its first window."""
    prompt = trajectory.segments[0].prompt_ids if trajectory.segments else []
    return Example((rows_of_segments(trajectory.segments),), msgspec.msgpack.encode(prompt))


def digest_of(examples: Sequence[Example]) -> str:
    """SHA-256 of the tokens of examples, and of the numbers of their answers."""
    content = hashlib.sha256()
    for example in examples:
        for row in (row for answer in example.rows for row in answer):
            content.update(row.ids.tobytes())
        content.update(repr(example.numbers).encode() if example.numbers else b"")
    return content.hexdigest()


class SameTokenizer:
    """Refuses trajectories whose ids are of another tokenizer.

    The first turns are decoded, and must say what their messages say.

    Args:
        chat_format: the chat format of the model that is trained.
        source: the data, for messages.
    """

    def __init__(self, chat_format: ChatFormat, source: str) -> None:
        self._format, self.source = chat_format, source
        self._left = CHECKED

    def check(self, trajectory: Trajectory) -> None:
        """Check a trajectory.

        Raises:
            ConfigError: its ids say something else than its messages.
        """
        for segment in trajectory.segments:
            for turn in segment.turns:
                if self._left and turn.message is not None and turn.out_ids:
                    self._left -= 1
                    self._compare(turn.out_ids, turn.message.text.strip())

    def _compare(self, ids: list[int], said: str) -> None:
        try:
            decoded = self._format.tokenizer.decode(list(ids), skip_special_tokens=False)
        except (OverflowError, IndexError, TypeError, ValueError):
            decoded = ""
        if " ".join(said.split()) not in " ".join(str(decoded).split()):
            raise ConfigError(
                f"the ids of {self.source!r} are of another tokenizer: a turn says "
                f"{said[:60]!r}, and this model reads its ids as {str(decoded)[:60]!r}; train the "
                "model that played, or export the messages (ludus export) and train on those"
            )
