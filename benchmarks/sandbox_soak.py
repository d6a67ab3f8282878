"""A hundred thousand runs: nothing grows, and nothing is left behind.

    python benchmarks/sandbox_soak.py [--runs 100000] [--tier slots-root] [--json FILE]

Nine runs in ten print a line; the others fail, leave processes behind, fill their folder, flood
their output, take too long or too much memory. Ten times on the way, and once after the end, a line
tells what the driver and its slots hold. The exit status says whether anything grew or was left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from ludus.sandboxes import Limits, SlotSandbox, open_sandbox

LIMITS = Limits(timeout_s=20, memory_bytes=96 << 20, output_bytes=100_000)
BRIEF = Limits(timeout_s=0.3, cpu_s=0.1)
LEAVES_PROCESSES = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        os.setsid(); time.sleep(60); os._exit(0)
"""
FILLS_ITS_FOLDER = "for n in range(200): open(str(n), 'wb').write(bytes(9999))"
ODD: dict[str, tuple[str, Limits, str]] = {
    "raises": ("1 / 0", LIMITS, "error"),
    "leaves processes": (LEAVES_PROCESSES, LIMITS, "ok"),
    "fills its folder": (FILLS_ITS_FOLDER, LIMITS, "ok"),
    "floods its output": ("while True: print('x' * 9999)", LIMITS, "output_limit"),
    "computes without end": ("while True: pass", BRIEF, "timeout"),
    "takes memory": ("x = [bytearray(1 << 20) for _ in range(400)]", LIMITS, "oom"),
}
"""name -> program, its limits, the status it must have."""
SLACK_BYTES = 16 << 20
SLACK_DESCRIPTORS = 8


@dataclass(frozen=True)
class Held:
    """What the driver and everything it started hold."""

    driver_bytes: int
    slots_bytes: int
    descriptors: int
    processes: int
    zombies: int
    mounts: int
    groups: int
    folders: int


def held() -> Held:
    """Read it off the system."""
    gc.collect()
    own, tree = os.getpid(), descendants(os.getpid())
    return Held(
        driver_bytes=private_bytes(own),
        slots_bytes=sum(private_bytes(pid) for pid in tree),
        descriptors=sum(descriptors(pid) for pid in [own, *tree]),
        processes=len(tree),
        zombies=sum(state(pid) == "Z" for pid in tree),
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        groups=sum(1 for _ in Path("/sys/fs/cgroup").rglob("*ludus*")),
        folders=len(list(Path(tempfile.gettempdir()).glob("ludus-*"))),
    )


def descendants(root: int) -> list[int]:
    """Every process below `root`."""
    children: dict[int, list[int]] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        children.setdefault(parent(pid), []).append(pid)
    processes, next_ones = [], [root]
    while next_ones:
        below = children.get(next_ones.pop(), [])
        processes += below
        next_ones += below
    return processes


def stat(pid: int) -> list[str]:
    """What follows the name in /proc/pid/stat; nothing once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def parent(pid: int) -> int:
    """0 once it is gone."""
    fields = stat(pid)
    return int(fields[1]) if fields else 0


def state(pid: int) -> str:
    """R, S, Z and so on."""
    return (stat(pid) or [""])[0]


def private_bytes(pid: int) -> int:
    """Memory that no file backs."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def descriptors(pid: int) -> int:
    """How many are open."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


async def play(sandbox: SlotSandbox, runs: int, wrong: Counter[str], first: int) -> None:
    """`runs` runs, two at a time."""
    numbers = iter(range(first, first + runs))
    names = list(ODD)

    async def worker() -> None:
        for number in numbers:
            name = names[number // 10 % len(names)] if number % 10 == 9 else "prints"
            code, limits, status = ODD.get(name, (f"print({number})", LIMITS, "ok"))
            done = await sandbox.execute(code, limits=limits)
            if done.status != status or (name == "prints" and done.stdout != f"{number}\n"):
                wrong[f"{name}: {done.status} {done.detail}"] += 1

    await asyncio.gather(worker(), worker())


async def soak(tier: str | None, runs: int) -> tuple[list[dict[str, object]], list[str]]:
    """Rows as measured, and what is wrong with them."""
    before = held()
    sandbox = await open_sandbox(tier)
    assert isinstance(sandbox, SlotSandbox)
    rows: list[dict[str, object]] = []
    marks: list[Held] = []
    wrong: Counter[str] = Counter()
    try:
        await play(sandbox, min(2000, runs // 10), wrong, 0)  # until everything is warm
        for part in range(10):
            started = time.perf_counter()
            await play(sandbox, runs // 10, wrong, part * (runs // 10))
            per_s = runs // 10 / (time.perf_counter() - started)
            marks.append(held())
            rows.append({"runs": (part + 1) * (runs // 10), "per_s": round(per_s)})
            rows[-1] |= asdict(marks[-1])
            print(json.dumps(rows[-1]), flush=True)
    finally:
        await sandbox.close()
    await asyncio.sleep(0.5)
    after = held()
    rows.append({"runs": "closed", **asdict(after)})
    print(json.dumps(rows[-1]), flush=True)
    return rows, [*grown(marks), *left(before, after), *(f"{n} x {w}" for w, n in wrong.items())]


def grown(marks: list[Held]) -> list[str]:
    """What was more at the end than a tenth of the way in."""
    first, last = marks[0], marks[-1]
    bounds = {
        "driver_bytes": SLACK_BYTES,
        "slots_bytes": SLACK_BYTES,
        "descriptors": SLACK_DESCRIPTORS,
        "processes": SLACK_DESCRIPTORS,
        "zombies": 2,
        "mounts": 0,
        "groups": 4,
        "folders": 0,
    }
    return [
        f"{name} grew from {getattr(first, name)} to {getattr(last, name)}"
        for name, slack in bounds.items()
        if getattr(last, name) > getattr(first, name) + slack
    ]


def left(before: Held, after: Held) -> list[str]:
    """What was there after the end and not before the start."""
    return [
        f"{name} left: {getattr(before, name)} before, {getattr(after, name)} after"
        for name in ("processes", "mounts", "groups", "folders", "descriptors")
        if getattr(after, name) > getattr(before, name) + (4 if name == "descriptors" else 0)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--tier", default=None)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, problems = asyncio.run(soak(options.tier, options.runs))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "problems": problems}, indent=1))
    print("\n".join(problems) or "nothing grew, nothing is left")
    sys.exit(bool(problems))
