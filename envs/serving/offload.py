"""Keeps the plain-`def` methods of an environment off a server's event loop.

An environment of only plain methods runs whole on its worker thread. An environment that mixes
plain with async methods runs on the event loop, and each call of a plain method is sent to the
worker thread and awaited.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ..protocol import TextEnv

RunOffLoop = Callable[[Callable[[], Any]], Awaitable[Any]]
_METHODS = ("reset", "step", "close")


def offload(env: TextEnv, run: RunOffLoop) -> None:
    """Replace the plain methods and tools of `env` by awaitable methods that `run` carries out."""
    for name in _METHODS:
        method = getattr(env, name)
        if not inspect.iscoroutinefunction(method):
            setattr(env, name, _run_off_loop(method, run))
    for tool in env.tools.values():
        if not tool.is_async:
            tool.function = _run_off_loop(tool.function, run)


def _run_off_loop(method: Callable[..., Any], run: RunOffLoop) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> object:
        outcome = await run(lambda: method(*args, **kwargs))
        return await outcome if inspect.isawaitable(outcome) else outcome

    return call


async def settle(task: asyncio.Task[Any], timeout_s: float) -> bool:
    """Wait at most `timeout_s` for `task`; a task that takes longer is cancelled and not waited
    for.

    Returns:
        Whether the task ended in time.
    """
    finished, _ = await asyncio.wait({task}, timeout=timeout_s)
    if not finished:
        task.cancel()
    return bool(finished)
