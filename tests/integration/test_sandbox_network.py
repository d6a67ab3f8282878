"""Runs with a network: what the operator allows and nothing else, against real servers on this
machine.
"""

# ruff: noqa: E501 - programs, one to a line
from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ludus.sandboxes import (
    ExecutionStatus,
    Limits,
    NetworkNotAllowed,
    NetworkPolicy,
    Sandbox,
    SlotSandbox,
    open_sandbox,
)
from ludus.sandboxes.network import EgressProxy

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]

MIB = 1 << 20
LIMITS = Limits(timeout_s=20, cpu_s=10)


class Server:
    """A small HTTP server of this machine; counts what reaches it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.reached: list[str] = []
        self.open = 0
        self.routes: dict[str, str] = {}
        """path -> where it redirects to."""

    async def start(self) -> Server:
        self._server = await asyncio.start_server(self._answer, self.address, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with contextlib.suppress(OSError, EOFError):
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = request.split()[1]
            self.reached.append(path)
            if path == "/echo":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                while data := await reader.read(1 << 16):
                    writer.write(data)
                    await writer.drain()
            elif path in self.routes:
                where = self.routes[path]
                writer.write(
                    f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()
                )
            else:
                body = f"{self.address} says {path}".encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        self.open -= 1
        writer.close()

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def allowed() -> AsyncIterator[Server]:
    """Its address and port are an exception of the policy."""
    server = await Server("127.0.0.2").start()
    yield server
    await server.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def forbidden() -> AsyncIterator[Server]:
    server = await Server("127.0.0.1").start()
    yield server
    await server.close()


def policy_for(allowed: Server) -> NetworkPolicy:
    return NetworkPolicy(exceptions=(f"{allowed.address}:{allowed.port}",), total_bytes=8 * MIB)


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=["slots-root", pytest.param("docker", marks=pytest.mark.docker)],
)
async def sandbox(request: pytest.FixtureRequest, allowed: Server) -> AsyncIterator[SlotSandbox]:
    if request.param == "docker":
        request.getfixturevalue("docker_host")
    opened = await open_sandbox(request.param, size=2, network=policy_for(allowed))
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


async def run(sandbox: Sandbox, code: str, limits: Limits = LIMITS) -> str:
    """What a program with a network prints; its errors are part of it."""
    done = await sandbox.execute(code, network=True, limits=limits)
    return done.stdout + done.stderr.strip().rpartition("\n")[2] + done.detail


FETCH = "import urllib.request as u\ntry: print(u.urlopen({url!r}, timeout=10).read().decode())\nexcept u.HTTPError as e: print(e.code, e.read().decode())"


def fetch(url: str) -> str:
    """A program that shows what it gets from `url`."""
    return FETCH.format(url=url)


async def test_what_is_allowed_is_reached_by_python_and_by_commands(
    sandbox: SlotSandbox, allowed: Server
) -> None:
    url = f"http://127.0.0.2:{allowed.port}/page?x=1"
    assert await run(sandbox, fetch(url)) == "127.0.0.2 says /page?x=1\n"
    if shutil.which("curl"):
        done = await sandbox.run_command(["curl", "-sS", url], network=True)
        assert done.stdout == "127.0.0.2 says /page?x=1"


async def test_this_machine_s_loopback_is_refused_under_every_name(
    sandbox: SlotSandbox, forbidden: Server
) -> None:
    before = list(forbidden.reached)
    names = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"]
    names += ["0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]", "localhost.", socket.gethostname()]
    for name in names:
        said = await run(sandbox, fetch(f"http://{name}:{forbidden.port}/"))
        assert said.startswith(("403 ", "502 ")), (name, said)
    assert forbidden.reached == before


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("169.254.169.254", "link-local"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.100.100.200", "shared"),
        ("[fd00:ec2::254]", "not a public IPv6"),
        ("[fe80::1]", "not a public IPv6"),
    ],
)
async def test_private_and_metadata_addresses_are_refused(
    sandbox: SlotSandbox, host: str, why: str
) -> None:
    said = await run(sandbox, fetch(f"http://{host}/latest/meta-data/"))
    assert said.startswith("403 ")
    assert why in said


async def test_a_redirect_is_decided_like_any_other_request(
    sandbox: SlotSandbox, allowed: Server, forbidden: Server
) -> None:
    before = list(forbidden.reached)
    allowed.routes["/away"] = f"http://127.0.0.1:{forbidden.port}/secret"
    allowed.routes["/metadata"] = "http://169.254.169.254/latest/"
    for path in allowed.routes:
        said = await run(sandbox, fetch(f"http://127.0.0.2:{allowed.port}{path}"))
        assert said.startswith("403 "), said
    assert forbidden.reached == before


async def test_a_name_that_changes_its_address_gains_nothing(
    allowed: Server, forbidden: Server
) -> None:
    """The second answer is loopback; a proxy that looks names up twice would go there."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) % 2 else ["127.0.0.1"]

    sandbox = SlotSandbox("slots-root", size=1, network=policy_for(allowed))
    sandbox._egress = EgressProxy(policy_for(allowed), resolve=resolve)  # pyright: ignore[reportPrivateUsage]
    before = list(forbidden.reached)
    try:
        url = f"http://rebind.example:{allowed.port}/"
        assert await run(sandbox, fetch(url)) == "127.0.0.2 says /\n"
        assert (await run(sandbox, fetch(url))).startswith("403 ")
        assert asked == ["rebind.example"] * 2
    finally:
        await sandbox.close()
    assert forbidden.reached == before


TUNNEL = """
import os, socket
def tunnel(target):
    host, _, port = os.environ['https_proxy'].removeprefix('http://').partition(':')
    way = socket.create_connection((host, int(port)), 10)
    way.sendall(f'CONNECT {target} HTTP/1.1\\r\\n\\r\\n'.encode())
    return way, way.recv(4096).split(b'\\r\\n')[0].decode()
"""


async def test_a_tunnel_carries_bytes_both_ways_until_both_are_done(
    sandbox: SlotSandbox, allowed: Server
) -> None:
    code = f"""{TUNNEL}
import hashlib, threading
way, said = tunnel('127.0.0.2:{allowed.port}')
data = os.urandom(1 << 20)
def send():
    way.sendall(b'GET /echo HTTP/1.1\\r\\n\\r\\n' + data); way.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = b''
while part := way.recv(1 << 16): got += part
print(said, got.partition(b'\\r\\n\\r\\n')[2] == data)"""
    assert await run(sandbox, code) == "HTTP/1.1 200 Connection established True\n"


async def test_a_tunnel_is_refused_like_a_request(sandbox: SlotSandbox, forbidden: Server) -> None:
    code = (
        f"{TUNNEL}\nprint(tunnel('127.0.0.1:{forbidden.port}')[1])\nprint(tunnel('1.1.1.1:25')[1])"
    )
    assert await run(sandbox, code) == "HTTP/1.1 403 Forbidden\nHTTP/1.1 403 Forbidden\n"


async def test_a_run_s_bytes_are_bounded(sandbox: SlotSandbox, allowed: Server) -> None:
    code = f"""{TUNNEL}
way, _ = tunnel('127.0.0.2:{allowed.port}')
way.sendall(b'GET /echo HTTP/1.1\\r\\n\\r\\n')
sent = got = 0
try:
    while sent < 64 << 20:
        way.sendall(bytes(1 << 16)); sent += 1 << 16
        got += len(way.recv(1 << 16))
    print('all of it')
except OSError: print('cut', sent < 10 << 20)"""
    assert await run(sandbox, code) == "cut True\n"


async def test_heads_of_requests_count_too(sandbox: SlotSandbox, allowed: Server) -> None:
    before = len(allowed.reached)
    code = f"""
import http.client, os
way = os.environ["http_proxy"].removeprefix("http://")
for number in range(400):
    line = http.client.HTTPConnection(way, timeout=10)
    line.request("GET", "http://127.0.0.2:{allowed.port}/", headers={{"X-Data": "d" * 30_000}})
    try: line.getresponse().read()
    except OSError: break
    line.close()
"""
    await run(sandbox, code)
    assert 0 < len(allowed.reached) - before <= 8 * MIB // 30_000


async def test_connections_end_with_the_run(sandbox: SlotSandbox, allowed: Server) -> None:
    code = f"""{TUNNEL}
import time
for _ in range(5): tunnel('127.0.0.2:{allowed.port}')
print('open', flush=True); time.sleep(60)"""
    done = await sandbox.execute(code, network=True, limits=Limits(timeout_s=1.0))
    assert (done.status, done.stdout) == (ExecutionStatus.TIMEOUT, "open\n")
    deadline = time.monotonic() + 60
    while allowed.open:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_more_connections_than_allowed_wait_their_turn(
    sandbox: SlotSandbox, allowed: Server
) -> None:
    code = f"""
import concurrent.futures, urllib.request
url = 'http://127.0.0.2:{allowed.port}/'
with concurrent.futures.ThreadPoolExecutor(50) as pool:
    pages = list(pool.map(lambda _: urllib.request.urlopen(url, timeout=15).read(), range(100)))
print(len(pages), set(pages))"""
    assert await run(sandbox, code) == "100 {b'127.0.0.2 says /'}\n"


async def test_what_is_no_proxy_request_is_answered_or_cut_and_harms_no_other_run(
    sandbox: SlotSandbox, allowed: Server
) -> None:
    code = """
import os, socket
host, _, port = os.environ['http_proxy'].removeprefix('http://').partition(':')
for junk in (b'GET / HTTP/1.1\\r\\n\\r\\n', b'\\x05\\x01\\0', b'x' * 100_000, b'CONNECT \\xff:1 HTTP/1.1\\r\\n\\r\\n', b'GET http://[/ HTTP/1.1\\r\\n\\r\\n'):
    way = socket.create_connection((host, int(port)), 10)
    try: way.sendall(junk); way.shutdown(1); print(way.recv(12))
    except OSError as error: print(type(error).__name__)
"""
    said = (await run(sandbox, code)).splitlines()
    assert said[0] == said[3] == said[4] == "b'HTTP/1.1 400'"
    assert len(said) == 5
    url = f"http://127.0.0.2:{allowed.port}/after"
    assert await run(sandbox, fetch(url)) == "127.0.0.2 says /after\n"


async def test_there_is_no_way_around_the_proxy(sandbox: SlotSandbox, forbidden: Server) -> None:
    code = f"""
import socket
def attempt(family, kind, address, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(2); s.connect(address); s.send(b'x'); return s.recv(9)
    except OSError as error: return error.strerror or type(error).__name__
print(attempt(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', {forbidden.port})))
print(attempt(socket.AF_INET, socket.SOCK_STREAM, ('1.1.1.1', 80)))
print(attempt(socket.AF_INET, socket.SOCK_DGRAM, ('1.1.1.1', 53)))
print(attempt(socket.AF_INET6, socket.SOCK_STREAM, ('::1', {forbidden.port})))
print(attempt(socket.AF_INET, socket.SOCK_RAW, ('1.1.1.1', 0), socket.IPPROTO_ICMP))
print(attempt(socket.AF_NETLINK, socket.SOCK_RAW, (0, 0)))"""
    refused, unreachable = "Connection refused", "Network is unreachable"
    assert (await run(sandbox, code)).splitlines() == [
        *(refused, unreachable, unreachable),
        *("Permission denied", "Operation not permitted", "Permission denied"),
    ]


async def test_runs_without_the_word_have_no_network(sandbox: SlotSandbox) -> None:
    code = "import os, socket\nprint([name for name in os.environ if 'proxy' in name.lower()])\nsocket.socket()"
    done = await sandbox.execute(code)
    assert done.stdout == "[]\n"
    assert "PermissionError" in done.stderr


async def test_without_the_operator_s_leave_it_is_refused_by_a_typed_error() -> None:
    sandbox = SlotSandbox("slots-root", size=1)
    try:
        with pytest.raises(NetworkNotAllowed, match=r"open_sandbox\(network=NetworkPolicy"):
            await sandbox.execute("", network=True)
        with pytest.raises(NetworkNotAllowed, match="not allowed by the operator"):
            await sandbox.run_command(["true"], network=True)
    finally:
        await sandbox.close()
    with pytest.raises(NetworkNotAllowed, match="'slots-landlock' cannot offer a network"):
        await open_sandbox("slots-landlock", network=NetworkPolicy())


async def test_descriptors_do_not_pile_up(sandbox: SlotSandbox, allowed: Server) -> None:
    url = f"http://127.0.0.2:{allowed.port}/"
    for _ in range(3):
        await run(sandbox, fetch(url))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert await run(sandbox, fetch(url)) == "127.0.0.2 says /\n"
        await sandbox.execute("import os; os._exit(1)", network=True)
    assert len(os.listdir("/proc/self/fd")) <= before
