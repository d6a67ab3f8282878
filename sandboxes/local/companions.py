"""Companions are objects that use the slots of a sandbox and are closed together with the sandbox.

Graders keep processes and sessions keep a snapshot server beside the sandbox they use. Both belong
to packages above this one, so the sandbox knows companions by their `close` method alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Companion(Protocol):
    """A companion is anything that has to be closed before the slots of a sandbox end."""

    async def close(self) -> None:
        """Release every resource the companion holds. A second call does nothing."""
        ...


_Companion = TypeVar("_Companion", bound=Companion)


class Companions:
    """The companions of a sandbox, with at most a single companion of each class."""

    def __init__(self) -> None:
        self._held: dict[type, Companion] = {}

    def get(self, kind: type[_Companion], make: Callable[[], _Companion]) -> _Companion:
        """Return the companion of a kind, which is made by `make` on the first call."""
        companion = self._held.get(kind)
        if not isinstance(companion, kind):
            companion = self._held[kind] = make()
        return companion

    async def close(self) -> None:
        """Close every companion, in the reverse order of creation. A second call does nothing."""
        while self._held:
            _, companion = self._held.popitem()
            await companion.close()
