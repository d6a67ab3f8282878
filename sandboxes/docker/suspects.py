"""Decides whether a program is to blame when a container ends at a bound.

Under gVisor the host's limits end the kernel that serves the container, perhaps a moment after the
run that used them up, in the middle of the next run. So the first time a program is tried again
elsewhere; the second time the program is blamed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from ..guest.run.request import Request, encode

_MOST = 1024


class Suspects:
    """Programs that were running when a container ended at a bound."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def is_second_time(self, request: Request) -> bool:
        """Return whether this has happened to the program before; if not, remember the program."""
        key = _key(request)
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        while len(self._seen) > _MOST:
            self._seen.popitem(last=False)
        return False

    def clear(self, request: Request) -> None:
        """Forget a program that has run to an end: what happened before was another's doing."""
        if self._seen:
            self._seen.pop(_key(request), None)


def _key(request: Request) -> bytes:
    return hashlib.sha256(encode(request, 0)).digest()
