"""The line to the snapshot server, and its end in the midst of a request."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from ludus.sandboxes.local import supervisor
from ludus.sandboxes.repl.snapshot_client import NotSnapshotable, SnapshotClient


async def test_requests_fail_at_once_when_the_client_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(_: str, line: socket.socket) -> subprocess.Popen[bytes]:
        """Start a server that never answers."""
        program = [sys.executable, "-c", "import time; time.sleep(60)"]
        return subprocess.Popen(program, pass_fds=[line.fileno()])

    monkeypatch.setattr(supervisor, "start", silent)
    client = SnapshotClient()
    asking = asyncio.create_task(client.ask({"do": "anything"}))
    waiting = asyncio.create_task(client.ask({"do": "anything"}))
    while not client.pid:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        await client.close()
        with pytest.raises(NotSnapshotable, match="does not answer") as refused:
            await asking
        assert refused.value.reason == "fault"
        for behind in (waiting, client.ask({"do": "anything"})):
            with pytest.raises(NotSnapshotable, match="closed"):
                await behind
    assert client.pid == 0
    await client.close()
