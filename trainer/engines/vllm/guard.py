"""Supervisor that runs a command and ends that command when standard input closes.

A server started through this script does not outlive its starter, not even a starter that was
killed. The script is run by path and needs only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 10.0
"""Seconds between asking the command to end and killing the command; the same for child
processes.
"""


def main(command: list[str]) -> int:
    """Run `command` in a new process group, and return the exit code."""
    # `sys.exit` raises in the main thread, so that the `finally` block below ends the command. 128
    # plus the signal's number is the shell's exit code of a process that a signal has ended.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    threading.Thread(target=_end_when_orphaned, args=(child,), daemon=True).start()
    try:
        return child.wait()
    finally:
        # Wait for the command's child processes, which free shared memory, and kill the rest.
        child.terminate()  # in case this supervisor was told to stop
        deadline = time.monotonic() + GRACE_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(child.pid, 0)  # raises once the group is empty
                time.sleep(0.05)
            os.killpg(child.pid, signal.SIGKILL)


def _end_when_orphaned(child: subprocess.Popen[bytes]) -> None:
    # Nobody writes to the pipe. `read` returns nothing once the starter's end is closed, and the
    # kernel closes that end however the starter ends.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    child.terminate()  # only the command itself, which ends its own workers in order
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
