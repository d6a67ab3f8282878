"""Keeps the two processes of a grading on the same core.

They take turns, so a second core gains nothing, and waking a process on an idle core costs more
than the call itself: 110 us per call and side against 30, measured in a virtual machine.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..jail import syscalls


def stay() -> int:
    """Pin this process to the present core; return the number of the core."""
    core = syscalls.current_core()
    join(core)
    return core


def join(core: int) -> None:
    """Move this process to `core`; nothing happens if the process may not run on that core."""
    with suppress(OSError, OverflowError):
        os.sched_setaffinity(0, (core,))
