"""Requests of the local engine, and helpers for the batch and the queues.

A request draws uniforms from its own seed, so the sampled tokens do not depend on the other
requests that happen to share the batch.

Axes: B rows, V vocabulary.
"""

from __future__ import annotations

import asyncio
import queue
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from ludus.agent import Finish, Generation, Sampling
from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError

from ..models.images import digest_of
from .kv_cache import KeptPrefix

T = TypeVar("T")


@dataclass
class GenerationRequest:
    ids: list[int]
    sampling: Sampling
    future: asyncio.Future[Generation]
    """Belongs to the event loop of the caller, which is also where the answer is set."""
    rng: random.Random
    prompt_length: int
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    images: tuple[PlacedImage, ...] = ()
    """The images that stand in the prompt."""
    rope_delta: int = 0
    """What is added to the index of a sampled token to have its rotary position: an image moves
    the positions after it.
    """
    kept: KeptPrefix | None = None
    """What the row was loaded from, or its prompt: later keys of the row are appended to it."""
    stale: bool = False
    """Whether some of the request's keys were computed with earlier weights."""

    def __post_init__(self) -> None:
        self._prompt_key = cache_key(self.ids, self.images)

    def key(self, length: int) -> tuple[int, ...]:
        """Return the name of the first `length` ids in the prefix store."""
        return (*self._prompt_key[:length], *self.ids[self.prompt_length : length])

    def finished(self) -> Finish | None:
        if self.future.cancelled():
            return Finish.ABORT
        sampled = len(self.ids) - self.prompt_length
        if sampled and self.ids[-1] in self.sampling.stop_token_ids:
            return Finish.STOP
        return Finish.LENGTH if sampled >= self.sampling.max_tokens else None

    def answer(self, finish: Finish) -> Generation:
        return Generation(
            ids=self.ids[self.prompt_length :],
            logprobs=self.logprobs,
            finish=finish,
            versions=self.versions,
        )


def cache_key(ids: Sequence[int], images: Sequence[PlacedImage]) -> tuple[int, ...]:
    """Return a name for ids whose images count: each image's first id is replaced by a negative
    number from the image's digest, since every image has the same placeholders.
    """
    key = list(ids)
    for placed in images:
        key[placed.start] = -1 - int.from_bytes(digest_of(placed.image)[:16])
    return tuple(key)


def check_placed(ids: Sequence[int], images: Sequence[PlacedImage], token_id: int) -> None:
    """Refuse images that do not stand on their own placeholders.

    Raises:
        ConfigError: an image lies outside the ids, on other tokens, or on another image.
    """
    free = 0
    for placed in images:
        where = ids[placed.start : placed.end]
        if placed.start < free or len(where) != placed.tokens or set(where) != {token_id}:
            raise ConfigError(
                f"an image of {placed.tokens} tokens cannot stand at {placed.start} in {len(ids)} "
                f"ids: these positions must hold its placeholder {token_id} and no other image"
            )
        free = placed.end


def draw(
    requests: Sequence[GenerationRequest], logits_BV: torch.Tensor
) -> tuple[list[int], list[float]]:
    """Sample the next token of each request with that request's settings and seed; returns ids and
    log-probabilities.
    """
    samplings = [request.sampling for request in requests]
    device = logits_BV.device
    ids_B, logprobs_B = sample(
        logits_BV,
        temperature_B=torch.tensor([s.temperature for s in samplings], device=device),
        top_p_B=torch.tensor([s.top_p for s in samplings], device=device),
        top_k_B=torch.tensor([s.top_k for s in samplings], device=device),
        uniform_B=torch.tensor(
            [r.rng.random() for r in requests], dtype=torch.double, device=device
        ),
    )
    return ids_B.tolist(), logprobs_B.tolist()


def deliver(answers: Sequence[tuple[GenerationRequest, Generation | Exception]]) -> None:
    """Set the answers of requests, from any thread.

    All answers for an event loop are passed together, because waking a loop costs more than a
    token.
    """
    posts: dict[
        asyncio.AbstractEventLoop, list[tuple[GenerationRequest, Generation | Exception]]
    ] = {}
    for request, answer in answers:
        posts.setdefault(request.future.get_loop(), []).append((request, answer))
    for loop, post in posts.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits there
            loop.call_soon_threadsafe(_set, post)


def _set(post: Sequence[tuple[GenerationRequest, Generation | Exception]]) -> None:
    for request, answer in post:
        if request.future.done():  # cancelled by the caller, or given up
            continue
        if isinstance(answer, Exception):
            request.future.set_exception(answer)
        else:
            request.future.set_result(answer)


def first_of_each(groups: Sequence[Sequence[T]]) -> tuple[list[T], list[int]]:
    """Return the first member of every group, then all others, and the group of each.

    >>> first_of_each(["abc", "d", "ef"])
    (['a', 'd', 'e', 'b', 'c', 'f'], [0, 1, 2, 0, 0, 2])
    """
    others = [(member, index) for index, group in enumerate(groups) for member in group[1:]]
    members = [group[0] for group in groups] + [member for member, _ in others]
    return members, [*range(len(groups)), *(index for _, index in others)]


def spans(lengths: Sequence[int], max_tokens: int) -> Iterator[slice]:
    """Split `lengths` into slices of neighbours that fit, padded, into `max_tokens` tokens; a
    longer item goes alone.

    >>> [(part.start, part.stop) for part in spans([3, 3, 9, 2, 2], 8)]
    [(0, 2), (2, 3), (3, 5)]
    """
    start, width = 0, 0
    for index, length in enumerate(lengths):
        wider = max(width, length)
        if index > start and wider * (index - start + 1) > max_tokens:
            yield slice(start, index)
            start, wider = index, length
        width = wider
    yield slice(start, len(lengths))


def taken(line: queue.SimpleQueue[T]) -> Iterator[T]:
    """Take all items out of a queue, without waiting for more."""
    with suppress(queue.Empty):
        while True:
            yield line.get_nowait()


def fail(future: Future[Any], error: Exception) -> None:
    with suppress(InvalidStateError):  # answered or cancelled before
        future.set_exception(error)


def sample(
    logits_BV: torch.Tensor,
    *,
    temperature_B: torch.Tensor,
    top_p_B: torch.Tensor,
    top_k_B: torch.Tensor,
    uniform_B: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token for each row.

    Args:
        logits_BV: float32, any shape of finite values.
        temperature_B: 0 is greedy.
        top_p_B: 1 keeps all.
        top_k_B: -1 keeps all.
        uniform_B: in [0, 1).

    Returns:
        Token ids [B], and their log-probabilities [B] over all tokens at the temperature (1 where
        greedy). Truncation by top-p and top-k changes the distribution that is drawn from, not the
        reported log-probability.
    """
    greedy_B = temperature_B == 0
    scale_B = torch.where(greedy_B, torch.ones_like(temperature_B), temperature_B)
    logprobs_BV = torch.log_softmax(logits_BV / scale_B.unsqueeze(1), dim=-1)
    drawn_B = _draw(_truncated(logprobs_BV, top_p_B, top_k_B), uniform_B)
    ids_B = torch.where(greedy_B, logits_BV.argmax(dim=-1), drawn_B)
    return ids_B, logprobs_BV.gather(1, ids_B.unsqueeze(1)).squeeze(1)


def _draw(probabilities_BV: torch.Tensor, uniform_B: torch.Tensor) -> torch.Tensor:
    # In float64, since the rounding of a float32 sum over a large vocabulary is larger than the
    # probabilities of rare tokens. The uniform is scaled to the sum, which top-p and top-k make
    # smaller than 1.
    cumulative_BV = probabilities_BV.double().cumsum(dim=-1)
    target_B1 = uniform_B.double().unsqueeze(1) * cumulative_BV[:, -1:]
    ids_B = torch.searchsorted(cumulative_BV, target_B1, right=True).squeeze(1)
    # A uniform just below 1 can land past the last token with mass; step back onto it.
    last_B = (probabilities_BV > 0).long().cumsum(dim=-1).argmax(dim=-1)
    return torch.minimum(ids_B, last_B)


def _truncated(
    logprobs_BV: torch.Tensor, top_p_B: torch.Tensor, top_k_B: torch.Tensor
) -> torch.Tensor:
    """Return the probabilities with tokens outside the nucleus or the top k set to zero."""
    probabilities_BV = logprobs_BV.exp()
    if bool((top_p_B >= 1).all()) and bool((top_k_B < 0).all()):
        return probabilities_BV
    sorted_BV, order_BV = probabilities_BV.sort(dim=-1, descending=True)
    before_BV = sorted_BV.cumsum(dim=-1) - sorted_BV
    rank_V = torch.arange(sorted_BV.shape[1], device=sorted_BV.device)
    outside_k_BV = (top_k_B.unsqueeze(1) >= 0) & (rank_V >= top_k_B.clamp(min=1).unsqueeze(1))
    # The likeliest token stays in the nucleus also where top-p is 0.
    outside_BV = outside_k_BV | ((before_BV >= top_p_B.unsqueeze(1)) & (rank_V > 0))
    kept_BV = sorted_BV.masked_fill(outside_BV, 0.0)
    return torch.zeros_like(kept_BV).scatter(1, order_BV, kept_BV)
