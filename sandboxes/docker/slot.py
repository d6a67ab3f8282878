"""A slot in a container: started through the engine, reached over a Unix socket.

Once it has connected to the driver, it is a slot like any other (decision 0416).

Under gVisor the host's limits end the kernel that serves the container, perhaps a moment after the
run that used them up, in the middle of the next run. So the first time a program is tried again
elsewhere; the second time the program is blamed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import select
import signal
import socket
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from ..guest.run import emptying
from ..guest.run.plan import JailPlan
from ..guest.run.request import Request, encode
from ..local import process_tree
from ..local.control_groups import BorrowedGroup, group_of
from ..local.runs import Beside
from ..local.slots import START_TIMEOUT_S, RunOutcome, Slot, SlotLost
from ..protocol import ExecutionStatus, Limits, Usage
from .config import LINE_FOLDER, SOCKET, Container
from .engine import DockerEngine, EngineFault

_LOOK_EVERY_S = 0.25
# `struct ucred` of a peer: pid, uid and gid.
_CREDENTIALS = struct.Struct("3i")


class ContainerSupervisor:
    """A container's first process, with the interface of a slot's supervisor."""

    def __init__(self, engine: DockerEngine, container: str, pid: int) -> None:
        self._engine, self._container = engine, container
        self._pid = pid
        self._process = os.pidfd_open(pid)

    @property
    def pid(self) -> int:
        """The container's first process, which is the slot."""
        return self._pid

    def end(self) -> None:
        """Kill the first process, which ends all others of the container."""
        if self._process < 0:
            return
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError:  # an ordinary user may not signal the container's process
            _in_background(self._engine.kill, self._container)

    def poll(self) -> int | None:
        """Return 0 once the container has ended, else None."""
        if self._process >= 0 and select.select([self._process], [], [], 0)[0]:
            os.close(self._process)
            self._process = -1
        return 0 if self._process < 0 else None


class ContainerSlot(Slot):
    """A container with a single slot.

    Args:
        plan: what the slot is told at its start.
        engine: makes the container.
        folder: a new folder, for what the container is shown of the driver.
        described: the container to make.
        suspects: the programs that were running when a container ended at a bound; one object for
            all containers of a sandbox, because the second try is in another container.
    """

    def __init__(
        self,
        plan: JailPlan,
        engine: DockerEngine,
        folder: Path,
        described: Container,
        suspects: Suspects,
    ) -> None:
        super().__init__(plan, None)
        self._suspects = suspects
        self._engine, self._folder, self._described = engine, folder, described
        self._container = ""
        self._left = False
        """Whether nobody waits for the container any more."""
        self._making = threading.Lock()
        """Held while `_container` or `_left` changes."""
        self._borrowed: BorrowedGroup | None = None
        self._memory_bytes = described.memory_bytes

    async def _launch(self) -> tuple[ContainerSupervisor, socket.socket, socket.socket]:
        lines: list[socket.socket] = []
        try:
            # Start the container, and put the control socket and the request socket into `lines`.
            folder = self._folder / LINE_FOLDER
            folder.mkdir(mode=0o711)
            with _listen(folder) as listener:
                try:
                    await asyncio.to_thread(self._create)
                    await asyncio.to_thread(self._engine.start, self._container)
                    for _ in range(2):
                        lines.append(await self._accept(listener))
                finally:
                    (folder / SOCKET).unlink()
            # The kernel gives the pid of the slot as the driver would number it, or 0 if the slot
            # is in no pid namespace that the driver sees.
            packed = lines[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid: int = _CREDENTIALS.unpack(packed)[0]
            if pid <= 0:
                raise SlotLost(
                    "the container's processes cannot be seen from here: the engine has to run on "
                    "this machine"
                )
            group = group_of(pid)
            if isinstance(group, str):
                raise SlotLost(f"the container's control group cannot be read: {group}")
            self.group = self._borrowed = group
            supervisor = ContainerSupervisor(self._engine, self._container, pid)
        except BaseException as error:
            for line in lines:
                line.close()
            with self._making:
                self._left, container = True, self._container
            if container:
                _in_background(self._engine.remove, container)
            if isinstance(error, EngineFault):
                raise SlotLost(str(error)) from error
            raise
        return supervisor, lines[0], lines[1]

    def _create(self) -> None:
        """Make the container, on a thread. The thread goes on where its waiter is cancelled, and
        then removes what it has made.
        """
        container = self._engine.create(self._described.slot())
        with self._making:
            self._container, is_left = container, self._left
        if is_left:
            self._engine.remove(container)

    async def _accept(self, listener: socket.socket) -> socket.socket:
        """Accept a connection from the container; give up if the container ends before.

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
        beside: Beside | None = None,
    ) -> RunOutcome:
        """Run a request to the end; see `Slot.run`.

        Some runtimes (gVisor) end the whole container at a bound, not a single process. If the
        kernel says that a bound was reached, and this happens twice to the same program, the
        program is charged with it, and the slot does not count as lost (decision 0419).
        """
        try:
            await self._limit_memory(limits.memory_bytes + self._described.overhead_bytes)
        except BaseException:
            # Otherwise `Slot.run` closes the descriptors in `peers`, even if it fails.
            for _, descriptor in peers:
                os.close(descriptor)
            raise
        before = self._bounds_reached()
        try:
            run_outcome = await super().run(
                request, limits, stdin=stdin, peers=peers, preserve=preserve, beside=beside
            )
        except SlotLost:
            after = self._bounds_reached()
            out_of_memory, out_of_processes = after[0] > before[0], after[1] > before[1]
            explained = out_of_memory or out_of_processes
            if not explained or not self._suspects.is_second_time(request):
                raise
            status = ExecutionStatus.OOM if out_of_memory else ExecutionStatus.ERROR
            used_up = "memory" if out_of_memory else "processes"
            detail = f"it ran out of {used_up}, and its container ended"
            return RunOutcome(status, None, b"", b"", Usage(), detail)
        self._suspects.clear(request)
        if self._described.runtime and self._bounds_reached() != before:
            # The container may end a moment later, and must not take the next run with it.
            self.give_up()
        return run_outcome

    def _bounds_reached(self) -> tuple[int, int]:
        """Return how often memory ran out and how often a process was refused in this container.

        Both are 0 where the counters cannot be read.
        """
        try:
            group = self._borrowed
            return (group.oom_kills(), group.refused_processes()) if group else (0, 0)
        except OSError:  # the engine has removed the group already
            return 0, 0

    async def _limit_memory(self, memory_bytes: int) -> None:
        """Set the container's memory limit for the next run: through the control group, or through
        the engine if the driver may not write to the group.

        Raises:
            SlotLost: neither could set the limit.
        """
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
        """Return the pids of the present run, in the host's numbering."""
        return process_tree.descendants(self._supervisor.pid)

    async def close(self) -> None:
        """End the container and all processes inside. Idempotent."""
        await super().close()
        if self._folder.exists():
            emptying.empty(str(self._folder))
            self._folder.rmdir()


def _in_background(do: Callable[[str], None], container: str) -> None:
    """Call the engine without waiting (and without an executor, which may be gone at exit)."""
    threading.Thread(target=do, args=(container,), daemon=True).start()


def _listen(folder: Path) -> socket.socket:
    """Open a socket in `folder` to which anyone who sees the folder may connect."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setblocking(False)
    folder_descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:  # A socket's address has at most 107 bytes; the path of a temporary folder may be longer.
        listener.bind(f"/proc/self/fd/{folder_descriptor}/{SOCKET}")
    finally:
        os.close(folder_descriptor)
    (folder / SOCKET).chmod(0o666)
    listener.listen(2)
    return listener


_MOST = 1024


class Suspects:
    """Programs that were running when a container ended at a bound."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def is_second_time(self, request: Request) -> bool:
        """Return whether this has happened to the program before; if not, remember the program."""
        key = _key(request)
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        while len(self._seen) > _MOST:
            self._seen.popitem(last=False)
        return False

    def clear(self, request: Request) -> None:
        """Forget a program that has run to an end: what happened before was another's doing."""
        if self._seen:
            self._seen.pop(_key(request), None)


def _key(request: Request) -> bytes:
    return hashlib.sha256(encode(request, 0)).digest()
