"""A service for half an hour: nothing grows, nothing is lost, while workers are killed.

    python benchmarks/service_soak.py [--minutes 25] [--kill-every-s 240] [--json FILE]

`ludus serve --workers 2` serves an environment and a verifier of this file, which run in worker
processes. Two clients play and score at a low rate, one over streams and one by plain POSTs; every
third session is dropped without a close, so that its lease has to end it. In turns a process of
user code and a server of the two are killed. Each observation and each verdict is computed here as
well: an answer that differs is *wrong*. An episode that ends with an error is *lost*, but for those
of a killed process of user code, which are *told*: their server lives, and says that the session is
gone.

Every ten seconds the resident memory and the open files of each process are read, the client's too.
What is printed is, for each process that lived for five minutes, the median of the second and of
the last third of its life, and the same of all processes together.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import ludus
from ludus.envs.serving.connect import RemoteServer
from ludus.errors import LudusError, SessionGone
from ludus.rewards import Sample

ENV, VERIFIER = "soak/chain-v0", "soak/digits"
PLAYERS, SCORERS, STEPS, PAUSE_S = 4, 2, 6, 0.5
"""Players and scorers of each client."""
LEASE_S = 60.0
SAMPLE_S = 10.0
LONG_S = 300.0
"""A process that lived for less is not judged."""
MORE_KB, MORE_FILES = 8 << 10, 8
"""What a process may have more in the last third of its life than in the second."""
READY_S = 120.0
TOLD_S = 15.0
"""Seconds after the end of a process of user code in which its sessions may be told gone."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@ludus.register(ENV)
class Chain(ludus.TextEnv):
    """Answers with a digest of all that was said."""

    state = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin with the digest of the seed."""
        self.state = digest(str(seed))
        return self.state, {}

    def step(self, action: str) -> Any:
        """Add an action."""
        self.state = digest(self.state + action)
        return self.state, 0.5, False, False, {}


@ludus.verifier(VERIFIER)
class Digits:
    """The share of digits in the answer's digest."""

    def score(self, sample: Sample) -> ludus.Verdict:
        """Count."""
        return ludus.Verdict.of(share(sample.text))


def share(text: str) -> float:
    return sum(character.isdigit() for character in digest(text)) / 16


@dataclass
class Tally:
    """What happened."""

    done: Counter[str] = field(default_factory=Counter[str])
    told: int = 0
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    killed: Counter[str] = field(default_factory=Counter[str])
    last_kill_of_code: float = -TOLD_S


async def play(server: RemoteServer, seeds: itertools.count[int], tally: Tally) -> None:
    """Play one episode after another."""
    for seed in seeds:
        session = server.make_async(ENV)
        expected = digest(str(seed))
        try:
            observation, _ = await session.reset(seed=seed)
            for turn in range(STEPS):
                if expected not in str(observation):
                    tally.wrong.append(f"{seed}/{turn}: {observation!r}"[:200])
                await asyncio.sleep(PAUSE_S)
                observation, *_ = await session.step(f"{seed}/{turn}")
                expected = digest(expected + f"{seed}/{turn}")
                tally.done["steps"] += 1
        except LudusError as error:
            recent = time.monotonic() - tally.last_kill_of_code < TOLD_S
            if isinstance(error, SessionGone) and recent:
                tally.told += 1
            else:
                tally.lost.append(f"{type(error).__name__}: {error}"[:200])
        else:
            tally.done["episodes"] += 1
        if seed % 3:
            await session.close()


async def score(server: RemoteServer, numbers: itertools.count[int], tally: Tally) -> None:
    """Score one answer after another."""
    verifier = server.verifier(VERIFIER)
    for number in numbers:
        verdict = await verifier.score(Sample(response=f"answer {number}"))
        if not verdict.ok:
            tally.lost.append(f"score {verdict.status}: {verdict.detail}"[:200])
        elif verdict.reward != share(f"answer {number}"):
            tally.wrong.append(f"score of {number}: {verdict.reward}")
        tally.done["scores"] += 1
        await asyncio.sleep(PAUSE_S)


# --- processes ------------------------------------------------------------------------------------


@dataclass
class Life:
    """What was read of a process."""

    role: str
    born: float
    kb: list[int] = field(default_factory=list[int])
    files: list[int] = field(default_factory=list[int])


def tree(root: int) -> dict[int, tuple[int, int]]:
    """Depth and parent of `root` and of each process below it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    places = {root: (0, 0)}
    grown = True
    while grown:
        below = {
            pid: (places[parent][0] + 1, parent)
            for pid, parent in parents.items()
            if parent in places and pid not in places
        }
        places |= below
        grown = bool(below)
    return places


def role_of(depth: int) -> str:
    return ("workers' parent", "server", "template", "user code")[min(depth, 3)]


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


async def watch(root: int, lives: dict[int, Life], totals: list[tuple[int, int, int]]) -> None:
    """Read all processes every ten seconds."""
    while True:
        now, sums = time.monotonic(), [0, 0, 0]
        roles = {pid: role_of(depth) for pid, (depth, _) in tree(root).items()}
        for pid, role in {**roles, os.getpid(): "client"}.items():
            with suppress(OSError):
                kb, files = resident_kb(pid), len(os.listdir(f"/proc/{pid}/fd"))
                life = lives.setdefault(pid, Life(role, now))
                life.kb.append(kb)
                life.files.append(files)
                sums = [sums[0] + 1, sums[1] + kb, sums[2] + files]
        totals.append((sums[0], sums[1], sums[2]))
        await asyncio.sleep(SAMPLE_S)


async def kill(root: int, every_s: float, tally: Tally) -> None:
    """Kill a server and a process of user code in turns, beginning with the latter."""
    for role in itertools.cycle(("user code", "server")):
        await asyncio.sleep(every_s)
        victims = [pid for pid, (depth, _) in tree(root).items() if role_of(depth) == role]
        if not victims:
            continue
        if role == "user code":
            tally.last_kill_of_code = time.monotonic()
        os.kill(victims[len(victims) // 2], signal.SIGKILL)
        tally.killed[role] += 1


# --- the report -----------------------------------------------------------------------------------


def thirds(values: Sequence[int]) -> tuple[int, int]:
    """The medians of the second and of the last third."""
    third = max(1, len(values) // 3)
    return int(median(values[third:-third] or values)), int(median(values[-third:]))


def report(
    tally: Tally, lives: dict[int, Life], totals: Sequence[tuple[int, int, int]]
) -> tuple[dict[str, object], list[str]]:
    """What is printed, and what is wrong with it."""
    problems = tally.lost + tally.wrong
    rows: list[dict[str, object]] = []
    for pid, life in lives.items():
        if len(life.kb) * SAMPLE_S < LONG_S:
            continue
        (kb, late_kb), (files, late_files) = thirds(life.kb), thirds(life.files)
        rows.append(
            {"role": life.role, "samples": len(life.kb), "kb": [kb, late_kb]}
            | {"files": [files, late_files]}
        )
        if late_kb > kb + MORE_KB or late_files > files + MORE_FILES:
            problems.append(f"{life.role} {pid} grew: {rows[-1]}")
    together = {
        name: thirds([total[place] for total in totals])
        for place, name in enumerate(("processes", "kb", "files"))
    }
    printed = {"done": dict(tally.done), "killed": dict(tally.killed), "told": tally.told}
    return printed | {"lost": len(tally.lost), "wrong": len(tally.wrong), "all": together} | {
        "processes": rows
    }, problems


async def soak(minutes: float, kill_every_s: float) -> tuple[dict[str, object], list[str]]:
    """Serve, play, score, kill and watch."""
    tally, lives, totals = Tally(), dict[int, Life](), list[tuple[int, int, int]]()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "ludus", "--import", __file__, "serve", ENV, VERIFIER]
        command += ["--workers", "2", "--port", "0", "--lease-s", str(LEASE_S)]
        command += ["--processes-per-env", "2", "--processes-per-verifier", "2"]
        with log.open("w") as stderr:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            assert server.stdout is not None
            said = await asyncio.wait_for(asyncio.to_thread(server.stdout.readline), READY_S)
            url = next(word for word in said.split() if word.startswith("http"))
            async with ludus.connect(url) as streams, ludus.connect(url, stream=False) as posts:
                seeds, numbers = itertools.count(), itertools.count()
                clients = [streams, posts]
                loads = [play(client, seeds, tally) for client in clients for _ in range(PLAYERS)]
                loads += [
                    score(client, numbers, tally) for client in clients for _ in range(SCORERS)
                ]
                loads += [watch(server.pid, lives, totals), kill(server.pid, kill_every_s, tally)]
                tasks = [asyncio.create_task(load) for load in loads]
                ended, _ = await asyncio.wait(
                    tasks, timeout=60 * minutes, return_when=asyncio.FIRST_COMPLETED
                )
                for task in ended:
                    task.result()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                tally.done["played again"] = sum(client.traffic.replays for client in clients)
        finally:
            server.terminate()
            server.wait(READY_S)
            problems_of_server = [
                line for line in log.read_text().splitlines() if "Traceback" in line
            ]
    result, problems = report(tally, lives, totals)
    return result, problems + problems_of_server


def main() -> int:
    """Run, print, and return 1 where something grew, was lost or was wrong."""
    parser = argparse.ArgumentParser(description="A service for half an hour.")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--kill-every-s", type=float, default=240.0)
    parser.add_argument("--json", type=Path, help="write the result here, too")
    options = parser.parse_args()
    result, problems = asyncio.run(soak(options.minutes, options.kill_every_s))
    if options.json is not None:
        options.json.write_text(json.dumps(result | {"problems": problems}, indent=1) + "\n")
    processes = result.pop("processes")
    print(json.dumps(result, indent=1))
    assert isinstance(processes, list)
    for row in processes:
        print(json.dumps(row))
    for problem in problems:
        print("problem:", problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
