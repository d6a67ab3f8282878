"""Length-prefixed MessagePack over a stream socket.

Messages are data only, so that a worker which misbehaves cannot run code in the process of the
pool.
"""

from __future__ import annotations

import socket
import struct
import time

import msgspec

_HEADER = struct.Struct("!I")
MAX_FRAME = 64 << 20


class PoolChannelClosed(ConnectionError):
    """The other side has closed the connection or died."""


class BadPoolFrame(PoolChannelClosed):
    """The other side sent bytes that are not a message. The stream cannot be trusted afterwards,
    since the next frame boundary is unknown.
    """


def send(sock: socket.socket, message: object) -> None:
    """Write a message to the socket.

    Raises:
        OSError: the other side is gone, or did not read in time.
    """
    body = msgspec.msgpack.encode(message)
    sock.sendall(_HEADER.pack(len(body)) + body)


def receive(sock: socket.socket, *, deadline: float | None = None) -> object:
    """Read a message and return the decoded value; `deadline` is a time.monotonic() value.

    Raises:
        TimeoutError: the deadline passed.
        PoolChannelClosed: the other side closed or died.
        BadPoolFrame: more than MAX_FRAME bytes were announced, or the bytes are not MessagePack.
    """
    (size,) = _HEADER.unpack(_exactly(sock, _HEADER.size, deadline))
    if size > MAX_FRAME:
        raise BadPoolFrame(f"a frame of {size} bytes")
    try:
        return msgspec.msgpack.decode(_exactly(sock, size, deadline))
    except msgspec.DecodeError as error:
        raise BadPoolFrame(f"no MessagePack: {error}") from error


def _exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while size:
        if deadline is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            sock.settimeout(left_s)
        try:
            part = sock.recv(min(size, 1 << 20))
        except ConnectionError as error:
            raise PoolChannelClosed(str(error)) from error
        if not part:
            raise PoolChannelClosed("closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
