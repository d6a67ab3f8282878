"""Verifiers that break in every way there is: nobody else is hurt, and nothing of it is a reward.

The faults are real: processes exit, are killed, hang, allocate, write to the wrong descriptor.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

import ludus
from ludus.envs.serving.connect import RemoteServer
from ludus.errors import ConfigError
from ludus.isolation.group import WorkerLimits
from ludus.rewards import Sample, Status, Verdict
from ludus.rewards.serving.placement import WorkerProcesses
from ludus.rewards.serving.server import ScoreService
from ludus.wire.prometheus import ServerMetrics
from ludus.wire.server import HttpServer

TIMEOUT_S = 4.0
"""Of every verifier of the server, so that the ones without a fault have to start in it, too."""
LATE = f"no verdict within {TIMEOUT_S:g} s"


class Mute(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Faulty:
    """Breaks in the way the response says."""

    def __init__(self) -> None:
        self.mark = ""

    def score(self, sample: Sample) -> Any:
        what, _, argument = sample.text.partition(" ")
        match what:
            case "sys.exit":
                sys.exit(3)
            case "os._exit":
                os._exit(0)
            case "os._exit-once":
                leave_once(Path(argument))
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "segfault":
                ctypes.string_at(0)
            case "hang":
                time.sleep(60)
            case "spin":
                while True:
                    pass
            case "allocate":
                self.mark = "x" * (2 << 30)
            case "reply":
                return Verdict.of(1.0, "x" * (50 << 20))
            case "print":
                while True:
                    print("x" * 1000)
            case "threads":
                grow()
            case "raise":
                raise ValueError("cannot")
            case "raise-surrogate":
                raise ValueError("cannot \ud800 go")
            case "raise-mute":
                raise Mute
            case "nonsense":
                return object()
            case "garbage":
                scribble(b"garbage" * 100)
            case "pid":
                return Verdict.of(1.0, str(os.getpid()))
            case "orphan":
                return Verdict.of(1.0, str(detached()))
            case _:
                pass
        return Verdict.of(1.0)


class AsyncFaulty(Faulty):
    """The same on an event loop."""

    async def score(self, sample: Sample) -> Any:
        if sample.text == "wait":
            await asyncio.sleep(0.2)
        if sample.text == "sleep":
            await asyncio.sleep(60)
        return super().score(sample)


class Dying:
    """Its garbage collection raises; a number is a fine answer all the same."""

    def score(self, sample: Sample) -> float:
        class Raises:
            def __del__(self) -> None:
                raise RuntimeError("in __del__")

        del sample
        Raises()
        return 1.0


def leave_once(path: Path) -> None:
    """Leave the process, the first time it is asked to."""
    if not path.exists():
        path.touch()
        os._exit(7)


def grow() -> None:
    """Start threads without end."""
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def scribble(data: bytes) -> None:
    """Write to every socket of this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), data)
        except OSError:
            continue


def detached() -> int:
    """Start a process in a session of its own."""
    pid = os.fork()
    if not pid:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    return pid


VERIFIERS: dict[str, Any] = {"faulty": Faulty(), "async": AsyncFaulty(), "dying": Dying()}


@asynccontextmanager
async def serving(timeout_s: float = TIMEOUT_S, **limits: Any) -> AsyncGenerator[RemoteServer]:
    """A server whose client gives up after 20 s."""
    workers = WorkerLimits(**{"processes": 4, "memory_bytes": 256 << 20, **limits})
    service = ScoreService(["exact"], verifiers=VERIFIERS, timeout_s=timeout_s, workers=workers)
    async with HttpServer([service]) as http, ludus.connect(http.url, timeout_s=20) as server:
        yield server


async def score(server: RemoteServer, name: str, response: str) -> Verdict:
    return await server.verifier(name).score(Sample(response=response))


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("sys.exit", Status.ERROR, "SystemExit: 3"),
        ("os._exit", Status.ERROR, "exit code 0"),
        ("kill", Status.UNAVAILABLE, "SIGKILL"),
        ("segfault", Status.ERROR, "SIGSEGV"),
        ("hang", Status.UNAVAILABLE, LATE),
        ("spin", Status.UNAVAILABLE, LATE),
        ("allocate", Status.ERROR, "MemoryError"),
        ("reply", Status.ERROR, "at most 16777216 are sent"),
        ("print", Status.UNAVAILABLE, LATE),
        ("threads", Status.ERROR, "can't start new thread"),
        ("raise", Status.ERROR, "ValueError: cannot"),
        ("raise-surrogate", Status.ERROR, "ValueError: cannot \\ud800 go"),
        ("raise-mute", Status.ERROR, "Mute"),
        ("nonsense", Status.ERROR, "must return a Verdict"),
        ("garbage", Status.ERROR, "sent what is not an answer"),
    ],
)
@pytest.mark.parametrize(
    "name", ["faulty", pytest.param("async", marks=pytest.mark.slow, id="async")]
)
async def test_a_fault_is_no_reward_and_hurts_nobody_else(
    name: str, fault: str, status: Status, words: str
) -> None:
    hangs = status is Status.UNAVAILABLE and fault != "kill"
    async with serving(timeout_s=TIMEOUT_S if hangs else 20) as server:
        verdict, *others = await asyncio.gather(
            score(server, name, fault),
            *(score(server, other, "fine") for other in ("dying", "exact") * 8),
        )
        assert (verdict.status, verdict.reward) == (status, None), verdict
        assert words in verdict.detail
        assert {other.status for other in others} == {Status.OK, Status.INVALID}  # no gold
        assert (await score(server, name, "fine")).reward == 1.0  # the control


async def test_a_score_whose_process_was_lost_once_is_tried_again(tmp_path: Path) -> None:
    async with serving() as server:
        verdict = await score(server, "faulty", f"os._exit-once {tmp_path / 'left'}")
        assert verdict.reward == 1.0
        assert (tmp_path / "left").exists()


async def test_a_crash_costs_those_beside_it_in_an_async_verifier_nothing() -> None:
    async with serving(processes=1) as server:
        beside = [asyncio.create_task(score(server, "async", "wait")) for _ in range(8)]
        await asyncio.sleep(0.1)
        assert (await score(server, "async", "os._exit")).status is Status.ERROR
        assert [(await one).reward for one in beside] == [1.0] * 8


async def test_an_async_score_that_is_late_is_cancelled_and_its_process_goes_on() -> None:
    async with serving(processes=1) as server:
        before = (await score(server, "async", "pid")).detail
        late, beside = await asyncio.gather(
            score(server, "async", "sleep"), score(server, "async", "wait")
        )
        assert (late.status, beside.reward) == (Status.UNAVAILABLE, 1.0)
        assert (await score(server, "async", "pid")).detail == before


async def test_hung_scores_of_one_verifier_do_not_delay_another() -> None:
    async with serving() as server:
        hung = [asyncio.create_task(score(server, "faulty", "hang")) for _ in range(12)]
        await asyncio.sleep(0.2)
        for _ in range(5):
            assert (await score(server, "dying", "fine")).reward == 1.0
        assert not any(one.done() for one in hung)
        assert {(await one).status for one in hung} == {Status.UNAVAILABLE}


async def test_a_loss_is_logged_once_with_who_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with serving() as server:
            await score(server, "faulty", "hang")
    (record,) = caplog.records
    assert "faulty: worker process" in record.getMessage()
    assert f"did not end within {TIMEOUT_S:g} s" in record.getMessage()


async def test_no_process_is_left_behind_not_even_what_a_worker_had_started() -> None:
    async with serving() as server:
        worker = int((await score(server, "faulty", "pid")).detail)
        orphan = int((await score(server, "faulty", "orphan")).detail)
        assert psutil.pid_exists(worker)
        assert psutil.pid_exists(orphan)
    deadline = time.monotonic() + 60
    while psutil.pid_exists(orphan) or psutil.pid_exists(worker):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_process_that_has_served_enough_is_replaced() -> None:
    async with serving(processes=1, recycle_after=3) as server:
        pids = [(await score(server, "faulty", "pid")).detail for _ in range(9)]
        assert [len(set(pids[start : start + 3])) for start in (0, 3, 6)] == [1, 1, 1]
        assert len(set(pids)) == 3


async def test_what_cannot_be_sent_to_a_process_is_told_with_what_to_do() -> None:
    class Holds:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def score(self, sample: Sample) -> float:
            return 1.0

    service = ScoreService(verifiers={"holds": cast(Any, Holds())})
    with pytest.raises(ConfigError, match=r"holds cannot run in a worker process.*lock"):
        async with HttpServer([service]):
            pass


class Unbuildable:
    """Leaves while it is loaded."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return os._exit if self.how == "leave" else int, (self.how == "leave" or "x",)

    def score(self, sample: Sample) -> float:
        return 1.0


@pytest.mark.parametrize(("how", "words"), [("leave", "ended"), ("raise", "invalid literal")])
async def test_a_verifier_that_cannot_be_loaded_fails_the_start(how: str, words: str) -> None:
    service = ScoreService(verifiers={"bad": cast(Any, Unbuildable(how))})
    with pytest.raises(ConfigError, match=f"bad cannot be loaded: .*{words}"):
        async with HttpServer([service]):
            pass


ALONE = {
    "fine": Status.OK,
    "raise": Status.ERROR,
    "nonsense": Status.ERROR,
    "sys.exit": Status.ERROR,
    "os._exit": Status.ERROR,
    "kill": Status.UNAVAILABLE,
    "hang": Status.UNAVAILABLE,
}
"""What each response gets when it is scored alone."""


@asynccontextmanager
async def quick_host(timeout_s: float) -> AsyncGenerator[WorkerProcesses]:
    """A verifier in two processes that has been quick so far, so that its samples share frames."""
    limits = WorkerLimits(processes=2, memory_bytes=256 << 20)
    metrics = ServerMetrics()
    host = WorkerProcesses("faulty", Faulty, limits=limits, metrics=metrics, timeout_s=timeout_s)
    await host.start()
    try:
        while host.frame_limit < 16:
            await host.score(Sample(response="fine"))
        yield host
    finally:
        await host.stop()


async def test_samples_that_come_together_share_frames() -> None:
    async with quick_host(20) as host:
        before = sum(worker.calls for worker in host.workers)
        verdicts = await asyncio.gather(*(host.score(Sample(response="fine")) for _ in range(256)))
        assert {verdict.reward for verdict in verdicts} == {1.0}
        assert sum(worker.calls for worker in host.workers) - before < 64


@pytest.mark.parametrize(
    "faults", [("raise", "os._exit", "kill"), ("hang", "nonsense", "sys.exit")]
)
async def test_each_sample_of_a_frame_gets_the_verdict_that_it_gets_alone(
    faults: tuple[str, ...],
) -> None:
    responses = random.Random(0).sample([*faults, *["fine"] * 29], 32)
    async with quick_host(1.5) as host:
        scorings = [host.score(Sample(response=response)) for response in responses]
        verdicts = await asyncio.gather(*scorings)
    assert [verdict.status for verdict in verdicts] == [ALONE[one] for one in responses]
    rewards = [1.0 if response == "fine" else None for response in responses]
    assert [verdict.reward for verdict in verdicts] == rewards


async def test_a_sample_that_nobody_waits_for_any_more_is_not_scored() -> None:
    async with quick_host(20) as host:
        before = sum(worker.calls for worker in host.workers)
        scoring = asyncio.ensure_future(host.score(Sample(response="hang")))
        scoring.cancel()
        assert (await host.score(Sample(response="fine"))).reward == 1.0
        assert sum(worker.calls for worker in host.workers) - before == 1


async def test_an_async_verifier_scores_for_as_long_as_it_is_asked() -> None:
    """The time of its calls is not measured: a mean of zeros has to stay a number to divide by."""
    metrics, limits = ServerMetrics(), WorkerLimits(processes=1, memory_bytes=256 << 20)
    host = WorkerProcesses("faulty", AsyncFaulty, limits=limits, metrics=metrics, timeout_s=20)
    await host.start()
    try:
        for _ in range(40):
            samples = (host.score(Sample(response="fine")) for _ in range(100))
            assert {verdict.reward for verdict in await asyncio.gather(*samples)} == {1.0}
    finally:
        await host.stop()


class Sharing:
    """Holds what forked processes would share: an open file, or a thread."""

    def __init__(self, what: str) -> None:
        if what == "thread":
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        self.file = open(os.devnull) if what == "file" else None  # noqa: SIM115 - it stays open

    def score(self, sample: Sample) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("what", "left"), [("", ""), ("file", "1 open descriptors"), ("thread", "1 threads")]
)
async def test_what_processes_cannot_share_is_loaded_by_each_of_them(
    what: str, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ludus")
    limits = WorkerLimits(processes=2, memory_bytes=512 << 20)
    make = functools.partial(Sharing, what)
    host = WorkerProcesses("sharing", make, limits=limits, metrics=ServerMetrics(), timeout_s=60)
    try:
        await host.start()
        assert (await host.score(Sample(response="fine"))).reward == 1.0
    finally:
        await host.stop()
    leaves = [text for text in caplog.messages if "loading it leaves" in text]
    assert [left in text for text in leaves] == [True] * bool(left)
