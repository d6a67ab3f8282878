"""The choice of the server that keeps a session, where a client knows several servers.

Rendezvous hashing (Thaler and Ravishankar, 1998): every client ranks the servers of a session by a
hash of both names, so all agree without talking, and adding or losing a server moves only its own
sessions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def choose(urls: Sequence[str], key: str) -> int:
    """Return the index in `urls` of the server that keeps the session `key`.

    The choice depends on the set of addresses, not on their order:

    >>> choose(["http://a", "http://b"], "session-1") == choose(["http://b", "http://a"],
    ...     "session-1") ^ 1
    True
    """
    pairs = [f"{url}\x00{key}".encode() for url in urls]
    weights = [hashlib.blake2b(pair, digest_size=8).digest() for pair in pairs]
    return max(range(len(urls)), key=lambda index: weights[index])
