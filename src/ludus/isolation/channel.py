"""Control messages between a process and its fork server: length-prefixed MessagePack.

The messages travel over a stream socket. They are data only, so a process that misbehaves cannot
run code here.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import msgspec

_SIZE = struct.Struct("!I")
MAX_MESSAGE = 256 << 20


class ChannelClosed(ConnectionError):
    """The other side is gone, or does not speak the protocol."""


def send(sock: socket.socket, message: object) -> None:
    """Write a message.

    Raises:
        OSError: the other side is gone, or did not read in time.
    """
    body = msgspec.msgpack.encode(message)
    sock.sendall(_SIZE.pack(len(body)) + body)


def receive(sock: socket.socket, *, deadline: float | None = None) -> dict[str, Any]:
    """Read a message; `deadline` is a value of `time.monotonic()`.

    Raises:
        TimeoutError: the deadline passed.
        ChannelClosed: the other side closed, died, or sent something that is not a message.
    """
    (size,) = _SIZE.unpack(_exactly(sock, _SIZE.size, deadline))
    if size > MAX_MESSAGE:
        raise ChannelClosed(f"a message of {size} bytes")
    try:
        return msgspec.msgpack.decode(_exactly(sock, size, deadline), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ChannelClosed(f"not a message: {error}") from None


def _exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while size:
        if deadline is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("no answer in time")
            sock.settimeout(left_s)
        try:
            part = sock.recv(min(size, 1 << 20))
        except ConnectionError as error:
            raise ChannelClosed(str(error)) from error
        if not part:
            raise ChannelClosed("the other side is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
