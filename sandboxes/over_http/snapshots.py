"""The snapshots of a server's REPLs, named by the clients.

A group of rollouts branches from a snapshot: each restore is a separate REPL that goes on from
there.
"""

from __future__ import annotations

from typing import TypeVar

from ludus.wire.faults import Refused

from ..repl.session import Session, Snapshot
from ..repl.snapshot_client import NotSnapshotable
from .leases import Leases, Terms
from .repls import TTL_BACKSTOP_S, Repls
from .sandbox_wire import Bounds, RestoreBody, SnapshotBody

T = TypeVar("T")


class Snapshots:
    """The table of snapshots.

    Args:
        repls: the table of the REPLs, from which snapshots are taken and to which restored REPLs
            are added.
        bounds: what clients may ask for.
        instance: the name of this run of the server, for messages.
    """

    def __init__(self, repls: Repls, bounds: Bounds, *, instance: str) -> None:
        self._repls = repls
        self._backstop_s = bounds.repl_ttl_s + TTL_BACKSTOP_S
        terms = Terms("snapshot", bounds.max_snapshots, bounds.repl_ttl_s, bounds.repl_lifetime_s)
        self._leases: Leases[Snapshot] = Leases(terms, Snapshot.close, instance=instance)

    def __len__(self) -> int:
        return len(self._leases)

    async def start(self) -> None:
        """Start the reaper, which ends overdue snapshots."""
        await self._leases.start()

    async def stop(self) -> None:
        """Stop the reaper and delete all snapshots."""
        await self._leases.stop()

    async def take(self, repl: str, body: SnapshotBody) -> None:
        """Take a snapshot of a REPL; the same request again finds the snapshot made.

        Raises:
            SessionGone: there is no such REPL.
            Refused: the REPL cannot be copied; the message says why.
            SequenceConflict, QueueFull: see `Leases.make`.
        """

        async def copy(session: Session) -> Snapshot:
            return await session.snapshot(idle_ttl_s=self._backstop_s)

        async def start() -> Snapshot:
            try:
                return await self._repls.session(repl, copy)
            except NotSnapshotable as error:
                raise _refusal(error) from error

        await self._leases.make(body.snapshot, (repl, body), start, ttl_s=body.idle_ttl_s)

    async def restore(self, name: str, body: RestoreBody) -> None:
        """Make a REPL that goes on from a snapshot; the same request again finds the REPL made.

        Raises:
            SessionGone: there is no such snapshot.
            Refused: the sandbox failed.
            SequenceConflict, QueueFull: see `Leases.make`.
        """

        async def branch(snapshot: Snapshot) -> Session:
            return await snapshot.restore(idle_ttl_s=self._backstop_s)

        async def start() -> Session:
            try:
                return await self._leases.use(name, branch)
            except NotSnapshotable as error:
                raise _refusal(error) from error

        await self._repls.adopt(body.repl, (name, body), start, ttl_s=body.idle_ttl_s)

    def forget(self, name: str) -> bool:
        """Delete a snapshot; restored REPLs go on. Returns whether the snapshot existed."""
        return self._leases.release(name, "it was deleted")


def _refusal(error: NotSnapshotable) -> Refused:
    is_our_fault = error.reason == "fault"
    return Refused(str(error), "sandbox_failed" if is_our_fault else "not_snapshotable")
