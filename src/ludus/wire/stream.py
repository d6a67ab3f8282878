"""The protocol of `/v1/stream`: a connection that carries many operations and answers.

A stream is a WebSocket. A frame of a client is a list of `[number, operation]`. A frame of the
server is a list of `[number, status, body]`; an operation is answered as soon as it is done, and no
answer waits for another. Binary frames are msgpack, text frames are JSON. The first frame of the
server is a `Hello`.

A stream holds no state. Sessions are named and operations numbered as over plain HTTP, so whatever
was under way when a connection broke is sent again on the next connection, or by another route.
"""

from __future__ import annotations

import msgspec

PATH = "/v1/stream"
SEE_OTHER = 303
"""The status of an answer that cannot travel over the stream, most often because it is too large;
the operation sent again to its own route is answered there.
"""
MAX_ITEMS = 32
"""The most operations or answers in one frame: few enough that client and server work at the same
time, each on frames that the other has done with.
"""
FRAME_BYTES = 1 << 17
"""A frame that has reached so many bytes takes no more answers."""
LARGE_BYTES = 1 << 19
"""The largest answer in bytes; a larger one would hold up the other answers of its connection."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a server on a stream."""

    instance: str
    max_bytes: int
    """The largest frame in bytes that the client may send."""
