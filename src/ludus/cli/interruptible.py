"""Running a coroutine that Ctrl-C and SIGTERM both cancel, so that work is saved and cleaned up.

Schedulers announce the end of a job by SIGTERM; without this a run would end without a checkpoint
and leave its server behind.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` like `asyncio.run`, and cancel on SIGTERM as on Ctrl-C.

    Raises:
        KeyboardInterrupt: the work was cancelled, and did not return a value of its own.
    """
    try:
        return asyncio.run(_cancelled_by_sigterm(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, ValueError):  # not on this platform; not on this thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
