"""The words of `/v1/stream`: one connection that carries many operations and their answers.

A stream is a WebSocket. A frame of a client is a list of `[number, operation]`. A frame of the
server is a list of `[number, status, body]`; an operation is answered as soon as it is done, and no
answer waits for another. Binary frames are msgpack, text frames are JSON. The first frame of the
server is a `Hello`.

A stream holds no state. Sessions are named and operations numbered as over plain HTTP, so whatever
was under way when a connection broke is sent again on the next one, or by another route.
"""

from __future__ import annotations

import msgspec

PATH = "/v1/stream"
SEE_OTHER = 303
"""The status of an answer too large for a stream; the operation sent again to its own route is
answered there.
"""
MAX_ITEMS = 32
"""Operations or answers that are put into one frame: few enough that client and server work at the
same time, each on frames that the other has done with.
"""
FRAME_BYTES = 1 << 17
"""A frame takes no more answers once it has so many bytes."""
LARGE_BYTES = 1 << 19
"""A larger answer would hold up the others of its connection."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says first."""

    instance: str
    max_bytes: int
    """The most bytes of a frame that the client may send."""
