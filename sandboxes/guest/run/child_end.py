"""Reports through an epoll that a child has ended.

The report comes from a pidfd, or from SIGCHLD on a kernel without pidfds (gVisor's).
"""

from __future__ import annotations

import os
import select
import signal


class ChildEnd:
    """Reports the end of a slot's child to the epoll `watch`."""

    def __init__(self, watch: select.epoll) -> None:
        self._watch = watch
        self._signals = -1
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError:  # gVisor has no pidfds: there, the signal of a child's end wakes the epoll
            self._signals, writer = os.pipe()
            os.set_blocking(writer, False)
            # Without a handler, Python writes nothing to the wakeup descriptor; writing there is
            # all that the handler is for.
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            self._watch.register(self._signals, select.EPOLLIN)

    def expect(self, child: int) -> int:
        """Return the descriptor that becomes readable at the end of `child` (without pidfds: any
        child).
        """
        if self._signals >= 0:
            return self._signals
        process_end = os.pidfd_open(child)
        self._watch.register(process_end, select.EPOLLIN)
        return process_end

    def has_come(self, process_end: int, child: int) -> bool:
        """Return whether `child` has ended, once `process_end` was readable. This does not reap the
        child.
        """
        if self._signals < 0:
            os.close(process_end)
            return True
        os.read(process_end, 512)
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def forget(self) -> None:
        """Restore the default meaning of signals; called in a child."""
        if self._signals >= 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
