"""The part of a worker process that holds a verifier."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from ludus.errors import error_trace
from ludus.isolation.part import Answer, WorkerPart
from ludus.thoughts import NONE
from ludus.verdict import Verdict
from ludus.wire.codec import Format, decode, trace_parent

from ..learned.batching import Batched
from ..measured import KnownJudge, judges_of
from ..protocol import (
    GroupVerifier,
    Sample,
    Verifier,
    cheap_to_repeat,
    failed,
    is_async_verifier,
    is_bug,
    one_each,
    usable,
)

SCORE, SCORE_GROUP, CLOSE = 1, 2, 3
"""What a call asks: a verdict for each of a list of samples, often of one; the verdicts of a group;
to close the verifier.
"""
TRACED = 32
"""Added to a tag whose body is a `Traced`, in the place of the samples alone."""
AS_JSON = 64
"""Added to a tag whose body is JSON, since msgpack cannot hold an integer beyond 64 bits."""
FLAGS = TRACED | AS_JSON


class About(msgspec.Struct, frozen=True):
    """The facts about a verifier that a server needs."""

    description: str
    group: bool
    """Whether the verifier compares answers."""
    resident: bool = False
    """Whether a single process serves all callers, as for a model that scores batches."""
    memory_bytes: int = 0
    """Memory that the verifier keeps for good."""
    card: dict[str, Any] = {}
    """Weights, preprocessing and device of the verifier."""
    judges: list[KnownJudge] = []
    """The language models that the verifier asks, with their measured errors."""
    cheap_to_repeat: bool = False
    """Whether scoring a sample twice costs little and gives the same verdict."""


def about_verifier(verifier: Verifier) -> About:
    """Return the facts about `verifier` that a server needs."""
    return About(
        inspect.getdoc(verifier) or "",
        isinstance(verifier, GroupVerifier),
        resident=bool(getattr(verifier, "resident", False)),
        memory_bytes=int(getattr(verifier, "memory_bytes", 0)),
        card=getattr(verifier, "card", dict[str, Any])(),
        judges=judges_of(verifier),
        cheap_to_repeat=cheap_to_repeat(verifier),
    )


class Traced(msgspec.Struct, frozen=True, array_like=True):
    """Samples that belong to traces; see `ludus.wire.codec.trace_parent`."""

    samples: list[Sample]
    traces: list[str]
    """The `traceparent` of each sample."""


class Judged(msgspec.Struct, frozen=True):
    """The answer to a call."""

    verdicts: list[Verdict]
    trace: str = ""
    """The traceback of a bug in the verifier; of several, the last."""
    took_s: float = 0.0
    """Seconds that the samples took."""


class VerifierPart(WorkerPart):
    """Scores samples in a worker process.

    Args:
        name: the name of the verifier.
        build: makes the verifier, in the template process.
    """

    def __init__(self, name: str, build: Callable[[], Verifier]) -> None:
        self._name = name
        self._verifier = build()
        self.is_async = is_async_verifier(self._verifier)
        self._hears_thoughts = bool(getattr(self._verifier, "hears_thoughts", False))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_of: Callable[[int], Executor] | None = None

    def about(self) -> bytes:
        """Return an encoded `About`."""
        return msgspec.msgpack.encode(about_verifier(self._verifier))

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        """Get ready in a worker."""
        self._loop = asyncio.get_running_loop()
        self._thread_of = thread_of
        if isinstance(self._verifier, Batched):
            self._verifier.batches.holds_cancelled = True

    def handle(self, tag: int, thread_number: int, body: bytes) -> Answer | Awaitable[Answer]:
        """Score samples or a group, or close the verifier."""
        if tag & ~FLAGS == SCORE and not self.is_async:
            return self._score_each(tag, body)
        call = self._call_of(tag, body)
        if self.is_async:
            return self._side_by_side(tag, thread_number, call)
        try:
            trace_parent.set(call.trace)
            scoring = self._settled(call.run())
        except BaseException as error:
            return self._answer(tag, failed(self._name, error), call.number, error)
        return self._answer(tag, scoring, call.number)

    def _score_each(self, tag: int, body: bytes) -> Answer:
        """Score the samples of a frame in turns; what one raises is its verdict alone."""
        verdicts: list[Verdict] = []
        trace, started = "", time.perf_counter()
        format = Format.JSON if tag & AS_JSON else Format.MSGPACK
        if tag & TRACED:
            traced = decode(body, Traced, format)
            samples, parents = traced.samples, traced.traces
        else:
            samples = decode(body, list[Sample], format)
            parents = [""] * len(samples)
        for sample, parent in zip(samples, parents, strict=True):
            trace_parent.set(parent)  # a thread keeps what its last call has set
            try:
                heard = sample.marked(NONE) if self._hears_thoughts else sample
                scoring: object = self._verifier.score(heard)
                if not isinstance(scoring, Verdict) and inspect.isawaitable(scoring):
                    scoring = self._settled(scoring)
            except BaseException as error:
                scoring = failed(self._name, error)
                trace = _trace(error) or trace
            verdicts.append(usable(self._name, scoring))
        return tag, msgspec.msgpack.encode(Judged(verdicts, trace, time.perf_counter() - started))

    def _settled(self, scoring: Any) -> Any:
        """Return what a verifier gave, awaited on the event loop where it is an awaitable: this is
        a thread of the worker.
        """
        if not inspect.isawaitable(scoring):
            return scoring
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(_awaited(scoring), self._loop).result()

    async def _side_by_side(self, tag: int, thread_number: int, call: _Call) -> Answer:
        assert self._loop is not None
        assert self._thread_of is not None
        trace_parent.set(call.trace)
        try:
            if call.is_async:
                scoring = call.run()
            else:
                thread = self._thread_of(thread_number)
                run = partial(copy_context().run, call.run)
                scoring = await self._loop.run_in_executor(thread, run)
            scoring = await scoring if inspect.isawaitable(scoring) else scoring
        except BaseException as error:
            return self._answer(tag, failed(self._name, error), call.number, error)
        return self._answer(tag, scoring, call.number)

    def _call_of(self, tag: int, body: bytes) -> _Call:
        verifier = self._verifier
        if tag & ~FLAGS == CLOSE:
            close = getattr(verifier, "close", None) or (lambda: None)
            return _Call(close, inspect.iscoroutinefunction(close), 0)
        format, trace = Format.JSON if tag & AS_JSON else Format.MSGPACK, ""
        if tag & TRACED:
            traced = decode(body, Traced, format)
            samples, trace = traced.samples, traced.traces[0]
        else:
            samples = decode(body, list[Sample], format)
        if tag & ~FLAGS == SCORE:
            sample = samples[0].marked(NONE) if self._hears_thoughts else samples[0]
            return _Call(lambda: verifier.score(sample), self.is_async, 1, trace)
        assert isinstance(verifier, GroupVerifier)
        heard = [each.heard_by(verifier) for each in samples]
        grouped = inspect.iscoroutinefunction(verifier.score_group)
        return _Call(lambda: verifier.score_group(heard), grouped, len(heard), trace)

    def _answer(
        self, tag: int, outcome: object, number: int, error: BaseException | None = None
    ) -> Answer:
        trace = "" if error is None else _trace(error)
        single = tag & ~FLAGS == SCORE
        values = [outcome] if single else one_each(outcome, number) if number else []
        verdicts = [usable(self._name, verdict) for verdict in values]
        return tag, msgspec.msgpack.encode(Judged(verdicts, trace))


@dataclass(frozen=True, slots=True)
class _Call:
    run: Callable[[], Any]
    is_async: bool
    """Whether `run` gives a coroutine, and may be called on the loop."""
    number: int
    """Number of samples in the call."""
    trace: str = ""
    """The `traceparent` of the call."""


def _trace(error: BaseException) -> str:
    """Return the traceback of an error that is a bug of the verifier; empty for another."""
    return error_trace(error) if is_bug(error) else ""


async def _awaited(scoring: Awaitable[Any]) -> Any:
    return await scoring
