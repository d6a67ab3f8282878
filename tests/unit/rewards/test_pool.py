"""The warm killable pool: limits are charged to whoever used them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ludus.errors import ConfigError
from ludus.rewards.pool import Fate, Limits, WorkerPool
from ludus.rewards.pool.processes import Template

SCORER = """
import os, signal, time

def score(request):
    match request:
        case "spin":
            while True:
                pass
        case "one long operation":
            return len(str(9 ** (9**9)))
        case "memory":
            return len(bytearray(10**10))
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "sleep":
            time.sleep(60)
        case "deep":
            return score_deep(0)
        case "bug":
            raise ValueError("a bug")
        case "pid":
            return os.getpid()
        case "exit":
            os._exit(3)
    return request

def score_deep(n):
    return score_deep(n + 1)
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    folder = tmp_path_factory.mktemp("scorer")
    (folder / "pool_scorer.py").write_text(SCORER)
    sys.path.insert(0, str(folder))
    made = WorkerPool("pool_scorer:score", limits=Limits(workers=1, cpu_s=0.3))
    made.submit("start").result(timeout=60)
    yield made
    made.close()
    sys.path.remove(str(folder))


def test_values_come_back_in_order(pool: WorkerPool) -> None:
    futures = [pool.submit({"n": n}) for n in range(200)]
    assert [future.result(timeout=30).value for future in futures] == [{"n": n} for n in range(200)]


@pytest.mark.parametrize(
    ("request_", "fate", "reason"),
    [
        ("spin", Fate.LIMIT, "CPU"),
        ("one long operation", Fate.LIMIT, ""),
        ("memory", Fate.LIMIT, "memory"),
        ("deep", Fate.LIMIT, "recursion"),
        ("crash", Fate.LIMIT, "crashed 2 workers"),
        ("exit", Fate.LIMIT, "crashed 2 workers"),
        ("bug", Fate.ERROR, "a bug"),
        ("sleep", Fate.UNAVAILABLE, "too busy"),
    ],
)
def test_a_loss_is_laid_on_whoever_caused_it(
    request_: str, fate: Fate, reason: str, pool: WorkerPool
) -> None:
    outcome = pool.submit(request_).result(timeout=30)
    assert outcome.fate is fate, outcome
    assert reason in outcome.reason
    assert pool.submit("next").result(timeout=30).value == "next"


def test_a_hung_item_costs_only_itself(pool: WorkerPool) -> None:
    futures = [pool.submit(item) for item in (1, "spin", 2, 3, "crash", 4)]
    fates = [future.result(timeout=30).fate for future in futures]
    assert fates == [Fate.DONE, Fate.LIMIT, Fate.DONE, Fate.DONE, Fate.LIMIT, Fate.DONE]


def test_workers_are_recycled() -> None:
    pool = WorkerPool("operator:truth", limits=Limits(workers=1, recycle_after=2, chunk=1))
    try:
        assert all(pool.submit(n).result(timeout=60).fate is Fate.DONE for n in range(7))
    finally:
        pool.close()


def test_a_fork_of_the_template_takes_less_than_fifty_milliseconds(pool: WorkerPool) -> None:
    template = Template("operator:truth", 64 << 20)
    times: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        worker = template.fork()
        times.append(time.perf_counter() - started)
        worker.kill()
        template.reap(worker)
    template.close()
    assert sorted(times)[2] < 0.05


def test_it_can_be_awaited(pool: WorkerPool) -> None:
    async def both() -> list[object]:
        return [outcome.value for outcome in await asyncio.gather(pool.run(1), pool.run(2))]

    assert asyncio.run(both()) == [1, 2]


def test_what_is_not_data_is_refused_without_harm(pool: WorkerPool) -> None:
    assert pool.submit(object()).result(timeout=5).fate is Fate.ERROR
    assert pool.submit("\ud800").result(timeout=5).fate is Fate.ERROR
    assert pool.submit(5).result(timeout=5).value == 5


def test_a_closed_pool_is_unavailable() -> None:
    pool = WorkerPool("operator:truth")
    pool.close()
    assert pool.submit(1).result(timeout=5).fate is Fate.UNAVAILABLE


def test_a_full_queue_is_unavailable_at_once() -> None:
    pool = WorkerPool("time:sleep", limits=Limits(workers=1, queue=1, cpu_s=1.0, chunk=1))
    try:
        outcomes = [pool.submit(0.2) for _ in range(12)]
        fates = {future.result(timeout=60).fate for future in outcomes}
        assert Fate.UNAVAILABLE in fates
    finally:
        pool.close()


def test_a_right_answer_scores_one_beside_eight_cpu_hogs() -> None:
    from ludus.rewards.maths import MathsVerifier

    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    verifier = MathsVerifier(workers=1)
    try:
        assert verifier.verify(r"\tan^2 y+1", r"\boxed{\sec^2 y}").reward == 1.0
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        verifier.close()


def test_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="cpu_s"):
        Limits(cpu_s=0)


def test_closing_leaves_no_process() -> None:
    pool = WorkerPool("operator:truth", limits=Limits(workers=1))
    pool.submit(1).result(timeout=60)
    template = pool._template  # pyright: ignore[reportPrivateUsage]
    assert template is not None
    pid = template.pid
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
