"""How fast environments and verifiers are over HTTP: client here, server in its own process.

    python benchmarks/http_throughput.py [--sessions 256] [--json]

Rows: env steps in batches (what `make_async` does), the same one request a step, a single blocking
`gymnasium.Env`, and scores in batches of 256: by `exact`, and by `maths` on answers of many kinds
within 2 KB; the latter by one server process and by two. CPU is that of the client, per step or
sample; the servers' is beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import psutil

import ludus
from ludus.envs.serving.client import EPISODES, RemoteSession
from ludus.envs.serving.connect import RemoteServer
from ludus.messages import assistant
from ludus.rewards import Sample
from ludus.wire.replicas import BlockingReplicas, SessionSeats

ENV, VERIFIER, MATHS = "ludus/arithmetic-v0", "exact", "maths"
CALL = assistant("", [ludus.ToolCall(name="calculator", arguments={"expression": "12-7*3"})])


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    per_s: float
    p50_ms: float
    p99_ms: float
    client_cpu_us: float
    server_cpu_us: float
    requests: int


@contextmanager
def served(*arguments: str) -> Generator[tuple[str, psutil.Process]]:
    """A server process: its address, and the process."""
    names = [ENV, VERIFIER, MATHS]
    command = [sys.executable, "-m", "ludus", "serve", *names, "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


class Meter:
    """Counts what happens between `start` and `row`."""

    def __init__(self, server: RemoteServer, process: psutil.Process) -> None:
        self.server = server
        self.process = process
        self.latencies_s: list[float] = []
        self.requests = server.traffic.requests
        self.server_cpu_s = self._server_cpu_s()
        self.cpu_s = time.process_time()
        self.started = time.perf_counter()

    def row(self, what: str, number: int) -> Row:
        """What came of `number` steps or samples."""
        wall_s = time.perf_counter() - self.started
        cpu_s = time.process_time() - self.cpu_s
        server_cpu_s = self._server_cpu_s() - self.server_cpu_s
        ordered = sorted(self.latencies_s)
        return Row(
            what=what,
            per_s=number / wall_s,
            p50_ms=1e3 * ordered[len(ordered) // 2],
            p99_ms=1e3 * ordered[int(len(ordered) * 0.99)],
            client_cpu_us=1e6 * cpu_s / number,
            server_cpu_us=1e6 * server_cpu_s / number,
            requests=self.server.traffic.requests - self.requests,
        )

    def _server_cpu_s(self) -> float:
        family = [self.process, *self.process.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in family)


async def play(session: RemoteSession, rounds: int, latencies_s: list[float]) -> None:
    """Play `rounds` steps: calculator calls, and a new episode every five."""
    for index in range(rounds):
        if index % 5 == 0:
            await session.reset(seed=index)
        started = time.perf_counter()
        await session.step(CALL)
        latencies_s.append(time.perf_counter() - started)


async def steps(
    server: RemoteServer,
    process: psutil.Process,
    sessions: list[RemoteSession],
    rounds: int,
    what: str,
) -> Row:
    """All sessions at once."""
    await asyncio.gather(*(play(session, 5, []) for session in sessions))
    meter = Meter(server, process)
    await asyncio.gather(*(play(session, rounds, meter.latencies_s) for session in sessions))
    row = meter.row(what, len(meter.latencies_s))
    await asyncio.gather(*(session.close() for session in sessions))
    return row


def numbers() -> list[Sample]:
    """What `exact` is asked."""
    return [Sample(prompt="12-7*3", response=str(i % 7), gold="-9") for i in range(2048)]


PAIRS = (
    (r"\frac{3}{4}", "0.75"), ("42", "42"), ("42", "41"), (r"2\sqrt{3}", r"\sqrt{12}"),
    ("x=3", "3"), ("(1,2)", "(2,1)"), ("-5, 7", "7, -5"), ("x>5", r"(5,\infty)"),
    ("x^2-5x+6", "(x-2)(x-3)"), (r"25\%", "0.25"), (r"15\text{ cm}", "150 mm"), ("C", "(C) 12"),
    (r"\frac{\pi}{3}", r"60^\circ"), ("1,234", "1234"), ("No", "Yes"), ("2:3", "4:6"),
)  # fmt: skip
"""Golds and answers of the kinds that training sets hold."""


def solutions() -> list[Sample]:
    """What `maths` is asked: no two alike, a box at the end of up to 2 KB of working."""
    samples: list[Sample] = []
    for index in range(2048):
        gold, answer = PAIRS[index % len(PAIRS)]
        working = f"Step {index}: we add {index % 97} to both sides. " * (1 + index % 40)
        samples.append(Sample(response=f"{working}\nSo \\boxed{{{answer}}}.", gold=gold))
    return samples


async def scores(
    server: RemoteServer, process: psutil.Process, name: str, samples: list[Sample], number: int
) -> Row:
    """`number` samples, as many at once as a group-sized training batch."""
    verifier = server.verifier(name)
    await asyncio.gather(*(verifier.score(sample) for sample in samples))
    meter = Meter(server, process)

    async def one(sample: Sample) -> None:
        started = time.perf_counter()
        (await verifier.score(sample)).unwrap()
        meter.latencies_s.append(time.perf_counter() - started)

    for _ in range(number // len(samples)):
        await asyncio.gather(*(one(sample) for sample in samples))
    return meter.row(f"scores by {name}, batches of 256", len(meter.latencies_s))


async def shared(url: str, process: psutil.Process, number: int) -> Row:
    """Scores by `maths` from more than one worker."""
    async with ludus.connect(url) as server:
        row = await scores(server, process, MATHS, solutions(), number)
    return replace(row, what=f"scores by {MATHS}, {url.count(',') + 1} workers")


def blocking(server: RemoteServer, process: psutil.Process, number: int) -> Row:
    """One `gymnasium.Env`, one step after the other."""
    env = server.make(ENV)
    env.reset(seed=0)
    meter = Meter(server, process)
    for index in range(number):
        if index % 5 == 0:
            env.reset(seed=index)
        started = time.perf_counter()
        env.step(CALL)
        meter.latencies_s.append(time.perf_counter() - started)
    row = meter.row("steps, one blocking env", number)
    env.close()
    return row


async def measure(url: str, process: psutil.Process, number: int, rounds: int) -> list[Row]:
    """The async rows."""
    async with ludus.connect(url) as server:
        batched = [server.make_async(ENV) for _ in range(number)]
        group = BlockingReplicas(server.replicas.roster, server.replicas.build)
        single = [RemoteSession(ENV, SessionSeats(group, EPISODES)) for _ in range(number)]
        return [
            await steps(server, process, batched, rounds, f"steps, {number} sessions, batched"),
            await steps(
                server,
                process,
                single,
                max(5, rounds // 5),
                f"steps, {number} sessions, one by one",
            ),
            await scores(server, process, VERIFIER, numbers(), 2048 * 10),
            await scores(server, process, MATHS, solutions(), 2048 * 10),
        ]


def show(rows: list[Row]) -> None:
    """The table."""
    print(f"{'what':36}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'client us':>11}{'server us':>11}")
    for row in rows:
        print(
            f"{row.what:36}{row.per_s:9.0f}{row.p50_ms:9.1f}{row.p99_ms:9.1f}"
            f"{row.client_cpu_us:11.0f}{row.server_cpu_us:11.0f}"
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Environments and verifiers over HTTP.")
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=50, help="steps per session")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with served() as (url, process):
        rows = asyncio.run(measure(url, process, options.sessions, options.rounds))
        with ludus.connect(url) as server:
            rows.append(blocking(server, process, 500))
    with served("--workers", "2") as (url, process):
        rows.insert(-1, asyncio.run(shared(url, process, 2048 * 10)))
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "rows": [asdict(row) for row in rows]}))
    else:
        show(rows)


if __name__ == "__main__":
    main()
