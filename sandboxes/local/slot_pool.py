"""A pool of slots: starts slots on demand, serves in order, and replaces broken or old slots.

Graders keep processes and sessions keep a snapshot server beside the sandbox they use. Both belong
to packages above this one, so the sandbox knows companions by their `close` method alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from .runs import refusal
from .slots import Slot, SlotLost


class Companion(Protocol):
    """A companion is anything that has to be closed before the slots of a sandbox end."""

    async def close(self) -> None:
        """Release every resource the companion holds. A second call does nothing."""
        ...


_Companion = TypeVar("_Companion", bound=Companion)


class Companions:
    """The companions of a sandbox, with at most a single companion of each class."""

    def __init__(self) -> None:
        self._held: dict[type, Companion] = {}

    def get(self, kind: type[_Companion], make: Callable[[], _Companion]) -> _Companion:
        """Return the companion of a kind, which is made by `make` on the first call."""
        companion = self._held.get(kind)
        if not isinstance(companion, kind):
            companion = self._held[kind] = make()
        return companion

    async def close(self) -> None:
        """Close every companion, in the reverse order of creation. A second call does nothing."""
        while self._held:
            _, companion = self._held.popitem()
            await companion.close()


_log = logging.getLogger(__name__)

RENEW_AFTER_RUNS = 10_000
"""A slot is replaced after this many runs.

Forked children share the address layout and hash seed of their parent; a new slot has new values.
"""

SlotMaker = Callable[[int], Slot]


def default_size() -> int:
    """Return twice the number of cores this process may use.

    That is enough to overlap the end of a run with the start of the next.
    """
    return 2 * len(os.sched_getaffinity(0))


class SlotPool:
    """Up to `size` slots of the same kind, each started when a request first needs the slot."""

    def __init__(self, make: SlotMaker, size: int) -> None:
        self.size = size
        self._make = make
        self._free: deque[Slot] = deque()
        self._numbers = set(range(size))
        """The numbers in `range(size)` that no slot has at present."""
        self._of: dict[Slot, int] = {}
        self._turn = asyncio.Lock()
        self._change = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self.waiting = 0
        """The number of requests that wait for a slot."""

    async def warm(self) -> None:
        """Start every slot now, so that no later run waits for a start.

        Raises:
            SlotLost: a slot does not start.
        """
        async with self.take(self.size):
            pass

    @asynccontextmanager
    async def take(self, count: int = 1) -> AsyncGenerator[list[Slot]]:
        """Hold `count` slots for the length of the block; requests are served in order of arrival.

        A request for several slots collects all of them before the next request is served, so that
        two requests never wait for each other's slots.

        Raises:
            SlotLost: the pool has fewer than `count` slots or is closed, or a slot does not start.
        """
        slots: list[Slot] = []
        self.waiting += 1
        try:
            async with self._turn:
                await self._collect(slots, count)
            self.waiting -= 1
            try:
                yield slots
            finally:
                # Undone by the `finally` below, which also serves requests that got no slot.
                self.waiting += 1
        finally:
            self.waiting -= 1
            for slot in slots:
                if self._closed or not slot.alive or slot.runs >= RENEW_AFTER_RUNS:
                    self._retire(slot)
                else:
                    self._free.append(slot)
                    self._change.set()

    async def _collect(self, slots: list[Slot], count: int) -> None:
        if count > self.size:
            raise SlotLost(f"{count} slots are needed at once and the pool has {self.size}")
        while len(slots) < count:
            if self._closed:
                raise SlotLost("the sandbox is closed")
            if self._free:
                slot = self._free.popleft()
                if slot.alive:
                    slots.append(slot)
                else:  # The slot ended while nobody held it.
                    self._retire(slot)
            elif self._numbers:
                missing = min(count - len(slots), len(self._numbers))
                await self._start(slots, missing)
            else:
                self._change.clear()
                await self._change.wait()

    async def _start(self, slots: list[Slot], count: int) -> None:
        new_slots: list[Slot] = []
        try:
            for _ in range(count):
                new_slots.append(self._new())
        except BaseException:
            for slot in new_slots:
                self._retire(slot)
            raise
        try:
            results = await asyncio.gather(
                *(slot.start() for slot in new_slots), return_exceptions=True
            )
        except asyncio.CancelledError:
            for slot in new_slots:
                self._retire(slot)
            raise
        failure: BaseException | None = None
        for slot, result in zip(new_slots, results, strict=True):
            if isinstance(result, BaseException):
                self._retire(slot)
                failure = result
            else:
                slots.append(slot)
        if failure:
            raise failure

    def _new(self) -> Slot:
        """Make a slot, not started, with a free number."""
        number = self._numbers.pop()
        try:
            slot = self._make(number)
        except BaseException as error:
            self._numbers.add(number)  # a lost number would make the pool smaller for good
            if isinstance(error, OSError):  # such as a full disk, or too many control groups
                raise SlotLost(refusal("the slot cannot be made", error)) from error
            raise
        self._of[slot] = number
        return slot

    def _retire(self, slot: Slot) -> None:
        task = asyncio.get_running_loop().create_task(self._end(slot))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _end(self, slot: Slot) -> None:
        try:
            await slot.close()
        except Exception:
            _log.exception("a slot did not end cleanly")
        self._numbers.add(self._of.pop(slot))
        self._change.set()

    async def close(self) -> None:
        """End every free slot; slots that are held end when given back. A second call does
        nothing.
        """
        self._closed = True
        while self._free:
            self._retire(self._free.popleft())
        self._change.set()
        while self._closing:
            # Unlike `gather`, this leaves slots to end where the caller is cancelled.
            await asyncio.wait(self._closing)
