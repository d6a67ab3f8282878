"""`ludus bench URL`: load on a server at given concurrencies, compared with what the CPU allows."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import aiohttp
import msgspec
import tyro

import ludus
from ludus.envs.serving.client import RemoteSession
from ludus.envs.serving.connect import RemoteServer
from ludus.errors import ConfigError, LudusError, RequestRejected
from ludus.rewards import Sample
from ludus.secret import NO_SECRET

from .arguments import Token, VerbHelp, parse
from .names import NameKind, kind_of

EXAMPLE = """\
ludus bench http://127.0.0.1:8765
  ludus bench http://127.0.0.1:8765 --name exact --concurrency 1 32 1024 --out bench.json"""
_CPU = re.compile(r"^process_cpu_seconds_total (\S+)$", re.MULTILINE)
_REFUSED = re.compile(r'^ludus_refused_total\{cause="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options of `ludus bench`."""

    url: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="URL")]
    """The server, or several; see ludus.connect."""
    name: str = ""
    """What is asked: an environment, which is reset and stepped, or a verifier; by default the
    first that is served.
    """
    action: str = "0"
    """The action of every step, or the answer that is scored."""
    concurrency: tuple[int, ...] = (1, 8, 64)
    """How many sessions or scores are under way at a time; a row of the table for each."""
    seconds: float = 5.0
    """The length of each row, after a fifth of it to warm up."""
    stream: bool = True
    """Whether operations travel over a stream; else each is a request."""
    token: Token = NO_SECRET
    """The bearer token, or env:NAME; by default LUDUS_TOKEN."""
    timeout_s: float = 30.0
    """Seconds for an operation with its retries; then it counts as an error."""
    out: Path | None = None
    """A file for the rows as JSON; beside it a picture, where matplotlib is installed."""


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """The measured results at a concurrency."""

    concurrency: int
    operations: int
    """Resets and steps, or verdicts, that succeeded."""
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    errors: dict[str, int]
    """Operations that failed, by the cause or code of the server, or the name of the error."""
    refused: dict[str, int]
    """429s that the server counted, by cause; a client tries again after them."""
    client_cpu_us: float
    """CPU of this process, for each operation."""
    server_cpu_us: float | None
    """CPU of the server's own processes for each operation, without its workers; None where
    `/metrics` is not to be had (it needs the scope `admin`).
    """
    bound_per_s: float
    """What the busier of both sides allows: one event loop each, a second of CPU a second."""


class ServerUsage(msgspec.Struct):
    """What the servers have used so far."""

    cpu_s: float | None
    refused: Counter[str]


@dataclass
class LoadMeter:
    """Collects the latencies and errors of a row."""

    latencies_s: list[float] = field(default_factory=list[float])
    errors: Counter[str] = field(default_factory=Counter[str])

    async def time(self, operation: Awaitable[str]) -> bool:
        """Await an operation, which returns a problem or ""; return whether all went well."""
        started = time.perf_counter()
        try:
            problem = await operation
        except LudusError as error:
            fault = error.__dict__.get("fault")
            problem = getattr(fault, "cause", "") or getattr(fault, "code", "")
            problem = problem or type(error).__name__
        if problem:
            self.errors[problem] += 1
        else:
            self.latencies_s.append(time.perf_counter() - started)
        return not problem

    def quantile_ms(self, share: float) -> float:
        """Return the shortest time that `share` of the operations took at most, in milliseconds."""
        ordered = sorted(self.latencies_s) or [0.0]
        return 1e3 * ordered[max(0, math.ceil(share * len(ordered)) - 1)]


Work = Callable[[LoadMeter, float], Awaitable[None]]
"""Asks a server one thing after the other, until a time of `time.monotonic`."""


def main(arguments: Sequence[str]) -> int:
    """Load the server, print and write the rows; returns 0, or 1 where every operation failed."""
    options = parse(
        BenchOptions,
        arguments,
        VerbHelp(verb="bench", about="Load a server, and say what it bears.", example=EXAMPLE),
    )
    if not options.concurrency or min(options.concurrency) < 1:
        raise ConfigError(f"--concurrency must be at least 1, got {options.concurrency}")
    if not 0 < options.seconds < 86400:
        raise ConfigError(f"--seconds must be more than 0, got {options.seconds}")
    if options.out is not None:
        refuse_unusable(options.out)
    rows = asyncio.run(bench(options))
    if options.out is not None:
        write(rows, options.out)
    return 0 if any(row.operations for row in rows) else 1


def refuse_unusable(file: Path) -> None:
    """Refuse a file for the rows before anything is measured.

    Raises:
        ConfigError: the file's folder is missing, the file cannot be written, or its name is that
            of the picture.
    """
    if not file.parent.is_dir():
        raise ConfigError(f"cannot write {str(file)!r}: {str(file.parent)!r} is no folder")
    if file.is_dir():
        raise ConfigError(f"cannot write {str(file)!r}: it is a folder; name a file in it")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError(f"cannot write {str(file)!r}: permission denied")
    if file.suffix == ".png":
        raise ConfigError(
            f"--out {str(file)!r} is where the picture goes; name a file for the rows, such as "
            f"{str(file.with_suffix('.json'))!r}"
        )


async def bench(options: BenchOptions) -> list[BenchRow]:
    """Measure each concurrency: print the row at once, and return all rows."""
    rows: list[BenchRow] = []
    async with ludus.connect(
        options.url,
        token=options.token if options.token else None,
        timeout_s=options.timeout_s,
        stream=options.stream,
    ) as server:
        name = options.name or await asyncio.to_thread(_first_name, server)
        is_env = kind_of(name) is NameKind.ENVIRONMENT
        work = partial(_play if is_env else _score, server, name, options.action)
        print(f"{name} at {options.url}, {options.seconds:g} s a row")
        print("".join(f"{column:>11}" for column in COLUMNS) + "  errors", flush=True)
        for number in options.concurrency:
            await measure(server, work, number, options.seconds / 5)
            rows.append(await measure(server, work, number, options.seconds))
            print(_line(rows[-1]), flush=True)
    return rows


async def measure(server: RemoteServer, work: Work, number: int, seconds: float) -> BenchRow:
    """Return what comes of having `work` under way `number` times at once for `seconds`."""
    meter, before = LoadMeter(), await usage(server)
    cpu_s, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(work(meter, time.monotonic() + seconds) for _ in range(number)))
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
    after = await usage(server)
    tried = max(1, len(meter.latencies_s) + meter.errors.total())
    server_s = None
    if before.cpu_s is not None and after.cpu_s is not None:
        server_s = after.cpu_s - before.cpu_s
    busiest_s = max(cpu_s, (server_s or 0.0) / len(server.urls), 1e-9)
    return BenchRow(
        concurrency=number,
        operations=len(meter.latencies_s),
        per_s=len(meter.latencies_s) / wall_s,
        p50_ms=meter.quantile_ms(0.5),
        p95_ms=meter.quantile_ms(0.95),
        p99_ms=meter.quantile_ms(0.99),
        errors=dict(meter.errors),
        refused=dict(after.refused - before.refused),
        client_cpu_us=1e6 * cpu_s / tried,
        server_cpu_us=None if server_s is None else 1e6 * server_s / tried,
        bound_per_s=tried / busiest_s,
    )


async def usage(server: RemoteServer) -> ServerUsage:
    """Return what the servers say in `/metrics`, together."""
    total = ServerUsage(0.0, Counter())
    timeout = aiohttp.ClientTimeout(total=10)
    for member in server.replicas.members:
        request, text = member.client.build("GET", "/metrics", None), ""
        with suppress(aiohttp.ClientError, OSError):  # TimeoutError too
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=request.headers) as http,
                http.get(request.url) as reply,
            ):
                text = await reply.text() if reply.status == 200 else ""
        cpu = _CPU.search(text)
        if cpu is None or total.cpu_s is None:
            return ServerUsage(None, Counter())
        total.cpu_s += float(cpu[1])
        total.refused += Counter({cause: int(float(n)) for cause, n in _REFUSED.findall(text)})
    return total


async def _play(
    server: RemoteServer, env: str, action: str, meter: LoadMeter, until: float
) -> None:
    session, is_over = server.make_async(env), True
    while time.monotonic() < until:
        if is_over:
            is_over = not await meter.time(_reset(session))
            continue
        ended: list[bool] = []
        is_over = not await meter.time(_step(session, action, ended)) or any(ended)
    with suppress(LudusError):
        await session.close()


async def _reset(session: RemoteSession) -> str:
    await session.reset(seed=0)
    return ""


async def _step(session: RemoteSession, action: str, ended: list[bool]) -> str:
    _, _, *ends, _ = await session.step(action)
    ended += ends
    return ""


async def _score(
    server: RemoteServer, name: str, answer: str, meter: LoadMeter, until: float
) -> None:
    verifier, sample = server.verifier(name), Sample(response=answer, gold="0")

    async def score() -> str:
        verdict = await verifier.score(sample)
        return "" if verdict.ok else verdict.status.value

    while time.monotonic() < until:
        await meter.time(score())


def _first_name(server: RemoteServer) -> str:
    names: list[str] = []
    with suppress(RequestRejected):  # a server without environments has no route for them
        names += [env.id for env in server.envs()]
    with suppress(RequestRejected):
        names += [verifier.name for verifier in server.verifiers()]
    if not names:
        raise ConfigError("nothing is served there that this token may use")
    return names[0]


COLUMNS = ("at a time", "per s", "bound", "p50 ms", "p95 ms", "p99 ms", "client us", "server us")


def _line(row: BenchRow) -> str:
    server = "-" if row.server_cpu_us is None else f"{row.server_cpu_us:.0f}"
    numbers = [f"{row.per_s:.0f}", f"{row.bound_per_s:.0f}"]
    numbers += [f"{ms:.1f}" for ms in (row.p50_ms, row.p95_ms, row.p99_ms)]
    cells = [str(row.concurrency), *numbers, f"{row.client_cpu_us:.0f}", server]
    counted = [f"{name} {number}" for name, number in row.errors.items()]
    counted += [f"429 {cause} {number}" for cause, number in row.refused.items()]
    return "".join(f"{cell:>11}" for cell in cells) + "  " + (", ".join(counted) or "none")


def write(rows: Sequence[BenchRow], file: Path) -> None:
    """Write the rows as JSON, and a plot beside the file, where matplotlib is installed.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(list(rows))) + b"\n")
        if importlib.util.find_spec("matplotlib") is not None:
            draw(rows, file.with_suffix(".png"))
        else:
            print("no picture: matplotlib is not installed")
    except OSError as error:
        # A full disk is found at a write, whose error names no file.
        place = error.filename or str(file)
        raise ConfigError(f"cannot write {place!r}: {error.strerror}") from error


def draw(rows: Sequence[BenchRow], file: Path) -> None:
    """Draw throughput beside the bound, and the quantiles of the latency, over concurrency."""
    import_module("matplotlib").use("agg")
    figure, (left, right) = import_module("matplotlib.pyplot").subplots(
        1, 2, figsize=(9, 3.6), layout="constrained"
    )
    at = [row.concurrency for row in rows]
    left.plot(at, [row.per_s for row in rows], "o-", label="measured")
    left.plot(at, [row.bound_per_s for row in rows], "--", color="gray", label="bound by CPU")
    left.set(title="operations a second", ylim=(0, None))
    for share in ("p50", "p95", "p99"):
        right.plot(at, [getattr(row, f"{share}_ms") for row in rows], "o-", label=share)
    right.set(title="milliseconds an operation", yscale="log")
    for axes in (left, right):
        axes.set(xlabel="operations at a time", xscale="log", xticks=at, xticklabels=at)
        axes.minorticks_off()
        axes.legend(frameon=False)
    figure.savefig(file, dpi=130)
