"""Steps per second of a trusted asynchronous echo environment, beside OpenEnv's.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install openenv-core
    python benchmarks/service.py --peer /tmp/peer/bin/python [--rounds 7] [--blocking]

Each side has a server process and a client process of its own kind, which stay up for the whole
run. The rounds alternate between the sides, so that both meet the same neighbours; a cell shows the
median of the rounds, and the ratio is the median of the ratios of neighbouring rounds. CPU is that
of client and server together, per step.

`--blocking` adds a third side: the same environment without `never_blocks`, whose steps ludus runs
away from the event loop.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

HERE = Path(__file__).parent
CELLS = (
    (1, 1000, 0), (16, 200, 0), (256, 50, 0),
    (1, 500, 16384), (16, 100, 16384), (256, 20, 16384),
)  # fmt: skip
"""(sessions, steps of each, bytes added to each observation)"""


@dataclass
class Side:
    """A server and a client of one kind."""

    name: str
    server: subprocess.Popen[str]
    client: subprocess.Popen[str]
    per_s: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    cpu_us: dict[tuple[int, int], list[float]] = field(default_factory=dict)

    def play(self, sessions: int, steps: int, size: int, *, keep: bool = True) -> None:
        """One round of one cell."""
        _write(self.client, f"{sessions} {steps} {size}\n")
        _read(self.client)  # every session is open and reset
        before_s = _cpu_s(self.server)
        _write(self.client, "go\n")
        took = json.loads(_read(self.client))
        server_s = _cpu_s(self.server) - before_s
        if keep:
            number = sessions * steps
            self.per_s.setdefault((sessions, size), []).append(number / took["wall_s"])
            cpu_us = 1e6 * (took["cpu_s"] + server_s) / number
            self.cpu_us.setdefault((sessions, size), []).append(cpu_us)


@contextmanager
def side(name: str, python: str, script: str, *arguments: str) -> Generator[Side]:
    """Start both processes; they end when their stdin closes."""
    path = str(HERE / script)
    with _started([python, path, "serve", *arguments]) as server:
        url = _read(server).strip()
        with _started([python, path, "play", url]) as client:
            yield Side(name, server, client)


def measure(sides: list[Side], rounds: int) -> None:
    """Play every cell in turns."""
    for sessions, steps, size in CELLS:
        for framework in sides:
            framework.play(sessions, max(1, steps // 4), size, keep=False)
        for index in range(rounds):
            for framework in sides if index % 2 else reversed(sides):
                framework.play(sessions, steps, size)


def show(sides: list[Side]) -> None:
    """The table."""
    peer, ours, *others = sides
    print(f"{'sessions':>9}{'bytes':>7}", end="")
    for framework in sides:
        print(f"{framework.name + ' /s':>18}{'cpu us':>8}", end="")
    print(f"{'ratio':>8}")
    for sessions, _, size in CELLS:
        cell = (sessions, size)
        print(f"{sessions:9}{size:7}", end="")
        for framework in sides:
            print(
                f"{median(framework.per_s[cell]):18.0f}{median(framework.cpu_us[cell]):8.0f}",
                end="",
            )
        pairs = zip(ours.per_s[cell], peer.per_s[cell], strict=True)
        print(f"{median(own / theirs for own, theirs in pairs):8.2f}")
    for other in others:
        extra = [median(other.cpu_us[cell]) - median(ours.cpu_us[cell]) for cell in ours.cpu_us]
        print(f"{other.name}: {min(extra):.0f} to {max(extra):.0f} us of CPU a step more")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


@contextmanager
def _started(command: list[str]) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    with process:  # closes stdin, and waits
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _cpu_s(process: subprocess.Popen[str]) -> float:
    family = psutil.Process(process.pid)
    members = [family, *family.children(recursive=True)]
    return sum(sum(member.cpu_times()[:2]) for member in members)


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def _read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args} ended; its own words are above")
    return line


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Steps per second beside OpenEnv.")
    parser.add_argument("--peer", required=True, help="a Python that has openenv-core")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--blocking", action="store_true", help="also without never_blocks")
    options = parser.parse_args()
    own = (sys.executable, "service_ludus.py")
    with side("OpenEnv", options.peer, "service_openenv.py") as peer, side("ludus", *own) as ours:
        if not options.blocking:
            measure([peer, ours], options.rounds)
            show([peer, ours])
            return
        with side("blocking", *own, "--blocking") as blocking:
            measure([peer, ours, blocking], options.rounds)
            show([peer, ours, blocking])


if __name__ == "__main__":
    main()
