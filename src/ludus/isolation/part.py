"""What lives in a worker process: the protocol between `ludus.isolation` and what it isolates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Protocol

Answer = tuple[int, bytes]
"""A tag and a body; who calls and who answers agree on what they mean."""


class WorkerPart(Protocol):
    """An environment or a verifier as its worker processes hold it.

    Made once in the template, where it loads what workers shall share, or in each worker where that
    cannot be shared. `start` follows in the worker.
    """

    @property
    def is_async(self) -> bool:
        """Whether calls run on the event loop of the worker, side by side; otherwise each runs on
        the thread of its lane.
        """
        ...

    def about(self) -> bytes:
        """What the owner has to know before the first call."""
        ...

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        """Get ready in a fresh worker; `thread_of` gives the thread of a lane."""
        ...

    def handle(self, tag: int, lane: int, body: bytes) -> Answer | Awaitable[Answer]:
        """Carry out one call."""
        ...
