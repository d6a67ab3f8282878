"""A session on a server: its lease, its numbered operations, and the seat that plays the session.

The work of an operation is kept apart from the requests that wait for it. An operation is begun
once; a client that sends the operation again waits for the same work, or gets the kept reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ludus.wire.session_table import Lease, NumberedRequests

from .env_wire import Create, Created, Outcome, Play
from .placement import Home, PlacedSession


class HostedSession(Lease):
    """Holds what a server keeps of one session; `Sessions` begins the operations on its seat.

    Args:
        create: the operation that made the session.
        home: plays the sessions of the environment.
        instance: the id of this server process.
        on_lost: called with the session, the reason and whether a step was late, when the session
            cannot go on.
    """

    def __init__(
        self,
        create: Create,
        home: Home,
        *,
        lease_s: float,
        instance: str,
        on_lost: Callable[[HostedSession, str, bool], None],
    ) -> None:
        super().__init__(create.session, lease_s)
        self.create = create
        self.served = home.served
        self._home = home
        self.place: PlacedSession | None = None
        """Where it is played."""
        self.plays: NumberedRequests[Play, Outcome] = NumberedRequests(f"session {self.name!r}")
        self._instance = instance
        self._on_lost = on_lost

    def created(self) -> asyncio.Future[Outcome]:
        """Return the reply to a create that begins no episode."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.set_result(Created(session=self.name, instance=self._instance))
        return future

    def take_seat(self) -> PlacedSession:
        """Take a seat for the first operation: a session that has played nothing holds nothing."""
        self.place = self._home.place(self.name, self._lost)
        return self.place

    async def close(self) -> None:
        """Close the environment; an operation that still runs is answered by `session_gone`."""
        if self.place is not None:
            await self.place.close()

    def _lost(self, reason: str, *, is_late: bool) -> None:
        self._on_lost(self, reason, is_late)
