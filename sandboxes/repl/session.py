"""Sessions are Python prompts that keep state between calls, for agents that work in several turns.

    async with await Session.open(sandbox) as session:
        await session.run("x = 6")
        (await session.run("x * 7")).stdout          # "42\\n"
        async with await session.snapshot() as snapshot:
            branches = [await snapshot.restore() for _ in range(8)]

A session holds one slot from `open` to `close`, with its own files and limits. It ends by itself
when it is idle for too long, and with the process behind it, whoever ended that: `SessionGone`.

A snapshot keeps a session's memory and files as they are, stopped; restoring it gives a session
that goes on from there, as often as asked. Branches share nothing and cannot reach each other.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Self

from ludus.errors import ConfigError, SessionGone, SessionLost

from ..guest.run.message_line import LENGTH
from ..local.runs import RunOutcome, SlotLost, refusal
from ..local.slot_sandbox import SESSION, SlotSandbox
from ..paths import check_files, check_path
from ..protocol import MIB, Execution, ExecutionStatus, Limits, Sandbox, Usage
from .frozen_snapshot import FrozenSnapshot, copyable, end_copies, others_in
from .session_processes import CellOutput, FirstSessionProcess
from .session_tree import ProcessTree, SessionProcess
from .snapshot_client import NotSnapshotable, SnapshotClient

INTERRUPT_GRACE_S = 1.0
"""Seconds an interrupted cell may take to stop before the session is ended."""

_MAX_ANSWER_BYTES = 48 * MIB
_READ_BYTES = 1 << 16
_ANSWER_TIMEOUT_S = 30.0

# The wall limit is long, since cells have timeouts and the idle limit ends a forgotten session.
SESSION_LIMITS = Limits(timeout_s=24 * 3600, cpu_s=3600, memory_bytes=1024 * MIB)


def _end_of(end: asyncio.Future[RunOutcome]) -> str:
    """Say how the process of a session has ended."""
    if lost := end.exception():
        return f"its slot was lost: {lost}"
    outcome = end.result()
    return f"its process ended: {outcome.status} {outcome.detail}".rstrip()


def _open_lines() -> tuple[socket.socket, list[int], list[tuple[str, int]]]:
    """Open the line to a session and the pipes of its output; return the ends for the driver and
    the ends for the slot.

    Raises:
        SlotLost: no descriptor is left.
    """
    with ExitStack() as opened:  # closed here if they cannot all be opened
        try:
            line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            opened.enter_context(line)
            opened.enter_context(far)
            pipes = list[tuple[int, int]]()
            for _ in range(2):
                pipes.append(os.pipe())
                for descriptor in pipes[-1]:
                    opened.callback(os.close, descriptor)
        except OSError as error:
            raise SlotLost(refusal("a session cannot be opened", error)) from error
        opened.pop_all()
    for _, writer in pipes:
        # Cells run under another user id and may open /dev/stdout by name, which is this pipe.
        os.fchmod(writer, 0o622)
    readers, writers = zip(*pipes, strict=True)
    return line, list(readers), [("peer", far.detach()), *zip(("out", "err"), writers, strict=True)]


class Session:
    """A running session, made by `Session.open` or `Snapshot.restore`.

    Concurrent calls wait for each other, so cells run in order. A call that is cancelled before it
    is answered ends the session, since nobody knows then how much of it was done.
    """

    def __init__(
        self,
        session_process: SessionProcess,
        line: socket.socket,
        outputs: Sequence[int],
        limits: Limits,
        idle_ttl_s: float,
    ) -> None:
        self._limits, self._idle_ttl_s = limits, idle_ttl_s
        self._session_process = session_process
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._reason = "it was closed"
        self._expired = False
        self._idle: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._line = line
        self._line.setblocking(False)
        self._outputs = [CellOutput(reader) for reader in outputs]
        self._restart_idle_timer()

    @classmethod
    async def open(
        cls, sandbox: Sandbox, *, limits: Limits = SESSION_LIMITS, idle_ttl_s: float = 600.0
    ) -> Self:
        """Start a session in a slot of `sandbox`, and wait for a free slot if need be.

        Args:
            sandbox: the sandbox whose slots of kind `session` are used; it must have slots.
            limits: the limits of the whole session; `output_bytes` of each cell and each file read.
            idle_ttl_s: ends the session after this many seconds without a call.

        Raises:
            SlotLost: no slot could be started, or no descriptor is left.
            ConfigError: the sandbox has no slots.
        """
        if not isinstance(sandbox, SlotSandbox):
            raise ConfigError(
                f"a Session needs slots, not the tier {sandbox.tier!r}; on a server, open_repl()"
            )
        snapshots = SnapshotClient.of(sandbox)
        async with AsyncExitStack() as held:
            (slot,) = await held.enter_async_context(sandbox.pool(SESSION).take())
            line, readers, peers = _open_lines()
            tree = ProcessTree(slot, held.pop_all(), sandbox.groups, snapshots)
            return cls(FirstSessionProcess(tree, limits, peers), line, readers, limits, idle_ttl_s)

    async def snapshot(self, *, idle_ttl_s: float = 600.0) -> Snapshot:
        """Keep the present state of this session as a snapshot; the session itself goes on.

        Args:
            idle_ttl_s: ends the snapshot after this many seconds without a `restore`.

        Raises:
            NotSnapshotable: the session has threads, children, open files, sockets or shared
                memory, or this tier offers no snapshots; `reason` says which.
            SessionGone: the session has ended.
        """
        async with self._turn:
            self._check()
            if not self._session_process.pid:
                # The slot may still be about to fork the process, which would then count as another
                # process of the session. The answer to any request shows that it has been forked.
                await self._ask_in_time({"do": "write", "files": {}})
            copyable(self._session_process)
            answer = await self._ask_in_time({"do": "snapshot"})
            # The session is not trusted to name its copy. `copyable` found no other process before.
            copies = others_in(self._session_process)
            if answer.get("ok") is not True or len(copies) != 1:
                reason = str(answer.get("reason") or "it did not leave one copy of itself")[:200]
                await end_copies(self._session_process, copies)
                raise NotSnapshotable("fault", reason)
            self._session_process.outlived()
            frozen = await FrozenSnapshot.of(
                self._session_process, copies[0], self._limits.memory_bytes
            )
        return Snapshot(frozen, self._limits, idle_ttl_s)

    async def run(self, code: str, *, timeout_s: float = 30.0) -> Execution:
        """Run a cell; the value of a last expression is printed, as at the Python prompt.

        A cell that exceeds `timeout_s` or the output limit is interrupted (`KeyboardInterrupt`),
        and the session lives on. A cell that does not stop within `INTERRUPT_GRACE_S` ends the
        session.

        Args:
            code: the source of the cell.
            timeout_s: the limit of wall time, in seconds.

        Raises:
            ConfigError: the limit is not above 0.
            SessionGone: the session has ended, or ends with this cell.
        """
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s={timeout_s} must be above 0")
        async with self._turn:
            self._busy()
            for output in self._outputs:
                output.start(self._limits.output_bytes)
                self._loop.add_reader(output.descriptor, output.drain)
            started = time.monotonic()
            try:
                answer, status = await self._cell(code, timeout_s)
            finally:
                # The end of the session has done this, and others may have its descriptors by now.
                if self._ending is None:
                    for output in self._outputs:
                        self._loop.remove_reader(output.descriptor)
            for output in self._outputs:
                output.drain()
            if status is ExecutionStatus.OK:
                if any(output.size > output.limit for output in self._outputs):
                    status = ExecutionStatus.OUTPUT_LIMIT
                else:
                    status = (
                        ExecutionStatus.OK if answer.get("ok") is True else ExecutionStatus.ERROR
                    )
            stdout, err = (output.text() for output in self._outputs)
            usage = Usage(wall_s=time.monotonic() - started)
            tier = self._session_process.tree.slot.plan.tier
            return Execution(status=status, stdout=stdout, stderr=err, usage=usage, tier=tier)

    async def _cell(self, code: str, timeout_s: float) -> tuple[dict[str, Any], ExecutionStatus]:
        asking = asyncio.ensure_future(self._ask({"do": "cell", "code": code}))
        # Reading the exception keeps asyncio from reporting that a cancelled caller did not.
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await self._answered(asking, timeout_s)
        except asyncio.CancelledError:
            self._give_up()
            asking.cancel()
            raise

    async def _answered(
        self, asking: asyncio.Future[dict[str, Any]], timeout_s: float
    ) -> tuple[dict[str, Any], ExecutionStatus]:
        """Wait for the answer to a cell, and interrupt a cell that exceeds a limit."""
        deadline = time.monotonic() + timeout_s
        status = ExecutionStatus.OK
        while not asking.done() and status is ExecutionStatus.OK:
            # Neither too much output nor a `close` by another task wakes `asking`.
            await asyncio.wait([asking], timeout=min(0.1, max(0.0, deadline - time.monotonic())))
            if self._line.fileno() < 0:
                asking.cancel()  # The session was closed meanwhile, so no answer will come.
                await self.close()
                self._check()
            if any(output.size > output.limit for output in self._outputs):
                status = ExecutionStatus.OUTPUT_LIMIT
            elif time.monotonic() >= deadline:
                status = ExecutionStatus.TIMEOUT
        if asking.done():
            return await asking, ExecutionStatus.OK
        self._session_process.interrupt()
        await asyncio.wait([asking], timeout=INTERRUPT_GRACE_S)
        if not asking.done():
            asking.cancel()
            self._reason = f"a cell did not stop when it was interrupted ({status})"
            await self.close()
            raise self._gone()
        return await asking, status

    async def write(self, files: Mapping[str, bytes | str]) -> None:
        """Write files into the session's work directory, over files of the same names.

        Raises:
            ConfigError: a path is not allowed.
            SessionGone: the session has ended.
            OSError: there is no room, or the session has put something else in the way.
        """
        data = check_files(files, room_bytes=_MAX_ANSWER_BYTES // 2)
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        async with self._turn:
            answer = await self._ask_in_time({"do": "write", "files": encoded})
        if answer.get("ok") is not True:
            raise OSError(f"the files cannot be written: {str(answer.get('reason'))[:200]}")

    async def read(self, path: str) -> bytes:
        """Read a regular file from the session's work directory.

        Raises:
            ConfigError: the path is not allowed.
            SessionGone: the session has ended.
            OSError: the path is no regular file, or the file is larger than the output limit.
        """
        room = self._limits.output_bytes
        async with self._turn:
            request = {"do": "read", "path": check_path(path), "limit_bytes": room}
            answer = await self._ask_in_time(request)
        try:
            data = base64.b64decode(answer["data"], validate=True)
        except (KeyError, ValueError, TypeError) as error:
            raise OSError(f"{path!r} {str(answer.get('reason'))[:200]}") from error
        return data[:room]

    async def _ask_in_time(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request that runs no code of the session, and end a session that does not answer
        in time.
        """
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await self._ask(message)
        except TimeoutError as error:
            self._reason = "it did not answer"
            await self.close()
            raise self._gone() from error

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer, untrusted plain JSON of bounded size."""
        self._busy()
        body = json.dumps(message).encode()
        try:
            await self._loop.sock_sendall(self._line, LENGTH.pack(len(body)) + body)
            (length,) = LENGTH.unpack(await self._exactly(LENGTH.size))
            # A longer answer is cut, so it does not parse as JSON and ends the session below.
            answer = json.loads(await self._exactly(min(length, _MAX_ANSWER_BYTES)))
        except (OSError, EOFError, ValueError, RecursionError) as error:
            # The socket closes a moment before the slot reports why the process ended.
            end = self._session_process.ended
            await asyncio.wait([end], timeout=0.5)
            if end.done() and not end.cancelled():
                self._reason = _end_of(end)
            elif self._ending is None:
                self._reason = "its process ended, or closed its line to the driver"
            await self.close()
            raise self._gone() from error
        except asyncio.CancelledError:
            self._give_up()
            raise
        self._restart_idle_timer()
        return answer if isinstance(answer, dict) else {}

    async def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = await self._loop.sock_recv(self._line, min(size, _READ_BYTES))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _busy(self) -> None:
        if self._idle:
            self._idle.cancel()
        self._check()

    def _gone(self) -> SessionGone:
        """Return the error for this session, which has ended: `SessionLost` where a fault of the
        sandbox or the idle limit ended it, and not what ran there.
        """
        end, lost = self._session_process.ended, self._expired
        if not lost and end.done() and not end.cancelled():
            # An exception is SlotLost: the slot ended, and not because of a program.
            lost = bool(end.exception()) or end.result().status is ExecutionStatus.INFRA_ERROR
        return (SessionLost if lost else SessionGone)(f"the session has ended: {self._reason}")

    def _check(self) -> None:
        if self._line.fileno() < 0:
            raise self._gone()

    def _restart_idle_timer(self) -> None:
        self._idle = self._loop.call_later(self._idle_ttl_s, self._expire)

    def _give_up(self) -> None:
        """End the session after a request whose caller was cancelled: the answer, which may still
        come, would be taken for the answer to the next request.
        """
        if self._ending is None:
            self._reason = "a request was cancelled before it was answered"
            self._end()

    def _expire(self) -> None:
        self._expired = True
        self._reason = f"it was idle for {self._idle_ttl_s:g} s"
        self._end()

    async def close(self) -> None:
        """End the session and give the slot back. A second call waits for the first.

        The clearing-up goes on when the caller is cancelled, because a session that was closed
        halfway would keep its slot, files and control group from others.
        """
        await asyncio.shield(self._end())

    def _end(self) -> asyncio.Task[None]:
        if self._idle:
            self._idle.cancel()
        if self._ending is None:
            # Before the close: the next file opened gets the number, and would reach the callbacks.
            self._loop.remove_reader(self._line)
            self._loop.remove_writer(self._line)
            self._line.close()
            for output in self._outputs:
                self._loop.remove_reader(output.descriptor)
                os.close(output.descriptor)
            self._ending = self._loop.create_task(self._session_process.close())
        return self._ending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Snapshot:
    """The state of a session at a moment in time, made by `Session.snapshot`."""

    def __init__(self, frozen: FrozenSnapshot, limits: Limits, idle_ttl_s: float) -> None:
        self._frozen, self._limits, self._idle_ttl_s = frozen, limits, idle_ttl_s
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None
        self._gone = ""
        self._idle = self._loop.call_later(idle_ttl_s, self._expire)

    async def restore(self, *, limits: Limits | None = None, idle_ttl_s: float = 600.0) -> Session:
        """Return a new session that goes on from this state, independent of every other.

        The new session has its own files, limits and random numbers.

        Args:
            limits: the limits of the new session; by default the limits of the original.
            idle_ttl_s: ends the new session after this many seconds without a call.

        Raises:
            SessionGone: the snapshot has ended.
            NotSnapshotable: the sandbox failed.
        """
        if self._gone:
            raise SessionGone(f"the snapshot has ended: {self._gone}")
        self._idle.cancel()
        self._idle = self._loop.call_later(self._idle_ttl_s, self._expire)
        new_limits = limits or self._limits
        try:
            session_process, (line, *outputs) = await self._frozen.branch(new_limits)
        except NotSnapshotable as error:
            if error.reason != "gone":
                raise
            self._gone = error.text
            raise SessionGone(f"the snapshot has ended: {self._gone}") from error
        return Session(session_process, socket.socket(fileno=line), outputs, new_limits, idle_ttl_s)

    def _expire(self) -> None:
        self._gone = f"it was idle for {self._idle_ttl_s:g} s"
        self._end()

    async def close(self) -> None:
        """Delete the snapshot; sessions restored from the snapshot go on.

        A second call waits for the first. The clearing-up goes on when the caller is cancelled.
        """
        self._gone = self._gone or "it was closed"
        await asyncio.shield(self._end())

    def _end(self) -> asyncio.Task[None]:
        self._idle.cancel()
        if self._ending is None:
            self._ending = self._loop.create_task(self._frozen.close())
        return self._ending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
