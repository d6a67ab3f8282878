"""Whose doing it is that a container ended at a bound: a program's only if it happens to it twice.

Under gVisor the host's limits end the kernel that serves the container, and that may be a moment
after the run that used them up, in the middle of the next one. So the first time a program is tried
again elsewhere; the second time it is charged with it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from ..inside.request import Request, encode

_MOST = 1024


class Suspects:
    """Programs that were running when a container ended at a bound."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def is_second_time(self, request: Request) -> bool:
        """Whether it has happened to this program before; if not, that is remembered."""
        key = _key(request)
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        while len(self._seen) > _MOST:
            self._seen.popitem(last=False)
        return False

    def clear(self, request: Request) -> None:
        """It has run to an end: what happened before was somebody else's doing."""
        if self._seen:
            self._seen.pop(_key(request), None)


def _key(request: Request) -> bytes:
    return hashlib.sha256(encode(request, 0)).digest()
