"""The worker process: forked from the warm template, scores chunks of requests until stopped or
killed.

The CPU limit of an item is a kernel timer whose signal keeps its default action, death: unlike a
Python handler, the signal also ends a single long C-level operation. Memory is capped by an
address-space limit above what the template uses.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable

from . import channel

EXTRA_RECURSION = 3000


def serve(sock: socket.socket, target: Callable[[object], object], memory_bytes: int) -> None:
    """Score requests until the owner closes the socket; memory is capped at `memory_bytes` above
    current use.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    sys.setrecursionlimit(EXTRA_RECURSION)
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used_bytes = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        used_bytes = 1 << 30
    # The limit counts address space, of which the forked template already uses a part.
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + memory_bytes, used_bytes + memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A scorer may print or read; descriptor 0 was the template's control socket.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    while True:
        try:
            chunk = channel.receive(sock)
        except (channel.PoolChannelClosed, OSError):
            return
        if not isinstance(chunk, list):
            return
        for item in chunk:
            reply = _scored(target, item["request"], float(item["cpu_s"]))
            channel.send(sock, {**reply, "cpu_s": time.process_time()})
            # An item that exceeded a limit may have left the process damaged: end here.
            if "limit" in reply:
                return


def _scored(target: Callable[[object], object], request: object, cpu_s: float) -> dict[str, object]:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        return {"value": target(request)}
    except MemoryError:
        return {"limit": "memory"}
    except RecursionError:
        return {"limit": "recursion depth"}
    except Exception as error:  # a boundary: a bug in the scorer becomes data
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
