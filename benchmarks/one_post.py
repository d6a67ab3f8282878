"""CPU of a server for a step sent as one POST, beside a bare handler of aiohttp.

    python benchmarks/one_post.py [--rounds 9] [--steps 2000]

Both servers run in one process of their own; the bare one reads JSON and answers JSON of the same
shape. The client is a socket that sends the same bytes again and again, so that its work does not
count. Rounds alternate between the two; what is printed is the median CPU of the server for each
request, and the median of the ratios of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from statistics import median
from typing import Any

from aiohttp import web
from service_ludus import ENV, PlainEcho

from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.wire.server import HttpServer


class TrustedEcho(PlainEcho):
    """An echo with plain methods, played on the event loop."""

    never_blocks = True


async def bare(request: web.Request) -> web.Response:
    """Read a step, and answer it."""
    body = await request.json()
    reply = {
        "kind": "step",
        "session": request.match_info["sid"],
        "seq": body["seq"],
        "observation": body["action"],
        "reward": 1.0,
        "terminated": False,
        "truncated": False,
        "info": {},
    }
    return web.Response(body=json.dumps(reply).encode(), content_type="application/json")


async def serve() -> None:
    """Serve both until stdin closes; each line of it is answered with the CPU used so far."""
    application = web.Application()
    application.router.add_post("/v1/sessions/{sid}/step", bare)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    async with HttpServer([EnvService([ServedEnv(ENV, factory=TrustedEcho)])]) as server:
        print(server.port, listener.getsockname()[1], flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)
    await runner.cleanup()


class Line:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))

    def post(self, path: str, body: Any) -> bytes:
        """Send a request, and return the body of the reply."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += self._socket.recv(1 << 16)
        head_bytes, _, content = reply.partition(b"\r\n\r\n")
        length = int(head_bytes.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(content) < length:
            content += self._socket.recv(1 << 16)
        assert head_bytes.startswith(b"HTTP/1.1 200"), content
        return content


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="A step as one POST, beside a bare handler.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    lines = [Line(int(port)) for port in server.stdout.readline().split()]
    lines[0].post(f"/v1/envs/{ENV}/sessions", {"session": "a", "reset": {}})
    spent_us: list[list[float]] = [[], []]
    for round_number in range(options.rounds + 1):
        for which in (0, 1) if round_number % 2 else (1, 0):
            before_s = cpu_s(server)
            for step in range(options.steps):
                seq = round_number * options.steps + step + 1
                lines[which].post("/v1/sessions/a/step", {"seq": seq, "action": "salve"})
            used_s = cpu_s(server) - before_s
            if round_number:  # the first warms up
                spent_us[which].append(1e6 * used_s / options.steps)
    server.stdin.close()
    server.wait(30)
    ratio = median(a / b for a, b in zip(*spent_us, strict=True))
    print(f"a step as one POST  {median(spent_us[0]):6.0f} us of the server's CPU")
    print(f"a bare handler      {median(spent_us[1]):6.0f} us")
    print(f"ratio               {ratio:6.2f}")


def cpu_s(server: subprocess.Popen[str]) -> float:
    """The CPU that the server has used."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return float(server.stdout.readline())


if __name__ == "__main__":
    main()
