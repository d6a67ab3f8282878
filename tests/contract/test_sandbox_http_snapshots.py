"""Snapshots over HTTP: a group of rollouts branches from one REPL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ludus.errors import ConfigError, SessionGone
from ludus.sandboxes import NotSnapshotable, open_sandbox
from ludus.sandboxes.remote import RemoteSandbox
from ludus.sandboxes.serving.runner import Runner
from ludus.sandboxes.serving.sandbox_wire import Bounds
from ludus.sandboxes.serving.server import SandboxService
from ludus.wire.server import HttpServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUNDS = Bounds(max_repls=6, max_snapshots=2, repl_ttl_s=30)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server() -> AsyncIterator[HttpServer]:
    try:
        sandbox = await open_sandbox(size=2)
    except ConfigError as error:
        pytest.skip(f"no sandbox holds here: {error}")
    service = SandboxService(Runner(slots=2, bounds=BOUNDS, sandbox=sandbox))
    async with HttpServer([service]) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http(server: HttpServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox(server: HttpServer) -> AsyncIterator[RemoteSandbox]:
    remote = RemoteSandbox(server.url, timeout_s=1)
    yield remote
    await remote.close()


async def post(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Any]:
    async with http.post(path, json=body) as reply:
        return reply.status, await reply.json()


async def test_branches_go_on_from_the_snapshot_and_share_nothing(sandbox: RemoteSandbox) -> None:
    async with await sandbox.open_repl() as repl:
        await repl.run("x = 6\nopen('f', 'w').write('kept')")
        async with await repl.snapshot() as snapshot:
            await repl.run("x = 'the trunk goes on'")
            branches = await asyncio.gather(*(snapshot.restore() for _ in range(3)))
            for number, branch in enumerate(branches):
                assert (await branch.run(f"x += {number}; x")).stdout == f"{6 + number}\n"
                await branch.write({"f": f"{number}"})
            assert [await branch.read("f") for branch in branches] == [b"0", b"1", b"2"]
            assert (await repl.run("x")).stdout == "'the trunk goes on'\n"
            assert await repl.read("f") == b"kept"
        assert (await branches[0].run("x")).stdout == "6\n"
        for branch in branches:
            await branch.close()


async def test_what_cannot_be_copied_is_refused_with_the_reason(
    sandbox: RemoteSandbox, http: aiohttp.ClientSession
) -> None:
    async with await sandbox.open_repl(name="threaded") as repl:
        await repl.run(
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
        )
        with pytest.raises(NotSnapshotable) as refused:
            await repl.snapshot()
        assert refused.value.reason == "threads"
        status, reply = await post(http, "/v1/repls/threaded/snapshot", {"snapshot": "s"})
        assert (status, reply["error"]["code"]) == (422, "not_snapshotable")
        assert (await repl.run("'alive'")).stdout == "'alive'\n"


async def test_requests_sent_again_find_it_made(
    sandbox: RemoteSandbox, http: aiohttp.ClientSession
) -> None:
    async with await sandbox.open_repl(name="trunk") as repl:
        await repl.run("x = 1")
        body = {"snapshot": "kept"}
        made = await asyncio.gather(
            *(post(http, "/v1/repls/trunk/snapshot", body) for _ in range(3))
        )
        assert [status for status, _ in made] == [200] * 3
        assert made[0][1]["snapshot"] == "kept"
        restored = await asyncio.gather(
            *(post(http, "/v1/snapshots/kept/restore", {"repl": "branch"}) for _ in range(3))
        )
        assert [status for status, _ in restored] == [200] * 3
        status, reply = await post(http, "/v1/repls/branch/run", {"seq": 0, "code": "x"})
        assert (status, reply["execution"]["stdout"]) == (200, "1\n")
        status, reply = await post(http, "/v1/repls/branch/snapshot", body)
        assert (status, reply["error"]["code"]) == (409, "sequence_conflict")
        for path in ("/v1/repls/branch", "/v1/snapshots/kept", "/v1/snapshots/kept"):
            async with http.delete(path) as reply_:
                assert reply_.status == 200
        status, reply = await post(http, "/v1/snapshots/kept/restore", {"repl": "late"})
        assert (status, reply["error"]["code"]) == (410, "session_gone")


async def test_a_snapshot_nobody_made_is_410(http: aiohttp.ClientSession) -> None:
    status, reply = await post(http, "/v1/snapshots/none/restore", {"repl": "r"})
    assert (status, reply["error"]["code"]) == (410, "session_gone")
    status, reply = await post(http, "/v1/repls/none/snapshot", {"snapshot": "s2"})
    assert (status, reply["error"]["code"]) == (410, "session_gone")


async def test_too_many_snapshots_are_429_and_idle_ones_end(
    sandbox: RemoteSandbox, http: aiohttp.ClientSession
) -> None:
    async with await sandbox.open_repl(name="many") as repl:
        await repl.run("x = 1")
        brief = await repl.snapshot(idle_ttl_s=1.5)
        other = await repl.snapshot()
        status, reply = await post(http, "/v1/repls/many/snapshot", {"snapshot": "third"})
        assert (status, reply["error"]["limit"]) == (429, 2)
        await asyncio.sleep(2)
        with pytest.raises(SessionGone, match=r"idle for 1\.5 s"):
            await brief.restore()
        status, _ = await post(http, "/v1/repls/many/snapshot", {"snapshot": "third"})
        assert status == 200
        async with http.delete("/v1/snapshots/third") as reply_:
            assert (await reply_.json())["ended"] is True
        await other.close()
