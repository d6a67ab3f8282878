"""The driver's connection to the snapshot server, the process that holds and copies snapshots.

A request is a message of JSON on a Unix socket, and so is its answer. With an answer may come the
descriptors of sockets, such as the line to a new copy of a session.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import socket
import subprocess
from typing import Any

from ludus.errors import LudusError

from ..local import supervisor
from ..local.slot_sandbox import SlotSandbox

_TIMEOUT_S = 60.0
_MAX_DESCRIPTORS = 4
"""The most descriptors that may come with an answer."""
_ANSWER_BYTES = 1 << 16
_KILL_TIMEOUT_S = 5.0

_Answer = tuple[dict[str, Any], list[int]]


class NotSnapshotable(LudusError, RuntimeError):
    """A session cannot be copied.

    Attributes:
        reason: `threads`, `children`, `sockets`, `files` (open or mapped), `shared_memory`, `tier`,
            `gone`, or `fault` (the sandbox's own).
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text

    def __str__(self) -> str:
        return f"the session cannot be copied ({self.reason}): {self.text}"


class SnapshotClient:
    """A client of the snapshot server; sends one request at a time.

    The client starts the server with the first request, and again with the first request after the
    server's end, until the client is closed. Snapshots end with the server.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    @classmethod
    def of(cls, sandbox: SlotSandbox) -> SnapshotClient:
        """Return the client that lives as long as a sandbox."""
        return sandbox.companions.get(cls, cls)

    @property
    def pid(self) -> int:
        """The pid of the snapshot server, or 0 while no server runs."""
        return self._process.pid if self._process and self._process.poll() is None else 0

    async def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Send a request; return the answer and the descriptors that came with the answer.

        A cancelled call still reads its answer, in the background, and closes the descriptors.

        Raises:
            NotSnapshotable: the server refused or failed; `reason` says why.
        """
        asking = asyncio.ensure_future(self._ask(json.dumps(request).encode()))
        try:
            answer, descriptors = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # The answer is still read, since the next request would take it for its own.
            asking.add_done_callback(_close_descriptors)
            raise
        if "reason" in answer:
            raise NotSnapshotable(str(answer["reason"]), str(answer["text"]))
        return answer, descriptors

    async def _ask(self, data: bytes) -> _Answer:
        """Send a request and read the answer; a fault becomes an answer, and ends the server."""
        async with self._turn:
            if self._closed:  # nobody would end a server that is started now
                return {"reason": "fault", "text": "the sandbox is closed"}, []
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    if self._line is None or not self.pid:
                        self._end_server()
                        self._line, guest_end = supervisor.pair()
                        self._line.setblocking(False)
                        with guest_end:  # the server inherits its end; here it would stay open
                            self._process = supervisor.start("fork.snapshot_server", guest_end)
                    line = self._line
                    loop = asyncio.get_running_loop()
                    await loop.sock_sendall(line, data)
                    readable = asyncio.Event()
                    loop.add_reader(line, readable.set)
                    try:
                        await readable.wait()
                    finally:
                        loop.remove_reader(line)
                    answer, ancillary, _, _ = line.recvmsg(
                        _ANSWER_BYTES,
                        socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize),
                    )
                    descriptors = array.array("i")
                    for _, _, rights in ancillary:
                        descriptors.frombytes(rights)
                    return json.loads(answer), list(descriptors)
            except (OSError, ValueError, TimeoutError) as error:
                self._end_server()
                return {
                    "reason": "fault",
                    "text": f"the snapshot server does not answer: {error}",
                }, []

    async def close(self) -> None:
        """End the snapshot server, and so all frozen snapshots. A second call does nothing.

        Requests that wait fail at once.
        """
        self._closed = True
        if self._process:
            self._process.kill()  # which ends the line that a request reads from
        async with self._turn:
            self._end_server()

    def _end_server(self) -> None:
        if self._line:
            self._line.close()
            self._line = None
        if self._process:
            self._process.kill()
            self._process.wait(_KILL_TIMEOUT_S)
            self._process = None


def _close_descriptors(answer: asyncio.Future[_Answer]) -> None:
    """Close the descriptors of an answer whose caller was cancelled.

    If the request has made a copy of a session, that copy ends when its line closes.
    """
    if not answer.cancelled():
        for descriptor in answer.result()[1]:
            os.close(descriptor)
