"""How long `/healthz` takes while nobody who has a token sends anything, but others do.

    python benchmarks/strangers.py [--seconds 10] [--control]

One attacking process a core sends as fast as it can, without a token: gzip bombs (16 MB that become
16 GB), endless chunked bodies, connections that never finish their headers, guesses of the token.
`--control` asks a plain aiohttp server that refuses the same requests: it inflates what it refuses.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager

from aiohttp import web

from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import BackgroundServer, HttpServer

HEAD = (
    b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer wrong\r\n"
)
KINDS = ("bombs", "endless", "slow", "guesses")


def bomb() -> bytes:
    """16 GB of spaces in 16 MB."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = squeezed.compress(b" " * (1 << 24)) + squeezed.flush(zlib.Z_FULL_FLUSH)
    again = zlib.compressobj(9, zlib.DEFLATED, -15)
    more = again.compress(b" " * (1 << 24)) + again.flush(zlib.Z_FULL_FLUSH)
    return piece + more * 1000


def attack(port: int, kind: str) -> None:
    """Send one kind until the process is ended."""
    payload = bomb() if kind == "bombs" else b""
    kept: list[socket.socket] = []
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            if kind == "slow":
                connection.sendall(HEAD[:60])
                kept = [*kept[-2000:], connection]
                time.sleep(0.001)
                continue
            with connection:
                _send(connection, kind, payload)
        except OSError:
            continue


def _send(connection: socket.socket, kind: str, payload: bytes) -> None:
    if kind == "bombs":
        length = b"Content-Length: %d\r\nContent-Encoding: gzip\r\n\r\n" % len(payload)
        connection.sendall(HEAD + length + payload)
    elif kind == "endless":
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    else:
        connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
    connection.recv(1 << 16)


@contextmanager
def control() -> Generator[str]:
    """A plain aiohttp server that refuses without reading."""

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401)

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    ready, stop = threading.Event(), threading.Event()
    url = ""

    async def serve() -> None:
        nonlocal url
        application = web.Application(client_max_size=16 << 20)
        application.add_routes([web.post("/v1/score", refuse), web.get("/healthz", health)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await asyncio.to_thread(stop.wait)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait(30)
    yield url
    stop.set()


def served() -> BackgroundServer:
    """A ludus server that asks for a token."""
    return BackgroundServer(HttpServer([ScoreService(["exact"])], token="right"))


def serve(kind: str, ready: multiprocessing.connection.Connection) -> None:
    """Serve in a process of its own, until it is ended."""
    make: Callable[[], object] = control if kind == "control" else served
    with make() as url:  # type: ignore[attr-defined]
        ready.send(url)
        while True:
            time.sleep(60)


def latencies_s(url: str, seconds: float) -> list[float]:
    """Of `/healthz`, asked every 20 ms on a new connection."""
    took: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        started = time.perf_counter()
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=60) as reply:
                reply.read()
        except OSError:
            took.append(float("inf"))
            continue
        took.append(time.perf_counter() - started)
        time.sleep(0.02)
    return sorted(took)


def measure(url: str, kind: str, seconds: float) -> None:
    """One row."""
    port = int(url.rpartition(":")[2])
    number = 0 if kind == "nobody" else os.cpu_count() or 1
    attackers = [
        multiprocessing.Process(target=attack, args=(port, kind), daemon=True)
        for _ in range(number)
    ]
    for attacker in attackers:
        attacker.start()
    time.sleep(1.0)
    took = latencies_s(url, seconds)
    for attacker in attackers:
        attacker.kill()
        attacker.join()
    middle, late = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(f"{kind:10}{len(took):8}{1e3 * middle:10.1f}{1e3 * late:10.1f}{1e3 * took[-1]:10.1f}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="/healthz under requests without a token.")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind")
    parser.add_argument("--control", action="store_true", help="a plain aiohttp server instead")
    options = parser.parse_args()
    near, far = multiprocessing.Pipe()
    name = "control" if options.control else "ludus"
    server = multiprocessing.Process(target=serve, args=(name, far), daemon=True)
    server.start()
    url = near.recv()
    print(f"{name}, {os.cpu_count()} attackers of each kind")
    print(f"{'kind':10}{'asked':>8}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}")
    for kind in ("nobody", *KINDS):
        measure(url, kind, options.seconds)
    server.kill()


if __name__ == "__main__":
    main()
