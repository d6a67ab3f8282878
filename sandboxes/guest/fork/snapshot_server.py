"""The snapshot server: holds snapshots of sessions, outside every slot, by tracing frozen copies.

There is a single server per driver, started with the first snapshot. It serves a request at a time,
each a JSON object in a datagram, and answers with another object, and with descriptors for a new
branch. When the server ends, however it ends, the frozen copies end as well; branches go on.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ..jail import policy, syscalls as sc
from ..run import copying
from . import branching
from .tracee import Tracee, await_stop

_LOOK_EVERY_S = 0.5

Answer = tuple[dict[str, object], list[int]]


def main(descriptor: int) -> None:
    """Serve the driver until the driver closes the line."""
    line = socket.socket(fileno=descriptor)
    server = SnapshotServer()
    while True:
        ready, _, _ = select.select([line], [], [], _LOOK_EVERY_S)
        server.forget_ended()
        if not ready:
            continue
        request = line.recv(1 << 16)
        if not request:
            sys.exit(0)
        answer, descriptors = server.do(json.loads(request))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        line.sendmsg([json.dumps(answer).encode()], rights if descriptors else [])
        for sent in descriptors:
            os.close(sent)


class SnapshotServer:
    """The frozen copies of sessions, by pid."""

    def __init__(self) -> None:
        self._frozen: dict[int, Tracee] = {}

    def do(self, request: dict[str, Any]) -> Answer:
        """Carry out a request; a failure is returned as the answer."""
        try:
            match request["do"]:
                case "hold":
                    return self._hold(request)
                case "branch":
                    return self._branch(request)
                case "drop" | "clear" | "sweep" as verb:
                    if verb == "drop" and (frozen := self._frozen.pop(request["frozen"], None)):
                        frozen.kill()
                    every = verb == "sweep"
                    work = _remove_all_copies if every else partial(_remove_copy, request["to"])
                    if os.path.exists(_root(request)):  # a slot that is gone took its files along
                        _in_slot(request, work, as_program=False)
                    return {}, []
                case verb:
                    raise ValueError(f"there is no request {verb!r}")
        except branching.UncopyableProcess as error:
            return {"reason": error.reason, "text": error.text}, []
        except Exception as error:  # whatever it is, the other snapshots must go on
            return {"reason": "fault", "text": f"{type(error).__name__}: {error}"}, []

    def forget_ended(self) -> None:
        """Reap frozen copies that were killed, so that slots can be cleaned up."""
        self._frozen = {
            pid: frozen for pid, frozen in self._frozen.items() if not frozen.has_ended()
        }

    def _hold(self, request: dict[str, Any]) -> Answer:
        """Freeze a copy of the session, copy the files, and isolate the session from branches."""
        await_stop(request["frozen"])
        frozen = Tracee.seize(request["frozen"])
        try:
            branching.examine(frozen.pid, request["session"], request["readable"])
            branching.settle_frozen(frozen)
            _join(frozen.pid, request["group"])
            _copy_files(request)
            if request["set_apart"]:
                session = Tracee.seize(request["session"])
                branching.restrict(session, _root(request), request["readable"], request["from"])
                session.release()
        except BaseException:
            frozen.kill()
            raise
        self._frozen[frozen.pid] = frozen
        return {}, []

    def _branch(self, request: dict[str, Any]) -> Answer:
        """Copy a frozen process and the files, and let the copy run."""
        frozen = self._frozen.get(request["frozen"])
        if frozen is None:
            return {"reason": "gone", "text": "there is no such snapshot"}, []
        _copy_files(request)
        branch = frozen.fork()
        try:
            _join(branch.pid, request["group"])
            # Group, descriptors and domain are in place before the branch runs its first
            # instruction.
            descriptors = branching.settle_branch(branch, f"{request['to']}/{policy.FILES}")
            branching.restrict(branch, _root(request), request["readable"], request["to"])
            process = os.pidfd_open(branch.pid)
            branch.release()
        except BaseException:
            branch.kill()
            raise
        return {"pid": branch.pid}, [*descriptors, process]


def _root(request: dict[str, Any]) -> str:
    return f"/proc/{request['slot']}/root"


def _copy_files(request: dict[str, Any]) -> None:
    target = f"{request['to']}/{policy.FILES}"
    _in_slot(request, lambda: _make_room(request), as_program=False)
    try:
        _in_slot(request, lambda: copying.copy_tree(request["from"], target))
    except OSError as error:
        raise branching.UncopyableProcess("files", f"they cannot be copied: {error}") from error


def _join(pid: int, groups: list[str]) -> None:
    for procs in groups:
        with open(procs, "w") as stream:
            stream.write(str(pid))


def _in_slot(request: dict[str, Any], work: Callable[[], None], *, as_program: bool = True) -> None:
    """Do `work` in a new process that sees the files as the slot does.

    Raises:
        OSError: the work failed.
    """
    reader, writer = os.pipe()
    helper = os.fork()
    if helper == 0:
        code = 1
        try:
            _join(os.getpid(), request["group"])
            view = f"/proc/{request['slot']}/ns/mnt"
            if os.readlink(view) == os.readlink("/proc/self/ns/mnt"):
                raise OSError("the slot is gone")
            sc.setns(os.open(view, os.O_RDONLY | os.O_CLOEXEC), sc.CLONE_NEWNS)
            os.umask(0)
            if as_program:
                os.setgroups([])
                os.setresgid(request["gid"], request["gid"], request["gid"])
                os.setresuid(request["uid"], request["uid"], request["uid"])
            work()
            code = 0
        except OSError as error:
            os.write(writer, f"{error}".encode()[:1000])
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as reply:
        problem = reply.read().decode("utf-8", "replace")
    if os.waitpid(helper, 0)[1] != 0:
        raise OSError(problem or "the helper ended at once")


def _make_room(request: dict[str, Any]) -> None:
    """Mount a file system for a copy of files.

    The copies of a copy are mounted below, where no program can write.
    """
    flags = sc.MS_NOSUID | sc.MS_NODEV
    if not os.path.ismount(policy.BRANCHES):
        sc.mount("branches", policy.BRANCHES, "tmpfs", flags, "mode=711,size=1m,nr_inodes=2048")
    os.mkdir(request["to"], 0o711)
    room = f"mode=711,size={request['disk_bytes']},nr_inodes={request['disk_inodes']}"
    sc.mount("branch", request["to"], "tmpfs", flags, room)
    files = f"{request['to']}/{policy.FILES}"
    os.mkdir(files, 0o700)
    os.chown(files, request["uid"], request["gid"])


def _remove_copy(folder: str) -> None:
    """Remove a copy of a session's files.

    A copy below which further copies are mounted stays, and is removed with the whole slot.
    """
    if os.path.ismount(folder) and os.listdir(folder) == [policy.FILES]:
        sc.unmount(folder)
    if os.path.isdir(folder) and not os.path.ismount(folder):
        os.rmdir(folder)


def _remove_all_copies() -> None:
    if os.path.ismount(policy.BRANCHES):
        sc.unmount(policy.BRANCHES)
