"""Environments with async methods on a server: on the loop, their plain methods off it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import ludus
from ludus.envs import EnvSession, TextEnv, tool
from ludus.envs.forking import Nursery
from ludus.envs.serving.client import RemoteSession
from ludus.envs.serving.env_wire import Beginning, Create, Fork, Step, TaskQuery
from ludus.envs.serving.placement import fork_all
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.envs.serving.worker import CLOSE, PAGE, PLAY, REPLY, EnvPart, PlayCall
from ludus.envs.tasks import GeneratedTasks, Task, TaskSet
from ludus.errors import RequestTimeout, ServerFault, SessionGone
from ludus.messages import ToolCall, assistant
from ludus.wire.codec import Format
from ludus.wire.server import HttpServer

ENV = "test/mixed-v0"


RUN = "-".join(os.environ.get(f"PYTEST_XDIST_{name}", "0") for name in ("TESTRUNUID", "WORKER"))
"""The same in this process and in the workers that it starts."""


class Flag:
    """Something that tests and environments, in whichever process, tell each other by a file."""

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.gettempdir()) / f"ludus-{name}-{RUN}"

    def set(self) -> None:
        """Set it; it also counts how often."""
        with self.path.open("a") as file:
            file.write("x")

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def times(self) -> int:
        """How often it was set."""
        return self.path.stat().st_size if self.path.exists() else 0

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set; whether it was in time."""
        deadline = time.monotonic() + timeout_s
        while not self.times and time.monotonic() < deadline:
            time.sleep(0.005)
        return bool(self.times)


CLOSED = Flag("closed-mixed")


class Mixed(TextEnv):
    """An async step, everything else plain; tells which thread it was called on."""

    def __init__(self) -> None:
        self.built_on = threading.get_ident()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "", {"built_on": self.built_on, "reset_on": threading.get_ident()}

    async def step(self, action: str) -> Any:
        match action:
            case "slow":
                await asyncio.sleep(10)
            case "stubborn":
                while True:
                    try:
                        await asyncio.sleep(0.05)
                    except asyncio.CancelledError:
                        await asyncio.sleep(0.2)
                        raise
            case "cancel":
                raise asyncio.CancelledError
            case "exit":
                raise SystemExit(1)
            case _:
                await asyncio.sleep(0.01)
        return "", 1.0, False, False, {"step_on": threading.get_ident()}

    @tool
    def where(self) -> str:
        """Which thread a plain tool runs on."""
        time.sleep(0.01)
        return str(threading.get_ident())

    @tool
    async def where_async(self) -> str:
        """Which thread an async tool runs on."""
        return str(threading.get_ident())

    def close(self) -> None:
        CLOSED.set()


@asynccontextmanager
async def playing(**limits: Any) -> AsyncGenerator[RemoteSession]:
    service = EnvService([ServedEnv(ENV, factory=Mixed)], limits=SessionLimits(**limits))
    async with HttpServer([service]) as server, ludus.connect(server.url) as client:
        yield client.make_async(ENV)


async def test_plain_methods_and_tools_run_on_one_lane_and_async_ones_on_the_loop() -> None:
    async with playing() as session:
        _, info = await session.reset(seed=0)
        lane = info["reset_on"]
        loop = (await session.step("x"))[4]["step_on"]
        assert lane == info["built_on"] != loop
        calls = [ToolCall(name="where"), ToolCall(name="where_async")]
        observation = (await session.step(assistant("", calls)))[0]
        assert not isinstance(observation, str)
        assert [message.text for message in observation] == [str(lane), str(loop)]


async def test_the_environment_is_closed_when_its_session_is_released() -> None:
    CLOSED.clear()
    async with playing() as session:
        await session.reset(seed=0)
        await session.close()
        assert await asyncio.to_thread(CLOSED.wait, 60)


@pytest.mark.parametrize("action", ["slow", "stubborn"])
async def test_an_async_step_over_time_is_told_and_the_session_released(action: str) -> None:
    CLOSED.clear()
    async with playing(step_timeout_s=0.2) as session:
        await session.reset(seed=0)
        with pytest.raises(RequestTimeout, match="did not answer within"):
            await session.step(action)
        with pytest.raises(SessionGone):
            await session.step("x")
        assert await asyncio.to_thread(CLOSED.wait, 60)


@pytest.mark.parametrize("action", ["cancel", "exit"])
async def test_an_environment_that_ends_itself_fails_its_episode_and_not_the_server(
    action: str,
) -> None:
    async with playing() as session:
        await session.reset(seed=0)
        with pytest.raises(ServerFault):
            await session.step(action)
        await session.reset(seed=0)
        assert (await session.step("x"))[1] == 1.0


async def test_a_release_answers_whoever_waits_for_the_running_step() -> None:
    async with playing() as session:
        await session.reset(seed=0)
        waiting = asyncio.create_task(session.step("slow"))
        await asyncio.sleep(0.1)
        await session.close()
        with pytest.raises(SessionGone, match="released while it ran"):
            await waiting


class Stubborn(TextEnv):
    """A step that ignores its cancellation, until it is let go."""

    let_go = asyncio.Event()
    closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "go", {}

    async def step(self, action: str) -> Any:
        while not self.let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.let_go.wait()
        return "", 0.0, True, False, {}

    def close(self) -> None:
        type(self).closed += 1


async def test_a_close_whose_time_is_over_still_closes_the_environment() -> None:
    part = EnvPart(ServedEnv("test/stubborn-v0", factory=Stubborn), 1 << 20)

    async def handled(tag: int, body: bytes) -> int:
        answer = part.handle(tag, 1, body)
        return (await answer if isinstance(answer, Awaitable) else answer)[0]

    def played(play: Create | Step, seq: int) -> bytes:
        return msgspec.msgpack.encode(PlayCall(play, seq, "here", Format.MSGPACK))

    with ThreadPoolExecutor(1) as thread:
        part.start(lambda _: thread)
        beginning = Create(env="test/stubborn-v0", session="s", reset=Beginning())
        assert await handled(PLAY, played(beginning, 0)) == REPLY
        step = Step(session="s", seq=1, action="go")
        stepping = asyncio.create_task(handled(PLAY, played(step, 1)))
        await asyncio.sleep(0.05)
        try:
            closing = asyncio.create_task(handled(CLOSE, b"s"))
            await asyncio.sleep(0.05)
            assert (closing.done(), stepping.done(), Stubborn.closed) == (False, False, 0)
            closing.cancel()  # as the owner does at the deadline
            assert await asyncio.wait_for(closing, 60) == REPLY
            assert (stepping.done(), Stubborn.closed) == (False, 1)
        finally:
            Stubborn.let_go.set()
            await asyncio.wait_for(stepping, 60)


class SlowToBuild(TextEnv):
    """Is being built until it is let go; counts what was built and closed."""

    let_go = threading.Event()
    built: ClassVar[list[TextEnv]] = []
    closed: ClassVar[list[TextEnv]] = []

    def __init__(self) -> None:
        self.let_go.wait(60)
        self.built.append(self)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        return "", {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.0, True, False, {}

    def close(self) -> None:
        self.closed.append(self)


async def test_an_environment_that_was_given_up_while_it_was_built_is_closed() -> None:
    SlowToBuild.let_go.set()
    part = EnvPart(ServedEnv("test/building-v0", factory=SlowToBuild), 1 << 20)
    SlowToBuild.built.clear()
    SlowToBuild.let_go.clear()

    async def handled(tag: int, body: bytes) -> int:
        answer = part.handle(tag, 1, body)
        return (await answer if isinstance(answer, Awaitable) else answer)[0]

    with ThreadPoolExecutor(1) as thread:
        part.start(lambda _: thread)
        create = Create(env="test/building-v0", session="s", reset=Beginning())
        call = PlayCall(create, 0, "here", Format.MSGPACK)
        creating = asyncio.create_task(handled(PLAY, msgspec.msgpack.encode(call)))
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(handled(CLOSE, b"s"), 60) == REPLY
        assert await asyncio.wait_for(creating, 60) != REPLY
        SlowToBuild.let_go.set()
        async with asyncio.timeout(60):
            while not SlowToBuild.closed:
                await asyncio.sleep(0.01)
    assert SlowToBuild.closed == SlowToBuild.built


async def test_other_sessions_go_on_while_tasks_are_listed() -> None:
    loop_went_on = threading.Event()

    class SlowTasks(GeneratedTasks):
        def at(self, index: int) -> Task:
            if not loop_went_on.wait(10):
                raise TimeoutError("the event loop stood still")
            return super().at(index)

    class SlowToList(SlowToBuild):
        def __init__(self) -> None:
            pass

        def tasks(self, split: str) -> TaskSet:
            return SlowTasks(split)

    part = EnvPart(ServedEnv("test/listing-v0", factory=SlowToList), 1 << 20)
    asyncio.get_running_loop().call_later(0.05, loop_went_on.set)
    query = TaskQuery(split="train", limit=3)
    listing = part.handle(PAGE, 1, msgspec.msgpack.encode(query))
    assert isinstance(listing, Awaitable)
    assert (await asyncio.wait_for(listing, 60))[0] == REPLY


@pytest.mark.parametrize("ending", ["diverged", "cancelled"])
async def test_a_fork_that_is_not_made_leaves_no_session_open(ending: str) -> None:
    opened: list[TextEnv] = []
    closed: list[TextEnv] = []

    class Diverging(TextEnv):
        forks = "replay"

        def __init__(self) -> None:
            opened.append(self)

        async def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            if len(opened) == 3:
                await asyncio.sleep(60)  # only the second child's, which nobody waits for
            return str(len(opened)) if ending == "diverged" else "", {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 0.0, True, False, {}

        def close(self) -> None:
            closed.append(self)

    async def build() -> EnvSession:
        return EnvSession(Diverging())

    parent = await build()
    await parent.reset(seed=1)
    fork = Fork(session="p", seq=1, children=["a", "b"] if ending == "cancelled" else ["a"])
    forking = asyncio.create_task(
        fork_all(parent, fork, Nursery(build, EnvSession), set(fork.children))
    )
    if ending == "cancelled":
        while len(opened) < 3:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        forking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forking
    else:
        made, _ = await forking
        assert made == {}
    assert sorted(map(id, closed)) == sorted(map(id, opened[1:]))
    await parent.close()


class OnTheLoop(Mixed):
    """The same, where nothing of it blocks the event loop."""

    never_blocks = True

    @tool
    def where(self) -> str:
        """Which thread a plain tool runs on."""
        return str(threading.get_ident())


async def test_a_shorter_limit_holds_for_the_next_step_whatever_goes_on() -> None:
    served = ServedEnv(ENV, factory=OnTheLoop)
    service = EnvService([served], limits=SessionLimits(step_timeout_s=600))
    async with HttpServer([service]) as server, ludus.connect(server.url) as client:
        earlier, later = client.make_async(ENV), client.make_async(ENV)
        await earlier.reset(seed=0)
        await later.reset(seed=1)
        going_on = asyncio.create_task(earlier.step("slow"))
        await asyncio.sleep(0.1)
        service.limit(SessionLimits(step_timeout_s=0.2))
        async with asyncio.timeout(5):
            with pytest.raises(RequestTimeout, match=r"did not answer within 0\.2 s"):
                await later.step("slow")
        assert not going_on.done()
        going_on.cancel()
