"""Work that a cancellation, such as Ctrl-C, must not cut in half."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even if the caller is cancelled meanwhile, and raise the cancellation
    afterwards.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # A second cancellation, as of an impatient Ctrl-C, must not reach the work either.
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        task.result()  # an error of the work comes before the cancellation
        raise
