"""A pool of engines, itself an engine: routing, health, restarts, versions and long tails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from ludus.agent.engine import Generation, Sampling, WeightSource, can_constrain
from ludus.agent.images import PlacedImage
from ludus.agent.trajectory import Finish
from ludus.errors import ConfigError, EngineLost, RemoteError

from .publisher import DEFAULT_PUBLISHING, Publisher, Publishing
from .seats import PooledEngine, PoolRequest, PrefixRoutes, Seat

T = TypeVar("T")

SLACK = 4
"""How many requests more than the idlest engine an engine may have and still be given the next turn
of a prompt that it knows.
"""
MAX_LOSSES = 2
"""A request is given up as the cause of the losses once this many engines were lost while they
sampled it.
"""
TAIL_S = 1.0
"""The last requests of a batch are moved onto one engine when no request has arrived for this long.
"""


class DeadlyRequest(RemoteError):
    """A request during which two engines were lost; a third is not risked."""


class EnginePool:
    """An engine made of several engines.

    A request goes to the engine that knows most of its prompt, unless that engine is clearly
    busier than the idlest. A lost engine leaves routing at once, its requests are sampled again by
    others with the same seeds, and in the background the engine is started anew and given the
    current weights before it serves. Nothing is served before the first `set_weights`.

    Args:
        engines: all of the same model, started.
        publishing: the first version, and how weights are handed to the engines.
        patience_s: how long a request waits while no engine serves.
        repack_rows: the most requests that are moved onto one engine when nothing new arrives; 0
            never moves any.
    """

    def __init__(
        self,
        engines: Sequence[PooledEngine],
        *,
        publishing: Publishing = DEFAULT_PUBLISHING,
        patience_s: float = 600.0,
        repack_rows: int = 0,
    ) -> None:
        if not engines:
            raise ConfigError("a pool of engines needs at least one engine")
        self.publisher = Publisher(
            engines,
            publishing,
            on_loss=lambda seat: self._routes.forget(seat.index),
            on_tick=self._repack_a_tail,
        )
        self.fleet = self.publisher.fleet
        self.patience_s = patience_s
        self.repack_rows = repack_rows
        self.moved_requests = 0
        """How many requests were moved to another engine by repacking so far."""
        self._routes = PrefixRoutes()
        self._requests: set[PoolRequest] = set()
        self._deadly: set[tuple[int, int, int]] = set()
        self._turns = itertools.count()
        self._arrived = 0.0

    @property
    def version(self) -> int:
        """The version of the last publish; a token's own version is in its generation."""
        return self.publisher.version

    @property
    def max_length(self) -> int:
        """The most tokens of prompt and answer together that every engine takes."""
        return min(seat.engine.max_length for seat in self.fleet.members)

    @property
    def constrains(self) -> bool:
        """Whether every engine can hold answers to a schema."""
        return all(can_constrain(seat.engine) for seat in self.fleet.members)

    @property
    def probed(self) -> float | None:
        """The largest difference in the engines' last probes, in nats; None without a probe."""
        differences = [getattr(seat.engine, "probed", None) for seat in self.fleet.members]
        return max(
            (difference for difference in differences if difference is not None), default=None
        )

    def counters(self) -> dict[str, float]:
        """Return what happened so far, for a run's metrics."""
        return {
            "engine/serving": float(len(self.fleet.up())),
            "engine/lost": float(self.fleet.losses),
            "engine/moved_requests": float(self.moved_requests),
        }

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Sample a continuation of `ids`; see `Engine.generate`.

        Raises:
            DeadlyRequest: two engines were lost meanwhile, or by the same request before.
            NoEngineLeft: no engine serves, and none came back in time.
        """
        request = PoolRequest(ids, sampling, images)
        if request.key in self._deadly:
            raise DeadlyRequest(_deadly(request))
        self._arrived = self._now()
        self._requests.add(request)
        try:
            while True:
                seat = await self._seat_for(request)
                if seat is None:
                    return request.made  # aborted while it waited
                # A second engine is asked whether it is alive before it is given the request, so
                # that the request is not blamed for an engine that was dead already (0705).
                if request.losses and not await self.fleet.is_alive(seat):
                    continue
                try:
                    part = await self._sample(seat, request)
                except EngineLost as error:
                    self._count_loss(request, error)
                    continue
                request.add(part)
                self._routes.note(request.prompt, seat.index)
                # An abort comes either from `_drain`, which has set a target for the rest of the
                # answer, or from `abort`, which ends the request.
                moved = request.target is not None and not request.aborted
                if part.finish is not Finish.ABORT or not moved:
                    return request.made
        finally:
            self._requests.discard(request)

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Return the log-probability of each id at temperature 1; the first is 0.

        Each call asks the next engine, so that one with wrong weights cannot hide behind others.

        Raises:
            DeadlyRequest: two engines were lost meanwhile, or by the same request before.
            NoEngineLeft: no engine serves, and none came back in time.
        """
        request = PoolRequest(ids, Sampling(max_tokens=0), images)
        if request.key in self._deadly:
            raise DeadlyRequest(_deadly(request))
        while True:
            seats = await self.publisher.open_seats(self.patience_s, lambda: request.aborted)
            seat = seats[next(self._turns) % len(seats)]
            if request.losses and not await self.fleet.is_alive(seat):
                continue  # as in `generate`
            try:
                return await self._watched(seat, seat.engine.logprobs(ids, images=images))
            except EngineLost as error:
                self._count_loss(request, error)

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Install new weights in all engines that serve, at the same time.

        An engine that fails is lost, and does not hold up the others; engines that come back later
        are given the weights then, from a copy that the pool keeps.

        Raises:
            WeightsRefused: the weights are not those of the model; the old ones stay.
            StaleWeights: an engine samples from other weights than those it was given.
        """
        await self.publisher.publish(source, version)

    async def pause(self) -> None:
        """Stop sampling until `resume`; requests wait."""
        self.publisher.paused = True
        await asyncio.gather(
            *(self.publisher.told(seat, seat.engine.pause()) for seat in self.fleet.up())
        )

    async def resume(self) -> None:
        """Continue the sampling that `pause` stopped."""
        self.publisher.paused = False
        await asyncio.gather(
            *(self.publisher.told(seat, seat.engine.resume()) for seat in self.fleet.up())
        )

    async def abort(self) -> None:
        """Answer every request with the tokens sampled so far on any engine."""
        for request in self._requests:
            request.aborted = True
        self.fleet.announce()
        await asyncio.gather(
            *(self.publisher.told(seat, seat.engine.abort()) for seat in self.fleet.up())
        )

    async def repack(self) -> int:
        """Move all running requests onto the engine that has most of them, with the tokens that
        were sampled; return how many were moved.

        Few rows cost an engine nearly as much as many. Each request is prefilled once more.
        """
        busy = [seat for seat in self.fleet.up() if seat.running]
        if len(busy) < 2:
            return 0
        target = max(busy, key=lambda seat: len(seat.running))
        before = self.moved_requests
        await asyncio.gather(*(self._drain(seat, target) for seat in busy if seat is not target))
        return self.moved_requests - before

    async def close(self) -> None:
        """Close every engine; waiting requests end with the engines' own errors."""
        await self.publisher.close()

    # --- routing --------------------------------------------------------------

    async def _seat_for(self, request: PoolRequest) -> Seat | None:
        """Choose the engine for a request; None if the request is aborted while none serves."""
        target, request.target = request.target, None
        if target is not None and target.serving and not request.aborted:
            return target
        seats = await self.publisher.open_seats(self.patience_s, lambda: request.aborted)
        if request.aborted:
            return None
        idlest = min(seats, key=lambda seat: len(seat.running))
        prompt = request.prompt
        known, holder = self._routes.longest(prompt)
        home = next((seat for seat in seats if seat.index == holder), idlest)
        fits = len(home.running) <= len(idlest.running) + SLACK
        # A beginning that most prompts share, such as a system prompt, is no reason to queue.
        chosen = home if fits and 2 * known >= len(prompt) else idlest
        self._routes.note(prompt, chosen.index)
        return chosen

    async def _sample(self, seat: Seat, request: PoolRequest) -> Generation:
        seat.running.add(request)
        try:
            generation = seat.engine.generate(request.prompt, request.rest, images=request.images)
            return await self._watched(seat, generation)
        finally:
            seat.running.discard(request)

    async def _watched(self, seat: Seat, generation: Awaitable[T]) -> T:
        """Wait for an engine's answer, or for the loss of the engine.

        Raises:
            EngineLost: the engine is gone, as it says itself or as others found.
        """
        work: asyncio.Future[T] = asyncio.ensure_future(generation)
        # `Seat.open` makes a new future, so the set holds that of the engine's present life.
        either: set[asyncio.Future[Any]] = {work, seat.lost}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise EngineLost(f"{seat.engine.name} {seat.why}")
            return work.result()
        except EngineLost as error:
            self.fleet.lose(seat, error)
            raise
        except RemoteError as error:
            # A fault that another attempt may cure can be the first sign of a dead engine. If the
            # engine is dead, the request is sampled elsewhere; if it lives, the caller decides.
            if error.retryable and not await self.fleet.is_alive(seat):
                raise EngineLost(f"{error}; then: {seat.why}") from error
            raise
        finally:
            work.add_done_callback(_seen)
            work.cancel()

    def _count_loss(self, request: PoolRequest, error: EngineLost) -> None:
        if self.fleet.closed:
            raise error
        request.losses += 1
        if request.losses >= MAX_LOSSES:
            self._deadly.add(request.key)
            raise DeadlyRequest(f"{_deadly(request)}; the last: {error}") from error

    async def _repack_a_tail(self) -> None:
        """Repack if few requests are left on several engines, and nothing new arrives."""
        running = [len(seat.running) for seat in self.fleet.up() if seat.running]
        quiet = self._now() - self._arrived >= TAIL_S and not self.publisher.paused
        if quiet and len(running) > 1 and sum(running) <= self.repack_rows:
            await self.repack()

    async def _drain(self, seat: Seat, target: Seat) -> None:
        """Let the requests of an engine continue on another."""
        seat.draining = True
        # Targets are set before the abort, because `generate` reads them as soon as the aborted
        # answers arrive.
        moving = list(seat.running)
        for request in moving:
            request.target = target
        self.moved_requests += len(moving)
        try:
            await self.publisher.told(seat, seat.engine.abort())
        finally:
            seat.draining = False
            self.fleet.announce()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _seen(work: asyncio.Future[T]) -> None:
    """Read the error of a call that nobody waits for any more; asyncio logs errors that nobody has
    read.
    """
    if not work.cancelled():
        work.exception()


def _deadly(request: PoolRequest) -> str:
    return (
        f"{MAX_LOSSES} engines were lost while they sampled a request of {len(request.ids)} "
        f"prompt tokens (seed {request.sampling.seed}); it is not given to a third, which might be "
        "lost too"
    )
