"""What faults in user code cost others, what the hop to a worker process costs, and what fits into
memory.

    python benchmarks/isolation.py faults    p99 of another environment with and without each fault
    python benchmarks/isolation.py spin      p99 beside eight spinning verifiers, and beside eight
                                             busy processes that have nothing to do with us
    python benchmarks/isolation.py hop       CPU of a step in a worker and in the server itself
    python benchmarks/isolation.py frames    CPU of a user's verifier a sample, in a batch and alone
    python benchmarks/isolation.py memory    of workers and of idle sessions
    python benchmarks/isolation.py bounds    time of each call of the environments that are shipped

Runs are paired: one with, one without, in turn; the median of the differences is reported. `faults`
is 12 faults of `--pairs` pairs of two runs of `--seconds` each, and the time of the hangs: about
two and a half minutes at the defaults. It says so when it begins, and gives up after twice that.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil

import ludus
from ludus.envs import TextEnv, env_ids, make_async
from ludus.envs.gym import is_async_env
from ludus.envs.serving.connect import RemoteServer
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.envs.session import expert_action
from ludus.errors import LudusError
from ludus.isolation.system import private_bytes
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import HttpServer

SESSIONS = 8
TIMEOUT_S = 2.0
FAULTS = ("sys.exit", "os._exit", "kill", "hang", "allocate", "reply")


class Echo(TextEnv):
    """Says what it is told, in a worker process."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "", {}

    def step(self, action: str) -> Any:
        return action, 0.0, False, False, {}


class TrustedEcho(Echo):
    """The same in the server's own process."""

    never_blocks = True


def misbehave(what: str) -> str:
    """Do it."""
    match what:
        case "sys.exit":
            sys.exit(3)
        case "os._exit":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), 9)
        case "hang":
            time.sleep(3600)
        case "spin":
            while True:
                pass
        case "allocate":
            return "x" * (2 << 30)
        case "reply":
            return "x" * (50 << 20)
        case _:
            pass
    return what


class Faulty(Echo):
    """Misbehaves as it is told."""

    def step(self, action: str) -> Any:
        return misbehave(action), 0.0, False, False, {}


def faulty(sample: Sample) -> float:
    """Misbehave as the response says."""
    misbehave(sample.text)
    return 1.0


ENVS: dict[str, type[TextEnv]] = {
    "bench/echo-v0": Echo,
    "bench/trusted-v0": TrustedEcho,
    "bench/faulty-v0": Faulty,
}


def server() -> HttpServer:
    """One with all of the above."""
    served = [ServedEnv(env_id, factory=factory) for env_id, factory in ENVS.items()]
    envs = EnvService(served, limits=SessionLimits(step_timeout_s=TIMEOUT_S))
    verifiers: Any = {"faulty": Scores(), "trusted": TrustedScores()}
    return HttpServer([envs, ScoreService(verifiers=verifiers, timeout_s=TIMEOUT_S)])


class TrustedScores:
    """A verifier that runs in the server itself."""

    never_blocks = True

    def score(self, sample: Sample) -> float:
        return 1.0


class Scores:
    """`faulty` as an object."""

    def score(self, sample: Sample) -> Any:
        return faulty(sample)


async def latencies(client: RemoteServer, env_id: str, seconds: float) -> tuple[list[float], int]:
    """The time of each step of some sessions in ms, and how many failed."""
    times: list[float] = []
    failures = 0
    end = time.perf_counter() + seconds

    async def play() -> None:
        nonlocal failures
        session = client.make_async(env_id)
        await session.reset(seed=0)
        while time.perf_counter() < end:
            began = time.perf_counter()
            try:
                await session.step("x" * 100)
            except LudusError:
                failures += 1
                await session.reset(seed=0)
            times.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(0.01)
        await session.close()

    await asyncio.gather(*(play() for _ in range(SESSIONS)))
    return times, failures


def p99(times: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(times, n=100)[98]


async def in_env(client: RemoteServer, fault: str) -> None:
    """One fault after another in an environment."""
    while True:
        session = client.make_async("bench/faulty-v0")
        try:
            await session.reset(seed=0)
            reward = (await session.step(fault))[1]
            raise AssertionError(f"a reward: {reward}")
        except LudusError:
            await session.close()
        await asyncio.sleep(0.1)


async def in_verifier(client: RemoteServer, fault: str) -> None:
    """One fault after another in a verifier."""
    while True:
        verdict = await client.verifier("faulty").score(Sample(response=fault))
        if verdict.reward is not None and fault not in ("reply", "allocate"):
            raise AssertionError(f"a reward: {verdict}")
        await asyncio.sleep(0.1)


async def faults(pairs: int, seconds: float) -> None:
    """Print the table."""
    kinds = 2 * len(FAULTS)
    expected_s = kinds * pairs * 2 * seconds + 2 * pairs * TIMEOUT_S + 10
    print(f"{kinds} faults take about {expected_s:.0f} s", flush=True)
    async with asyncio.timeout(2 * expected_s):
        await all_faults(pairs, seconds)


async def all_faults(pairs: int, seconds: float) -> None:
    """Every fault in an environment, then in a verifier."""
    print(f"{'fault':<22}{'p99 without':>14}{'p99 with':>12}{'median diff':>14}{'failed':>8}  (ms)")
    async with (
        server() as http,
        ludus.connect(http.url, timeout_s=30) as client,
        ludus.connect(http.url, timeout_s=30) as other,
    ):
        await latencies(client, "bench/echo-v0", 1.0)
        for place, run in (("environment", in_env), ("verifier", in_verifier)):
            for fault in FAULTS:
                await one_fault(client, other, f"{place} {fault}", run, fault, pairs, seconds)


async def one_fault(
    client: RemoteServer,
    other: RemoteServer,
    label: str,
    run: Callable[[RemoteServer, str], Awaitable[None]],
    fault: str,
    pairs: int,
    seconds: float,
) -> None:
    """Print one line of the table."""
    without: list[float] = []
    with_it: list[float] = []
    failed = 0
    for _ in range(pairs):
        times, lost = await latencies(client, "bench/echo-v0", seconds)
        without.append(p99(times))
        failing = asyncio.ensure_future(run(other, fault))
        times, more = await latencies(client, "bench/echo-v0", seconds)
        with_it.append(p99(times))
        failing.cancel()
        await asyncio.wait({failing})
        if not failing.cancelled():
            failing.result()
        if fault == "hang":  # the next run begins once its process is killed
            await asyncio.sleep(TIMEOUT_S)
        failed += lost + more
    moved = statistics.median(b - a for a, b in zip(without, with_it, strict=True))
    print(
        f"{label:<22}{statistics.median(without):>14.1f}{statistics.median(with_it):>12.1f}"
        f"{moved:>14.1f}{failed:>8}",
        flush=True,
    )


def burn() -> None:
    """Use a processor without end."""
    while True:
        pass


async def spin(pairs: int, seconds: float) -> None:
    """Eight spinning verifiers against eight busy processes."""
    ours: list[float] = []
    theirs: list[float] = []
    async with (
        server() as http,
        ludus.connect(http.url, timeout_s=30) as client,
        ludus.connect(http.url, timeout_s=30) as other,
    ):
        await latencies(client, "bench/echo-v0", 1.0)
        for _ in range(pairs):
            spinning = [asyncio.ensure_future(in_verifier(other, "spin")) for _ in range(8)]
            await asyncio.sleep(0.5)
            ours.append(p99((await latencies(client, "bench/echo-v0", seconds))[0]))
            for request in spinning:
                request.cancel()
            await asyncio.wait(spinning)
            await asyncio.sleep(TIMEOUT_S + 0.5)
            burning = [multiprocessing.Process(target=burn, daemon=True) for _ in range(8)]
            for process in burning:
                process.start()
            await asyncio.sleep(0.5)
            theirs.append(p99((await latencies(client, "bench/echo-v0", seconds))[0]))
            for process in burning:
                process.kill()
                process.join()
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    print(f"p99 beside eight spinning verifiers {statistics.median(ours):.1f} ms")
    print(f"p99 beside eight busy processes     {statistics.median(theirs):.1f} ms")
    print(f"median ratio                        {ratio:.2f}")


def tree_cpu_s() -> float:
    """CPU of this process and of all below it that live."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def hop(pairs: int, steps: int) -> None:
    """CPU of a step in a worker, above that of the same step in the server's own process."""
    async with server() as http, ludus.connect(http.url, timeout_s=30) as client:
        cost: dict[str, list[float]] = {"bench/echo-v0": [], "bench/trusted-v0": []}
        for round_ in range(pairs + 1):
            for env_id, costs in cost.items():
                session = client.make_async(env_id)
                await session.reset(seed=0)
                before = tree_cpu_s()
                for _ in range(steps):
                    await session.step("x" * 100)
                if round_:  # the first warms up
                    costs.append((tree_cpu_s() - before) / steps * 1e3)
                await session.close()
    worker, own = (statistics.median(costs) for costs in cost.values())
    print(f"CPU of a step, client + server + worker: {worker:.3f} ms in a worker process,")
    print(f"{own:.3f} ms in the server's own; the hop costs {worker - own:.3f} ms")


async def frames(pairs: int, samples: int) -> None:
    """CPU of a sample, of client, server and workers together: in a batch and alone, for a verifier
    of the user's and for one that runs in the server itself.
    """
    batch = [Sample(response="x" * 100, gold="x")] * samples
    cost: dict[tuple[str, str], list[float]] = {}
    async with server() as http, ludus.connect(http.url, timeout_s=60) as client:
        for round_ in range(pairs + 1):
            for name in ("faulty", "trusted"):
                for way in ("batch", "alone"):
                    before = tree_cpu_s()
                    if way == "batch":
                        verdicts = await asyncio.to_thread(client.score_batch, name, batch)
                    else:
                        verdicts = [await client.verifier(name).score(each) for each in batch]
                    assert all(verdict.reward == 1.0 for verdict in verdicts)
                    if round_:  # the first warms up
                        used = (tree_cpu_s() - before) / samples * 1e6
                        cost.setdefault((name, way), []).append(used)
    for (name, way), used in cost.items():
        kind = "in a worker process" if name == "faulty" else "in the server itself"
        print(f"{statistics.median(used):7.0f} us of CPU a sample, {way}, {kind}")
    for way in ("batch", "alone"):
        pairs_of = zip(cost["faulty", way], cost["trusted", way], strict=True)
        hop_cost = statistics.median(worker - own for worker, own in pairs_of)
        print(f"{hop_cost:7.0f} us of them for the worker, {way}")


async def memory(sessions: int) -> None:
    """Memory of workers and of idle sessions."""
    limits = SessionLimits(max_sessions=2 * sessions + 100, max_queue=2 * sessions + 100)
    for env_id in ("bench/trusted-v0", "bench/echo-v0"):
        service = EnvService([ServedEnv(env_id, factory=ENVS[env_id])], limits=limits)
        async with HttpServer([service]) as http, ludus.connect(http.url) as client:
            own = psutil.Process()
            before = own.memory_info().rss
            opened = [client.make_async(env_id) for _ in range(sessions)]
            for start in range(0, sessions, 256):
                await asyncio.gather(
                    *(session.reset(seed=0) for session in opened[start : start + 256])
                )
            below = [child.pid for child in own.children(recursive=True)]
            held = sum(private_bytes(pid) for pid in below)
            grown = own.memory_info().rss - before
            print(
                f"{env_id}: {sessions} idle sessions: client and server grew by "
                f"{grown / 1e6:.0f} MB; {len(below)} processes below hold {held / 1e6:.0f} MB of "
                f"their own ({held / max(1, len(below)) / 1e6:.1f} MB each)",
                flush=True,
            )


async def bounds(seeds: int) -> None:
    """The time of each call of the environments that are shipped, played by their experts."""
    print(f"{'environment':<30}{'calls':>7}{'p50':>9}{'p99':>9}{'max':>9}  (ms)   never_blocks")
    for env_id in env_ids():
        if not env_id.startswith("ludus/"):
            continue
        try:
            times = await calls_of(env_id, seeds)
        except Exception as error:
            print(f"{env_id:<30} not measured: {type(error).__name__}: {str(error)[:60]}")
            continue
        env = make_async(env_id).env
        kind = "async" if is_async_env(env) else "plain"
        print(
            f"{env_id:<30}{len(times):>7}{statistics.median(times):>9.3f}{p99(times):>9.3f}"
            f"{max(times):>9.3f}         {env.never_blocks} ({kind})",
            flush=True,
        )


async def calls_of(env_id: str, seeds: int) -> list[float]:
    """Milliseconds of each reset and step."""
    session = make_async(env_id)
    times: list[float] = []
    for seed in range(seeds):
        began = time.perf_counter()
        await session.reset(seed=seed)
        times.append((time.perf_counter() - began) * 1e3)
        for _ in range(40):
            action = expert_action(session)
            began = time.perf_counter()
            stepped = await session.step(action)
            times.append((time.perf_counter() - began) * 1e3)
            if stepped[2] or stepped[3]:
                break
    await session.close()
    return times


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("what", choices=["faults", "spin", "hop", "frames", "memory", "bounds"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    logging.getLogger("ludus").setLevel(logging.CRITICAL)  # every fault here is on purpose
    runs: dict[str, Callable[[], Any]] = {
        "faults": lambda: faults(options.pairs, options.seconds),
        "spin": lambda: spin(options.pairs, options.seconds),
        "hop": lambda: hop(options.pairs, options.steps),
        "frames": lambda: frames(options.pairs, options.steps),
        "memory": lambda: memory(options.sessions),
        "bounds": lambda: bounds(options.seeds),
    }
    asyncio.run(runs[options.what]())


if __name__ == "__main__":
    main()
