"""Keeps the plain-`def` methods of an environment off a server's event loop.

An environment of only plain methods runs whole on its lane. One that mixes them with async methods
runs on the loop, and each plain method it has is sent to the lane and awaited.
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
    """Replace the plain methods and tools of `env` by awaitable ones that `run` carries out."""
    for name in _METHODS:
        method = getattr(env, name)
        if not inspect.iscoroutinefunction(method):
            setattr(env, name, _elsewhere(method, run))
    for tool in env.tools.values():
        if not tool.is_async:
            tool.function = _elsewhere(tool.function, run)


def _elsewhere(method: Callable[..., Any], run: RunOffLoop) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        made = await run(lambda: method(*args, **kwargs))
        return await made if inspect.isawaitable(made) else made

    return call


async def settle(task: asyncio.Task[Any], timeout_s: float) -> bool:
    """Wait for `task`, at most `timeout_s`; past it ask it to stop, and do not wait for that.

    Returns:
        Whether it ended in time.
    """
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    if not done:
        task.cancel()
    return bool(done)
