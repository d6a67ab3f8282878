"""Requests to a vLLM server (`/inference/v1/generate`), with images, and the reading of replies.

The server gets the pixels that the learner computes with, after the learner's own image processor,
and where they stand among the token ids. The server's processor is not asked, so that the two
sides cannot differ in how they resize an image. A tensor is written as vLLM's `MsgpackEncoder`
writes one: type, shape and raw bytes as a msgpack extension.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
from torch import Tensor

from ludus.agent import Finish, Generation, Sampling
from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError, EngineLost, ServerFault, StaleWeights

from ...models.images import ImageReader, Pixels, digest_of

GENERATE = "/inference/v1/generate"
ENGINE_PREFIX = "generate-tokens-"
"""The prefix that the server adds to request ids. An abort that names the id without the prefix has
no effect.
"""


class SamplingBody(msgspec.Struct, kw_only=True):
    """Sampling parameters of a request.

    The seed is left out: a seeded request stops the engine of vLLM 0.32 on CPU, and a seed would
    not fix the samples anyway, since batches change the last bits of the logits.
    """

    max_tokens: int
    temperature: float = 1.0
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = True
    """True, because the policy names the tokens that end a turn, not the model's folder."""
    top_p: float = 1.0
    top_k: int = -1
    logprobs: int | None = None
    """With 0 the server returns log-probabilities of the sampled tokens only."""
    prompt_logprobs: int | None = None
    """With 0 the server returns log-probabilities of the prompt's own tokens; with None it returns
    none.
    """
    detokenize: bool = False
    """False, because only token ids are read."""
    structured_outputs: dict[str, Any] | None = None
    """What the answer must fit, such as `{"json": SCHEMA}`."""


class GenerateBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a request to continue token ids."""

    request_id: str
    model: str
    token_ids: Sequence[int]
    cache_salt: str
    """Requests share cached keys and values only with requests of the same salt. The engine takes a
    new salt with each publish, so that keys of older weights are not found.
    """
    sampling_params: SamplingBody
    features: Features | None = None
    """The images that stand in `token_ids`."""


class Logprob(msgspec.Struct):
    """The log-probability of a token, in nats."""

    logprob: float


class Logprobs(msgspec.Struct):
    """The log-probabilities of all sampled tokens."""

    content: list[Logprob] | None = None


class VersionSpan(msgspec.Struct):
    """The version of the weights that sampled the tokens `start` to `end`."""

    version: str
    start: int
    end: int


class CompletionChoice(msgspec.Struct):
    """The sampled tokens in a reply."""

    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None
    weight_versions: list[VersionSpan] | None = None


class GenerateReply(msgspec.Struct):
    """The part of a reply that ludus reads."""

    choices: list[CompletionChoice]
    prompt_logprobs: list[dict[str, Logprob] | None] | None = None


def sampling_body(sampling: Sampling) -> SamplingBody:
    """Convert sampling parameters to the server's form.

    Raises:
        ConfigError: `top_p` or `top_k` truncate the distribution.
    """
    if sampling.top_p < 1 or sampling.top_k >= 0:
        raise ConfigError(
            f"top_p={sampling.top_p:g}, top_k={sampling.top_k}: vLLM reports log-probabilities "
            "over the tokens these keep, a trainer needs them over all; use top_p=1, top_k=-1"
        )
    schema = sampling.schema
    return SamplingBody(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        stop_token_ids=sampling.stop_token_ids,
        logprobs=0,
        structured_outputs={"json": msgspec.json.decode(schema)} if schema else None,
    )


def read_generation(
    reply: GenerateReply, *, unlabelled: int | None, oldest: int | None = None
) -> Generation:
    """Convert a reply to a generation.

    Args:
        reply: the server's reply.
        unlabelled: the version of tokens sampled before the first publish; None after it.
        oldest: the version that was current when the request was made; None does not check.

    Raises:
        EngineLost: the server was started again since the last publish.
        ServerFault: the reply contradicts itself, or contains no answer.
        StaleWeights: a token was sampled from weights older than `oldest`.
    """
    choice = _only_choice(reply)
    ids = choice.token_ids or []
    content = (choice.logprobs.content if choice.logprobs else None) or []
    versions = [
        version_of(span.version, unlabelled)
        for span in choice.weight_versions or []
        for _ in range(span.start, span.end)
    ]
    if not len(ids) == len(content) == len(versions):
        raise ServerFault(
            f"the vLLM server sent {len(ids)} tokens with {len(content)} log-probabilities and "
            f"{len(versions)} weight versions; there must be one of each per token"
        )
    if oldest is not None and min(versions, default=oldest) < oldest:
        raise StaleWeights(
            f"the vLLM server sampled from version {min(versions)} although version {oldest} had "
            "been published when it was asked"
        )
    try:
        finish = Finish(choice.finish_reason or "")
    except ValueError:
        raise ServerFault(
            f"the vLLM server ended a generation with {choice.finish_reason!r}; known are "
            f"{', '.join(Finish)}"
        ) from None
    return Generation(
        ids=ids, logprobs=[token.logprob for token in content], finish=finish, versions=versions
    )


def read_scores(reply: GenerateReply, ids: Sequence[int]) -> list[float]:
    """Return the log-probability of each of `ids`; the first is 0.

    Raises:
        ServerFault: a log-probability is missing.
    """
    _only_choice(reply)
    scored = reply.prompt_logprobs or []
    if len(scored) != len(ids):
        raise ServerFault(f"the vLLM server scored {len(scored)} of {len(ids)} prompt tokens")
    return [0.0, *map(_score, ids[1:], scored[1:])]


def _score(token: int, position: dict[str, Logprob] | None) -> float:
    scored = (position or {}).get(str(token))
    if scored is None:
        raise ServerFault(f"the vLLM server sent no log-probability of prompt token {token}")
    return scored.logprob


def _only_choice(reply: GenerateReply) -> CompletionChoice:
    if len(reply.choices) != 1:
        raise ServerFault(f"the vLLM server sent {len(reply.choices)} answers to one request")
    return reply.choices[0]


def version_of(label: str, unlabelled: int | None = 0) -> int:
    """Return the version number in a server's weight label; before the first publish the label is a
    word, and `unlabelled` is returned.

    Raises:
        EngineLost: there is no number although weights were published (`unlabelled` is None): the
            server was started again, and its weights are those of its start.
    """
    if label.isdecimal():
        return int(label)
    if unlabelled is None:
        raise EngineLost(
            f"the vLLM server labels its weights {label!r} after a publish: it was started again, "
            "and samples from other weights"
        )
    return unlabelled


IMAGE = "image"
"""The modality's name in vLLM."""
RAW_BYTES = 3
"""The number of the msgpack extension that holds the bytes of a tensor."""


class PlaceholderRange(msgspec.Struct):
    """Where the placeholders of an image stand in the ids."""

    offset: int
    length: int


class Features(msgspec.Struct):
    """The images of a request; each list has an entry for each image, by modality."""

    mm_hashes: dict[str, list[str]]
    """Names under which the server keeps the features of images, besides the cache's salt."""
    mm_placeholders: dict[str, list[PlaceholderRange]]
    kwargs_data: dict[str, list[str]]
    """The model's inputs of each image, msgpack in base64."""


def features_of(images: Sequence[PlacedImage], reader: ImageReader | None) -> Features | None:
    """Return the images of a request, or None for a request without images.

    Raises:
        ConfigError: the model reads no images.
        ImageRefused: an image is unreadable.
    """
    if not images:
        return None
    if reader is None:
        raise ConfigError("a prompt shows images, and the model of this engine reads none")
    return Features(
        mm_hashes={IMAGE: [digest_of(placed.image).hex() for placed in images]},
        mm_placeholders={
            IMAGE: [PlaceholderRange(placed.start, placed.tokens) for placed in images]
        },
        kwargs_data={IMAGE: [encoded(reader.pixels(placed.image)) for placed in images]},
    )


def encoded(pixels: Pixels) -> str:
    """Return the inputs of one image as a `MultiModalKwargsItem` in base64."""
    patches = len(pixels.values)
    # The fields are those of vLLM's Qwen2-VL family: patches of several images are joined, grids
    # are stacked and stay on the CPU.
    item = {
        "pixel_values": {
            "data": _tensor(pixels.values),
            "field": ("flat", {"keep_on_cpu": False, "slices": [(0, patches, None)], "dim": 0}),
        },
        "image_grid_thw": {
            "data": _tensor(pixels.grid),
            "field": ("batched", {"keep_on_cpu": True}),
        },
    }
    return base64.b64encode(msgspec.msgpack.encode(item)).decode()


def _tensor(tensor: Tensor) -> tuple[str, list[int], Any]:
    array = tensor.contiguous().cpu().numpy()
    kind = str(tensor.dtype).removeprefix("torch.")
    return kind, list(tensor.shape), msgspec.msgpack.Ext(RAW_BYTES, array.tobytes())
