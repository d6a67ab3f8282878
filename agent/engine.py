"""The interface of sampling engines: token ids in, token ids and log-probabilities out.

Implementations live in `ludus.trainer.engines`; the agent knows nothing else about engines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from ludus.errors import BrokenGeneration

from .images import PlacedImage
from .trajectory import Finish


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters of a request."""

    max_tokens: int = 256
    temperature: float = 1.0
    """Softmax temperature; 0 is greedy."""
    top_p: float = 1.0
    top_k: int = -1
    """How many of the most likely tokens may be sampled; -1 means all."""
    seed: int = 0
    """Seed of this request. The same seed, ids and weights sample the same tokens in any batch."""
    stop_token_ids: tuple[int, ...] = ()
    schema: str = ""
    """The JSON schema, as JSON, that the answer must fit; empty constrains nothing. Engines that
    cannot constrain refuse it; see `can_constrain`. Log-probabilities are then those of the tokens
    that the schema allows, which no learner computes: such an answer is not trained.
    """
    drawn: int = 0
    """How many tokens at the end of the ids were already sampled with this seed. An engine that
    continues an answer which another began skips as many draws, so it samples the same tokens as an
    uninterrupted answer.
    """


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The sampled continuation of a request."""

    ids: list[int]
    """The sampled ids, including the stop token if the model produced any."""
    logprobs: list[float]
    """Natural log-probability of each id under the softmax at the sampling temperature (at
    temperature 1 when greedy), over the whole vocabulary: before `top_k` and `top_p`.
    """
    finish: Finish
    versions: list[int]
    """The weight version that sampled each id."""


class TensorMeta(msgspec.Struct, frozen=True):
    """The name, type and shape of a weight."""

    name: str
    """The parameter's name in the plain transformers model."""
    dtype: str
    """The number format as torch spells it, such as "bfloat16"."""
    shape: tuple[int, ...]


class WeightSource(Protocol):
    """A model's weights, handed over piece by piece, so that no full copy is needed.

    The weights stay as they are until the call that was given the source has returned.
    """

    def metadata(self) -> Sequence[TensorMeta]:
        """Return what `pieces` will bring, in order; tied weights appear once."""
        ...

    def pieces(self) -> Iterator[Mapping[str, object]]:
        """Return the tensors by name, in the order of `metadata`, in mappings of at most 64 MB. A
        larger tensor is a piece of its own. Each call begins anew.
        """
        ...


def refuse_broken(generation: Generation, budget: int) -> None:
    """Refuse a generation that cannot become a training row.

    Args:
        generation: the engine's answer.
        budget: how many tokens were requested.

    Raises:
        BrokenGeneration: ids, log-probabilities and versions differ in length, a log-probability
            is not finite, or the answer was cut although tokens were left.
    """
    ids, logprobs = len(generation.ids), len(generation.logprobs)
    if ids != logprobs or ids != len(generation.versions):
        raise BrokenGeneration(
            f"the engine gave {ids} tokens with {logprobs} log-probabilities and "
            f"{len(generation.versions)} versions; each token needs one of each"
        )
    broken = [logprob for logprob in generation.logprobs if not math.isfinite(logprob)]
    if broken:
        raise BrokenGeneration(
            f"{len(broken)} of {ids} log-probabilities of the engine are not finite ({broken[0]}): "
            "its weights may be broken"
        )
    if ids > budget or (generation.finish is Finish.LENGTH and ids < budget):
        raise BrokenGeneration(
            f"the engine stopped for length after {ids} of {budget} requested tokens: its real "
            "limit differs from the one that it reports (Engine.max_length)"
        )


def can_constrain(engine: Engine) -> bool:
    """Return whether an engine can hold answers to `Sampling.schema`; an engine that does not say
    so cannot.
    """
    return bool(getattr(engine, "constrains", False))


class Engine(Protocol):
    """Samples tokens from a model whose weights are updated during the run."""

    @property
    def version(self) -> int:
        """The version of the current weights, set by the last `set_weights`."""
        ...

    @property
    def max_length(self) -> int:
        """The most tokens of prompt and answer together."""
        ...

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Sample a continuation of `ids`, in which `images` stand; see `agent/images.py`."""
        ...

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Return the log-probability of each of `ids` given the ids before; the first is 0."""
        ...

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Install new weights; running requests continue with the new weights."""
        ...

    async def pause(self) -> None:
        """Stop sampling; requests wait until `resume`."""
        ...

    async def resume(self) -> None:
        """Continue the sampling that `pause` stopped."""
        ...

    async def abort(self) -> None:
        """End every request; each returns the tokens sampled so far with finish `abort`."""
        ...

    async def close(self) -> None:
        """Release the model and free the memory."""
        ...
