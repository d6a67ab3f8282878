"""Keeps the two sides of a grading on one core.

They take turns, so a second core gains them nothing, and waking a process on an idle core costs
more than the call it is woken for: 110 us a call and side against 30, measured in a virtual
machine.
"""

from __future__ import annotations

import os
from contextlib import suppress

from . import syscalls


def stay() -> int:
    """Stay on the core this process is on; returns its number."""
    core = syscalls.current_core()
    join(core)
    return core


def join(core: int) -> None:
    """Move to `core`, if this process may run there."""
    with suppress(OSError, OverflowError):
        os.sched_setaffinity(0, (core,))
