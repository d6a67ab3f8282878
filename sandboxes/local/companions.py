"""What lives as long as a sandbox and uses its slots, without the sandbox knowing what it is.

Graders keep processes and sessions keep a snapshot server beside the sandbox they use. They are in
rooms above this one, so they bring themselves along here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Companion(Protocol):
    """Something that has to be closed before the slots of its sandbox end."""

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...


_Companion = TypeVar("_Companion", bound=Companion)


class Companions:
    """The companions of a sandbox, at most one of each kind."""

    def __init__(self) -> None:
        self._held: dict[type, Companion] = {}

    def get(self, kind: type[_Companion], make: Callable[[], _Companion]) -> _Companion:
        """Return the companion of a kind, which is made by `make` on the first call."""
        found = self._held.get(kind)
        if not isinstance(found, kind):
            found = self._held[kind] = make()
        return found

    async def close(self) -> None:
        """Close every companion, the latest first. Idempotent."""
        while self._held:
            _, companion = self._held.popitem()
            await companion.close()
