"""Runs a command, and ends it when standard input closes: a server started through this does not
outlive whoever started it, not even one that was killed.

Run by path, so that it needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

GRACE_S = 10.0
"""Between asking the command to end and ending it; the same for what it started."""


def main(command: list[str]) -> int:
    """Run `command` in a process group of its own; its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    threading.Thread(target=_end_when_orphaned, args=(child,), daemon=True).start()
    try:
        return child.wait()
    finally:
        _clear_up(child)


def _stop(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _end_when_orphaned(child: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    child.terminate()  # it alone: it ends its workers in order
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    child.kill()


def _clear_up(child: subprocess.Popen[bytes]) -> None:
    """Wait for the processes that it started, which free shared memory, and kill who is left."""
    child.terminate()  # if it is we who were told to stop
    deadline = time.monotonic() + GRACE_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(child.pid, 0)  # raises once nobody is left
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
