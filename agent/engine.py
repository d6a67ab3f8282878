"""What a policy samples from: token ids in, token ids and their log-probabilities out.

Implementations live in `ludus.trainer.engines`; this page is all that the agent knows of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ludus.errors import BrokenGeneration

from .trajectory import Finish


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How to sample."""

    max_tokens: int = 256
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = -1
    """-1 is all."""
    seed: int = 0
    """Of this request alone: the same seed, ids and weights sample the same tokens in any batch."""
    stop_token_ids: tuple[int, ...] = ()


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What was sampled."""

    ids: list[int]
    """With the stop token, if one was met."""
    logprobs: list[float]
    """Natural log-probability of each id at the sampling temperature (at 1 when greedy), over
    all tokens.
    """
    finish: Finish
    versions: list[int]
    """The weight version behind each id."""


def refuse_broken(generation: Generation, budget: int) -> None:
    """Refuse an answer that no training row can be made from.

    Args:
        generation: of an engine.
        budget: tokens that were asked for.

    Raises:
        BrokenGeneration: ids, log-probabilities and versions do not go together, a log-probability
            is not finite, or the answer was cut though tokens were left.
    """
    ids, logprobs = len(generation.ids), len(generation.logprobs)
    if ids != logprobs or ids != len(generation.versions):
        raise BrokenGeneration(
            f"the engine gave {ids} tokens with {logprobs} log-probabilities and "
            f"{len(generation.versions)} versions; each token needs one of both"
        )
    broken = [one for one in generation.logprobs if not math.isfinite(one)]
    if broken:
        raise BrokenGeneration(
            f"{len(broken)} of {ids} log-probabilities of the engine are not finite ({broken[0]}): "
            "its weights may be broken"
        )
    if ids > budget or (generation.finish is Finish.LENGTH and ids < budget):
        raise BrokenGeneration(
            f"the engine stopped for length after {ids} tokens, and {budget} were asked for: its "
            "own limit is another than the one it told (Engine.max_length)"
        )


class Engine(Protocol):
    """Samples tokens from a model whose weights move."""

    @property
    def version(self) -> int:
        """Of the weights now in use; counts up with each `set_weights`."""
        ...

    @property
    def max_length(self) -> int:
        """Most tokens of prompt and answer together."""
        ...

    async def generate(self, ids: Sequence[int], sampling: Sampling) -> Generation:
        """Continue `ids`."""
        ...

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Log-probability of each of `ids` given those before it; the first has none and
        reads 0.
        """
        ...

    async def set_weights(self, weights: Mapping[str, object], version: int) -> None:
        """Put new weights in place; running requests go on with them."""
        ...

    async def pause(self) -> None:
        """Hold sampling; requests wait."""
        ...

    async def resume(self) -> None:
        """Go on."""
        ...

    async def abort(self) -> None:
        """Drop every request; each answers with what it has and finish `abort`."""
        ...

    async def close(self) -> None:
        """Release the model."""
        ...
