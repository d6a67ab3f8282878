"""Plays a peer's environments inside the peer's own interpreter.

The process imports the peer's package once. For each environment it then forks a child, which talks
with the owner over a socket of its own: an environment that hangs, crashes or is ended takes no
other along. Standard output is not part of the protocol, so a package may print what it likes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import resource
import select
import shutil
import signal
import socket
import tempfile
import threading
import traceback
from typing import Any

from .contract import PeerBroken
from .death import OwnerWatch, die_with_parent, leave_with_owner
from .line import PeerLine, load_file, set_owner
from .walls import confine, missing

MAX_FILE = 256 << 20
"""The most bytes of a file that an environment may write, where it may write any."""
TURN_S = 0.5
"""Seconds between two looks for children that have ended."""


def main(descriptor: int) -> int:
    """Load the adapter that the owner names, then fork environments until the owner is gone."""
    frames_path = os.environ.pop("LUDUS_FRAMES")
    frames = load_file("ludus_frames", frames_path)
    control = PeerLine(socket.socket(fileno=descriptor), frames)
    number, setup = control.receive()
    try:
        named = str(setup["adapter"])
        is_file = named.endswith(".py")
        with OwnerWatch(descriptor):
            adapter = load_file("adapter", named) if is_file else importlib.import_module(named)
            about = adapter.load(setup["settings"])
        about["walls"] = missing(setup["sandboxes"])
    except BaseException as error:
        control.fail(number, error, traceback.format_exc())
        return 1
    control.answer(number, about)
    # Children share the memory of the imported package until one of them writes to it. Frozen
    # objects are left alone by the garbage collector, whose marks would otherwise copy their pages.
    gc.freeze()
    _Children(control, adapter, setup, frames).serve()
    return 0


class _Children:
    """Forks and ends the environments; only this process knows which pids are still in use."""

    def __init__(self, control: PeerLine, adapter: Any, setup: dict[str, Any], frames: Any) -> None:
        self._control, self._adapter, self._setup = control, adapter, setup
        self._frames = frames
        self._live: set[int] = set()
        self._scratch: dict[int, str] = {}
        """The folders in which children may write, removed when they end."""
        self._ended: dict[int, str] = {}
        """How children have ended whose owner has not asked yet."""

    def serve(self) -> None:
        try:
            while True:
                ready = select.select([self._control.sock], [], [], TURN_S)[0]
                for pid in list(self._live):
                    self._reap(pid, os.WNOHANG)
                if ready:
                    self._obey(*self._control.receive())
        except (EOFError, OSError):
            pass  # the owner is gone
        finally:
            for pid in list(self._live):
                self._end(pid)

    def _obey(self, number: int, asked: dict[str, Any]) -> None:
        try:
            value = self._do(asked)
        except Exception as error:  # the owner is told, and the environments that live go on
            self._control.fail(number, error, traceback.format_exc())
        else:
            self._control.answer(number, value)

    def _do(self, asked: dict[str, Any]) -> Any:
        if asked["do"] == "fork":
            descriptor, scratch = self._control.descriptors.pop(0), ""
            try:
                if asked["scratch"]:
                    scratch = tempfile.mkdtemp(prefix="ludus-env-")
                return self._fork(descriptor, bool(asked["walls"]), asked["readable"], scratch)
            except OSError:  # no room on the disk, or no process
                shutil.rmtree(scratch, ignore_errors=True)
                raise
            finally:
                os.close(descriptor)
        if asked["do"] == "catalogue":
            return self._adapter.catalogue()
        pid = int(asked["pid"])
        if pid in self._live:
            self._end(pid)
        return self._ended.pop(pid, "gone")

    def _fork(self, descriptor: int, walls: bool, readable: list[str], scratch: str) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._scratch[pid] = scratch
            self._live.add(pid)
            self._ended.pop(pid, None)
            return pid
        # The child must never return from here into the loop of its parent, so it ends by `_exit`
        # whatever happens.
        code = 1
        try:
            die_with_parent(parent)
            self._control.sock.close()
            setup = {**self._setup, "readable": [*self._setup["readable"], *readable]}
            setup["scratch"] = scratch
            _play(descriptor, self._adapter, setup, self._frames, walls)
            code = 0
        finally:
            os._exit(code)

    def _end(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._reap(pid, 0)

    def _reap(self, pid: int, wait: int) -> None:
        """Reap a child that has ended, after killing what is left of its process group.

        Until a child is reaped no other process can get its number, so the group is killed first.
        """
        # WNOWAIT: only see whether the child has ended, and leave it to be reaped below.
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | wait) is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        self._live.discard(pid)
        if scratch := self._scratch.pop(pid, ""):
            shutil.rmtree(scratch, ignore_errors=True)
        self._ended[pid] = f"exit code {os.waitstatus_to_exitcode(status)}"


def _play(descriptor: int, adapter: Any, setup: dict[str, Any], frames: Any, walls: bool) -> None:
    os.setsid()  # a group of its own, which `_reap` can kill with all that the peer started
    with open(os.devnull, "r+b") as null:
        for target in (0, 1, 2):
            os.dup2(null.fileno(), target)
    line = PeerLine(socket.socket(fileno=descriptor), frames)
    set_owner(line)
    if setup["memory_bytes"]:
        limit = _used() + int(setup["memory_bytes"])
        with contextlib.suppress(ValueError):  # a lower limit of the owner's stays
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if scratch := str(setup["scratch"]):
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        os.environ.update(HOME=scratch, XDG_CACHE_HOME=scratch)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
    if walls:
        readable = [*setup["readable"], *getattr(adapter, "READS", [])]
        confine(setup["sandboxes"], readable, [scratch] if scratch else [])
    # A thread is confined only if it was started after the walls were built.
    threading.Thread(target=leave_with_owner, args=(descriptor,), daemon=True).start()
    random.seed()  # children forked from one parent would draw the same numbers otherwise
    env: Any = None
    while True:
        try:
            number, asked = line.receive()
        except EOFError:
            return
        try:
            if asked["do"] == "make":
                env = adapter.make(asked["family"], asked["settings"])
                value = env.about()
            else:
                value = getattr(env, asked["do"])(*asked["arguments"])
        except Exception as error:  # the failure is told, as data
            line.fail(number, error, traceback.format_exc())
        except SystemExit as error:
            line.fail(number, PeerBroken(f"the peer called sys.exit({error.code!r})"), "")
        else:
            line.answer(number, value)


def _used() -> int:
    """Return the bytes of private writable memory in use, as RLIMIT_DATA counts them; 4 GiB where
    the system does not tell.
    """
    try:
        with open("/proc/self/status") as stream:
            sizes = [line.split() for line in stream if line.startswith("VmData:")]
        return int(sizes[0][1]) << 10
    except (OSError, IndexError):
        return 4 << 30
