"""The warm killable pool: limits are charged to whoever used them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from ludus.errors import ConfigError
from ludus.rewards.pool import Fate, PoolLimits, PoolOutcome, WorkerPool
from ludus.verdict import Verdict

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
        case "nap":
            time.sleep(1)
        case "sleep":
            time.sleep(60)
        case "kill -9":
            os.kill(os.getpid(), signal.SIGKILL)
        case "spin, then kill -9":
            while time.process_time() < 0.2:
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        case {"sleep, noted in": log}:
            with open(log, "a") as file:
                file.write("started\\n")
            time.sleep(60)
        case "garbage":
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, b"\\xff" * 4096)
                except OSError:
                    pass
            time.sleep(60)
        case "deep":
            return score_deep(0)
        case "huge":
            return bytes(65 << 20)
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
    # a wall limit that a busy machine keeps too
    made = WorkerPool("pool_scorer:score", limits=PoolLimits(workers=1, cpu_s=0.3, wall_factor=150))
    made.submit("start").result(timeout=60)
    yield made
    made.close()
    sys.path.remove(str(folder))


def test_values_come_back_in_order(pool: WorkerPool) -> None:
    futures = [pool.submit({"n": n}) for n in range(200)]
    assert [future.result(timeout=120).value for future in futures] == [
        {"n": n} for n in range(200)
    ]


@pytest.mark.parametrize(
    ("request_", "fate", "reason"),
    [
        ("spin", Fate.LIMIT, "CPU"),
        ("one long operation", Fate.LIMIT, ""),
        ("memory", Fate.LIMIT, "memory"),
        ("deep", Fate.LIMIT, "recursion"),
        ("crash", Fate.CRASHED, "crashed 2 fresh workers (signal 11)"),
        ("exit", Fate.CRASHED, "crashed 2 fresh workers (it ended by itself)"),
        ("garbage", Fate.CRASHED, "crashed 2 fresh workers"),
        ("kill -9", Fate.KILLED, "out of memory"),
        ("spin, then kill -9", Fate.KILLED, "out of memory"),
        ("bug", Fate.RAISED, "a bug"),
        ("huge", Fate.RAISED, "at most 67108864 are sent"),
    ],
)
def test_a_loss_is_laid_on_whoever_caused_it(
    request_: str, fate: Fate, reason: str, pool: WorkerPool
) -> None:
    outcome = pool.submit(request_).result(timeout=120)
    assert outcome.fate is fate, outcome
    assert reason in outcome.reason
    assert pool.submit("next").result(timeout=120).value == "next"


def test_a_hung_item_costs_only_itself(pool: WorkerPool) -> None:
    futures = [pool.submit(item) for item in (1, "spin", 2, 3, "crash", 4)]
    fates = [future.result(timeout=120).fate for future in futures]
    assert fates == [Fate.DONE, Fate.LIMIT, Fate.DONE, Fate.DONE, Fate.CRASHED, Fate.DONE]


def test_workers_are_recycled() -> None:
    pool = WorkerPool("operator:truth", limits=PoolLimits(workers=1, recycle_after=2, chunk=1))
    try:
        assert all(pool.submit(n).result(timeout=60).fate is Fate.DONE for n in range(7))
    finally:
        pool.close()


def test_it_can_be_awaited(pool: WorkerPool) -> None:
    async def both() -> list[object]:
        return [outcome.value for outcome in await asyncio.gather(pool.run(1), pool.run(2))]

    assert asyncio.run(both()) == [1, 2]


def test_what_is_not_data_is_refused_without_harm(pool: WorkerPool) -> None:
    assert pool.submit(object()).result(timeout=60).fate is Fate.RAISED
    assert pool.submit("\ud800").result(timeout=60).fate is Fate.RAISED
    assert pool.submit(5).result(timeout=60).value == 5


def test_a_closed_pool_is_unavailable() -> None:
    pool = WorkerPool("operator:truth")
    pool.close()
    assert pool.submit(1).result(timeout=60).fate is Fate.REFUSED


def test_a_request_during_the_close_is_answered() -> None:
    pool = WorkerPool("operator:truth", limits=PoolLimits(workers=1))
    with pool._changed, ThreadPoolExecutor(1) as threads:
        asking = threads.submit(pool.submit, 1)
        time.sleep(0.05)  # it has seen an open pool, and waits for the lock
        pool.close()
        pool._changed.release()
        try:
            assert asking.result(timeout=60).result(timeout=5).fate is Fate.REFUSED
        finally:
            pool._changed.acquire()


def test_a_pool_without_threads_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool("operator:truth", limits=PoolLimits(workers=1))

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        outcome = pool.submit(1).result(timeout=5)
    assert (outcome.fate, "can't start new thread" in outcome.reason) == (Fate.REFUSED, True)
    assert pool.submit(1).result(timeout=60).value is True
    pool.close()


def test_a_large_request_behind_a_slow_one_costs_neither(pool: WorkerPool) -> None:
    slow = WorkerPool("pool_scorer:score", limits=PoolLimits(workers=1, cpu_s=0.1, spares=0))
    slow.submit("start").result(timeout=60)
    with slow._changed:  # both are there before a thread takes one
        answers = [slow.submit(request, cpu_s=20.0) for request in ("nap", "x" * 2_000_000)]
    assert [answer.result(timeout=60).fate for answer in answers] == [Fate.DONE] * 2
    slow.close()


def test_a_forked_process_closes_no_worker_of_its_parent() -> None:
    pool = WorkerPool("operator:truth", limits=PoolLimits(workers=1, spares=1))
    pool.warm()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            pool.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert [spare.process.has_ended(0.2) for spare in pool._spares] == [False]
    pool.close()


def test_a_full_queue_is_unavailable_at_once() -> None:
    pool = WorkerPool("time:sleep", limits=PoolLimits(workers=1, queue=1, cpu_s=1.0, chunk=1))
    try:
        outcomes = [pool.submit(0.2) for _ in range(12)]
        fates = {future.result(timeout=60).fate for future in outcomes}
        assert Fate.REFUSED in fates
    finally:
        pool.close()


FOR_A_WORKER = (r"\sin(x+y)", r"\boxed{\sin x\cos y+\cos x\sin y}")
"""A gold and a right answer that only a worker finds equal."""


def test_a_right_answer_scores_one_beside_eight_cpu_hogs() -> None:
    from ludus.rewards.maths import MathsVerifier

    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    verifier = MathsVerifier(workers=1)
    try:
        assert verifier.verify(*FOR_A_WORKER).reward == 1.0
        assert verifier._pool._quick._template is not None, "it needs a worker"
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        verifier.close()


def test_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="cpu_s"):
        PoolLimits(cpu_s=0)


def test_closing_leaves_no_process() -> None:
    pool = WorkerPool("operator:truth", limits=PoolLimits(workers=1))
    pool.submit(1).result(timeout=60)
    template = pool._template  # pyright: ignore[reportPrivateUsage]
    assert template is not None
    pid = template.pid
    below = psutil.Process(pid).children()
    pool.close()
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(left) for left in (pid, *(child.pid for child in below))):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_workers_killed_from_outside_cost_a_right_answer_no_reward() -> None:
    from ludus.rewards.maths import MathsVerifier

    verifier = MathsVerifier(workers=1)
    assert verifier.verify(*FOR_A_WORKER).reward == 1.0  # the control: it is right
    template = verifier._pool._quick._template
    assert template is not None, "it needs a worker"
    stop = threading.Event()

    def kill_every_worker() -> None:
        while not stop.is_set():
            for child in psutil.Process(template.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()

    killer = threading.Thread(target=kill_every_worker)
    killer.start()
    verdicts: list[Verdict] = []
    killed: list[Verdict] = []
    deadline = time.monotonic() + 120
    try:  # on a busy machine a worker may answer before the killer has its turn
        while len(verdicts) < 20 or (not killed and time.monotonic() < deadline):
            verdicts.append(verifier.verify(*FOR_A_WORKER))
            killed = [verdict for verdict in verdicts if verdict.metrics.get("pool/killed")]
    finally:
        stop.set()
        killer.join()
    assert {verdict.reward for verdict in verdicts} <= {None, 1.0}
    assert killed, "the killer was too slow for this test to show anything"
    assert all(verdict.retryable for verdict in killed)
    assert verifier.verify(*FOR_A_WORKER).reward == 1.0
    verifier.close()


def test_workers_that_died_while_idle_cost_the_next_item_nothing() -> None:
    pool = WorkerPool("operator:truth", limits=PoolLimits(workers=1, spares=2))
    assert pool.submit(1).result(timeout=60).fate is Fate.DONE
    template = pool._template  # pyright: ignore[reportPrivateUsage]
    assert template is not None
    deadline = time.monotonic() + 60
    while len(idle := psutil.Process(template.pid).children()) < 3:  # the busy one, two spares
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for child in idle:
        child.kill()
    while any(child.is_running() and child.status() != "zombie" for child in idle):
        time.sleep(0.02)
    assert pool.submit(1).result(timeout=60).fate is Fate.DONE
    pool.close()


def test_a_late_item_is_not_run_again_past_its_wall_limit(pool: WorkerPool, tmp_path: Path) -> None:
    """`pool` has put the scorer on the path."""
    late = WorkerPool("pool_scorer:score", limits=PoolLimits(workers=1, cpu_s=1.0, wall_factor=1.0))
    log = tmp_path / "starts"
    outcome = late.submit({"sleep, noted in": str(log)}).result(timeout=60)
    late.close()
    assert outcome.fate is Fate.LATE
    assert "too busy" in outcome.reason
    assert log.read_text() == "started\n"


def test_each_fate_but_a_limit_carries_no_reward() -> None:
    for fate in set(Fate) - {Fate.DONE}:
        verdict = PoolOutcome(fate, reason="why").failure()
        assert (verdict.reward == 0.0) is (fate is Fate.LIMIT)
        assert verdict.metrics[f"pool/{fate}"] == 1.0
        assert "why" in verdict.detail
