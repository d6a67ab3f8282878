"""How a server ends: what has begun goes on, nothing new begins, and no step is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

import ludus
from ludus.envs import TextEnv
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.errors import ServerFault
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.wire.routes import Context
from ludus.wire.server import BackgroundServer, HttpServer

COUNTER = "test/counter-v0"


class Counter(TextEnv):
    """Counts its steps; `slow` takes a while, in a worker process."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.count = 0
        return "begin", {}

    def step(self, action: str) -> Any:
        if action == "slow":
            time.sleep(1.5)
        self.count += 1
        return action, float(self.count), False, False, {}


@asynccontextmanager
async def serving(drain_s: float | None) -> AsyncGenerator[HttpServer]:
    services = [EnvService([ServedEnv(COUNTER, factory=Counter)]), ScoreService(["exact"])]
    async with HttpServer(services, drain_s=drain_s) as server:
        yield server


async def ready(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession(url) as http, http.get("/readyz") as reply:
        return reply.status, (await reply.json())["status"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_draining_server_ends_with_its_last_session(stream: bool) -> None:
    async with serving(60.0) as server, ludus.connect(server.url, stream=stream) as client:
        session = client.make_async(COUNTER)
        await session.reset(seed=0)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.1)
        assert await ready(server.url) == (503, "draining")
        assert (await session.step("slow"))[1] == 1.0
        assert (await session.step("x"))[1] == 2.0
        async with ludus.connect(server.url, stream=stream, timeout_s=0.5) as late:
            with pytest.raises(ServerFault, match="draining"):
                await late.make_async(COUNTER).reset(seed=0)
            verdict = await late.verifier("exact").score(Sample(response="a", gold="a"))
            assert verdict.reward is None
            assert "draining" in verdict.detail
        assert not stopping.done()
        await session.close()
        async with asyncio.timeout(30):
            await stopping


@pytest.mark.slow
async def test_the_next_episode_of_a_draining_servers_session_begins_on_another() -> None:
    async with (
        serving(60.0) as one,
        serving(60.0) as other,
        ludus.connect(f"{one.url},{other.url}") as client,
    ):
        sessions = [client.make_async(COUNTER) for _ in range(4)]
        await asyncio.gather(*(session.reset(seed=0) for session in sessions))
        stopping = asyncio.create_task(one.stop())
        await asyncio.sleep(0.1)
        assert {(await session.step("x"))[1] for session in sessions} == {1.0}
        await asyncio.gather(*(session.reset(seed=0) for session in sessions))
        async with asyncio.timeout(30):
            await stopping  # it holds no session any more
        assert {(await session.step("x"))[1] for session in sessions} == {1.0}
        assert client.traffic.replays == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_what_outlives_the_drain_is_played_again_on_another(stream: bool) -> None:
    async with (
        serving(0.7) as one,
        serving(0.7) as other,
        ludus.connect(f"{one.url},{other.url}", stream=stream) as client,
    ):
        sessions = [client.make_async(COUNTER) for _ in range(4)]
        await asyncio.gather(*(session.reset(seed=0) for session in sessions))
        await asyncio.gather(*(session.step("x") for session in sessions))
        steps = [asyncio.create_task(session.step("slow")) for session in sessions]
        await asyncio.sleep(0.1)
        await one.stop()
        assert {(await step)[1] for step in steps} == {2.0}
        assert {(await session.step("x"))[1] for session in sessions} == {3.0}
        assert client.traffic.replays == 2


class Served:
    """A real `ludus serve`."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    async def __aenter__(self) -> Served:
        command = [sys.executable, "-m", "ludus", "serve", "ludus/arithmetic-v0", "exact"]
        self.process = await asyncio.create_subprocess_exec(
            *command, *self.arguments, stdout=asyncio.subprocess.PIPE
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(120):
            self.url = (await self.process.stdout.readline()).decode().split()[-1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def ends(self) -> int:
        async with asyncio.timeout(60):
            return await self.process.wait()


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.slow), "2"])
async def test_a_second_signal_is_quick(workers: str) -> None:
    async with (
        Served("--drain-s", "600", "--port", "0", "--workers", workers) as served,
        ludus.connect(served.url) as client,
    ):
        sessions = [client.make_async("ludus/arithmetic-v0") for _ in range(2)]
        await asyncio.gather(*(session.reset(seed=0) for session in sessions))
        served.process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(served.process.wait(), 1.5)
        await asyncio.gather(*(session.step("no number") for session in sessions))
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends() == 0


@pytest.mark.slow
async def test_workers_are_replaced_in_turns_and_no_episode_notices() -> None:
    async with (
        Served("--drain-s", "0.5", "--port", "0", "--workers", "2") as served,
        ludus.connect(served.url) as client,
    ):
        instances = [one.client.contact for one in client.replicas.members]
        before, rng, outcomes = set[str](), random.Random(0), list[float]()
        replaced = asyncio.Event()

        async def play(seed: int) -> None:
            while not replaced.is_set():
                session = client.make_async("ludus/arithmetic-v0")
                await session.reset(seed=seed)
                await asyncio.sleep(rng.uniform(0.0, 0.5))
                outcomes.append((await session.step("no number"))[1])
                await session.close()

        players = [asyncio.create_task(play(seed)) for seed in range(8)]
        async with asyncio.timeout(120):
            while not all(one.instance for one in instances):
                await asyncio.sleep(0.05)
            before = {one.instance for one in instances}
            os.kill(served.process.pid, signal.SIGUSR2)
            while before & {one.instance for one in instances}:
                await asyncio.sleep(0.05)
            replaced.set()
            await asyncio.gather(*players)
        assert set(outcomes) == {0.0}
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends() == 0


class Broken(ScoreService):
    """A service that cannot stop, and cannot start either if told so."""

    def __init__(self, *, starts: bool) -> None:
        super().__init__(["exact"])
        self.starts = starts

    async def start(self, context: Context) -> None:
        if not self.starts:
            raise LookupError("no service today")
        await super().start(context)

    async def stop(self) -> None:
        await super().stop()
        raise ArithmeticError("one worker too many")


async def test_a_service_that_cannot_stop_is_told_and_keeps_nothing_open() -> None:
    other = ScoreService(["exact"])
    server = HttpServer([Broken(starts=True), other])
    await server.start()
    with pytest.raises(ArithmeticError, match="one worker"):
        await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)
    server = HttpServer([Broken(starts=False)])
    with pytest.raises(LookupError, match="no service today"):
        await server.start()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


def test_a_server_on_a_thread_tells_that_it_could_not_stop() -> None:
    with (
        pytest.raises(ArithmeticError, match="one worker"),
        BackgroundServer(HttpServer([Broken(starts=True)])),
    ):
        pass
