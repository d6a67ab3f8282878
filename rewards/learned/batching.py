"""Micro-batching: samples that arrive one by one are scored many at a time, which makes better use
of a GPU, or of a CPU with many cores.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ludus.errors import ConfigError, RewardUnavailable
from ludus.verdict import Verdict

from ..protocol import BatchVerifier, Sample, as_verdict

logger = logging.getLogger(__name__)
MAX_BATCH = 16
"""The most samples in one batch, by default."""
MAX_WAIT_MS = 5.0
"""The milliseconds for which the first sample of a batch waits for others, by default."""
PREPARING_THREADS = min(4, os.cpu_count() or 1)
"""Threads that prepare samples, such as decoding images, while a batch runs."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Item, Result]):
    """An item that a caller waits for."""

    item: Item
    future: asyncio.Future[Result]
    since: float
    """When the item came, by `time.monotonic`."""
    begun: bool = False
    """Whether its batch has begun."""


@dataclass(slots=True, eq=False)
class _Line(Generic[Item, Result]):
    """The items of the callers on one event loop, while there are some."""

    queue: deque[_Waiting[Item, Result]]
    full: asyncio.Event
    serving: asyncio.Task[None] | None = None


class MicroBatcher(Generic[Item, Result]):
    """Gathers items into batches for a blocking function, which runs on a single thread.

    A batch begins once it is full or its first item has waited `max_wait_s`, and not before the
    previous batch has ended; the next batch gathers meanwhile. A caller therefore waits at most
    `max_wait_s` and two batches while the load stays below the capacity.

    A batch that runs out of memory is halved, and later batches are no larger. A batch that fails
    otherwise is run again item by item, so that one bad item fails alone.

    Args:
        run: computes a batch; returns a result for each item, in order.
        max_batch: the most items in one batch.
        max_wait_s: how many seconds the first item of a batch may wait for others.
        label: names the work in messages.

    Raises:
        ConfigError: `max_batch` is below 1 or `max_wait_s` is negative.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        max_batch: int = MAX_BATCH,
        max_wait_s: float = MAX_WAIT_MS / 1000,
        label: str = "a batch",
    ) -> None:
        if max_batch < 1 or not 0 <= max_wait_s <= 60:
            raise ConfigError(
                f"{label}: max_batch must be at least 1 and the wait between 0 and 60 s, got "
                f"{max_batch} and {max_wait_s:g} s"
            )
        self.max_batch = max_batch
        self.max_wait_s = max_wait_s
        self.label = label
        self.holds_cancelled = False
        """Whether a caller that gives up waits for its running batch all the same. Set in worker
        processes, whose owner kills a process that does not give up in time: a batch that hangs
        would otherwise hang unseen.
        """
        self._run = run
        self._lines: dict[asyncio.AbstractEventLoop, _Line[Item, Result]] = {}
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ludus-batch")

    async def submit(self, item: Item) -> Result:
        """Compute `item` in some batch.

        Raises:
            RewardUnavailable: the batcher was closed before this item was computed.
            Exception: what `run` raised for this item alone.
        """
        self.refuse_closed()
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line(deque(), asyncio.Event())
            name = f"ludus-batches-{self.label}"
            line.serving = loop.create_task(self._serve(loop, line), name=name)
        waiting = _Waiting[Item, Result](item, loop.create_future(), time.monotonic())
        line.queue.append(waiting)
        if len(line.queue) >= self.max_batch:
            line.full.set()
        try:
            # Unlike `await future`, this does not cancel the future together with the caller.
            await asyncio.wait({waiting.future})
        except asyncio.CancelledError:
            if waiting in line.queue:  # neither begun nor given up by `close`
                line.queue.remove(waiting)
            elif waiting.begun and self.holds_cancelled:
                await asyncio.wait({waiting.future})
            raise
        return waiting.future.result()

    async def close(self) -> None:
        """Fail all waiting callers with `RewardUnavailable`, without waiting for a batch that is
        running. Later callers fail in the same way.
        """
        self._closed = True
        for loop, line in self._lines.copy().items():
            if loop is asyncio.get_running_loop():
                self._leave(line)
            else:
                with suppress(RuntimeError):  # that loop has ended with whoever waited
                    loop.call_soon_threadsafe(self._leave, line)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def refuse_closed(self) -> None:
        """Raise RewardUnavailable if the batcher was closed."""
        if self._closed:
            raise self._unavailable()

    def _leave(self, line: _Line[Item, Result]) -> None:
        """End the batches of a line; on its event loop."""
        if line.serving is not None:
            line.serving.cancel()
        self._give_up(line.queue)
        line.queue.clear()

    async def _serve(self, loop: asyncio.AbstractEventLoop, line: _Line[Item, Result]) -> None:
        """Run batches until no item of a line waits."""
        try:
            await self._batches(loop, line)
        finally:
            self._lines.pop(loop, None)
            self._give_up(line.queue)

    async def _batches(self, loop: asyncio.AbstractEventLoop, line: _Line[Item, Result]) -> None:
        while line.queue:
            await self._gather(line)
            number = min(self.max_batch, len(line.queue))
            batch = [line.queue.popleft() for _ in range(number)]
            if batch:
                for waiting in batch:
                    waiting.begun = True
                items = [waiting.item for waiting in batch]
                try:
                    outcomes = await loop.run_in_executor(self._thread, self._outcomes, items)
                except BaseException:  # cancelled, or the interpreter is shutting down
                    self._give_up(batch)
                    raise
                for waiting, outcome in zip(batch, outcomes, strict=True):
                    if waiting.future.done():
                        continue
                    if isinstance(outcome, Exception):
                        waiting.future.set_exception(outcome)
                        # If the caller has given up, asyncio would log an exception nobody read.
                        waiting.future.exception()
                    else:
                        waiting.future.set_result(outcome)

    def _give_up(self, items: Iterable[_Waiting[Item, Result]]) -> None:
        """Fail items as unavailable. Cancelling their futures would cancel the callers, who have
        not been cancelled by anybody.
        """
        for waiting in items:
            if not waiting.future.done():
                waiting.future.set_exception(self._unavailable())
                waiting.future.exception()  # marked as read, as in `_serve`

    def _unavailable(self) -> RewardUnavailable:
        detail = f"{self.label} was closed before this could be computed"
        return RewardUnavailable(Verdict.unavailable(detail))

    async def _gather(self, line: _Line[Item, Result]) -> None:
        remaining_s = line.queue[0].since + self.max_wait_s - time.monotonic()
        if len(line.queue) >= self.max_batch or remaining_s <= 0:
            return
        line.full.clear()
        try:
            async with asyncio.timeout(remaining_s):
                await line.full.wait()
        except TimeoutError:
            return

    def _outcomes(self, items: Sequence[Item]) -> list[Result | Exception]:
        """Return a result or an error for each item. Runs on the batcher's thread."""
        failure: Exception
        try:
            results = list(self._run(items))
            if len(results) != len(items):
                raise TypeError(f"{self.label} gave {len(results)} results for {len(items)} items")
            return [*results]
        except SystemExit as stop:  # by the work; passed on, it would end the event loop
            failure = RuntimeError(f"{self.label} called exit: {stop}")
        except Exception as error:
            failure = error
        if len(items) == 1:
            return [failure]
        if not is_out_of_memory(failure):
            return [outcome for item in items for outcome in self._outcomes([item])]
        del failure  # Its traceback holds the tensors of the batch, whose memory is needed now.
        half = len(items) // 2
        self.max_batch = min(self.max_batch, half)
        logger.warning(
            "%s: out of memory with a batch of %d; batches have at most %d from now on",
            self.label, len(items), self.max_batch,
        )  # fmt: skip
        return self._outcomes(items[:half]) + self._outcomes(items[half:])


class Batched:
    """A `BatchVerifier` as a verifier of single samples.

    Args:
        verifier: scores many samples in one call.
        name: the verifier's name, for messages.
    """

    resident = True
    """Served in one worker process, whose batches gather what all callers send."""

    def __init__(self, verifier: BatchVerifier, name: str = "") -> None:
        self.verifier = verifier
        self.name = name or type(verifier).__name__
        self.__doc__ = inspect.getdoc(verifier)
        self.hears_thoughts = bool(getattr(verifier, "hears_thoughts", False))
        self.batches: MicroBatcher[Any, object] = MicroBatcher(
            self._score_batch,
            max_batch=getattr(verifier, "max_batch", MAX_BATCH),
            max_wait_s=getattr(verifier, "max_wait_ms", MAX_WAIT_MS) / 1000,
            label=self.name,
        )
        self._started = False
        self._prepare: Callable[[Sample], Any] | None = getattr(verifier, "prepare", None)
        self._preparing = ThreadPoolExecutor(PREPARING_THREADS, thread_name_prefix="ludus-prepare")

    async def score(self, sample: Sample) -> Verdict:
        """Score `sample` in a batch with others.

        A sample that cannot be prepared fails alone, before its batch. One for which there is no
        memory even by itself is `unavailable`.
        """
        try:
            item: Any = sample
            if self._prepare is not None:
                self.batches.refuse_closed()
                loop = asyncio.get_running_loop()
                item = await loop.run_in_executor(self._preparing, self._prepared, sample)
            scored = await self.batches.submit(item)
        except RewardUnavailable as error:
            return error.verdict
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return Verdict.unavailable(f"{self.name}: out of memory with this sample alone")
        return as_verdict(scored, self.name)

    def card(self) -> dict[str, Any]:
        """Return the verifier's own card with `max_batch` and `max_wait_ms`."""
        card = getattr(self.verifier, "card", dict[str, Any])()
        return {
            **card,
            "max_batch": self.batches.max_batch,
            "max_wait_ms": self.batches.max_wait_s * 1000,
        }

    @property
    def memory_bytes(self) -> int:
        """Bytes that the verifier keeps for good, such as weights; 0 if the verifier gives none."""
        return int(getattr(self.verifier, "memory_bytes", 0))

    async def close(self) -> None:
        """Cancel the samples that wait, and close the verifier."""
        await self.batches.close()
        self._preparing.shutdown(wait=False)  # what waits there fails by itself, uncancelled
        close = getattr(self.verifier, "close", None)
        closing = close() if close is not None else None
        if inspect.isawaitable(closing):
            await closing

    def _prepared(self, sample: Sample) -> Any:
        self.batches.refuse_closed()
        assert self._prepare is not None
        return self._prepare(sample)

    def _score_batch(self, items: Sequence[Any]) -> Sequence[object]:
        # Not earlier: a CUDA context does not survive the fork of the worker (decision 0310).
        if not self._started:
            getattr(self.verifier, "start", lambda: None)()
            self._started = True
        return self.verifier.score_batch(items)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` says that memory could not be allocated, on the host or on a device.

    The errors of torch are told by name and text, so that torch is not imported here.

    >>> is_out_of_memory(MemoryError())
    True
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
