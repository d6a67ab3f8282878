"""The template process: imports the scorer once, then forks warm workers on demand.

The process is started by exec (`python -m ludus.rewards.pool.template`), so that no thread, lock
or CUDA context is shared with the owner, and stays single-threaded, so that forking is safe.
Commands arrive on the socket at file descriptor 0: "f" (fork) comes with the worker's socket and
is answered with the pid, "r" (reap) waits for a dead worker and reports how the worker died.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from . import channel
from .worker import serve


def main() -> None:
    """Read the set-up message, warm up, then serve until the owner closes the socket."""
    control = socket.socket(fileno=0)
    setup = _mapping(channel.receive(control))
    path = setup["path"]
    sys.path[:] = [str(entry) for entry in path] if isinstance(path, list) else []
    target = load(str(setup["target"]))
    memory_bytes = int(str(setup["memory_bytes"]))
    gc.collect()
    # The collector leaves frozen objects alone, so that workers keep sharing their memory.
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel.send(control, {"ready": os.getpid()})
    while True:
        try:
            command, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not command:
                os._exit(0)
            if command == b"f":
                channel.send(control, {"pid": _fork(control, descriptors[0], target, memory_bytes)})
            else:
                request = _mapping(channel.receive(control))
                reply: dict[str, object] = {"signal": 0, "cpu_s": 0.0}
                with suppress(ChildProcessError):
                    _, status, usage = os.wait4(int(str(request["pid"])), 0)
                    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                    reply = {"signal": killed_by, "cpu_s": usage.ru_utime + usage.ru_stime}
                channel.send(control, reply)
        except (channel.PoolChannelClosed, OSError):
            os._exit(0)


def load(name: str) -> Callable[[object], object]:
    """Import and return the function named `module:function`; a `warm()` in the same module is
    called first.
    """
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name)
    warm = getattr(module, "warm", None)
    if warm is not None:
        warm()
    function: Callable[[object], object] = getattr(module, attribute)
    return function


def _fork(
    control: socket.socket, descriptor: int, target: Callable[[object], object], memory_bytes: int
) -> int:
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    control.close()
    # The child leaves by `_exit`: the template's exit handlers belong to the parent.
    serve(socket.socket(fileno=descriptor), target, memory_bytes)
    os._exit(0)


def _mapping(message: object) -> dict[str, object]:
    if not isinstance(message, dict):
        raise channel.PoolChannelClosed("not a mapping")
    return message


if __name__ == "__main__":
    main()
