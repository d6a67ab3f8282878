"""The queue in front of the slots: a bounded number of slots in use, and a bounded queue.

Work that finds the queue full, or waits longer than it wants to, is refused with the expected wait
in seconds: 429 with `Retry-After`, and never a time-out that looks like the program's.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ludus.wire.faults import QueueFull

_SMOOTHING = 0.1
_FIRST_GUESS_S = 0.01
_MIN_RETRY_S = 0.05
_MAX_RETRY_S = 60.0


@dataclass(slots=True, eq=False)
class _Waiter:
    """Work that waits in the queue."""

    weight: int
    turn: asyncio.Future[None]


class Gate:
    """Admits work for at most `width` slots at a time, in order of arrival.

    Args:
        width: the number of slots.
        max_waiting: how many requests may wait.
    """

    def __init__(self, width: int, *, max_waiting: int) -> None:
        self.width = width
        self.max_waiting = max_waiting
        self.busy = 0
        """The number of slots in use."""
        self._line: deque[_Waiter] = deque()
        self._slot_s = _FIRST_GUESS_S
        """The exponential mean of how long a slot is held, in seconds."""

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._line)

    @property
    def queue_s(self) -> float:
        """The expected wait of a new request in seconds, from the recent duration of work."""
        waiting_weight = sum(waiter.weight for waiter in self._line) + (self.busy >= self.width)
        return waiting_weight * self._slot_s / self.width

    @asynccontextmanager
    async def enter(
        self, weight: int = 1, *, patience_s: float, bounded: bool = True
    ) -> AsyncGenerator[float]:
        """Hold `weight` slots while the context is open; yields the seconds spent waiting.

        Args:
            weight: how many slots the work needs.
            patience_s: how long to wait, in seconds.
            bounded: whether a full queue refuses this work at once, or only `patience_s` does.

        Raises:
            QueueFull: the queue is full, or the work was not admitted in time.
        """
        weight = min(weight, self.width)
        asked_at = time.monotonic()
        if self._line or self.busy + weight > self.width:
            if bounded and len(self._line) >= self.max_waiting:
                raise self.full("every place in line is taken")
            waiter = _Waiter(weight, asyncio.get_running_loop().create_future())
            self._line.append(waiter)
            try:
                async with asyncio.timeout(patience_s):
                    await waiter.turn
            except TimeoutError:
                # Slots that were assigned in the same moment are used all the same.
                if not self._give_up(waiter):
                    raise self.full(f"no slot was free within {patience_s:.3g} s") from None
            except BaseException:
                if self._give_up(waiter):
                    self._leave(weight)
                raise
        else:
            self.busy += weight
        entered = time.monotonic()
        try:
            yield entered - asked_at
        finally:
            held_s = time.monotonic() - entered
            self._slot_s += _SMOOTHING * (held_s - self._slot_s)
            self._leave(weight)

    def _give_up(self, waiter: _Waiter) -> bool:
        """Leave the queue; return whether the slots had been assigned at the same moment."""
        if waiter.turn.done() and not waiter.turn.cancelled():
            return True
        if waiter in self._line:
            self._line.remove(waiter)
        self._admit()  # Lighter work behind may fit where this work did not.
        return False

    def _leave(self, weight: int) -> None:
        self.busy -= weight
        self._admit()

    def _admit(self) -> None:
        # In strict order: otherwise light work could overtake heavy work for ever.
        while self._line and self.busy + self._line[0].weight <= self.width:
            waiter = self._line.popleft()
            # The waiter was cancelled and has not run since, so it is still in the queue.
            if waiter.turn.cancelled():
                continue
            self.busy += waiter.weight
            waiter.turn.set_result(None)

    def full(self, reason: str) -> QueueFull:
        """Make the refusal, with the length of the queue."""
        retry_after_s = min(_MAX_RETRY_S, max(_MIN_RETRY_S, self.queue_s))
        return QueueFull(
            f"{reason}: {self.busy} of {self.width} slots are busy "
            f"and {self.waiting} requests wait, about {retry_after_s:.2g} s",
            retry_after_s,
            depth=self.waiting + self.busy,
            limit=self.max_waiting + self.width,
        )
