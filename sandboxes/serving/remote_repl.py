"""A REPL on a server, with the interface of a local session."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Self, TypeVar, Unpack

import msgspec

from ludus.errors import (
    ConfigError,
    LudusError,
    Overloaded,
    RemoteError,
    RequestRejected,
    SessionGone,
    SessionLost,
)
from ludus.wire.client import protocol_error
from ludus.wire.faults import code_of

from ..paths import encode_files
from ..protocol import Execution
from ..repl.snapshot_client import NotSnapshotable
from .client import MARGIN_S, SandboxCalls
from .sandbox_wire import (
    CellBody,
    CellReply,
    FileReply,
    Forgotten,
    ReadBody,
    ReplBody,
    ReplEnded,
    ReplOptions,
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
    """A running REPL on a server; made by `open`. Calls are carried out in order."""

    def __init__(self, calls: SandboxCalls, name: str) -> None:
        self.name = name
        self._calls = calls
        self._path = f"/v1/repls/{name}"
        self._seq = 0
        self._turn = asyncio.Lock()
        self._over = ""
        """Why the REPL cannot be used any more; empty while it can."""
        self._lost = False

    @classmethod
    async def open(
        cls, calls: SandboxCalls, *, name: str = "", **options: Unpack[ReplOptions]
    ) -> Self:
        """Start a REPL on the server.

        Args:
            calls: the server.
            name: unique on the server; random by default.
            options: the limits of the session; see `ReplBody`.

        Raises:
            RemoteError: the server cannot make a REPL.
            ConfigError: a limit is more than the server grants.
        """
        name = name or secrets.token_hex(12)
        body = ReplBody(repl=name, **options)
        await _ask(calls, OPEN_S, "/v1/repls", body, ReplReply)
        return cls(calls, name)

    async def run(self, code: str, *, timeout_s: float = 30.0) -> Execution:
        """Run a cell; see `Session.run`.

        Raises:
            SessionGone: the REPL has ended, was lost in a restart, or it is not known whether its
                last cell ran.
            ConfigError: the cell asks for more than the server grants.
        """
        async with self._turn:
            self._check()
            body = CellBody(seq=self._seq, code=code, timeout_s=timeout_s)
            try:
                reply = await _ask(self._calls, timeout_s, f"{self._path}/run", body, CellReply)
            except (Overloaded, ConfigError):
                raise  # The cell was refused before it ran, so the next may be sent.
            except BaseException as error:
                # If the cell may have run, the state of the REPL is unknown and it is not used
                # again; that holds for a cancelled call as well.
                gone = isinstance(error, SessionGone)
                self._lost = isinstance(error, SessionLost)
                self._over = str(error) if gone else "it is not known whether its last cell ran"
                raise
            if (reply.repl, reply.seq) != (self.name, self._seq):
                self._over = "the server answered for another cell"
                raise protocol_error(f"asked for cell {self._seq} of {self.name}, got {reply.seq}")
            self._seq += 1
            return reply.execution

    async def write(self, files: Mapping[str, bytes | str]) -> None:
        """Write files into the REPL's directory; see `Session.write`."""
        body = WriteBody(files=encode_files(files))
        async with self._turn:
            await self._move("write", body, Written)

    async def read(self, path: str) -> bytes:
        """Read a regular file of the REPL's directory; see `Session.read`."""
        async with self._turn:
            return (await self._move("read", ReadBody(path=path), FileReply)).data

    async def _move(self, verb: str, body: msgspec.Struct, as_type: type[T]) -> T:
        self._check()
        try:
            return await _ask(self._calls, FILE_S, f"{self._path}/{verb}", body, as_type)
        except SessionGone as error:
            self._over, self._lost = str(error), isinstance(error, SessionLost)
            raise
        except LudusError as error:
            if code_of(error) == "file_refused":
                raise OSError(str(error)) from error
            if code_of(error) == "not_snapshotable":
                # The message is `str(NotSnapshotable)`: "... cannot be copied (reason): text".
                message = str(error)
                reason, _, text = message.partition("(")[2].partition("): ")
                raise NotSnapshotable(reason, text) from error
            raise

    async def snapshot(self, *, name: str = "", idle_ttl_s: float | None = None) -> RemoteSnapshot:
        """Take a snapshot of the REPL's present state; see `Session.snapshot`.

        Raises:
            NotSnapshotable: the REPL has threads, children, sockets or the like; the message says
                which.
            SessionGone: the REPL has ended.
        """
        name = name or secrets.token_hex(12)
        body = SnapshotBody(snapshot=name, idle_ttl_s=idle_ttl_s)
        async with self._turn:
            await self._move("snapshot", body, SnapshotReply)
        return RemoteSnapshot(self._calls, name)

    def _check(self) -> None:
        if self._over:
            kind = SessionLost if self._lost else SessionGone
            raise kind(f"REPL {self.name} is over: {self._over}")

    async def close(self) -> None:
        """End the REPL; safe to call twice. If the server is out of reach, the idle time ends the
        REPL.
        """
        self._over = self._over or "it was closed"
        try:
            await self._calls.client.within(MARGIN_S).delete(self._path, ReplEnded)
        except RemoteError as error:
            logger.info("REPL %s is left to its idle time: %s", self.name, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class RemoteSnapshot:
    """The state of a REPL at some moment; made by `RemoteRepl.snapshot`."""

    def __init__(self, calls: SandboxCalls, name: str) -> None:
        self.name = name
        self._calls = calls
        self._path = f"/v1/snapshots/{name}"

    async def restore(self, *, name: str = "", idle_ttl_s: float | None = None) -> RemoteRepl:
        """Start a new REPL that goes on from the snapshot; see `Snapshot.restore`.

        Raises:
            SessionGone: the snapshot has ended.
            RemoteError: the server cannot make a REPL.
        """
        name = name or secrets.token_hex(12)
        body = RestoreBody(repl=name, idle_ttl_s=idle_ttl_s)
        await _ask(self._calls, OPEN_S, f"{self._path}/restore", body, ReplReply)
        return RemoteRepl(self._calls, name)

    async def close(self) -> None:
        """Delete the snapshot; restored REPLs go on. Safe to call twice."""
        try:
            await self._calls.client.within(MARGIN_S).delete(self._path, Forgotten)
        except RemoteError as error:
            logger.info("snapshot %s is left to its idle time: %s", self.name, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _ask(
    calls: SandboxCalls, longest_s: float, path: str, body: msgspec.Struct, as_type: type[T]
) -> T:
    """Make a call; an invalid request raises ConfigError, as a local call would."""
    try:
        return await calls.call(longest_s, calls.client.build("POST", path, body), as_type)
    except RequestRejected as error:
        if code_of(error) == "invalid":
            raise ConfigError(str(error)) from error
        raise
