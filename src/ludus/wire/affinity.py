"""Which of several servers a session lives on.

Rendezvous hashing (Thaler and Ravishankar, 1998): every client ranks the servers of a session by a
hash of both names, so all agree without talking, and adding or losing a server moves only its own
sessions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def choose(urls: Sequence[str], key: str) -> int:
    """The index of the server that `key` lives on.

    >>> choose(["http://a", "http://b"], "session-1") == choose(["http://b", "http://a"],
    ...     "session-1") ^ 1
    True
    """
    return max(range(len(urls)), key=lambda index: _weight(urls[index], key))


def _weight(url: str, key: str) -> bytes:
    return hashlib.blake2b(f"{url}\x00{key}".encode(), digest_size=8).digest()
