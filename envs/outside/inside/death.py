"""Ends an adapter's process together with the owner process, however busy the adapter is.

Two ways, since each has a gap. Linux sends a signal when the parent dies, also where a call of C
keeps every Python thread waiting; other systems do not. A thread sees everywhere that the
owner's end of the connection was closed, but waits while a call of C keeps the interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent dies, where the system can.

    Args:
        parent: the process that was the parent before the call. If another one is by now, it has
            died without a signal, and this process exits.
    """
    _signal_at_death(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def leave_with_owner(descriptor: int) -> None:
    """Wait until the owner closes the connection, then exit, also in the midst of a call."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(0)


class OwnerWatch:
    """Ends the process with the owner during the import of a package, which may take minutes.

    Only for that while. Linux sends its signal when the *thread* that started this process ends,
    and after the import that may be any thread of an owner that goes on; during the import that
    thread waits for it. The watching thread is gone afterwards, because the process forks.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        die_with_parent(os.getppid())
        self._over, self._tell = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        os.close(self._tell)
        self._thread.join()
        os.close(self._over)
        _signal_at_death(0)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, 0)
        poll.register(self._over, 0)  # the end of a pipe is told without being asked for
        if self._descriptor in dict(poll.poll()):
            os._exit(0)


def _signal_at_death(number: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # systems without prctl
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)
