"""The output pipes of a session, read cell by cell with a limit."""

from __future__ import annotations

import os
from contextlib import suppress

_READ_BYTES = 1 << 16


class CellOutput:
    """An output pipe of the session, of which at most `limit` bytes are kept for each cell."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.limit = self.size = 0
        self._parts: list[bytes] = []
        os.set_blocking(descriptor, False)

    def drain(self) -> None:
        """Read what the pipe holds now, and drop the bytes beyond the limit.

        After 64 times the limit the call returns, so that the event loop can interrupt the cell.
        """
        with suppress(BlockingIOError):
            while data := os.read(self.descriptor, _READ_BYTES):
                self._parts.append(data[: max(0, self.limit - self.size)])
                self.size += len(data)
                # A cell that writes faster than this loop reads would hold the event loop here.
                if self.size > 64 * self.limit:
                    return

    def start(self, limit: int) -> None:
        """Set the limit for the next cell, and drop what was written between cells."""
        self.limit = limit
        self.drain()
        self.size, self._parts = 0, []

    def text(self) -> str:
        """Return the kept output of the cell as text; bytes that are not valid UTF-8 are
        replaced.
        """
        return b"".join(self._parts).decode("utf-8", "replace")
