"""A request to a parked child, sent as a `marshal` datagram.

`marshal` is fast, and the sender, the driver, is trusted. Requests go from the driver straight to
the child over the child's socket, never through the slot, so that the slot's memory (which every
later child inherits) holds nothing of any run. Large requests travel in a memory file.
"""

from __future__ import annotations

import array
import marshal
import os
import socket

INLINE_BYTES = 64 << 10
"""Requests up to this size are sent in the datagram itself."""

RECEIVE_BYTES = INLINE_BYTES + 4096
_ANCILLARY_BYTES = socket.CMSG_SPACE(8 * array.array("i").itemsize)

IN_FILE = b"@"
"""The datagram that says that the request is in the last descriptor."""

MARSHAL_VERSION = 2
"""A version with plain values only, and with the same bytes in every Python 3."""

PYTHON, COMMAND, FETCH, REPL = "python", "command", "fetch", "repl"
SERVE, PROVE, PROVE_MANY, PROVE_PYTEST = "serve", "prove", "prove_many", "prove_pytest"
PROVE_REPOSITORY = "prove_repository"
QUIET = (SERVE, PROVE, PROVE_MANY, PROVE_PYTEST, PROVE_REPOSITORY, REPL)
"""Modes without output pipes: what they print is discarded, or goes where the driver says."""


class Request:
    """The task of a child process.

    Args:
        mode: PYTHON: run `blobs[0]` as `__main__`. COMMAND: run `options["steps"]`. FETCH: read
            `options["paths"]`. SERVE and PROVE (or PROVE_MANY, PROVE_PYTEST): the two sides of a
            grading. PROVE_REPOSITORY: both sides in a single process. REPL: a session.
        blobs: the program, for the modes that run code.
        files: files that the child writes below the work directory first; path -> content.
        options: the arguments of the mode.
        streams: the names of the descriptors sent along, in order: "out", "err", "in", "peer",
            "report".
    """

    __slots__ = ("blobs", "files", "mode", "options", "streams")

    def __init__(
        self,
        *,
        mode: str,
        blobs: list[bytes] | None = None,
        files: dict[str, bytes] | None = None,
        options: dict[str, object] | None = None,
        streams: list[str] | None = None,
    ) -> None:
        self.mode = mode
        self.blobs = blobs or []
        self.files = files or {}
        self.options = options or {}
        self.streams = streams or []


def encode(request: Request, number: int) -> bytes:
    """Encode a request for run `number`."""
    fields = number, request.mode, request.blobs, request.files, request.options, request.streams
    return marshal.dumps(fields, MARSHAL_VERSION)


def send(channel: socket.socket, request: Request, number: int, descriptors: list[int]) -> None:
    """Send the request of run `number`, with the descriptors that `request.streams` names."""
    data = encode(request, number)
    if len(data) <= INLINE_BYTES:
        _send(channel, data, descriptors)
        return
    body = memory_file("request", data)
    try:
        _send(channel, IN_FILE, [*descriptors, body])
    finally:
        os.close(body)


def _send(channel: socket.socket, data: bytes, descriptors: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    channel.sendmsg([data], rights)


def memory_file(name: str, data: bytes) -> int:
    """Copy `data` into a memory file; return a descriptor positioned at the start."""
    descriptor = os.memfd_create(name)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def receive(channel: socket.socket, number: int) -> tuple[Request, dict[str, int]]:
    """Wait for the request of run `number`; return the request and the descriptors by name.

    A request for another run, whose child was killed before it could read, is dropped with its
    descriptors.
    """
    while True:
        data, ancillary, _, _ = channel.recvmsg(RECEIVE_BYTES, _ANCILLARY_BYTES)
        if not data:
            os._exit(0)  # The driver has ended.
        descriptors = array.array("i")
        for _, _, rights in ancillary:
            descriptors.frombytes(rights)
        if data == IN_FILE:
            file = descriptors.pop()
            size = os.fstat(file).st_size
            parts: list[bytes] = []
            position = 0
            while position < size and (part := os.pread(file, size - position, position)):
                parts.append(part)
                position += len(part)
            os.close(file)
            data = b"".join(parts)
        run_number, mode, blobs, files, options, streams = marshal.loads(data)
        if run_number == number:
            request = Request(mode=mode, blobs=blobs, files=files, options=options, streams=streams)
            return request, dict(zip(streams, descriptors, strict=True))
        for descriptor in descriptors:
            os.close(descriptor)
