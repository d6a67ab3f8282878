"""A slot that is a container: started through the engine, reached over a Unix socket, and from then
on a slot like any other.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import process_tree
from ..control_groups import BorrowedGroup, group_of
from ..inside import emptying
from ..inside.plan import Plan
from ..inside.request import Request
from ..protocol import ExecutionStatus, Limits, Usage
from ..slots import START_TIMEOUT_S, Outcome, Slot, SlotLost
from .config import LINE_FOLDER, SOCKET, Container
from .engine import Engine, EngineFault
from .suspects import Suspects

_LOOK_EVERY_S = 0.25
_CREDENTIALS = struct.Struct("3i")


class ContainerGuardian:
    """A container as whoever holds its slot sees it."""

    def __init__(self, engine: Engine, container: str, pid: int) -> None:
        self._engine, self._container = engine, container
        self._pid = pid
        self._process = os.pidfd_open(pid)

    @property
    def pid(self) -> int:
        """Its first process, which is the slot."""
        return self._pid

    def kill(self) -> None:
        """End it; with its first process go all the others."""
        if self._process < 0:
            return
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError:  # we are an ordinary user, and it is not ours
            _in_background(self._engine.kill, self._container)

    def poll(self) -> int | None:
        """0 once it has ended."""
        if self._process >= 0 and select.select([self._process], [], [], 0)[0]:
            os.close(self._process)
            self._process = -1
        return 0 if self._process < 0 else None


class ContainerSlot(Slot):
    """One container with one slot.

    Args:
        folder: a folder of its own for what the container is shown of the driver.
        described: the container to make.
        suspects: shared by the containers of one sandbox.
    """

    def __init__(
        self, plan: Plan, engine: Engine, folder: Path, described: Container, suspects: Suspects
    ) -> None:
        super().__init__(plan, None)
        self._suspects = suspects
        self._engine, self._folder, self._described = engine, folder, described
        self._container = ""
        self._borrowed: BorrowedGroup | None = None
        self._memory_bytes = described.memory_bytes

    async def _launch(self) -> tuple[ContainerGuardian, socket.socket, socket.socket]:
        lines: list[socket.socket] = []
        try:
            await self._connect(lines)
            guardian = self._take_charge(_peer(lines[0]))
        except BaseException as error:
            for line in lines:
                line.close()
            if self._container:
                _in_background(self._engine.remove, self._container)
            if isinstance(error, EngineFault):
                raise SlotLost(str(error)) from error
            raise
        return guardian, lines[0], lines[1]

    async def _connect(self, lines: list[socket.socket]) -> None:
        """Start the container and put its control and its request line into `lines`."""
        folder = self._folder / LINE_FOLDER
        folder.mkdir(mode=0o711)
        with _listen(folder) as listener:
            try:
                self._container = await asyncio.to_thread(
                    self._engine.create, self._described.slot()
                )
                await asyncio.to_thread(self._engine.start, self._container)
                for _ in range(2):
                    lines.append(await self._accept(listener))
            finally:
                (folder / SOCKET).unlink()

    def _take_charge(self, pid: int) -> ContainerGuardian:
        """Open what is read and guarded of the container.

        Raises:
            SlotLost: it cannot be seen from here.
        """
        if pid <= 0:
            raise SlotLost("the container's processes cannot be seen from here")
        group = group_of(pid)
        if isinstance(group, str):
            raise SlotLost(f"the container's control group cannot be read: {group}")
        self.group = self._borrowed = group
        return ContainerGuardian(self._engine, self._container, pid)

    async def _accept(self, listener: socket.socket) -> socket.socket:
        """One line from the container; gives up when it is over without one.

        Raises:
            SlotLost: the container ended or did not connect in time.
        """
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(loop.sock_accept(listener))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not (await asyncio.wait([waiting], timeout=_LOOK_EVERY_S))[0]:
                    if not await asyncio.to_thread(self._engine.runs, self._container):
                        raise SlotLost("the container ended before it reached its driver")
                return waiting.result()[0]
        except TimeoutError as error:
            raise SlotLost(
                "the container does not reach its driver: the engine has to run on this machine "
                "and see the same files"
            ) from error
        finally:
            waiting.cancel()

    async def run(
        self,
        request: Request,
        limits: Limits,
        *,
        stdin: bytes = b"",
        peers: Sequence[tuple[str, int]] = (),
        preserve: bool = False,
    ) -> Outcome:
        """Run one request to its end; see `Slot.run`.

        Some runtimes (gVisor) end the whole container at a bound, not one process: if the kernel
        says that a bound was reached, and twice, that is the program's doing, and no lost slot.
        """
        try:
            await self._limit_memory(limits.memory_bytes + self._described.overhead_bytes)
        except BaseException:
            for _, descriptor in peers:
                os.close(descriptor)
            raise
        before = self._bounds_reached()
        try:
            done = await super().run(request, limits, stdin=stdin, peers=peers, preserve=preserve)
        except SlotLost:
            outcome = _ended_at_a_bound(before, self._bounds_reached())
            if outcome is None or not self._suspects.is_second_time(request):
                raise
            return outcome
        self._suspects.clear(request)
        if self._described.runtime and self._bounds_reached() != before:
            self.give_up()  # it may end yet, and must not take the next run with it
        return done

    def _bounds_reached(self) -> tuple[int, int]:
        """How often memory and processes ran out in this container, as far as can be told."""
        try:
            group = self._borrowed
            return (group.oom_kills(), group.refused_processes()) if group else (0, 0)
        except OSError:  # the engine has removed the group already
            return 0, 0

    async def _limit_memory(self, memory_bytes: int) -> None:
        if memory_bytes == self._memory_bytes:
            return
        if not (self._borrowed and self._borrowed.bound_memory(memory_bytes)):
            try:
                await asyncio.to_thread(self._engine.limit_memory, self._container, memory_bytes)
            except EngineFault as error:
                self.give_up()
                raise SlotLost(f"its memory cannot be bounded: {error}") from error
        self._memory_bytes = memory_bytes

    def processes(self) -> list[int]:
        """The pids of the present run, as this machine counts."""
        return process_tree.descendants(self._guardian.pid)

    async def close(self) -> None:
        """End the container and everything in it. Idempotent."""
        await super().close()
        if self._folder.exists():
            emptying.empty(str(self._folder))
            self._folder.rmdir()


def _ended_at_a_bound(before: tuple[int, int], after: tuple[int, int]) -> Outcome | None:
    """What a run did whose container is gone; None if no bound explains it."""
    if after[0] > before[0]:
        status, what = ExecutionStatus.OOM, "it ran out of memory, and its container ended"
    elif after[1] > before[1]:
        status, what = ExecutionStatus.ERROR, "it ran out of processes, and its container ended"
    else:
        return None
    return Outcome(status, None, b"", b"", Usage(), what)


def _in_background(do: Callable[[str], None], container: str) -> None:
    """Ask the engine without waiting (and without an executor, which may be gone at exit)."""
    threading.Thread(target=do, args=(container,), daemon=True).start()


def _listen(folder: Path) -> socket.socket:
    """A socket in `folder` that whoever sees it may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setblocking(False)
    here = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:  # a socket's address has 107 letters at most, a temporary folder's may have more
        listener.bind(f"/proc/self/fd/{here}/{SOCKET}")
    finally:
        os.close(here)
    (folder / SOCKET).chmod(0o666)
    listener.listen(2)
    return listener


def _peer(line: socket.socket) -> int:
    """The process at the other end, as this machine counts; 0 if it cannot be seen."""
    packed = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(packed)[0]
    return pid
