"""Runs plain functions with a deadline: each on a thread, which is given up when late.

A thread cannot be killed. A thread that was given up goes on until its function returns; while a
few of them do, the tool refuses calls.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

from ludus.errors import ToolError

T = TypeVar("T")


class Late(Exception):
    """The function gave no result in time."""


MAX_GIVEN_UP = 4
"""How many given-up threads of a tool may still run before the tool refuses calls."""


class Threads:
    """Runs each function on a new thread, and remembers the threads that were given up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._given_up: list[threading.Thread] = []

    async def run(self, work: Callable[[], T], timeout_s: float) -> T:
        """Run `work` on a new thread and return the result.

        Raises:
            Late: no result came in time; the thread goes on.
            ToolError: too many given-up threads still run.
        """
        self._given_up = [thread for thread in self._given_up if thread.is_alive()]
        if len(self._given_up) >= MAX_GIVEN_UP:
            raise ToolError("it is still busy with earlier calls that got no answer in time")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def tell(value: T | None, error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_result((value, error))

        def body() -> None:
            value, error = None, None
            try:
                value = context.run(work)
            except BaseException as raised:  # the waiting task raises this again
                error = raised
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(tell, value, error)

        thread = threading.Thread(target=body, name=f"tool {self.name}", daemon=True)
        thread.start()
        try:
            value, error = await asyncio.wait_for(outcome, timeout_s)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._given_up.append(thread)
            if isinstance(error, TimeoutError):
                raise Late from None
            raise
        if error is not None:
            raise error
        return cast("T", value)
