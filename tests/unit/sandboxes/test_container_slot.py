"""A slot in a container, before an engine that is slow; slots of a real engine are in
integration/test_sandbox_docker.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

pytest.importorskip("docker", reason="the extra docker installs the SDK")

from ludus.sandboxes.docker.config import Container
from ludus.sandboxes.docker.engine import DockerEngine
from ludus.sandboxes.docker.slot import ContainerSlot, Suspects
from ludus.sandboxes.guest.run.plan import JailPlan

PLAN = JailPlan("docker", "", 0, 0, [], [], [], [])
DESCRIBED = Container(image="i", python=("python3",), mounts=[], processes=8, disk_bytes=1 << 20)


async def test_a_start_that_is_cancelled_while_the_engine_makes_the_container_leaves_none(
    tmp_path: Path,
) -> None:
    asked, going_on = asyncio.Event(), asyncio.Event()
    events: asyncio.Queue[str] = asyncio.Queue()

    async def create(_: web.Request) -> web.Response:
        asked.set()
        await going_on.wait()
        events.put_nowait("made c1")
        return web.json_response({"Id": "c1"}, status=201)

    async def remove(request: web.Request) -> web.Response:
        events.put_nowait(f"removed {request.match_info['id']}")
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/v1.41/containers/create", create)
    app.router.add_delete("/v1.41/containers/{id}", remove)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "engine")).start()
    engine = DockerEngine(
        f"unix://{tmp_path}/engine", "1.41", {"ServerVersion": "20.10", "Driver": "overlay2"}
    )
    (tmp_path / "slot").mkdir()
    slot = ContainerSlot(PLAN, engine, tmp_path / "slot", DESCRIBED, Suspects())
    starting = asyncio.create_task(slot.start())
    await asyncio.wait_for(asked.wait(), 30)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    going_on.set()
    try:
        seen = [await asyncio.wait_for(events.get(), 30) for _ in range(2)]
    finally:
        await runner.cleanup()
    assert seen == ["made c1", "removed c1"]
