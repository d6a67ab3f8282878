"""Isolated runs per second, latency and CPU per run, in process and over HTTP, beside a bare
interpreter, bubblewrap and docker exec.

    python benchmarks/sandbox.py [--seconds 2] [--tier slots-root] [--data FOLDER]

Prints one JSON line per measurement. CPU is that of everything a method starts, the driver
included: from control groups for slots, from the children's usage otherwise. On a busy machine
    read `cpu_ms` and `ratio_to_bare`, not runs per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import sandbox_docker

from ludus.sandboxes import SlotSandbox, grade_in_detail, open_sandbox
from ludus.sandboxes.local.control_groups import ControlGroup, ControlGroups
from ludus.sandboxes.remote import RemoteSandbox
from ludus.sandboxes.serving.sandbox_wire import ExecuteBody

HELLO = "print('hi')"
NUMPY = "import numpy\nprint(numpy.arange(10).sum())"
GAP_S = 0.005
BATCH = 64

Run = Callable[[], Awaitable[None]]


Counted = SlotSandbox | ControlGroup | Callable[[], float] | None
"""What a method's CPU is read from."""


def cpu_s(sandbox: Counted) -> float:
    if callable(sandbox):
        return sandbox()
    own = resource.getrusage(resource.RUSAGE_SELF)
    if isinstance(sandbox, SlotSandbox):
        return own.ru_utime + own.ru_stime + slots_cpu_s(sandbox)
    if sandbox:
        return own.ru_utime + own.ru_stime + sandbox.cpu_s()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def slots_cpu_s(sandbox: SlotSandbox) -> float:
    pools = sandbox._pools.values()  # pyright: ignore[reportPrivateUsage]
    return sum(slot.group.cpu_s() for pool in pools for slot in pool._of if slot.group)  # pyright: ignore[reportPrivateUsage]


async def throughput(
    run: Run, concurrency: int, seconds: float, sandbox: Counted, *, each: int = 1
) -> dict[str, float]:
    """Runs per second, `each` of them at a call of `run`."""
    count = 0

    async def worker() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await run()
            count += each

    end = time.perf_counter() + 0.3
    await asyncio.gather(*(worker() for _ in range(concurrency)))  # warm
    count, started, before = 0, time.perf_counter(), cpu_s(sandbox)
    end = started + seconds
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    used, wall = cpu_s(sandbox) - before, time.perf_counter() - started
    return {
        "runs_per_s": round(count / wall, 1),
        "cpu_ms": round(used / count * 1e3, 3),
        "cap_on_2_cores": round(2 * count / used, 0),
    }


async def latency(run: Run, count: int, gap_s: float) -> dict[str, float]:
    taken: list[float] = []
    for _ in range(count):
        await asyncio.sleep(gap_s)
        started = time.perf_counter()
        await run()
        taken.append((time.perf_counter() - started) * 1e3)
    cuts = statistics.quantiles(taken, n=100)
    return {"p10_ms": round(cuts[9], 2), "p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


def in_sandbox(sandbox: SlotSandbox, code: str) -> Run:
    async def run() -> None:
        done = await sandbox.execute(code)
        assert done.ok, done

    return run


def command(group: ControlGroup | None, *arguments: str) -> Run:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(
            *arguments, stdout=subprocess.DEVNULL, preexec_fn=joining(group)
        )
        assert await process.wait() == 0

    return run


def peers(group: ControlGroup | None) -> dict[str, Run]:
    python = os.path.realpath(sys.executable)
    runs = {"bare python3 -I": command(group, python, "-I", "-c", HELLO)}
    if shutil.which("bwrap"):
        binds = (
            "bwrap",
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        )
        runs["bubblewrap"] = command(group, *binds, python, "-I", "-c", HELLO)
    return runs


async def gradings(sandbox: SlotSandbox, data: str, seconds: float) -> dict[str, float]:
    rows = [
        json.loads(line) for line in Path(data, "code", "grade_dev.jsonl").read_text().splitlines()
    ]
    right = [row for row in rows if row["label"] == 1 and row["kind"] != "stdio"]
    wrong = position = 0

    async def run() -> None:
        nonlocal position, wrong
        row = right[position % len(right)]
        position += 1
        graded = await grade_in_detail(sandbox, row["code"], row["tests"], kind=row["kind"])
        wrong += graded.verdict.reward != 1.0

    return {**await throughput(run, 2, seconds, sandbox), "gradings": position, "wrong": wrong}


async def over_http(tier: str, group: ControlGroup | None, seconds: float) -> None:
    """A server in a process of its own, this process as its client; all three in `cpu_ms`."""
    ready, server = await serve(tier, group)
    sandbox = RemoteSandbox(ready.rpartition(" ")[2].strip())
    taken: list[float] = []
    bodies = [ExecuteBody(code=HELLO)] * BATCH

    async def one() -> None:
        started = time.perf_counter()
        done = await sandbox.execute(HELLO)
        assert done.ok, done
        taken.append((time.perf_counter() - started) * 1e3)

    async def batch() -> None:
        answers = await sandbox.execute_batch(bodies)
        assert all(getattr(done, "ok", False) for done in answers), answers[0]

    try:
        numbers = await throughput(one, 2, seconds, group)
        cuts = statistics.quantiles(taken, n=100)
        quantiles = {"p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}
        show(f"{tier} over async HTTP, concurrency 2", {**numbers, **quantiles})
        numbers = await throughput(batch, 2, seconds, group, each=BATCH)
        show(f"{tier} over async HTTP, batches of {BATCH}", numbers)
    finally:
        await sandbox.close()
        server.terminate()
        await server.wait()


async def serve(tier: str, group: ControlGroup | None) -> tuple[str, asyncio.subprocess.Process]:
    arguments = ["-m", "ludus", "serve", f"sandbox?tier={tier}", "--port", "0"]
    server = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=subprocess.PIPE, preexec_fn=joining(group)
    )
    assert server.stdout
    async with asyncio.timeout(60):
        return (await server.stdout.readline()).decode(), server


async def with_docker(groups: ControlGroups | None, seconds: float, ours_ms: float) -> None:
    """Rows beside a Docker engine, where one can be started."""
    group = groups.make("engine", processes=4096) if groups else None
    try:
        async with sandbox_docker.engine(group) as host:
            if not host or not group:
                print("no Docker engine: needs root, dockerd and control groups", file=sys.stderr)
                return
            rows = {
                "docker (slots in containers)": sandbox_docker.in_containers(host, group, None),
                "docker exec": sandbox_docker.by_exec(host, group),
            }
            if shutil.which("runsc"):
                rows["docker, runtime runsc"] = sandbox_docker.in_containers(host, group, "runsc")
            for name, row in rows.items():
                async with row as (run, clock):
                    numbers = await throughput(run, 2, seconds, clock)
                ratio = round(numbers["cpu_ms"] / ours_ms, 1)
                show(f"{name}, concurrency 2", {**numbers, "ratio_to_ours": ratio})
    finally:
        if group:
            group.remove()


def joining(group: ControlGroup | None) -> Callable[[], None]:
    """Makes a child a member of `group`, with everything it will start."""

    def join() -> None:
        for procs in group.procs_files if group else []:
            with open(procs, "w") as stream:
                stream.write("0")

    return join


def show(name: str, numbers: dict[str, float]) -> None:
    print(json.dumps({"measured": name, **numbers}), flush=True)


async def main(options: argparse.Namespace) -> None:
    sandbox = await open_sandbox(options.tier)
    assert isinstance(sandbox, SlotSandbox)
    hello = in_sandbox(sandbox, HELLO)
    try:
        ours: dict[str, float] = {}
        await latency(hello, 50, 0)
        show(f"{sandbox.tier}, 5 ms gap", await latency(hello, 400, GAP_S))
        for concurrency in (1, 2, 8):
            numbers = await throughput(hello, concurrency, options.seconds, sandbox)
            ours = numbers if concurrency == 2 else ours
            show(f"{sandbox.tier}, concurrency {concurrency}", numbers)
        gap = await latency(hello, 400, GAP_S)
        show(f"{sandbox.tier}, 5 ms gap, after eight at a time", gap)
        await latency(in_sandbox(sandbox, NUMPY), 20, 0)
        show(
            f"{sandbox.tier}, numpy, 5 ms gap",
            await latency(in_sandbox(sandbox, NUMPY), 200, GAP_S),
        )
        if options.data:
            show(
                "gradings of right solutions, concurrency 2",
                await gradings(sandbox, options.data, options.seconds),
            )
        group = sandbox.groups.make("server", processes=4096) if sandbox.groups else None
        await over_http(sandbox.tier, group, options.seconds)
        if group:
            group.remove()
        group = sandbox.groups.make("peers", processes=256) if sandbox.groups else None
        if group:
            group.limit_memory(1 << 30)
        for name, run in peers(group).items():
            numbers = await throughput(run, 2, options.seconds, group)
            show(name, {**numbers, "ratio_to_ours": round(numbers["cpu_ms"] / ours["cpu_ms"], 1)})
        if group:
            group.remove()
        await with_docker(sandbox.groups, options.seconds, ours["cpu_ms"])
    finally:
        await sandbox.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--tier", default=None)
    parser.add_argument("--data", default=os.environ.get("LUDUS_DATA_DIR"))
    asyncio.run(main(parser.parse_args()))
