"""What a cluster costs: publishing by the object store, Ray's own CPU time, servers that scale.

    python benchmarks/cluster_costs.py weights overhead scaled

`weights` publishes 500 MB to two engines by the object store, beside a plain copy of as many bytes
into shared memory for each. `overhead` is the CPU time of an update of the same run with and
without a cluster, of all processes. `scaled` serves an environment by `ludus serve --ray`, and
counts servers and episodes. Each runs on a simulated cluster (`cluster.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster import BEFORE, LIMIT_S, RAY, Run, cluster

SLOW_ENV = """
import asyncio
import ludus

@ludus.register("me/slow-v0")
class Slow(ludus.TextEnv):
    max_turns = 1
    never_blocks = True
    def reset(self, *, seed=None, options=None):
        return "say anything", {}
    async def step(self, action):
        await asyncio.sleep(2)
        return "", 1.0, True, False, {}
"""
PLAYERS = 24


def scaled() -> dict[str, Any]:
    """Serve an environment by `ludus serve --ray`; count servers at rest, with many players, and at
    rest again.
    """
    folder = Path(tempfile.mkdtemp(prefix="lc", dir="/tmp"))
    (folder / "slow.py").write_text(SLOW_ENV)
    token = "a-token-of-this-run"
    try:
        with cluster(folder / "r", cpus=6) as ray_cluster:
            words = ["--ray", ray_cluster.address, "--replicas", "1..3", "--replica-queue", "6"]
            words += ["--roster", str(folder / "servers"), "--drain-s", "5"]
            command = [sys.executable, "-m", "ludus", "--import", str(folder / "slow.py")]
            server = subprocess.Popen(
                [*command, "serve", "me/slow-v0", *words],
                env={**os.environ, "LUDUS_TOKEN": token},
                stdout=subprocess.DEVNULL,
            )
            try:
                return {"row": "scaled", **asyncio.run(_scaled(folder / "servers", token))}
            finally:
                server.terminate()
                server.wait(timeout=120)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _servers(roster: Path) -> list[str]:
    return roster.read_text().split() if roster.exists() else []


async def _until(roster: Path, count: int) -> float:
    begun = time.monotonic()
    while len(_servers(roster)) != count:
        if time.monotonic() - begun > LIMIT_S:
            raise SystemExit(f"{len(_servers(roster))} servers after {LIMIT_S:g} s, not {count}")
        await asyncio.sleep(0.5)
    return round(time.monotonic() - begun, 1)


async def _scaled(roster: Path, token: str) -> dict[str, Any]:
    import ludus

    at_rest = await _until(roster, 1)
    rewards: list[float] = []
    ended = asyncio.Event()

    async def player(number: int) -> None:
        while not ended.is_set():
            env = server.make_async("me/slow-v0")
            await env.reset(seed=number)
            rewards.append((await env.step("x"))[1])
            await env.close()

    async with ludus.connect(f"file:{roster}", token=token) as server:
        players = [asyncio.create_task(player(number)) for number in range(PLAYERS)]
        grown = await _until(roster, 3)
        ended.set()
        await asyncio.gather(*players)
    shrunk = await _until(roster, 1)
    return {
        "first_s": at_rest,
        "to_three_s": grown,
        "to_one_s": shrunk,
        "episodes": len(rewards),
        "wrong": sum(reward != 1.0 for reward in rewards),
    }


PUBLISHED = 4
"""How often the weights are published, and copied; the fastest counts."""


def weights() -> dict[str, Any]:
    """Publish weights to two engines, and copy as many bytes into shared memory twice."""
    folder = Path(tempfile.mkdtemp(prefix="lc", dir="/tmp"))
    try:
        with cluster(folder / "r", store=1_500_000_000):
            return {"row": "weights", **asyncio.run(_published(folder))}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _published(folder: Path) -> dict[str, Any]:
    import ray

    from ludus.trainer.cluster.engines import EngineHost, placed_engines, stored
    from ludus.trainer.engines.process import EngineSpec
    from ludus.trainer.models.loading import load_model, write_shell
    from ludus.trainer.models.tiny import write_tiny_policy
    from ludus.trainer.models.weights import MemoryWeights

    path = write_tiny_policy(folder / "model", hidden=1024, layers=10, heads=8)
    model = load_model(path)
    write_shell(folder / "shell", str(path), model, None)
    host = ray.remote(EngineHost)
    actors = [
        host.options(name=f"run-engines-{n}", namespace="ludus", num_cpus=0.5).remote(1, "cpu")
        for n in range(2)
    ]
    address = ray.get_runtime_context().gcs_address
    engines = placed_engines(EngineSpec(folder=str(folder / "shell")), f"{address}/run/2")
    await asyncio.gather(*(engine.revive() for engine in engines))
    source = MemoryWeights.of(model)
    arrays = [tensor.numpy() for tensor in source.tensors.values()]
    published, put, plain = [], [], []
    for version in range(1, PUBLISHED + 1):
        begun = time.perf_counter()
        held = await stored(source)
        put.append(time.perf_counter() - begun)
        await asyncio.gather(*(engine.set_weights(held, version) for engine in engines))
        published.append(time.perf_counter() - begun)
        held.remove()
        plain.append(_copied(arrays) + _copied(arrays))
    ids = list(range(1, 40))
    scored = [await engine.logprobs(ids) for engine in engines]
    for actor in actors:
        ray.kill(actor)
    return {
        "mb": round(sum(array.nbytes for array in arrays) / 1e6),
        "published_s": round(min(published), 3),
        "put_s": round(min(put), 3),
        "two_plain_copies_s": round(min(plain), 3),
        "ratio": round(min(published) / min(plain), 2),
        "engines_agree": scored[0] == scored[1],
    }


def _copied(arrays: Sequence[Any]) -> float:
    """Return the seconds in which arrays are copied into shared memory."""
    import numpy as np

    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(sum(array.nbytes for array in arrays))
        with mmap.mmap(file.fileno(), 0) as shared:
            begun, at = time.perf_counter(), 0
            for array in arrays:
                view = np.frombuffer(shared, array.dtype, array.size, at)
                view[:] = array.reshape(-1)
                at += array.nbytes
                del view
            return time.perf_counter() - begun


COUNTED, PAIRS = 12, 3
"""How many updates of a run the CPU time is counted of, and how many pairs of runs there are."""


def overhead() -> dict[str, Any]:
    """Count the CPU seconds of an update without and with a cluster, in runs that go on beside each
    other and do the same work.

    Ray's processes and the driver wake up by the clock, whatever an update takes: where others hold
    the cores, an update lasts longer, and theirs grows with it. `share_at_rest` counts what they
    take in as many seconds as the update has CPU time, `share_here` what they took.
    """
    pairs = [_pair() for _ in range(PAIRS)]
    here, at_rest = list[float](), list[float]()
    for plain, clustered in pairs:
        own, seconds = plain["trainer"], clustered.pop("seconds")
        watching = clustered.get("ray", 0.0) + clustered["driver"]
        here.append(sum(clustered.values()) / own - 1)
        at_rest.append((clustered["trainer"] + watching * min(1.0, own / seconds)) / own - 1)
    return {
        "row": "overhead",
        "share_at_rest": round(statistics.median(at_rest), 3),
        "share_here": round(statistics.median(here), 3),
        "pairs_at_rest": [round(share, 3) for share in at_rest],
        "plain_cpu_s": {name: round(value, 3) for name, value in pairs[-1][0].items()},
        "cluster_cpu_s": {name: round(value, 3) for name, value in pairs[-1][1].items()},
        "update_s": round(seconds, 2),
    }


def _pair() -> list[dict[str, float]]:
    """Return the CPU seconds of an update of each kind of process, and its seconds, without a
    cluster and with.
    """
    folder = Path(tempfile.mkdtemp(prefix="lc", dir="/tmp"))
    (folder / "ray").mkdir()
    os.environ.update(RAY, RAY_TMPDIR=str(folder))
    os.environ.pop("RAY_ADDRESS", None)
    more = (
        "--rollout.tasks-per-step=8",
        "--rollout.max-tokens=64",
        "--trainer.tokens-per-pass=2048",
    )
    runs: list[Run] = []
    try:
        for address in ("", "local"):
            (folder / f"of-{address}").mkdir()
            shape = {"hidden": 128, "layers": 4, "heads": 4}
            runs.append(Run(folder / f"of-{address}", address, *more, shape=shape))
        return asyncio.run(_counted(runs))
    finally:
        for run in runs:
            run.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _counted(runs: Sequence[Run]) -> list[dict[str, float]]:
    async def counted(run: Run) -> dict[str, float]:
        await asyncio.to_thread(run.wait_for, BEFORE)
        begun, before, first = time.monotonic(), _cpu(run.process.pid), len(run.steps())
        await asyncio.to_thread(run.wait_for, first + COUNTED)
        after, count = _cpu(run.process.pid), len(run.steps()) - first
        used = {kind: (after[kind] - before.get(kind, 0.0)) / count for kind in sorted(after)}
        return used | {"seconds": (time.monotonic() - begun) / count}

    return list(await asyncio.gather(*map(counted, runs)))


def _cpu(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a process and of its descendants, by kind."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    root, sums = psutil.Process(pid), dict[str, float]()
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            words, times = " ".join(process.cmdline()), process.cpu_times()
            kind = "ray"
            if process.pid == pid:
                kind = "driver" if "--cluster" in words else "trainer"
            elif "settings.toml" in words:
                kind = "trainer"
            elif "ludus.isolation" in words:
                kind = "environments"
            sums[kind] = sums.get(kind, 0.0) + times.user + times.system
    return sums


def main() -> int:
    """Print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measured = {"weights": weights, "overhead": overhead, "scaled": scaled}
    parser.add_argument("rows", nargs="*", choices=[*measured, []], default=[*measured])
    for name in parser.parse_args().rows:
        print(json.dumps(measured[name]()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
