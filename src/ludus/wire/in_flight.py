"""What a server has begun and not yet answered."""

from __future__ import annotations

import asyncio


class InFlight:
    """A count that can be waited on to reach zero."""

    def __init__(self) -> None:
        self.count = 0
        self.stopping = False
        """Set by the server once it takes nothing new."""
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        """Count one in."""
        self.count += 1
        self._idle.clear()

    def leave(self) -> None:
        """Count it out."""
        self.count -= 1
        if not self.count:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        await self._idle.wait()
