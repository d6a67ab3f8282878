"""The weights of a pool's engines: published to all that serve, given to each that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ludus.agent.engine import WeightSource
from ludus.errors import ConfigError, EngineLost, NoEngineLeft, RemoteError
from ludus.wire.fleet import Fleet, HealthRules

from ...models.weight_files import written
from ..local import EngineClosed
from .seats import PooledEngine, Seat

CHECK_S = 1.0
CHECK_TIMEOUT_S = 10.0
MAX_MISSED = 3
"""An engine that fails to answer this many checks in a row is lost."""
MEND_AGAIN_S = 1.0
"""The pause after a failed attempt to bring an engine back."""
MAX_DEATHS = 5
DEATHS_WINDOW_S = 600.0
"""An engine that was lost MAX_DEATHS times within this time stays out."""


class KeptWeights(WeightSource, Protocol):
    """Weights that a pool keeps for engines that come back."""

    def remove(self) -> None:
        """Free the weights' storage; engines in the midst of reading can finish."""
        ...


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """How weights are handed to the engines of a pool."""

    version: int = 0
    """The version before the first publish."""
    timeout_s: float = 600.0
    """How long an engine may take to install weights; after that it is lost."""
    folder: str = ""
    """Where the current weights are kept as a file; see `write_weights`."""
    keep: Callable[[WeightSource], Awaitable[KeptWeights]] | None = None
    """Keeps the current weights elsewhere than in a file."""


DEFAULT_PUBLISHING = Publishing()


class Publisher:
    """Gives weights to the engines of a pool; an engine serves only with the current weights.

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
        self.fleet: Fleet[Seat] = Fleet(
            [Seat(index, engine) for index, engine in enumerate(engines)],
            HealthRules(
                check_every_s=CHECK_S,
                check_timeout_s=CHECK_TIMEOUT_S,
                max_missed=MAX_MISSED,
                mend_again_s=MEND_AGAIN_S,
                max_mend_again_s=MEND_AGAIN_S,
                max_deaths=MAX_DEATHS,
                deaths_window_s=DEATHS_WINDOW_S,
            ),
            check=lambda seat: seat.engine.check(),
            revive=self._revive,
            is_sure=lambda error: (
                isinstance(error, EngineLost) or not isinstance(error, RemoteError | TimeoutError)
            ),
            on_loss=on_loss,
            on_tick=on_tick,
        )
        self.version = publishing.version
        self.publish_timeout_s = publishing.timeout_s
        self._keep = publishing.keep or partial(written, folder=publishing.folder)
        self.paused = False
        """Whether engines that come back are to be paused."""
        self._held: KeptWeights | None = None
        self._publishing = asyncio.Lock()

    async def open_seats(self, patience_s: float, gave_up: Callable[[], bool]) -> list[Seat]:
        """Return the serving engines; wait while no engine serves, until `gave_up`.

        Raises:
            NoEngineLeft: none came back in time, or every engine stays out.
        """
        if self._held is None:
            raise ConfigError("the pool's engines have no weights yet; call set_weights first")
        fleet = self.fleet
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            seats = [seat for seat in fleet.up() if not seat.draining]
            if seats or gave_up():
                return seats
            if fleet.closed:
                raise EngineClosed("the pool of engines was closed")
            if all(seat.barred for seat in fleet.members):
                raise NoEngineLeft(f"every engine is out for good: {fleet.obituary()}")
            try:
                async with asyncio.timeout_at(deadline):
                    await fleet.changed()
            except TimeoutError:
                raise NoEngineLeft(
                    f"no engine served for {patience_s:g} s: {fleet.obituary()}"
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
            new = await self._keep(source)
            old, old_version = self._held, self.version
            self._held, self.version = new, version
            # At the first publish no engine serves yet, and all are given the weights.
            seats = [seat for seat in self.fleet.members if seat.serving or old is None]
            try:
                results = await asyncio.gather(
                    *map(self._publish_to, seats), return_exceptions=True
                )
                errors = [error for error in results if isinstance(error, BaseException)]
                # No engine took the weights: go back to the old ones and their version, and let
                # the `finally` block remove the new ones instead.
                if errors and len(errors) == len(results):
                    old, self._held, self.version = new, old, old_version
            finally:
                if old is not None:
                    old.remove()
            self.fleet.watch()
            if errors:
                raise errors[0]

    async def _publish_to(self, seat: Seat) -> None:
        """Install the current weights in an engine during a publish."""
        joining = not seat.serving
        try:
            await self._supply(seat)
        except (RemoteError, TimeoutError) as error:
            late = f"did not install version {self.version}: {str(error) or 'no answer in time'}"
            self.fleet.lose(seat, EngineLost(f"{seat.name} {late}"), joining=joining)
        except ConfigError:  # weights of another model: the engine keeps what it has
            raise
        except BaseException as error:
            # Interrupted, or sampling from other weights: which weights it has is unknown.
            seat.shut(f"was not given version {self.version}: {str(error) or type(error).__name__}")
            if isinstance(error, asyncio.CancelledError) and not self.fleet.closed:
                self.fleet.mend(seat, revive=False)
            raise
        else:
            # Otherwise the engine serves already, or was lost meanwhile, and then `_revive` brings
            # it back.
            if joining:
                seat.open()
                self.fleet.announce()

    async def _supply(self, seat: Seat) -> None:
        """Install the current weights in an engine."""
        assert self._held is not None
        async with asyncio.timeout(self.publish_timeout_s):
            await seat.engine.set_weights(self._held, self.version)
            if not seat.serving and self.paused:
                await seat.engine.pause()

    async def _revive(self, seat: Seat, was_lost: bool) -> None:
        if was_lost:
            await seat.engine.revive()
        async with self._publishing:
            await self._supply(seat)

    async def told(self, seat: Seat, act: Awaitable[None]) -> None:
        """Wait until an engine has done `act`; an engine that cannot is lost."""
        try:
            await act
        except RemoteError as error:
            self.fleet.lose(seat, error)

    async def close(self) -> None:
        """Close every engine, and remove the file of the weights."""
        await self.fleet.close()
        seats = self.fleet.members
        results = await asyncio.gather(
            *(seat.engine.close() for seat in seats), return_exceptions=True
        )
        for seat in seats:
            seat.shut("was closed")
        self.fleet.announce()
        if self._held is not None:
            self._held.remove()
        for error in results:
            if isinstance(error, BaseException):
                raise error
