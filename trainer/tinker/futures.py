"""Promises of the Tinker API: submissions, the order of work, and the outcomes.

A submission is answered at once with the name of a promise, and its result is asked for later, more
than once if a reply was lost. A model and a sequence number name a submission: the same one again,
as after a lost reply, is answered with the same promise and done once. What a model does is done in
the order of its numbers and not of arrival, because a client sends the pieces of a pass together,
the first of them last.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ludus.background import end_task
from ludus.errors import LudusError
from ludus.wire.faults import QueueFull, Refused

logger = logging.getLogger(__name__)
KEPT_S = 900.0
"""Seconds for which a result is kept; a promise older than that is lost (410)."""
GAP_S = 600.0
"""Seconds that a submission waits for the numbers before it; the SDK tries for 300 to send one."""
MAX_PROMISES = 20_000
"""The most promises without a result; a further submission is refused (429)."""
USER, SERVER = "user", "server"


@dataclass(frozen=True, slots=True)
class PromiseOutcome:
    """What came of a submission: a JSON value, the bytes of a protobuf message, or an error."""

    value: Any = None
    protobuf: bytes | None = None
    error: str = ""
    category: str = USER
    """Whose fault an error is."""


Job = Callable[[], Awaitable[PromiseOutcome]]


@dataclass(eq=False)
class Promise:
    """A submission and its outcome."""

    id: str
    owner: str
    """The name of the principal that submitted."""
    digest: bytes
    """A digest of the request: the same number with another request is a mistake."""
    outcome: asyncio.Future[PromiseOutcome]
    done: float = 0.0
    """When the outcome came, by the monotonic clock."""


class Promises:
    """The promises of a server, by name and by purpose."""

    def __init__(self) -> None:
        self._by_id: dict[str, Promise] = {}
        self._by_key: dict[Hashable, Promise] = {}
        self._pending = 0
        self._swept = time.monotonic()

    @property
    def pending(self) -> int:
        """The number of promises without an outcome."""
        return self._pending

    def begin(self, key: Hashable, owner: str, request: bytes) -> tuple[Promise, bool]:
        """Return the promise of `key`, and whether the promise is new.

        Raises:
            Refused: another request was submitted under this key (400).
            QueueFull: too much was submitted and is not done (429).
        """
        self._sweep()
        digest = hashlib.sha256(request).digest()
        known = self._by_key.get(key)
        if known is not None:
            if known.digest != digest:
                raise Refused(f"{key} was submitted before with another request", "malformed")
            return known, False
        if self._pending >= MAX_PROMISES:
            raise QueueFull(f"{self._pending} promises are not done", limit=MAX_PROMISES)
        loop = asyncio.get_running_loop()
        promise = Promise(f"req-{secrets.token_hex(12)}", owner, digest, loop.create_future())
        self._by_id[promise.id] = self._by_key[key] = promise
        self._pending += 1
        return promise, True

    def has(self, key: Hashable) -> bool:
        """Return whether something was submitted under this key."""
        return key in self._by_key

    def of(self, name: str, owner: str) -> Promise:
        """Return a promise of this owner.

        Raises:
            Refused: there is none, or no longer, or it is somebody else's: these are not told
                apart (410).
        """
        self._sweep()
        promise = self._by_id.get(name)
        if promise is None or promise.owner != owner:
            raise Refused(f"no promise {name!r}: it is not yours, or too old", "session_gone")
        return promise

    async def fulfil(self, promise: Promise, job: Job) -> None:
        """Do a job and keep the outcome; every error is an outcome too."""
        try:
            outcome = await job()
        except LudusError as error:
            outcome = PromiseOutcome(error=str(error))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self.settle(promise, PromiseOutcome(error="the server stopped", category=SERVER))
                raise
            # Something that the job waited for was given up: the jobs behind it go on.
            outcome = PromiseOutcome(error="the request was given up", category=SERVER)
        except Exception as error:
            logger.exception("a request to a model failed")
            outcome = PromiseOutcome(error=f"{type(error).__name__}: {error}", category=SERVER)
        self.settle(promise, outcome)

    def settle(self, promise: Promise, outcome: PromiseOutcome) -> None:
        """Keep the outcome of a promise; a second one changes nothing."""
        if not promise.outcome.done():
            promise.outcome.set_result(outcome)
            promise.done = time.monotonic()
            self._pending -= 1

    def _sweep(self) -> None:
        """Forget what is older than `KEPT_S`, at most every tenth of that."""
        now = time.monotonic()
        if now - self._swept < KEPT_S / 10:
            return
        self._swept = now
        old = {name for name, each in self._by_id.items() if each.done and now - each.done > KEPT_S}
        self._by_id = {name: each for name, each in self._by_id.items() if name not in old}
        self._by_key = {key: each for key, each in self._by_key.items() if each.id not in old}


@dataclass(eq=False)
class OrderedJobs:
    """What a model does, in the order of the numbers, from 1.

    Args:
        promises: keeps the outcomes.
    """

    promises: Promises
    next: int = 1
    """The number that is done next."""
    _waiting: dict[int, tuple[Promise, Job]] = field(default_factory=dict[int, Any])
    _work: asyncio.Task[None] | None = None

    def submit(self, number: int, promise: Promise, job: Job) -> None:
        """Do `job` when all numbers before have been done.

        Raises:
            Refused: the number is below 1, or was done so long ago that its result is gone, or came
                so late that those behind it failed.
        """
        if number < self.next:
            why = (
                "it was done and its result is gone, or it came after requests that had waited for "
                "it failed"
                if number >= 1
                else "numbers begin at 1"
            )
            refusal = Refused(f"seq_id {number} cannot be done: {why}", "malformed")
            self.promises.settle(promise, PromiseOutcome(error=str(refusal)))
            raise refusal
        self._waiting[number] = promise, job
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._run(), name="ludus-model")

    async def close(self) -> None:
        """End what is being done, and fail what waits."""
        work, self._work = self._work, None
        with suppress(Exception):
            await end_task(work)
        self._fail_waiting("the model is gone: its session has ended")

    async def _run(self) -> None:
        while self._waiting:
            deadline = time.monotonic() + GAP_S
            while self.next not in self._waiting:
                # Polled: a number that is missing is the exception, and comes within a moment.
                await asyncio.sleep(0.01)
                if time.monotonic() > deadline:
                    # The client is told of each failure, and may go on with the number after.
                    last = max(self._waiting)
                    self._fail_waiting(f"seq_id {self.next} has not come within {GAP_S:g} s")
                    self.next = last + 1
                    return
            promise, job = self._waiting.pop(self.next)
            self.next += 1
            await self.promises.fulfil(promise, job)

    def _fail_waiting(self, why: str) -> None:
        for promise, _ in self._waiting.values():
            self.promises.settle(promise, PromiseOutcome(error=why))
        self._waiting.clear()
