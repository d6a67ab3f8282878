"""An engine that only knows how many tokens it would take, for checks without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ludus.agent import Generation, Sampling
from ludus.agent.engine import WeightSource
from ludus.agent.images import PlacedImage


class PlannedEngine:
    """The engine of a plan: everything but its length is refused.

    Args:
        max_length: the most tokens of prompt and answer together.
    """

    version = 0

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Raise, since a plan samples nothing."""
        _refuse()

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Raise, since a plan has no weights."""
        _refuse()

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Raise, since a plan has no weights."""
        _refuse()

    async def pause(self) -> None:
        """Return at once, since nothing is being sampled."""

    async def resume(self) -> None:
        """Return at once, since nothing was paused."""

    async def abort(self) -> None:
        """Return at once, since no request is running."""

    async def close(self) -> None:
        """Return at once, since no model was loaded."""


def _refuse() -> NoReturn:
    raise AssertionError("a plan samples nothing and has no weights")
