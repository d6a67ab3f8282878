"""Preferences between the recorded rollouts of a task."""

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
    """Makes examples of groups of rollouts, as a method reads them.

    Args:
        config: the settings.
        check: refuses a trajectory whose ids are of another tokenizer.
    """

    def __init__(self, config: PreferenceConfig, check: Check) -> None:
        self.config, self.check = config, check

    def examples(self, group: Sequence[Trajectory]) -> Iterator[Example]:
        """Yield what a method learns of a group: labelled rollouts for kto, the pairs of accepted
        ones for rso, and the best rollout with the worst otherwise, if they differ.

        Raises:
            ConfigError: ids are of another tokenizer, or a reward has no such part.
        """
        prompt = msgspec.msgpack.encode(group[0].segments[0].prompt_ids)
        worths = [self._worth(rollout) for rollout in group]
        if self.config.method == "kto":
            for rollout, worth in zip(group, worths, strict=True):
                label = float(worth >= self.config.passing)
                yield Example((self._rows(rollout),), prompt, label)
        elif self.config.method == "rso":
            for better, worse in accepted_pairs(self.config, worths, prompt):
                yield Example((self._rows(group[better]), self._rows(group[worse])), prompt)
        elif min(worths) != max(worths):
            pair = worths.index(max(worths)), worths.index(min(worths))
            sides = tuple(self._rows(group[place]) for place in pair)
            yield Example(sides, prompt, numbers=self._numbers(group, worths, pair))

    def _rows(self, rollout: Trajectory) -> tuple[DataRow, ...]:
        self.check(rollout)
        return rows_of_segments(rollout.segments)

    def _worth(self, rollout: Trajectory) -> float:
        """Return what orders rollouts: the reward, or the part of it that is the wish."""
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
        self, group: Sequence[Trajectory], worths: Sequence[float], pair: tuple[int, int]
    ) -> tuple[float, ...]:
        if self.config.method == "sppo":
            return tuple(win_rate(worths, place) for place in pair)
        if self.config.method == "copg":
            return tuple(worths[place] for place in pair)
        if self.config.method == "modpo":
            return tuple(self._others(group[place]) for place in pair)
        return ()

    def _others(self, rollout: Trajectory) -> float:
        """Return the weighted sum of all parts but the wish."""
        if not self.config.wish:
            raise ConfigError("modpo on recorded episodes needs --wish: the part that orders pairs")
        parts = rollout.verdict.parts.items()
        return sum(value * weight for name, (value, weight) in parts if name != self.config.wish)


def win_rate(worths: Sequence[float], place: int) -> float:
    """Return how many of the others a rollout beats; a tie counts half.

    >>> win_rate([1.0, 0.0, 1.0], 0)
    0.75
    """
    mine, others = worths[place], [*worths[:place], *worths[place + 1 :]]
    return sum((mine > other) + (mine == other) / 2 for other in others) / max(1, len(others))


def accepted_pairs(
    config: PreferenceConfig, rewards: Sequence[float], prompt: bytes
) -> list[tuple[int, int]]:
    """Return the pairs that RSO makes of the answers to a prompt, as places, the better first.

    Answers are accepted by `algorithms.rso_mask` and paired by lot; equal rewards are no pair. The
    seed and the prompt decide the draws, so that a run that goes on has the same pairs.
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
    places = accepted.nonzero().flatten()
    drawn = places[torch.randperm(len(places), generator=generator)].tolist()
    pairs = zip(drawn[::2], drawn[1::2], strict=False)
    ordered = [sorted(pair, key=lambda place: -rewards[place]) for pair in pairs]
    return [(one, other) for one, other in ordered if rewards[one] != rewards[other]]
