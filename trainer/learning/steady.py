"""Which version the learner's weights are, and whether they stand still.

An update changes the weights in a thread. Meanwhile an engine that was lost may be given the
version before, and be compared with the learner: the comparison has to know whether that is a
comparison of the same weights.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

READ_AGAIN_S = 60.0
"""Seconds that a reader waits for another reader, or for a change that has just begun."""


class SteadyWeights:
    """The version of some weights, or None while they change or before it is known.

    >>> weights = SteadyWeights()
    >>> with weights.changing(to=3):
    ...     weights.version is None
    True
    >>> with weights.held(3) as same:
    ...     same
    True
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self._lock = threading.Lock()

    @contextmanager
    def changing(self, *, to: int | None = None) -> Generator[None]:
        """Change the weights inside the block, which begins when present readers are done.

        Args:
            to: their version afterwards, which stays None after an error in the block. None as the
                argument says that the block puts them back as they were, after an error too.
        """
        # None before the lock is taken: a reader that comes while an earlier reader holds the lock
        # gives up at once, and does not wait for the whole change.
        before, self.version = self.version, None
        with self._lock:
            try:
                yield
            except BaseException:
                self.version = before if to is None else None
                raise
            self.version = before if to is None else to

    @contextmanager
    def held(self, version: int) -> Generator[bool]:
        """Keep the weights from changing inside the block, and say whether they are `version`."""
        if self.version != version or not self._lock.acquire(timeout=READ_AGAIN_S):
            yield False
            return
        try:
            # Looked at again, since a change may have come between the first look and the lock.
            yield self.version == version
        finally:
            self._lock.release()
