"""Which addresses a sandboxed program may reach, and how its requests are read."""

from __future__ import annotations

import array
import asyncio
import socket

import pytest

from ludus.errors import ConfigError
from ludus.sandboxes import NetworkNotAllowed, NetworkPolicy
from ludus.sandboxes.network.addresses import is_own, refusal
from ludus.sandboxes.network.policy import EgressDecision, EgressRefused
from ludus.sandboxes.network.proxy import BadRequest, EgressProxy, ProxyRequest, parse

# the ranges of RFC 6890 and its updates, and cloud metadata services, by first and last address
REFUSED = [
    *("0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.1", "100.127.255.255"),
    *("100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.0.1"),
    *("168.63.129.16", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
    *("192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.7"),
    *("203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1"),
    *("64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1"),
    *("2001:0:7f00:1::", "not an address", "", "1.2.3", "0x7f.1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.1", "169.253.255.255", "172.15.255.255", "172.32.0.0"),
    *("192.167.255.255", "192.169.0.0", "223.255.255.254", "2606:4700:4700::1111", "2a00::1"),
]


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert refusal(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_the_neighbours_of_refused_ranges_are_public(address: str) -> None:
    assert refusal(address) == ""


def test_this_machine_s_own_addresses_are_known_without_sending_anything() -> None:
    assert is_own("127.0.0.1")
    assert is_own(socket.gethostbyname("localhost"))
    assert not is_own("192.0.2.1")


async def test_every_address_of_a_name_must_be_allowed() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["1.1.1.1", "127.0.0.1"]

    with pytest.raises(
        EgressRefused, match=r"'mixed\.example' is at 127\.0\.0\.1, which is loopback"
    ):
        await EgressDecision(NetworkPolicy(), resolve).addresses("mixed.example", 443)


async def test_hosts_and_ports_are_the_operator_s() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["1.1.1.1"]

    decision = EgressDecision(NetworkPolicy(hosts=("example.org", "*.example.net")), resolve)
    for host in ("example.org", "Example.org.", "files.example.net"):
        assert await decision.addresses(host, 443) == ["1.1.1.1"]
    for host in ("evil.org", "example.org.evil.org", "example.net", "xexample.org"):
        with pytest.raises(EgressRefused, match="not among those"):
            await decision.addresses(host, 443)
    with pytest.raises(EgressRefused, match="port 25 may not be reached, only 80, 443"):
        await decision.addresses("example.org", 25)


async def test_an_exception_lifts_one_address_and_port_only() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["10.0.0.5"]

    decision = EgressDecision(NetworkPolicy(exceptions=("10.0.0.5:3141",)), resolve)
    assert await decision.addresses("mirror.local", 3141) == ["10.0.0.5"]
    with pytest.raises(EgressRefused, match="private"):
        await decision.addresses("mirror.local", 443)


def test_policies_from_text_and_mistakes_in_them() -> None:
    assert NetworkPolicy.parse(" Example.org , *.x.org,").hosts == ("example.org", "*.x.org")
    with pytest.raises(ConfigError, match="names no host"):
        NetworkPolicy.parse(" , ")
    with pytest.raises(ValueError, match="'ADDRESS:PORT', got 'mirror'"):
        NetworkPolicy(exceptions=("mirror",))
    with pytest.raises(ValueError, match="connections must be above 0, got 0"):
        NetworkPolicy(connections=0)


def test_the_refusal_says_who_decides_and_how() -> None:
    told = NetworkNotAllowed.by_operator("slots-root", ("slots-root",))
    assert isinstance(told, ConfigError)
    assert "LUDUS_SANDBOX_NETWORK" in str(told)
    assert "these have: docker" in str(NetworkNotAllowed.by_operator("unsafe", ("docker",)))


def test_a_plain_request_is_sent_on_without_the_proxy_s_own_lines() -> None:
    head = (
        b"GET http://user:secret@example.org:8080/a/b?c=d HTTP/1.1\r\nHost: example.org:8080\r\n"
        b"Proxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive\r\n\r\n"
    )
    opening = b"GET /a/b?c=d HTTP/1.1\r\nHost: example.org:8080\r\nConnection: close\r\n\r\n"
    assert parse(head) == ProxyRequest("example.org", 8080, opening)
    assert parse(b"GET http://[2a00::1] HTTP/1.1\r\n\r\n").host == "2a00::1"


def test_a_path_alone_is_for_the_origin_and_for_nobody_where_there_is_none() -> None:
    for path in (b"/v1/x?y=1", b"//example.org/x", b"/http://example.org/"):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1:5\r\n\r\n"
        wanted = parse(head, "127.0.0.1:8010")
        assert (wanted.host, wanted.port) == ("127.0.0.1", 8010)
        assert wanted.opening.startswith(b"POST " + path + b" HTTP/1.1\r\n")
        with pytest.raises(BadRequest):
            parse(head)
    assert parse(b"GET http://example.org/ HTTP/1.1\r\n\r\n", "127.0.0.1:8010").port == 80


def test_a_tunnel_names_host_and_port() -> None:
    wanted = parse(b"CONNECT [::1]:22 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (wanted.host, wanted.port, wanted.is_tunnel) == ("::1", 22, True)


@pytest.mark.parametrize(
    "line",
    [
        *(b"GET / HTTP/1.1", b"GET https://x/ HTTP/1.1", b"CONNECT x HTTP/1.1", b"CONNECT"),
        *(b"CONNECT x:99999 HTTP/1.1", b"CONNECT :443 HTTP/1.1", b"GET http:///x HTTP/1.1"),
        *(b"GET http://x:y/ HTTP/1.1", b"CONNECT x:1/p HTTP/1.1", b"GET http://[::1/ HTTP/1.1"),
        *(b"GET http://\xff/ HTTP/1.1", b"", b"\x16\x03\x01", b"GET http://x/ HTTP/2"),
    ],
)
def test_what_is_no_proxy_request_is_named_so(line: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(line + b"\r\n\r\n")


def test_hosts_of_a_policy_may_be_written_in_any_case() -> None:
    policy = NetworkPolicy(hosts=("Example.ORG.", "*.Example.net"))
    assert policy.hosts == ("example.org", "*.example.net")


async def test_a_name_that_nobody_answers_is_told_as_late() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return await asyncio.Future()

    proxy = EgressProxy(NetworkPolicy(connect_timeout_s=0.05), resolve=resolve)
    async with proxy.open() as (_, descriptor):
        with (
            socket.socket(fileno=descriptor) as line,
            socket.create_server(("127.0.0.1", 0)) as way,
        ):
            rights = array.array("i", [way.fileno()])
            line.sendmsg([b"L"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            reader, writer = await asyncio.open_connection(*way.getsockname())
            writer.write(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(20):
                said = await reader.read()
            writer.close()
    proxy.close()
    assert said.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
    assert said.endswith(b"\r\n\r\nno answer in time\n")
