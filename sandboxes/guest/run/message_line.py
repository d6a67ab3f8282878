"""Messages over a stream socket, each after its length."""

from __future__ import annotations

import socket
import struct

LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 16


class MessageLine:
    """An end of a stream socket that carries messages."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._unread = b""

    def send(self, data: bytes) -> None:
        """Send a message.

        Raises:
            OSError: the other end has closed.
        """
        self._socket.sendall(LENGTH.pack(len(data)) + data)

    def receive(self, max_bytes: int) -> bytes:
        """Wait for a message.

        Raises:
            EOFError: the other end has closed.
            OSError: likewise.
            ValueError: the message is longer than `max_bytes`.
        """
        (length,) = LENGTH.unpack(self._take(LENGTH.size))
        if length > max_bytes:
            raise ValueError(f"a message of {length} bytes")
        return self._take(length)

    def _take(self, size: int) -> bytes:
        """Receive the next `size` bytes; surplus bytes are kept for later."""
        parts, missing = [self._unread], size - len(self._unread)
        while missing > 0:
            parts.append(self._socket.recv(_READ_BYTES))
            if not parts[-1]:
                raise EOFError("closed")
            missing -= len(parts[-1])
        data = b"".join(parts)
        self._unread = data[size:]
        return data[:size]

    def close(self) -> None:
        """Close this end of the line."""
        self._socket.close()
