"""A client's servers as a fleet: which gets a session or a score, and what a loss means.

Sessions go to the live server with the fewest, and stay there. Scores and questions go to the least
loaded, and after a failure to another. `Replicas` waits on the event loop and checks the servers in
the background; `BlockingReplicas` does without a loop, and looks at a server when it needs one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import statistics
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec

from ludus.errors import (
    LudusError,
    Overloaded,
    RemoteError,
    RequestTimeout,
    ServerFault,
    ServerUnreachable,
)

from .carrier import Answer, Asked, Carrier, ClientStream, OperationKind
from .client import AsyncTransport, Body, Client
from .codec import PROTOCOL
from .faults import code_of
from .fleet import Fleet, FleetMember, HealthRules
from .roster import Roster

logger = logging.getLogger(__name__)
T = TypeVar("T")

HEALTH = HealthRules(
    check_every_s=0.5,
    check_timeout_s=1.0,
    max_missed=2,
    mend_again_s=0.25,
    max_mend_again_s=2.0,
    by_others=True,
)
"""A server that stands still is lost after at most 3 s; one that is gone, at once."""
MIN_CALLS = 16
"""How many calls of a server must have been timed before it can be told to be slow."""
SLOW, SLOW_BY_S, SLOW_FOR_S = 4.0, 0.02, 5.0
"""A server is slow whose median time is so many times that of the others, and so much longer; it is
given little for so many seconds, and then judged anew.
"""
MIN_HEDGE_S = 0.005
"""The least time after which a score is asked a second time."""
WAIT_S = 0.1
"""Seconds between two looks for a server that takes a session."""
BLOCKING_LOOK_S = 2.0
"""A blocking client looks at a server before a new session, unless it did so lately."""
HEDGED_SHARE, MAX_HEDGES = 0.05, 10.0
"""The share of calls that may be asked a second time, and how many of them at once."""


class ServerLost(ServerUnreachable):
    """The server of a session is gone, or takes nothing more: only another can go on."""

    retryable = False


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What a client reads of `/readyz`."""

    instance: str
    protocol: int = PROTOCOL


class Replica(FleetMember):
    """A server of a fleet, and the connections to this server.

    Args:
        client: the client of the server.
        stream: the stream to the server; None for plain HTTP.
    """

    def __init__(self, client: Client, stream: ClientStream | None = None) -> None:
        super().__init__(client.url)
        self.client = client
        self.stream = stream
        self.sessions: WeakSet[Any] = WeakSet()
        """Those who play on it."""
        self.running = 0
        """How many operations wait for its answer."""
        self.took_s: deque[float] = deque(maxlen=64)
        """How long its latest answers took, in seconds."""
        self.slow_until = 0.0
        """Until when it is given little, by `time.monotonic`."""
        self.is_leaving = False
        """Whether it was taken off the roster, and only goes on with the sessions that it has."""
        self.full_until = 0.0
        """Until when it said that its queues are full, by `time.monotonic`."""
        self.look_at = 0.0
        """When a blocking client looks at it again, by `time.monotonic`."""
        self._carriers: dict[OperationKind[Any, Any], Carrier[Any, Any]] = {}

    @property
    def takes_more(self) -> bool:
        """Whether the server may be given new sessions and scores."""
        return self.serving and not self.draining and self.full_until <= time.monotonic()

    def carrier(self, kind: OperationKind[Asked, Answer]) -> Carrier[Asked, Answer]:
        """Return the carrier of operations of a kind to this server."""
        if kind not in self._carriers:
            self._carriers[kind] = Carrier(self.client, self.stream, kind)
        return self._carriers[kind]

    def break_off(self) -> None:
        """Fail every operation that waits for the server."""
        if self.stream is not None:
            self.stream.break_off(f"was given up: {self.why}")
        for carrier in self._carriers.values():
            carrier.break_off(ServerUnreachable(f"{self.name} was given up: {self.why}"))

    async def close(self) -> None:
        """Close the connections; the next operation opens others."""
        await asyncio.gather(*(carrier.close() for carrier in self._carriers.values()))
        if self.stream is not None:
            await self.stream.close()

    def load(self, *, of_sessions: bool = False) -> float:
        """Return this client's load on the server; the least loaded server is chosen first."""
        is_slow = time.monotonic() < self.slow_until
        if of_sessions:
            return len(self.sessions) + (math.inf if is_slow else 0.0)
        return (self.running + 1) * (SLOW if is_slow else 1.0)

    async def look(self, client: Client, timeout_s: float) -> Readiness:
        """Ask the server whether more work is accepted, and note the answer.

        Raises:
            RemoteError: it does not answer, or not as a server of this protocol.
        """
        response = await client.transport.send(client.build("GET", "/readyz", None), timeout_s)
        try:
            if response.status not in (200, 503):
                raise msgspec.DecodeError(f"HTTP {response.status}")
            ready = msgspec.json.decode(response.body, type=Readiness)
        except msgspec.DecodeError as error:
            raise ServerUnreachable(f"{self.name} is no ludus server ({error})") from None
        if ready.protocol != PROTOCOL:
            raise ServerUnreachable(
                f"{self.name} speaks protocol {ready.protocol}, and this client {PROTOCOL}; "
                "install the same release of ludus-rl on both (pip install -U ludus-rl)"
            )
        self.draining = self.is_leaving or response.status == 503
        self.client.contact.instance = ready.instance
        return ready


class ServerGroup(ABC):
    """What waiting and blocking clients share: which server is chosen, and what an error means.

    Args:
        roster: the addresses.
        build: makes the client of an address.
    """

    def __init__(self, roster: Roster, build: Callable[[str], Client]) -> None:
        self.roster = roster
        self.build = build
        self._anyone = build(roster.urls[0])
        """Has the limits of a call that may be answered by any server."""
        self._rng = random.Random()

    @property
    @abstractmethod
    def members(self) -> list[Replica]:
        """The servers."""

    @property
    def sole(self) -> bool:
        """Whether the group is a single server."""
        return len(self.members) == 1

    def is_only(self, replica: Replica) -> bool:
        """Whether there is no other server, so that nothing can be done elsewhere."""
        return self.members == [replica]

    async def pick(self, *, for_session: bool = False) -> Replica:
        """Return the least loaded of the servers that take more, or of all where none does."""
        members = self.members
        if len(members) == 1:
            return members[0]
        candidates = [member for member in members if member.takes_more]
        candidates = candidates or [member for member in members if member.serving] or members
        loads = [candidate.load(of_sessions=for_session) for candidate in candidates]
        least = min(loads)
        return self._rng.choice(
            [candidate for candidate, load in zip(candidates, loads, strict=True) if load == least]
        )

    async def pick_for_session(self) -> Replica:
        """Return the server with the fewest sessions, and wait while none takes more."""
        policy = self._anyone.policy
        met = any(member.client.contact.made for member in self.members)
        patience_s = policy.timeout_s if met else min(policy.timeout_s, policy.first_contact_s)
        deadline = time.monotonic() + patience_s
        while True:
            replica = await self.pick(for_session=True)
            if self.sole or replica.takes_more or time.monotonic() >= deadline:
                return replica
            await self._anyone.transport.sleep(WAIT_S)

    async def attempt(
        self,
        replica: Replica,
        kind: OperationKind[Asked, Answer],
        operation: Asked,
        timeout_s: float,
    ) -> Answer:
        """Send an operation to a server once."""
        replica.running += 1
        started = time.perf_counter()
        try:
            answer = await self._send(replica, kind, operation, timeout_s)
        except LudusError as error:
            learnt = self._learn(replica, error)
            if learnt is error:
                raise
            raise learnt from error
        finally:
            replica.running -= 1
        replica.took_s.append(time.perf_counter() - started)
        return answer

    async def is_lost(self, replica: Replica, error: LudusError) -> bool:
        """Return whether a session has to leave the server, after an operation failed."""
        if self.is_only(replica):
            return False
        if isinstance(error, Overloaded):
            return any(member.takes_more for member in self.members)
        if code_of(error) == "stopping":
            return True
        if not isinstance(error, ServerUnreachable | RequestTimeout) or code_of(error):
            return False
        return not await self._settled(replica)

    @abstractmethod
    async def returns(self, replica: Replica, patience_s: float) -> bool:
        """Wait until a lost server serves again, and return whether that happened."""

    @abstractmethod
    async def _send(
        self,
        replica: Replica,
        kind: OperationKind[Asked, Answer],
        operation: Asked,
        timeout_s: float,
    ) -> Answer: ...

    @abstractmethod
    async def _settled(self, replica: Replica) -> bool:
        """Return whether a server that failed to answer is still alive."""

    @abstractmethod
    def _lose(self, replica: Replica, error: Exception) -> None: ...

    def _learn(self, replica: Replica, error: LudusError) -> LudusError:
        """Note what an error says about a server, and return the error to raise instead."""
        if self.is_only(replica):
            return error
        code = code_of(error)
        if code == "stopping":
            replica.draining = True
        elif isinstance(error, Overloaded):
            replica.full_until = time.monotonic() + error.retry_after_s
        elif isinstance(error, ServerUnreachable):
            self._lose(replica, error)
        elif isinstance(error, ServerFault) and not code:  # garbage, or a proxy's error page
            self._lose(replica, error)
            return ServerUnreachable(str(error))
        return error

    async def call(self, method: str, path: str, body: Body | None, as_type: type[T]) -> T:
        """Send a request to any server, and after a failure to another; see `Client.call`."""

        async def attempt(timeout_s: float) -> T:
            replica = await self.pick()
            client = replica.client
            try:
                answer = await client.attempt(client.build(method, path, body), as_type, timeout_s)
            except LudusError as error:
                learnt = self._learn(replica, error)
                if learnt is error:
                    raise
                raise learnt from error
            self._anyone.contact.made = True
            return answer

        return await self._anyone.keep_trying(attempt)


class SessionSeats(Generic[Asked, Answer]):
    """Finds servers for the sessions whose operations are of a kind."""

    def __init__(self, group: ServerGroup, kind: OperationKind[Asked, Answer]) -> None:
        self._group = group
        self._kind = kind

    async def seat(self, session: object) -> SessionSeat[Asked, Answer]:
        """Return a place on the server with the fewest sessions."""
        replica = await self._group.pick_for_session()
        replica.sessions.add(session)
        return SessionSeat(self._group, replica, self._kind)

    async def call(self, method: str, path: str, body: Body | None, as_type: type[T]) -> T:
        """Ask any server; see `Client.call`."""
        return await self._group.call(method, path, body, as_type)


class SessionSeat(Generic[Asked, Answer]):
    """A session's place on a server."""

    def __init__(
        self, group: ServerGroup, replica: Replica, kind: OperationKind[Asked, Answer]
    ) -> None:
        self._group = group
        self._replica = replica
        self._kind = kind
        self.client = replica.client

    @property
    def instance(self) -> str:
        """The run of the server that answered last; another name after a restart."""
        return self.client.contact.instance

    async def returns(self, patience_s: float) -> bool:
        """Wait until the lost server serves again, and return whether that happened."""
        return await self._group.returns(self._replica, patience_s)

    def beside(self, session: object) -> SessionSeat[Asked, Answer]:
        """Return a place for another session on the same server."""
        self._replica.sessions.add(session)
        return SessionSeat(self._group, self._replica, self._kind)

    def leave(self, session: object) -> None:
        """Note that a session does not play here any more."""
        self._replica.sessions.discard(session)

    async def perform(self, operation: Asked, *, timeout_s: float = math.inf) -> Answer:
        """Send an operation, again and again where another attempt may help.

        Args:
            operation: the operation; safe to send twice.
            timeout_s: the limit in seconds for all attempts together, where that is less than the
                client's own limit.

        Raises:
            ServerLost: the server is gone, or takes nothing more, and another is there.
            LudusError: what went wrong at the server, or why the server could not be asked.
        """
        self.client.traffic.operations += 1
        started = time.monotonic()
        try:
            limit_s = min(timeout_s, self.client.policy.attempt_timeout_s)
            return await self._attempt(operation, limit_s)
        except LudusError as error:
            patient = self.client.within(timeout_s)

            async def again(limit_s: float) -> Answer:
                return await self._attempt(operation, limit_s)

            return await patient.keep_trying(again, failed=error, started=started)

    async def _attempt(self, operation: Asked, limit_s: float) -> Answer:
        try:
            return await self._group.attempt(self._replica, self._kind, operation, limit_s)
        except LudusError as error:
            if await self._group.is_lost(self._replica, error):
                raise ServerLost(str(error)) from error
            raise


class Replicas(ServerGroup):
    """The servers, for a client on an event loop.

    Args:
        roster: the addresses.
        build: makes the client of an address.
        transport: carries the requests.
        looks: carries the checks, so that none waits for a place among the operations.
        stream: whether operations go over streams.
    """

    def __init__(
        self,
        roster: Roster,
        build: Callable[[str], Client],
        transport: AsyncTransport,
        looks: AsyncTransport,
        *,
        stream: bool,
    ) -> None:
        super().__init__(roster, build)
        self._transport = transport
        self._stream = stream
        self._looks = looks
        self._fleet = self._watched(map(self._replica, roster.urls))
        self.only = self.members[0] if roster.is_fixed and self.sole else None
        """The server, where there is but one and there will be no other."""
        self._lately: deque[float] = deque(maxlen=512)
        self._patience_s: float | None = None
        """How long 99 of 100 hedged calls lately took at most; None before that is known."""
        self._hedges = MAX_HEDGES
        self._reading: asyncio.Future[None] | None = None
        """Reads the roster again, which may take longer than the checks may wait."""

    @property
    def members(self) -> list[Replica]:
        """The servers."""
        return self._fleet.members

    @property
    def fleet(self) -> Fleet[Replica]:
        """The servers and the health of each."""
        return self._fleet

    async def pick(self, *, for_session: bool = False) -> Replica:
        """Return the least loaded of the servers that take more; see `ServerGroup.pick`."""
        if self.only is not None:
            return self.only
        self._fleet.watch()
        return await super().pick(for_session=for_session)

    async def perform(
        self, kind: OperationKind[Asked, Answer], operation: Asked, *, hedged: bool = False
    ) -> Answer:
        """Have an operation done by whichever server is least loaded.

        Args:
            kind: the kind of the operation.
            operation: the operation; any server may do it, and do it twice.
            hedged: whether to ask a second server where the first takes longer than 99 of 100
                lately did.

        Raises:
            LudusError: what went wrong, the last time.
        """
        self._anyone.traffic.operations += 1
        started = time.monotonic()

        async def attempt(limit_s: float) -> Answer:
            replica = await self.pick()
            if hedged and not self.sole:
                return await self._hedged(replica, kind, operation, limit_s)
            return await self.attempt(replica, kind, operation, limit_s)

        try:
            return await attempt(self._anyone.policy.attempt_timeout_s)
        except LudusError as error:
            self._anyone.contact.made |= any(member.client.contact.made for member in self.members)
            return await self._anyone.keep_trying(attempt, failed=error, started=started)

    async def _hedged(
        self,
        replica: Replica,
        kind: OperationKind[Asked, Answer],
        operation: Asked,
        timeout_s: float,
    ) -> Answer:
        """Ask a server, and another where the first is late; the first answer counts."""
        self._hedges = min(MAX_HEDGES, self._hedges + HEDGED_SHARE)
        started = time.perf_counter()
        first = asyncio.ensure_future(self.attempt(replica, kind, operation, timeout_s))
        asked = {first}
        try:
            done, _ = await asyncio.wait(asked, timeout=self._patience_s)
            others = [
                member for member in self.members if member is not replica and member.takes_more
            ]
            if not done and others and self._hedges >= 1.0:
                self._hedges -= 1.0
                self._anyone.traffic.hedges += 1
                other = min(others, key=Replica.load)
                asked.add(asyncio.ensure_future(self.attempt(other, kind, operation, timeout_s)))
            while True:
                done, pending = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                answered = [attempt for attempt in done if attempt.exception() is None]
                if answered:
                    self._lately.append(time.perf_counter() - started)
                    return answered[0].result()
                if not pending:
                    return first.result()
                asked = pending
        finally:
            for attempt in asked:
                attempt.cancel()

    async def returns(self, replica: Replica, patience_s: float) -> bool:
        """Wait until a lost server serves again, and return whether that happened."""
        try:
            async with asyncio.timeout(patience_s):
                while not replica.serving:
                    await self._fleet.changed()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close every connection; the servers may be used again, on any event loop."""
        await self._fleet.close()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        await asyncio.gather(*(replica.close() for replica in self.members))
        await self._looks.close()
        await self._transport.close()
        for replica in self.members:
            if not replica.barred:
                replica.open()
        self._fleet = self._watched(self.members)

    # --- health -----------------------------------------------------------------------------------

    def _watched(self, members: Iterable[Replica]) -> Fleet[Replica]:
        return Fleet(
            members,
            HEALTH,
            check=self._check,
            revive=self._revive,
            is_sure=lambda error: isinstance(error, ServerUnreachable),
            on_loss=Replica.break_off,
            on_tick=self._tick,
        )

    def _replica(self, url: str) -> Replica:
        client = self.build(url)
        return Replica(client, ClientStream(client, self._transport) if self._stream else None)

    async def _send(
        self,
        replica: Replica,
        kind: OperationKind[Asked, Answer],
        operation: Asked,
        timeout_s: float,
    ) -> Answer:
        return await replica.carrier(kind).attempt(operation, timeout_s)

    async def _settled(self, replica: Replica) -> bool:
        return await self._fleet.settled(replica)

    def _lose(self, replica: Replica, error: Exception) -> None:
        self._fleet.lose(replica, error)

    async def _check(self, replica: Replica) -> None:
        if replica.draining or any(member.running for member in self.members):
            await self._look(replica)

    async def _revive(self, replica: Replica, was_lost: bool) -> None:
        async with asyncio.timeout(HEALTH.check_timeout_s):
            await self._look(replica)

    async def _look(self, replica: Replica) -> None:
        client = replace(replica.client, transport=self._looks)
        ready = await replica.look(client, HEALTH.check_timeout_s)
        twins = [
            member
            for member in self._fleet.up()
            if member is not replica and member.client.contact.instance == ready.instance
        ]
        if twins and ready.instance:
            self._fleet.bar(replica, f"is the same server as {twins[0].name}")

    async def _tick(self) -> None:
        timed = [member for member in self._fleet.up() if len(member.took_s) >= MIN_CALLS]
        medians = {member: statistics.median(member.took_s) for member in timed}
        for member, own in medians.items():
            others = [median for other, median in medians.items() if other is not member]
            usual = statistics.median(others) if others else own
            if own > SLOW * usual and own > usual + SLOW_BY_S:
                member.slow_until = time.monotonic() + SLOW_FOR_S
                member.took_s.clear()  # judged anew by what comes
        if len(self._lately) >= 100:
            self._patience_s = max(MIN_HEDGE_S, sorted(self._lately)[int(0.99 * len(self._lately))])
        if self.roster.is_due and (self._reading is None or self._reading.done()):
            self._reading = asyncio.ensure_future(asyncio.to_thread(self.roster.read_again))
        if not self.roster.is_fixed:
            urls = self.roster.urls
            for replica in self.members:
                replica.is_leaving = replica.name not in urls
                replica.draining = replica.draining or replica.is_leaving
            known = {replica.name for replica in self.members}
            self.members.extend(self._replica(url) for url in urls if url not in known)
        for replica in list(self.members):
            if replica.is_leaving and not replica.sessions and not replica.running:
                self.members.remove(replica)
                await replica.close()


class BlockingReplicas(ServerGroup):
    """The servers, for a client without an event loop.

    Args:
        roster: the addresses.
        build: makes the client of an address, over a transport that blocks.
    """

    def __init__(self, roster: Roster, build: Callable[[str], Client]) -> None:
        super().__init__(roster, build)
        self._members = [Replica(build(url)) for url in roster.urls]

    @property
    def members(self) -> list[Replica]:
        """The servers."""
        return self._members

    async def pick(self, *, for_session: bool = False) -> Replica:
        """Return the least loaded of the servers that take more, after a look at those that were
        not seen lately.
        """
        if self.roster.is_due:
            self.roster.read_again()
            known = {member.name: member for member in self._members}
            self._members = [known.get(url) or Replica(self.build(url)) for url in self.roster.urls]
        if not self.sole:
            for replica in self.members:
                if replica.look_at <= time.monotonic():
                    await self._settled(replica)
        return await super().pick(for_session=for_session)

    async def returns(self, replica: Replica, patience_s: float) -> bool:
        """Wait until a lost server serves again, and return whether that happened."""
        deadline = time.monotonic() + patience_s
        while not (is_there := await self._settled(replica)) and time.monotonic() < deadline:
            await replica.client.transport.sleep(HEALTH.check_every_s)
        return is_there

    async def _send(
        self,
        replica: Replica,
        kind: OperationKind[Asked, Answer],
        operation: Asked,
        timeout_s: float,
    ) -> Answer:
        return await kind.send_one(replica.client, operation, timeout_s)

    async def _settled(self, replica: Replica) -> bool:
        try:
            await replica.look(replica.client, HEALTH.check_timeout_s)
        except RemoteError as error:
            self._lose(replica, error)
        else:
            replica.open()
        pause_s = BLOCKING_LOOK_S if replica.takes_more else HEALTH.check_every_s
        replica.look_at = time.monotonic() + pause_s
        return replica.serving

    def _lose(self, replica: Replica, error: Exception) -> None:
        replica.shut(str(error))
