"""A session on a server: the next seq, the last reply, and the seat that plays the session.

The work of an operation is kept apart from the requests that wait for it. An operation is begun
once; a client that sends the operation again waits for the same work, or gets the kept reply.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ludus.wire.codec import asked_format
from ludus.wire.session_table import Lease, NumberedRequests

from .env_wire import Create, Created, Outcome, Play
from .seats import Home, Seat


class HostedSession(Lease):
    """Carries out the operations of a session, singly and in order, each exactly once.

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
        self._seat: Seat | None = None
        self._plays: NumberedRequests[Play, Outcome] = NumberedRequests(f"session {self.name!r}")
        self._instance = instance
        self._on_lost = on_lost

    def created(self) -> asyncio.Future[Outcome]:
        """Return the reply to a create that begins no episode."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.set_result(Created(session=self.name, instance=self._instance))
        return future

    def kept(self, play: Play, seq: int) -> asyncio.Future[Outcome] | None:
        """Return the reply of an operation that was sent before, running or done; None for the next
        operation.

        Raises:
            SequenceConflict: the operation is neither the last one nor the next one.
        """
        self.touched = time.monotonic()
        return self._plays.kept(play, seq)

    def begin(self, play: Play, seq: int) -> asyncio.Future[Outcome]:
        """Start the next operation and return the future of the outcome."""
        self.busy += 1
        if self._seat is None:  # a session that has played nothing holds nothing
            self._seat = self._home.seat(self.name, self._lost)
        future = self._seat.play(play, seq, self._instance, asked_format.get())
        self._plays.begun(play, seq, future)
        return future

    async def close(self) -> None:
        """Close the environment; an operation that still runs is answered by `session_gone`."""
        if self._seat is not None:
            await self._seat.close()

    def _lost(self, why: str, *, is_late: bool) -> None:
        self._on_lost(self, why, is_late)
