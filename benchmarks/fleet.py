"""What the loss of one of three servers costs: scores, episodes, and goodput.

    python benchmarks/fleet.py [kill stop term restart update] [--seconds 12]

Three `ludus serve` are played and asked by `ludus.connect` with pauses between calls, so that the
machine is not the limit. After a third of the time one server is killed, stopped or terminated;
`restart` kills one and starts it again, `update` replaces all three in turns by SIGTERM and a new
start. A score is lost if its verdict is not ok, an episode if it ends with an error. Goodput is the
mean of the seconds after the first one past the fault, beside that before the fault.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.request import urlopen

import ludus
from ludus.envs.serving.connect import RemoteServer
from ludus.errors import LudusError
from ludus.messages import assistant
from ludus.rewards import Sample

ENV, VERIFIER = "ludus/arithmetic-v0", "exact"
CALL = assistant("", [ludus.ToolCall(name="calculator", arguments={"expression": "12-7*3"})])
STEPS, PLAYERS, SCORERS, PAUSE_S = 6, 48, 24, 0.1
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
READY_S = 60.0


class Server:
    """A server process on a fixed port."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "ludus", "serve", ENV, VERIFIER, "--port", str(self.port)]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet)

    async def ready(self) -> None:
        """Wait until the server takes work."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                await asyncio.to_thread(urlopen, f"{self.url}/readyz", timeout=READY_S)
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{self.url} was not ready within {READY_S:g} s")

    async def gone(self) -> None:
        """Wait until the process has ended."""
        await asyncio.to_thread(self.process.wait, READY_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(READY_S)


@dataclass
class Tally:
    """What happened, by the second since the start."""

    started: float = field(default_factory=time.monotonic)
    done: dict[str, Counter[int]] = field(
        default_factory=lambda: {"steps": Counter(), "scores": Counter()}
    )
    lost: Counter[str] = field(default_factory=Counter[str])
    episodes: int = 0

    def count(self, what: str) -> None:
        self.done[what][int(time.monotonic() - self.started)] += 1


async def play(server: RemoteServer, seeds: itertools.count[int], tally: Tally) -> None:
    """Play one episode after another."""
    while True:
        session = server.make_async(ENV)
        try:
            await session.reset(seed=next(seeds))
            for _ in range(STEPS):
                await asyncio.sleep(PAUSE_S)
                await session.step(CALL)
                tally.count("steps")
        except LudusError as error:
            tally.lost[f"episode {type(error).__name__}: {error}"[:120]] += 1
        else:
            tally.episodes += 1
        await session.close()


async def score(server: RemoteServer, tally: Tally) -> None:
    """Score one answer after another."""
    verifier = server.verifier(VERIFIER)
    while True:
        verdict = await verifier.score(Sample(response="a", gold="a"))
        if verdict.ok:
            tally.count("scores")
        else:
            tally.lost[f"score {verdict.status.value}"] += 1
        await asyncio.sleep(PAUSE_S)


async def strike(how: str, servers: list[Server]) -> None:
    """Do to the servers what `how` says."""
    if how in SIGNALS:
        os.kill(servers[0].process.pid, SIGNALS[how])
        return
    for server in servers if how == "update" else servers[:1]:
        os.kill(server.process.pid, signal.SIGTERM if how == "update" else signal.SIGKILL)
        await server.gone()
        server.start()
        await server.ready()
        await asyncio.sleep(2.0)


async def trial(how: str, seconds: float) -> dict[str, object]:
    """Put three servers under load, strike, and say what it cost."""
    servers = [Server() for _ in range(3)]
    tally = Tally()
    try:
        await asyncio.gather(*(server.ready() for server in servers))
        async with ludus.connect(",".join(server.url for server in servers)) as client:
            seeds = itertools.count()
            loads = [play(client, seeds, tally) for _ in range(PLAYERS)]
            loads += [score(client, tally) for _ in range(SCORERS)]
            tasks = [asyncio.create_task(load) for load in loads]
            await asyncio.sleep(3.0)
            tally.started = time.monotonic()
            tally.done = {name: Counter() for name in tally.done}
            await asyncio.sleep(seconds / 3)
            before = int(time.monotonic() - tally.started)
            await strike(how, servers)
            await asyncio.sleep(seconds * 2 / 3)
            after = int(time.monotonic() - tally.started)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for server in servers:
            server.close()
    row: dict[str, object] = {"how": how, "episodes": tally.episodes, "lost": dict(tally.lost)}
    row |= {"replays": client.traffic.replays, "hedges": client.traffic.hedges}
    for name, done in tally.done.items():
        usual = sum(done[second] for second in range(before)) / before
        shares = [done[second] / usual for second in range(before + 1, after)]
        row[name] = {
            "usual_per_s": round(usual, 1),
            "goodput": round(sum(shares) / len(shares), 2),
            "least": round(min(shares), 2),
            "first": round(done[before + 1] / usual, 2),
        }
    return row


def main() -> None:
    """Run the trials named, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", nargs="*", default=["kill", "stop", "term"])
    parser.add_argument("--seconds", type=float, default=12.0)
    options = parser.parse_args()
    for how in options.how:
        print(json.dumps(asyncio.run(trial(how, options.seconds))), flush=True)


if __name__ == "__main__":
    main()
