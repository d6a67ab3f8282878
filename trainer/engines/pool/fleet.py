"""The engines of a pool, kept alive with the current weights."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.agent.engine import WeightSource
from ludus.errors import ConfigError, EngineLost, NoEngineLeft, RemoteError

from ...models.weight_files import FileWeights, written
from ..local import EngineClosed
from .seats import DEATHS_WINDOW_S, MAX_DEATHS, PooledEngine, Seat

logger = logging.getLogger(__name__)

CHECK_S = 1.0
CHECK_TIMEOUT_S = 10.0
MAX_MISSED = 3
"""An engine that fails to answer this many checks in a row is lost."""
MEND_AGAIN_S = 1.0
"""The pause after a failed attempt to bring an engine back."""


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """How weights are handed to the engines of a pool."""

    version: int = 0
    """The version before the first publish."""
    timeout_s: float = 600.0
    """How long an engine may take to install weights; after that it is lost."""
    folder: str = ""
    """Where the current weights are kept as a file; see `write_weights`."""


DEFAULT_PUBLISHING = Publishing()


class Fleet:
    """Knows which engines serve, publishes to them, and brings lost ones back.

    Args:
        engines: all of the same model, started.
        publishing: the first version, and how weights are handed to the engines.
        on_loss: called with each engine that is lost.
        on_tick: called about every second.
    """

    def __init__(
        self,
        engines: Sequence[PooledEngine],
        publishing: Publishing,
        *,
        on_loss: Callable[[Seat], None],
        on_tick: Callable[[], Awaitable[None]],
    ) -> None:
        self.seats = [Seat(index, engine) for index, engine in enumerate(engines)]
        self.version = publishing.version
        self.publish_timeout_s = publishing.timeout_s
        self.folder = publishing.folder
        self.paused = False
        """Whether engines that come back are to be paused."""
        self.closed = False
        self.losses = 0
        """How many times an engine was lost so far."""
        self._on_loss = on_loss
        self._on_tick = on_tick
        self._held: FileWeights | None = None
        self._publishing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def up(self) -> list[Seat]:
        """Return the engines that serve."""
        return [seat for seat in self.seats if seat.serving]

    async def open_seats(self, patience_s: float, gave_up: Callable[[], bool]) -> list[Seat]:
        """Return the engines that serve, and wait while there is none, or until `gave_up`.

        Raises:
            NoEngineLeft: none came back in time, or every engine stays out.
        """
        if self._held is None:
            raise ConfigError("the pool's engines have no weights yet; call set_weights first")
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            seats = [seat for seat in self.up() if not seat.draining]
            if seats or gave_up():
                return seats
            if self.closed:
                raise EngineClosed("the pool of engines was closed")
            if all(seat.barred for seat in self.seats):
                raise NoEngineLeft(f"every engine is out for good: {self._obituary()}")
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                raise NoEngineLeft(
                    f"no engine served for {patience_s:g} s: {self._obituary()}"
                ) from None

    async def publish(self, source: WeightSource, version: int) -> None:
        """Install new weights in all engines that serve, at the same time.

        An engine that fails is lost, and does not hold up the others; engines that come back later
        are given the weights then, from a copy that the pool keeps.

        Raises:
            WeightsRefused: the weights are not those of the model; the old ones stay.
            StaleWeights: an engine samples from other weights than those it was given.
        """
        async with self._publishing:
            file = await written(source, folder=self.folder)
            old, old_version = self._held, self.version
            self._held, self.version = file, version
            # At the first publish no engine serves yet, and all are given the weights.
            seats = [seat for seat in self.seats if seat.serving or old is None]
            try:
                results = await asyncio.gather(
                    *map(self._publish_to, seats), return_exceptions=True
                )
                errors = [error for error in results if isinstance(error, BaseException)]
                # No engine took the weights: go back to the old file and version, and let the
                # `finally` block remove the new file instead.
                if errors and len(errors) == len(results):
                    old, self._held, self.version = file, old, old_version
            finally:
                if old is not None:
                    old.remove()
            if self._watching is None:
                self._watching = self._start(self._watch())
            if errors:
                raise errors[0]

    async def _publish_to(self, seat: Seat) -> None:
        """Install the current weights in one engine during a publish."""
        joining = not seat.serving
        try:
            await self._supply(seat)
        except (RemoteError, TimeoutError) as error:
            late = f"did not install version {self.version}: {error or 'no answer in time'}"
            self.lose(seat, EngineLost(f"{seat.engine.name} {late}"), joining=joining)
        except ConfigError:  # weights of another model: the engine keeps what it has
            raise
        except BaseException as error:
            # Interrupted, or sampling from other weights: which weights it has is unknown.
            seat.shut(f"was not given version {self.version}: {error or type(error).__name__}")
            if isinstance(error, asyncio.CancelledError) and not self.closed:
                self._start(self._mend(seat, revive=False))
            raise
        else:
            # Otherwise the engine serves already, or was lost meanwhile, and then `_mend` brings it
            # back.
            if joining:
                seat.open()
                self.announce()

    async def _supply(self, seat: Seat) -> None:
        """Install the current weights in an engine."""
        assert self._held is not None
        async with asyncio.timeout(self.publish_timeout_s):
            await seat.engine.set_weights(self._held, self.version)
            if not seat.serving and self.paused:
                await seat.engine.pause()

    def lose(self, seat: Seat, error: Exception, *, joining: bool = False) -> None:
        """Take an engine out of routing, and begin to mend it, unless it is lost already.

        Args:
            seat: the engine's place.
            error: the reason.
            joining: whether the engine was about to serve for the first time.
        """
        if self.closed or not (seat.serving or joining):
            return
        seat.shut(str(error))
        seat.deaths.append(asyncio.get_running_loop().time())
        self.losses += 1
        self._on_loss(seat)
        logger.warning("lost an engine: %s", error)
        self.announce()
        self._start(self._mend(seat, revive=True))

    async def is_alive(self, seat: Seat) -> bool:
        """Ask an engine whether it is alive; one that is not, or does not say, is lost."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await seat.engine.check()
        except (RemoteError, TimeoutError) as dead:
            self.lose(seat, EngineLost(str(dead) or f"{seat.engine.name} does not answer"))
            return False
        return True

    async def _mend(self, seat: Seat, *, revive: bool) -> None:
        """Bring an engine back with the current weights, until it serves or stays out."""
        while not seat.is_worn_out(asyncio.get_running_loop().time()):
            try:
                if revive:
                    await seat.engine.revive()
                async with self._publishing:
                    await self._supply(seat)
            except Exception as error:
                seat.why = f"does not come back: {error or type(error).__name__}"
                seat.deaths.append(asyncio.get_running_loop().time())
                revive = True
                await asyncio.sleep(MEND_AGAIN_S)
            else:
                seat.open()
                self.announce()
                logger.warning("%s serves again, version %d", seat.engine.name, self.version)
                return
        seat.barred = True
        seat.why = (
            f"was lost {MAX_DEATHS} times in {DEATHS_WINDOW_S:g} s, the last time: {seat.why}"
        )
        logger.error("%s stays out: it %s", seat.engine.name, seat.why)
        self.announce()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await asyncio.gather(*map(self._check, self.up()))
            try:
                await self._on_tick()
            except Exception:
                logger.exception("the regular work of the pool failed")

    async def _check(self, seat: Seat) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await seat.engine.check()
            seat.missed = 0
        except Exception as error:
            seat.missed += 1
            unsure = isinstance(error, RemoteError | TimeoutError)
            unsure = unsure and not isinstance(error, EngineLost)
            if not unsure or seat.missed >= MAX_MISSED:
                self.lose(seat, error)

    async def told(self, seat: Seat, act: Awaitable[None]) -> None:
        """Wait until an engine has done as told; one that cannot is lost."""
        try:
            await act
        except RemoteError as error:
            self.lose(seat, error)

    async def close(self) -> None:
        """Close every engine, and remove the file of the weights."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        results = await asyncio.gather(
            *(seat.engine.close() for seat in self.seats), return_exceptions=True
        )
        for seat in self.seats:
            seat.shut("was closed")
        self.announce()
        if self._held is not None:
            self._held.remove()
        for error in results:
            if isinstance(error, BaseException):
                raise error

    def announce(self) -> None:
        """Wake everybody who waits for an engine."""
        # Waiters keep the event that they wait for, which stays set; later waiters get a new event.
        self._changed.set()
        self._changed = asyncio.Event()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _obituary(self) -> str:
        return "; ".join(
            f"{seat.engine.name} {seat.why}" for seat in self.seats if not seat.serving
        )
