"""The orderly end of background tasks."""

from __future__ import annotations

import asyncio


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel `task` and wait until the task has ended; None is accepted and does nothing.

    A cancellation of the caller meanwhile goes through: only that of `task` is swallowed.

    Raises:
        Exception: the exception with which `task` ended.
    """
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
