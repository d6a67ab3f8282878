"""Says through an epoll when one child has ended: by pidfd, or by SIGCHLD on a kernel without them
(gVisor's).
"""

from __future__ import annotations

import os
import select
import signal


class ChildEnd:
    """What `watch` is told of the children of one slot."""

    def __init__(self, watch: select.epoll) -> None:
        self._watch = watch
        self._signals = -1 if _has_pidfds() else self._catch_signals()

    def expect(self, child: int) -> int:
        """The descriptor that becomes readable when `child` (without pidfds: any child) ends."""
        if self._signals >= 0:
            return self._signals
        ended = os.pidfd_open(child)
        self._watch.register(ended, select.EPOLLIN)
        return ended

    def has_come(self, ended: int, child: int) -> bool:
        """Whether `child` has ended, once `ended` was readable; it is not reaped by this."""
        if self._signals < 0:
            os.close(ended)
            return True
        os.read(ended, 512)
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def forget(self) -> None:
        """In a child: signals mean what they mean to any program."""
        if self._signals >= 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _catch_signals(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(signal.SIGCHLD, _nothing)  # without a handler nothing is written
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._watch.register(reader, select.EPOLLIN)
        return reader


def _nothing(number: int, frame: object) -> None:
    """What the signal does besides waking the epoll."""


def _has_pidfds() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
