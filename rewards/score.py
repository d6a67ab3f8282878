"""`ludus.score`: scores an answer from a script, a notebook or under a running loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from ludus.background import run_on_loop
from ludus.errors import InvalidScore
from ludus.messages import ImagePart, Message
from ludus.verdict import Verdict

from .protocol import Sample, Verifier, as_verdict
from .registry import find_verifier, make_verifier

TIMEOUT_S = 60.0
ResultT = TypeVar("ResultT")


def score(
    name: str,
    *,
    response: str | list[Message] = "",
    gold: object = None,
    prompt: str | list[Message] = "",
    info: dict[str, Any] | None = None,
    images: Sequence[bytes | ImagePart] = (),
    timeout_s: float = TIMEOUT_S,
    **options: Any,
) -> Verdict:
    """Score an answer and return the verdict.

    >>> score("exact", gold="42", response=" 42 ").reward
    1.0

    Args:
        name: name of the verifier.
        response: the policy's answer.
        gold: the reference, in the form that the verifier documents.
        prompt: the question.
        info: anything else that the verifier documents.
        images: encoded images (PNG, JPEG, ...), for a verifier of images.
        timeout_s: seconds for an async verifier; a late verdict is `unavailable`.
        options: options of the verifier.

    Raises:
        UnknownVerifier: nothing has this name; the message suggests a similar name.
        ConfigError: the verifier does not take these options.
    """
    parts = [ImagePart(data=image) if isinstance(image, bytes) else image for image in images]
    sample = Sample(response=response, gold=gold, prompt=prompt, info=info or {}, images=parts)
    return score_sample(shared_verifier(name, **options), sample, timeout_s=timeout_s)


def score_sample(verifier: Verifier, sample: Sample, *, timeout_s: float = TIMEOUT_S) -> Verdict:
    """Score a sample with a verifier object, whose `score` may be plain or async.

    Raises:
        InvalidScore: `score` returned something else than a verdict.
    """
    scoring: object = verifier.score(sample.heard_by(verifier))
    if inspect.isawaitable(scoring):
        try:
            scoring = run_on_loop(_awaited(scoring), timeout_s=timeout_s)
        except TimeoutError:
            return Verdict.unavailable(f"no verdict within {timeout_s:g} s")
    if not isinstance(scoring, Verdict):
        raise InvalidScore(
            f"score() of {type(verifier).__name__} must return a Verdict, such as "
            f"Verdict.of(1.0), got {type(scoring).__name__}: {scoring!r:.80}"
        )
    return scoring


async def awaited_verdict(
    scoring: object, *, name: str = "a verifier", timeout_s: float = TIMEOUT_S
) -> Verdict:
    """Return the verdict that a plain or async `score` gave; a late one is `unavailable`.

    Args:
        scoring: what `score` returned.
        name: what an error calls the verifier.
        timeout_s: seconds for an async verdict.

    Raises:
        InvalidScore: `score` gave neither a verdict nor a number.
    """
    if inspect.isawaitable(scoring):
        try:
            async with asyncio.timeout(timeout_s):
                scoring = await scoring
        except TimeoutError:
            return Verdict.unavailable(f"no verdict within {timeout_s:g} s")
    return as_verdict(scoring, name)


def close_verifier(verifier: Verifier) -> None:
    """Release the resources of a verifier, if it has a `close` method, plain or async."""
    close: Callable[[], Any] | None = getattr(verifier, "close", None)
    if close is None:
        return
    closing = close()
    if inspect.isawaitable(closing):
        run_on_loop(_awaited(closing), timeout_s=TIMEOUT_S)


async def _awaited(awaitable: Awaitable[ResultT]) -> ResultT:
    """Make a coroutine, which a loop can run, of any awaitable."""
    return await awaitable


def shared_verifier(name: str, **options: Any) -> Verifier:
    """Return this process's verifier with these options.

    A verifier may hold a pool of processes that takes long to start; a shared verifier is never
    closed.

    Raises:
        UnknownVerifier: nothing has this name; the message suggests a similar name.
        ConfigError: the verifier does not take these options.
    """
    return _cached_verifier(name, find_verifier(name), _Options(options))


class _Options:
    """Options as a part of a cache's key: equal if they have the same values and types."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._key = _hashable(options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Options) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _hashable(value: object) -> object:
    """Return what stands for a value in a key; an object without a hash stands for itself alone."""
    if isinstance(value, Mapping):
        items: Mapping[Any, Any] = value
        return dict, frozenset((name, _hashable(each)) for name, each in items.items())
    if isinstance(value, (list, tuple)):
        parts: Sequence[object] = value
        return type(value), tuple(map(_hashable, parts))
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), value  # `1`, `1.0` and `True` are equal, and different options


@lru_cache(maxsize=32)
def _cached_verifier(name: str, target: object, options: _Options) -> Verifier:
    """Make a verifier once for each name and set of options.

    `target`, the registered class or function, serves as a part of the cache's key only: after
    another verifier was registered under the name, the old verifier is not returned.
    """
    return make_verifier(name, **options.options)
