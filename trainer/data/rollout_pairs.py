"""Preferences between recorded rollouts of the same task, as examples for a preference method."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

import msgspec
import torch

from ludus.agent import Trajectory
from ludus.errors import ConfigError

from .. import algorithms
from ..settings.data import PreferenceConfig
from .encoding import DataRow, rows_of_segments
from .examples import Example

Check = Callable[[Trajectory], None]


class RolloutPreferences:
    """Makes examples of groups of rollouts, in the form that the chosen method learns from.

    Args:
        config: the settings, of which `method` decides the form.
        check: raises ConfigError for a trajectory whose ids are of another tokenizer.
    """

    def __init__(self, config: PreferenceConfig, check: Check) -> None:
        self.config, self.check = config, check

    def examples(self, group: Sequence[Trajectory]) -> Iterator[Example]:
        """Yield the examples of a group.

        Examples for kto are all rollouts, with labels; for rso, pairs of the accepted rollouts; for
        other methods, the best rollout with the worst, if their rewards differ.

        Args:
            group: rollouts with a reward that began with the same prompt; at least one.

        Raises:
            ConfigError: ids are of another tokenizer, or a reward has no part of the name `wish`.
        """
        prompt = msgspec.msgpack.encode(group[0].segments[0].prompt_ids)
        scores = [self._score(rollout) for rollout in group]
        if self.config.method == "kto":
            for rollout, score in zip(group, scores, strict=True):
                label = float(score >= self.config.passing)
                yield Example((self._rows(rollout),), prompt, label)
        elif self.config.method == "rso":
            for better, worse in accepted_pairs(self.config, scores, prompt):
                yield Example((self._rows(group[better]), self._rows(group[worse])), prompt)
        elif min(scores) != max(scores):
            pair = scores.index(max(scores)), scores.index(min(scores))
            sides = tuple(self._rows(group[index]) for index in pair)
            yield Example(sides, prompt, numbers=self._numbers(group, scores, pair))

    def _rows(self, rollout: Trajectory) -> tuple[DataRow, ...]:
        self.check(rollout)
        return rows_of_segments(rollout.segments)

    def _score(self, rollout: Trajectory) -> float:
        """Return the number that orders rollouts: the reward, or the part of the name `wish`."""
        wish, parts = self.config.wish, rollout.verdict.parts
        if not wish:
            return rollout.verdict.reward or 0.0
        if wish not in parts:
            raise ConfigError(
                f"wish is {wish!r}, and a reward of {self.config.data!r} has the parts "
                f"{', '.join(sorted(parts)) or 'none'}"
            )
        return parts[wish][0]

    def _numbers(
        self, group: Sequence[Trajectory], scores: Sequence[float], pair: tuple[int, int]
    ) -> tuple[float, ...]:
        """Return the numbers of a pair's rollouts that the method reads; () for most methods."""
        if self.config.method == "sppo":
            return tuple(win_rate(scores, index) for index in pair)
        if self.config.method == "copg":
            return tuple(scores[index] for index in pair)
        if self.config.method == "modpo":
            return tuple(self._other_parts(group[index]) for index in pair)
        return ()

    def _other_parts(self, rollout: Trajectory) -> float:
        """Return the weighted sum of all parts of the reward but the wish."""
        if not self.config.wish:
            raise ConfigError("modpo on recorded episodes needs --wish: the part that orders pairs")
        parts = rollout.verdict.parts.items()
        return sum(value * weight for name, (value, weight) in parts if name != self.config.wish)


def win_rate(scores: Sequence[float], index: int) -> float:
    """Return the share of the other scores that the score at `index` beats; a tie counts half.

    >>> win_rate([1.0, 0.0, 1.0], 0)
    0.75
    """
    score, others = scores[index], [*scores[:index], *scores[index + 1 :]]
    return sum((score > other) + (score == other) / 2 for other in others) / max(1, len(others))


def accepted_pairs(
    config: PreferenceConfig, rewards: Sequence[float], prompt: bytes
) -> list[tuple[int, int]]:
    """Return the pairs that RSO makes of the answers to a prompt, as indices, the better first.

    Answers are accepted by `algorithms.rso_mask` and paired at random; answers of equal reward make
    no pair. The seed and the prompt decide the draws, so that a resumed run has the same pairs.

    Args:
        config: the settings, of which `seed`, `keep` and `rso_beta` are read.
        rewards: the reward of each answer.
        prompt: identifies the prompt.
    """
    seed = hashlib.blake2b(prompt, digest_size=6, key=str(config.seed).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(seed))
    accepted = algorithms.rso_mask(
        torch.tensor(rewards, dtype=torch.float64),
        torch.zeros(len(rewards), dtype=torch.long),
        keep=config.keep,
        beta=config.rso_beta,
        generator=generator,
    )
    indices = accepted.nonzero().flatten()
    shuffled = indices[torch.randperm(len(indices), generator=generator)].tolist()
    pairs = zip(shuffled[::2], shuffled[1::2], strict=False)
    ordered = [sorted(pair, key=lambda index: -rewards[index]) for pair in pairs]
    return [(better, worse) for better, worse in ordered if rewards[better] != rewards[worse]]
