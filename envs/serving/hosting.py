"""One session on a server: its seq, its last reply, and the seat where it is played.

What runs is kept apart from who waits for it: an operation is begun once, and whoever sends it
again joins it while it runs or is given its kept reply.
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
    """Runs the operations of one session, one at a time, each once.

    Args:
        create: the operation that made it.
        home: where sessions of its environment are played.
        instance: of the server.
        on_lost: told why it cannot go on: a step took too long, or its process was lost.
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
        """The reply to a create that begins no episode."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.set_result(Created(session=self.name, instance=self._instance))
        return future

    def kept(self, play: Play, seq: int) -> asyncio.Future[Outcome] | None:
        """The reply of an operation sent again, running or done; None if it is the next one.

        Raises:
            SequenceConflict: it is neither.
        """
        self.touched = time.monotonic()
        return self._plays.kept(play, seq)

    def begin(self, play: Play, seq: int) -> asyncio.Future[Outcome]:
        """Start the next operation."""
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
