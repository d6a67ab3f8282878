"""The protocol between `ludus.isolation` and what runs in a worker process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Protocol

Answer = tuple[int, bytes]
"""A tag and a body; the caller and the part agree on the meaning."""


class WorkerPart(Protocol):
    """An environment or a verifier, as a worker process holds it.

    A part is made once in the template, where it loads what workers share, or in each worker where
    the data cannot be shared. `start` follows in the worker.
    """

    @property
    def is_async(self) -> bool:
        """Whether calls run side by side on the event loop of the worker; otherwise each call runs
        on a worker thread, which the call names by its `thread_number`.
        """
        ...

    def about(self) -> bytes:
        """Return what the owner has to know before the first call."""
        ...

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        """Get ready in a fresh worker; `thread_of` returns the thread with a number."""
        ...

    def handle(self, tag: int, thread_number: int, body: bytes) -> Answer | Awaitable[Answer]:
        """Carry out a call and return the answer."""
        ...
