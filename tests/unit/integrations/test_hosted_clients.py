"""The clients of plain HTTP that a server keeps, by cookie."""

from __future__ import annotations

import asyncio
import time

import pytest

from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import ServerFault
from ludus.integrations.hosted import ClientTable
from ludus.wire.faults import QueueFull


class Client:
    """A client that begins, unless it fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.touched = time.monotonic()
        self.turn = asyncio.Lock()
        self.fails = fails
        self.begun = 0

    async def begin(self) -> str:
        assert self.turn.locked()
        self.begun += 1
        if self.fails:
            raise ServerFault("the worker was lost")
        return "opening"


async def test_a_client_that_cannot_begin_takes_no_place() -> None:
    clients: ClientTable[Client] = ClientTable(SessionLimits(max_sessions=1))
    for _ in range(3):
        failing = Client(fails=True)
        with pytest.raises(ServerFault):
            await clients.begin(failing, failing.begin)
    client = Client()
    name, opening = await clients.begin(client, client.begin)
    assert (clients.find(name), opening) == (client, "opening")


async def test_a_client_that_finds_no_place_begins_nothing_that_nobody_would_end() -> None:
    clients: ClientTable[Client] = ClientTable(SessionLimits(max_sessions=1))
    first, second = Client(), Client()
    name, _ = await clients.begin(first, first.begin)
    with pytest.raises(QueueFull):
        await clients.begin(second, second.begin)
    assert second.begun == 0
    clients.remove(name)
    await clients.begin(second, second.begin)
