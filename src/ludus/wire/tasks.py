"""Background tasks that end with whoever started them."""

from __future__ import annotations

import asyncio


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel `task` and wait until it has ended. A cancellation of the caller meanwhile is its
    own, and goes through.

    Raises:
        Exception: what `task` had failed with.
    """
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
