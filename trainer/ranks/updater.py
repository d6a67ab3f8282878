"""The updater of rank 0, whose steps are made by all ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch import Tensor

from ..learning.experience import Experience
from ..learning.update import Updater
from .codec import decode, encode
from .group import Ranks


class StepData(msgspec.Struct, frozen=True):
    """What all ranks need for a step."""

    experience: Experience
    generator: Tensor
    """The state of the generator that draws mini-batches."""
    tracked: dict[str, Any] | None
    """The state of the success tracker, where the recipe has one."""
    entropy_coefficient: float
    """The state of the entropy's controller before the step."""


class LeadUpdater(Updater):
    """An `Updater` that gives each step to all ranks before it is made.

    Advantages, filters and the order of mini-batches are computed alike on every rank; only the
    passes are shared out.

    Args:
        ranks: the group, whose rank 0 this is.
        options: as of `Updater`.
    """

    def __init__(self, *given: Any, ranks: Ranks, **options: Any) -> None:
        super().__init__(*given, **options)
        self.ranks = ranks

    def step(self, experience: Experience, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from the experience of a step; see `Updater.step`."""
        # The other ranks need the names of episodes only, for refused updates.
        named = [
            msgspec.structs.replace(episode, trajectories=[]) for episode in experience.episodes
        ]
        tracked = None if self.tracker is None else self.tracker.state()
        data = StepData(
            experience=replace(experience, episodes=tuple(named)),
            generator=generator.get_state(),
            tracked=tracked,
            entropy_coefficient=self.entropy.coefficient,
        )
        with self.ranks.together("step", encode(data)):
            return super().step(experience, generator=generator)


def follow_step(updater: Updater, payload: bytes) -> None:
    """Make the step that rank 0 has sent."""
    data = decode(payload, StepData)
    if updater.tracker is not None and data.tracked is not None:
        updater.tracker.restore(data.tracked)
    updater.entropy.coefficient = data.entropy_coefficient
    generator = torch.Generator()
    generator.set_state(data.generator)
    updater.step(data.experience, generator=generator)
