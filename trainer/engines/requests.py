"""What the local engine has in its batch, and its waiting lines."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ludus.agent import Finish, Generation, Sampling

T = TypeVar("T")


@dataclass
class Request:
    ids: list[int]
    sampling: Sampling
    future: Future[Generation]
    rng: random.Random
    prompt_length: int
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    stale: bool = False
    """Some of its keys were computed under weights that are no longer in use."""

    def finished(self) -> Finish | None:
        sampled = len(self.ids) - self.prompt_length
        if sampled and self.ids[-1] in self.sampling.stop_token_ids:
            return Finish.STOP
        return Finish.LENGTH if sampled >= self.sampling.max_tokens else None

    def answer(self, finish: Finish) -> None:
        generation = Generation(
            ids=self.ids[self.prompt_length :],
            logprobs=self.logprobs,
            finish=finish,
            versions=self.versions,
        )
        with suppress(InvalidStateError):  # cancelled by the caller, at any moment
            self.future.set_result(generation)


def spans(lengths: Sequence[int], most: int) -> Iterator[slice]:
    """Neighbours that fit padded into `most` tokens; one that is longer goes alone.

    >>> [(part.start, part.stop) for part in spans([3, 3, 9, 2, 2], 8)]
    [(0, 2), (2, 3), (3, 5)]
    """
    start, width = 0, 0
    for index, length in enumerate(lengths):
        wider = max(width, length)
        if index > start and wider * (index - start + 1) > most:
            yield slice(start, index)
            start, wider = index, length
        width = wider
    yield slice(start, len(lengths))


def taken(line: queue.SimpleQueue[T]) -> Iterator[T]:
    """Take out one item after the other; never waits for more."""
    with suppress(queue.Empty):
        while True:
            yield line.get_nowait()


def fail(future: Future[Any], error: Exception) -> None:
    with suppress(InvalidStateError):  # answered or cancelled before
        future.set_exception(error)
