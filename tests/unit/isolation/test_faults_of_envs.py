"""Environments that break in every way: nobody else is hurt, and nothing of it is a reward.

The faults are real: processes exit, are killed, hang, allocate, answer too much.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import psutil
import pytest

import ludus
from ludus.envs import TextEnv
from ludus.envs.serving.connect import RemoteServer
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import LudusError, RequestTimeout, ServerFault, SessionGone
from ludus.isolation.group import WorkerLimits
from ludus.wire.server import HttpServer

TIMEOUT_S = 0.5


class Faulty(TextEnv):
    """Breaks in the way the action says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return str(os.getpid()), {}

    def step(self, action: str) -> Any:
        match action:
            case "sys.exit":
                sys.exit(3)
            case "os._exit":
                os._exit(0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(60)
            case "spin":
                while True:
                    pass
            case "allocate":
                self.held = "x" * (2 << 30)
            case "reply":
                return "x" * (50 << 20), 1.0, False, False, {}
            case "surrogate":
                raise ValueError("cannot \ud800 go")
            case "large":
                return "x" * (4 << 20), 1.0, False, False, {}
            case "garbage":
                scribble(b"garbage" * 100)
            case "descriptors":  # a shell, which keeps what it inherits
                with tempfile.NamedTemporaryFile("r") as seen:
                    os.system(f"readlink /proc/$$/fd/* > {seen.name}")
                    return seen.read(), 1.0, False, False, {}
            case "print":
                while True:
                    print("x" * 1000)
            case _:
                time.sleep(0.01)
        return str(os.getpid()), 1.0, False, False, {}


class AsyncFaulty(Faulty):
    """The same on an event loop."""

    async def step(self, action: str) -> Any:
        if action == "sleep":
            await asyncio.sleep(60)
        return super().step(action)


class Bystander(Faulty):
    """Another environment."""


class Trusted(TextEnv):
    """Never blocks, and is played in the server's own process."""

    never_blocks = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return str(os.getpid()), {}

    def step(self, action: str) -> Any:
        return str(os.getpid()), 1.0, False, False, {}


def scribble(data: bytes) -> None:
    """Write to every socket of this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), data)
        except OSError:
            continue


ENVS: dict[str, type[TextEnv]] = {
    "test/faulty-v0": Faulty,
    "test/async-v0": AsyncFaulty,
    "test/bystander-v0": Bystander,
    "test/trusted-v0": Trusted,
}


async def test_programs_of_an_environment_inherit_no_line_to_the_owner() -> None:
    async with serving(20.0) as server:
        env = server.make_async("test/faulty-v0")
        await env.reset(seed=0)
        seen, *_ = await env.step("descriptors")
        assert "/dev/null" in str(seen)
        assert "socket:" not in str(seen)
        await env.close()


@asynccontextmanager
async def serving(timeout_s: float = TIMEOUT_S, **limits: Any) -> AsyncGenerator[RemoteServer]:
    """A server whose client gives up after 20 s."""
    workers = WorkerLimits(**{"processes": 4, "memory_bytes": 256 << 20, **limits})
    served = [ServedEnv(env_id, factory=factory) for env_id, factory in ENVS.items()]
    service = EnvService(served, limits=SessionLimits(step_timeout_s=timeout_s), workers=workers)
    async with HttpServer([service]) as http, ludus.connect(http.url, timeout_s=20) as server:
        yield server


async def turns(server: RemoteServer, env_id: str, number: int) -> list[float]:
    """The rewards of one session of an environment."""
    session = server.make_async(env_id)
    await session.reset(seed=0)
    return [(await session.step("x"))[1] for _ in range(number)]


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("sys.exit", ServerFault, r"sys.exit\(3\)"),
        ("os._exit", SessionGone, "exit code 0"),
        ("kill", SessionGone, "SIGKILL"),
        ("hang", RequestTimeout, "did not answer within 0.5 s"),
        ("spin", RequestTimeout, "did not answer within 0.5 s"),
        ("print", RequestTimeout, "did not answer within 0.5 s"),
        ("allocate", ServerFault, "MemoryError"),
        ("reply", ServerFault, "at most 16777216"),
        ("surrogate", ServerFault, r"ValueError: cannot \\ud800 go"),
        ("garbage", SessionGone, "sent what is not an answer"),
    ],
)
@pytest.mark.parametrize(
    "env_id", ["test/faulty-v0", pytest.param("test/async-v0", marks=pytest.mark.slow)]
)
async def test_a_fault_is_typed_and_hurts_no_other_environment(
    env_id: str, fault: str, error: type[LudusError], words: str
) -> None:
    hangs = error is RequestTimeout
    async with serving(timeout_s=TIMEOUT_S if hangs else 20) as server:
        session = server.make_async(env_id)
        await session.reset(seed=0)

        async def broken() -> None:
            with pytest.raises(error, match=words):
                await session.step(fault)

        _, *others = await asyncio.gather(
            broken(),
            *(turns(server, other, 10) for other in ("test/bystander-v0", "test/trusted-v0") * 4),
        )
        assert others == [[1.0] * 10] * 8
        assert await turns(server, env_id, 2) == [1.0] * 2  # the control


async def test_sessions_spread_over_processes_and_those_of_one_are_lost_together() -> None:
    async with serving(processes=2) as server:
        sessions = [server.make_async("test/faulty-v0") for _ in range(6)]
        pids = [(await session.reset(seed=0))[0] for session in sessions]
        assert sorted(pids.count(pid) for pid in set(pids)) == [3, 3]
        assert str(os.getpid()) not in pids
        with pytest.raises(SessionGone, match="exit code 0"):
            await sessions[0].step("os._exit")
        for session, pid in list(zip(sessions, pids, strict=True))[1:]:
            if pid == pids[0]:
                with pytest.raises(SessionGone, match=r"lost: .*exit code 0"):
                    await session.step("x")
            else:
                assert (await session.step("x"))[1] == 1.0
        again = [(await session.reset(seed=0))[0] for session in sessions]
        assert pids[0] not in again


async def test_environments_never_share_a_process_and_trusted_ones_have_none() -> None:
    async with serving() as server:
        pids = [
            (await server.make_async(env_id).reset(seed=0))[0] for env_id in ENVS for _ in range(2)
        ]
        assert len(set(pids)) == 7
        assert pids[-1] == str(os.getpid())


async def test_an_async_step_that_is_late_costs_its_own_session_alone() -> None:
    async with serving(processes=1) as server:
        late, beside = (server.make_async("test/async-v0") for _ in range(2))
        pid = (await late.reset(seed=0))[0]
        await beside.reset(seed=0)
        with pytest.raises(RequestTimeout):
            await late.step("sleep")
        assert (await beside.step("x"))[0] == pid


async def test_a_loss_is_logged_once_with_who_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with serving() as server:
            session = server.make_async("test/faulty-v0")
            await session.reset(seed=0)
            with pytest.raises(SessionGone):
                await session.step("kill")
    (record,) = caplog.records
    assert "test/faulty-v0: worker process" in record.getMessage()
    assert "SIGKILL" in record.getMessage()


async def test_a_large_reply_arrives_whole_in_either_format() -> None:
    service = EnvService([ServedEnv("test/faulty-v0", factory=Faulty)])
    async with HttpServer([service]) as http, aiohttp.ClientSession(http.url) as raw:
        body = {"session": "a", "reset": {"seed": 0}}
        async with raw.post("/v1/envs/test/faulty-v0/sessions", json=body) as reply:
            assert reply.status == 200
        for seq, format in enumerate(("json", "msgpack"), 1):
            headers = {"Accept": f"application/{format}"}
            step = {"seq": seq, "action": "large"}
            async with raw.post("/v1/sessions/a/step", json=step, headers=headers) as reply:
                decode = msgspec.json.decode if format == "json" else msgspec.msgpack.decode
                assert decode(await reply.read())["observation"] == "x" * (4 << 20)
                assert reply.content_type == f"application/{format}"


async def test_a_killed_template_is_told_by_readyz_or_replaced() -> None:
    served = ServedEnv("test/faulty-v0", factory=Faulty)
    service = EnvService([served], limits=SessionLimits(step_timeout_s=5))
    async with (
        HttpServer([service]) as http,
        ludus.connect(http.url, timeout_s=20) as server,
        aiohttp.ClientSession(http.url) as raw,
    ):
        session = server.make_async("test/faulty-v0")
        worker = psutil.Process(int(str((await session.reset(seed=0))[0])))
        worker.parent().kill()  # type: ignore[union-attr]
        await asyncio.to_thread(psutil.wait_procs, [worker], timeout=30)  # it dies with its parent
        with pytest.raises(SessionGone):
            await session.step("x")
        assert await turns(server, "test/faulty-v0", 2) == [1.0] * 2
        async with raw.get("/readyz") as reply:
            assert reply.status == 200
