"""Files and functions of ludus that one remote step, one remote score, and the gradient of one
update pass through.

    python benchmarks/hops.py [--names]

A server and a client run in two processes, connected as `ludus.connect` connects them. What is
counted is the steady state: the connection is open, the session has played, the verifier has
scored. Then the same operation is done 20 times, one at a time, with a trace hook on every thread
of both processes, and of the worker process where there is one. A function counts if a line of it
runs in each of the 20, so that neither timers which happen to fire count nor coroutines that only
wait around another; a file counts if one of its functions does, and what several sides run counts
once. Comprehensions and lambdas belong to the function that holds them. What runs in C (msgspec,
asyncio's futures) and in other packages is not counted. Neither is the environment itself, which
stands for the user's own; the files of a verifier are shown on a line of their own.

| row | what is scored |
|---|---|
| trusted | a verifier that declares `never_blocks`, on the event loop of the server |
| exact | the same function in a worker process, as a user's verifier runs |
| maths | the shipped verifier of mathematics, on an answer that it decides without its pool |

The row of an update runs in this process, and counts besides how often the gradient comes back to a
room that it has left, by the definition of `gradient_path`. A path that is longer than `LIMITS`, or
comes back more often than `MAX_REENTRIES`, ends the benchmark with status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from gradient_path import MAX_REENTRIES, trace_update
from service_ludus import ENV, Echo

import ludus
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.rewards import Sample
from ludus.rewards.exact import exact
from ludus.rewards.serving.server import ScoreService
from ludus.verdict import Verdict
from ludus.wire.server import HttpServer

REPEATS = 20
_Note = Callable[[FrameType, str, Any], Any]
Functions = set[tuple[str, str]]
"""(file, qualified name)"""
EASY = Sample(response="42", gold="42")
SAMPLES = {
    "bench/trusted": EASY,
    "bench/exact": EASY,
    "maths": Sample(response=r"So it is \boxed{\frac{2}{4}}.", gold="1/2"),
}
OWN = ("rewards/maths/", "rewards/exact.py")
"""Files of the verifiers themselves."""
LIMITS = {
    "one step": {"files": 12},
    "one score of bench/exact": {"files": 14, "functions": 50},
    "one score of maths": {"files": 14},
}
"""The most files and functions that a path may enter, without those of the verifier."""


class Tracer:
    """Notes what is entered on any thread of this process while it is switched on."""

    def __init__(self) -> None:
        self.entered: Functions | None = None
        threading.settrace(self._begin)
        sys.settrace(self._begin)

    def _begin(self, frame: FrameType, event: str, _: object) -> _Note | None:
        is_ours = str(frame.f_globals.get("__name__", "")).startswith("ludus.")
        is_generated = frame.f_code.co_filename.startswith("<")  # by a dataclass
        return self._note if is_ours and not is_generated else None

    def _note(self, frame: FrameType, event: str, _: object) -> _Note:
        if self.entered is not None and event == "line":
            code = frame.f_code
            name = code.co_qualname
            while name.endswith(("<lambda>", "comp>", "<genexpr>")):
                name = name.rpartition(".")[0].removesuffix(".<locals>")
            self.entered.add((code.co_filename, name))
        return self._note


@ludus.verifier("bench/trusted")
class Trusted:
    """`exact`, which declares that it never blocks."""

    never_blocks = True

    def score(self, sample: Sample) -> Verdict:
        """Compare."""
        return exact(sample)


@ludus.verifier("bench/exact")
class Traced:
    """`exact` in a worker process; the detail of a verdict is what that process entered from one
    score to the next.
    """

    def __init__(self) -> None:
        self._tracer = Tracer()

    def score(self, sample: Sample) -> Verdict:
        """Compare."""
        entered, self._tracer.entered = self._tracer.entered or set(), set()
        return msgspec.structs.replace(exact(sample), detail=json.dumps(sorted(entered)))


async def serve(tracer: Tracer) -> None:
    """Serve; each line of stdin begins a new trace, and is answered with the one before."""
    services = [EnvService([ServedEnv(ENV, factory=Echo)]), ScoreService(SAMPLES)]
    async with HttpServer(services) as server:
        print(server.url, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(sorted(tracer.entered or ())), flush=True)
            tracer.entered = set()


class Server:
    """The other process, and this one's side of its traces."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self._read().strip()

    async def trace(self, operation: Callable[[], Awaitable[object]]) -> dict[str, Functions]:
        """What each of many runs of `operation` enters, by process."""
        seen: dict[str, list[Functions]] = {}
        for _ in range(3):  # the first ones open what stays open
            await operation()
        for _ in range(REPEATS):
            self._turn()
            self._tracer.entered = set()
            answer = await operation()
            seen.setdefault("client", []).append(self._tracer.entered)
            self._tracer.entered = None
            seen.setdefault("server", []).append(_functions(self._turn()))
            if isinstance(answer, Verdict) and answer.detail.startswith("["):
                seen.setdefault("worker", []).append(_functions(answer.detail))
        return {side: set.intersection(*runs) for side, runs in seen.items()}

    def _turn(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the server ended; its own words are above")
        return line

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


async def run(*, names: bool) -> list[str]:
    """Trace and print a step and the scores; return what exceeds the limits."""
    tracer = Tracer()
    server = Server(tracer)
    too_long: list[str] = []
    try:
        async with ludus.connect(server.url) as connection:
            session = connection.make_async(ENV)
            await session.reset()
            stepped = await server.trace(lambda: session.step("salve"))
            too_long += show("one step", stepped, names=names)
            for name, sample in SAMPLES.items():
                verifier = connection.verifier(name)
                scored = await server.trace(lambda v=verifier, s=sample: v.score(s))
                too_long += show(f"one score of {name}", scored, names=names)
            await session.close()
    finally:
        server.close()
    return too_long


def show_gradient(*, names: bool) -> list[str]:
    """Print the path of a gradient, and return what exceeds its limits."""
    path = trace_update()
    too_long = show("one update", {"trainer": set(path.functions)}, names=names)
    rooms = len({entry.room for entry in path.entries})
    print(f"{'one update':26} {'rooms':9} {rooms:3} rooms {path.reentries:8} re-entries")
    for room, function in path.entries if names else ():
        print(f"    {room}: {function}")
    if path.reentries > MAX_REENTRIES:
        too_long.append(f"one update: {path.reentries} re-entries of rooms, over {MAX_REENTRIES}")
    return too_long


def _functions(text: str) -> Functions:
    return {(file, name) for file, name in json.loads(text)}


def show(what: str, sides: dict[str, Functions], *, names: bool) -> list[str]:
    """Print a line of each side, and of all together; return what exceeds the limits."""
    root = Path(__file__).parent.parent
    entered = {
        side: {(str(Path(file).resolve().relative_to(root)), name) for file, name in functions}
        for side, functions in sides.items()
    }
    both = set[tuple[str, str]]().union(*entered.values())
    own = {function for function in both if function[0].startswith(OWN)}
    rows = {side: functions - own for side, functions in (*entered.items(), ("together", both))}
    for side, functions in (*rows.items(), *([("verifier", own)] if own else [])):
        files = sorted({file for file, _ in functions})
        print(f"{what:26} {side:9} {len(files):3} files {len(functions):4} functions")
        for file in files if names and side != "together" else ():
            inside = sorted(name for where, name in functions if where == file)
            print(f"    {file}: {', '.join(inside)}")
    together = rows["together"]
    counts = {"files": len({file for file, _ in together}), "functions": len(together)}
    return [
        f"{what}: {counts[kind]} {kind}, over {limit}"
        for kind, limit in LIMITS.get(what, {}).items()
        if counts[kind] > limit
    ]


def main() -> None:
    """Serve or trace."""
    parser = argparse.ArgumentParser(
        description="Files and functions of a step, a score and an update."
    )
    parser.add_argument("--names", action="store_true", help="print which they are")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(Tracer()))
    else:
        too_long = asyncio.run(run(names=options.names)) + show_gradient(names=options.names)
        if too_long:
            raise SystemExit("\n".join(too_long))


if __name__ == "__main__":
    main()
