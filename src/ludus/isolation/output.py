"""Logs what a worker process prints, within bounds, and keeps the last words."""

from __future__ import annotations

import asyncio
import logging
import os

logger = logging.getLogger(__name__)
MAX_LINES = 50
"""How many lines of a worker are logged."""
TAIL_BYTES = 400
CHUNK_BYTES = 16 << 10
EVERY_S = 0.05
"""The time between two reads, in seconds: a worker that prints without end has to wait."""


class Output:
    """Reads `descriptor` on the running loop until the end of the file."""

    def __init__(self, descriptor: int, label: str) -> None:
        self._descriptor = descriptor
        self._label = label
        self._lines = 0
        self._last = b""
        self._rest = b""
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    @property
    def tail(self) -> str:
        """The last text that was printed."""
        return self._last.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Read a last chunk, and close."""
        self._read()
        self._end()

    def _read(self) -> None:
        if self._descriptor < 0:
            return
        try:
            data = os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self._last = (self._last + data)[-TAIL_BYTES:]
        if self._lines < MAX_LINES:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines[: MAX_LINES - self._lines]:
                logger.info("%s: %s", self._label, line[:500].decode("utf-8", "replace"))
            self._lines += len(lines)
            self._rest = self._rest[-CHUNK_BYTES:]
            if self._lines >= MAX_LINES:
                logger.info("%s: more is not shown of what this worker prints", self._label)
                self._rest = b""
        self._loop.remove_reader(self._descriptor)
        self._pause = self._loop.call_later(EVERY_S, self._resume)

    def _resume(self) -> None:
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._read)

    def _end(self) -> None:
        if self._descriptor < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
