"""A REPL on a server, with the interface of a local session."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Self, TypeVar

import msgspec

from ludus.errors import (
    ConfigError,
    LudusError,
    Overloaded,
    RemoteError,
    RequestRejected,
    SessionGone,
)
from ludus.wire.client import nonsense
from ludus.wire.faults import code_of

from ..protocol import Execution
from ..warden import NotSnapshotable
from .client import MARGIN_S, SandboxCalls, encode_files
from .wire import (
    CellBody,
    CellReply,
    Ended,
    FileReply,
    Forgotten,
    ReadBody,
    ReplBody,
    ReplReply,
    RestoreBody,
    SnapshotBody,
    SnapshotReply,
    WriteBody,
    Written,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")
OPEN_S = 60.0
FILE_S = 30.0


class RemoteRepl:
    """A running REPL; make one with `open`. Calls are taken one at a time."""

    def __init__(self, calls: SandboxCalls, name: str) -> None:
        self.name = name
        self._calls = calls
        self._path = f"/v1/repls/{name}"
        self._seq = 0
        self._turn = asyncio.Lock()
        self._over = ""
        """Why it is of no more use; empty while it is."""

    @classmethod
    async def open(
        cls,
        calls: SandboxCalls,
        *,
        name: str = "",
        cpu_s: float = 3600.0,
        memory_bytes: int | None = None,
        output_bytes: int | None = None,
        idle_ttl_s: float | None = None,
    ) -> Self:
        """Start a REPL over there.

        Args:
            name: unique on the server; a random one if left out.
            cpu_s: of the whole session. output_bytes: of each cell and of each file read.
            idle_ttl_s: ends it after this long without a call.

        Raises:
            RemoteError: it cannot be had. ConfigError: it asks for more than is granted.
        """
        name = name or secrets.token_hex(12)
        body = ReplBody(
            repl=name,
            cpu_s=cpu_s,
            memory_bytes=memory_bytes,
            output_bytes=output_bytes,
            idle_ttl_s=idle_ttl_s,
        )
        await _ask(calls, OPEN_S, "/v1/repls", body, ReplReply)
        return cls(calls, name)

    async def run(self, code: str, *, timeout_s: float = 30.0) -> Execution:
        """Run one cell; see `Session.run`.

        Raises:
            SessionGone: the REPL has ended, was lost in a restart, or it is not known whether its
                last cell ran. ConfigError: it asks for more than is granted.
        """
        async with self._turn:
            self._check()
            body = CellBody(seq=self._seq, code=code, timeout_s=timeout_s)
            try:
                reply = await _ask(self._calls, timeout_s, f"{self._path}/run", body, CellReply)
            except BaseException as error:
                self._note(error)
                raise
            if (reply.repl, reply.seq) != (self.name, self._seq):
                self._over = "it was answered for another cell"
                raise nonsense(f"asked for cell {self._seq} of {self.name}, got {reply.seq}")
            self._seq += 1
            return reply.execution

    def _note(self, error: BaseException) -> None:
        """What a failed cell means for the next one."""
        if isinstance(error, (Overloaded, ConfigError)):
            return  # it was refused before anything was done
        self._over = str(error) if isinstance(error, SessionGone) else "its last cell is unknown"

    async def write(self, files: Mapping[str, bytes | str]) -> None:
        """Write files into its directory; see `Session.write`."""
        body = WriteBody(files=encode_files(files.items()))
        async with self._turn:
            await self._move("write", body, Written)

    async def read(self, path: str) -> bytes:
        """Read one regular file of it; see `Session.read`."""
        async with self._turn:
            return (await self._move("read", ReadBody(path=path), FileReply)).data

    async def _move(self, verb: str, body: msgspec.Struct, as_type: type[T]) -> T:
        self._check()
        try:
            return await _ask(self._calls, FILE_S, f"{self._path}/{verb}", body, as_type)
        except SessionGone as error:
            self._over = str(error)
            raise
        except LudusError as error:
            if code_of(error) == "file_refused":
                raise OSError(str(error)) from error
            if code_of(error) == "not_snapshotable":
                raise _not_snapshotable(str(error)) from error
            raise

    async def snapshot(self, *, name: str = "", idle_ttl_s: float | None = None) -> RemoteSnapshot:
        """Keep it as it is now; see `Session.snapshot`.

        Raises:
            NotSnapshotable: it has threads, children, sockets and the like; the message says which.
            SessionGone: it has ended.
        """
        name = name or secrets.token_hex(12)
        body = SnapshotBody(snapshot=name, idle_ttl_s=idle_ttl_s)
        async with self._turn:
            await self._move("snapshot", body, SnapshotReply)
        return RemoteSnapshot(self._calls, name)

    def _check(self) -> None:
        if self._over:
            raise SessionGone(f"REPL {self.name} is over: {self._over}")

    async def close(self) -> None:
        """End it; safe to call twice. If the server cannot be told, its idle time ends it."""
        self._over = self._over or "it was closed"
        try:
            await self._calls.client.within(MARGIN_S).delete(self._path, Ended)
        except RemoteError as error:
            logger.info("REPL %s is left to its idle time: %s", self.name, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class RemoteSnapshot:
    """A REPL as it was at one moment; make one with `RemoteRepl.snapshot`."""

    def __init__(self, calls: SandboxCalls, name: str) -> None:
        self.name = name
        self._calls = calls
        self._path = f"/v1/snapshots/{name}"

    async def restore(self, *, name: str = "", idle_ttl_s: float | None = None) -> RemoteRepl:
        """A new REPL that goes on from here; see `Snapshot.restore`.

        Raises:
            SessionGone: the snapshot has ended. RemoteError: it cannot be had.
        """
        name = name or secrets.token_hex(12)
        body = RestoreBody(repl=name, idle_ttl_s=idle_ttl_s)
        await _ask(self._calls, OPEN_S, f"{self._path}/restore", body, ReplReply)
        return RemoteRepl(self._calls, name)

    async def close(self) -> None:
        """Forget it; REPLs restored from it go on. Safe to call twice."""
        try:
            await self._calls.client.within(MARGIN_S).delete(self._path, Forgotten)
        except RemoteError as error:
            logger.info("snapshot %s is left to its idle time: %s", self.name, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _not_snapshotable(message: str) -> NotSnapshotable:
    """The error that was met over there, from its message."""
    reason, _, text = message.partition("(")[2].partition("): ")
    return NotSnapshotable(reason, text)


async def _ask(
    calls: SandboxCalls, longest_s: float, path: str, body: msgspec.Struct, as_type: type[T]
) -> T:
    """One call; what the server finds wrong with it is the caller's mistake, as it is locally."""
    try:
        return await calls.call(longest_s, "POST", path, body, as_type)
    except RequestRejected as error:
        if code_of(error) == "invalid":
            raise ConfigError(str(error)) from error
        raise
