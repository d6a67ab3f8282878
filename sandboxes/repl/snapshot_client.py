"""The driver's connection to the snapshot server, the process that holds and copies snapshots."""

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
_DESCRIPTORS = 4
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
    """A client of the snapshot server, which starts the server on demand and serves a request at a
    time.

    The server is started with the first request, and again with the first request after its end.
    Snapshots end with the server.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._turn = asyncio.Lock()

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
            asking.add_done_callback(_discard)  # the next request must not read its answer
            raise
        if "reason" in answer:
            raise NotSnapshotable(str(answer["reason"]), str(answer["text"]))
        return answer, descriptors

    async def _ask(self, data: bytes) -> _Answer:
        async with self._turn:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    if self._line is None or not self.pid:
                        self._end()
                        self._line, guest_end = supervisor.pair()
                        self._line.setblocking(False)
                        with guest_end:
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
                        _ANSWER_BYTES, socket.CMSG_SPACE(4 * _DESCRIPTORS)
                    )
                    descriptors = array.array("i")
                    for _, _, rights in ancillary:
                        descriptors.frombytes(rights)
                    return json.loads(answer), list(descriptors)
            except (OSError, ValueError, TimeoutError) as error:
                self._end()
                return {
                    "reason": "fault",
                    "text": f"the snapshot server does not answer: {error}",
                }, []

    async def close(self) -> None:
        """End the snapshot server, and so all frozen snapshots. A second call does nothing."""
        self._end()

    def _end(self) -> None:
        if self._line:
            self._line.close()
            self._line = None
        if self._process:
            self._process.kill()
            self._process.wait(_KILL_TIMEOUT_S)
            self._process = None


def _discard(answer: asyncio.Future[_Answer]) -> None:
    """Close the descriptors of an answer whose caller was cancelled.

    If the answer was a new branch, the branch ends when its line closes.
    """
    if not answer.cancelled():
        for descriptor in answer.result()[1]:
            os.close(descriptor)
