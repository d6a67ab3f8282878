"""The operator's network policy, and the decision about a host and port.

A name is looked up once, here. Every address of the name must be allowed, and the connection goes
to an address that was checked. So an attacker gains nothing from a name server that answers with a
public address first and a private one later (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import fnmatch
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import msgspec

from ludus.errors import ConfigError

from .addresses import is_own, refusal

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) -> the addresses of the host. Raises OSError if the host has none."""

_THREADS = 16


class SystemResolver:
    """The system's resolver, on threads that nothing else waits for."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "ludus-resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses of `host`, each once, in the order to try.

        Raises:
            OSError: the host has no address.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _addresses, host, port)

    def close(self) -> None:
        """Cancel the look-ups that have not begun. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str, port: int) -> list[str]:
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a host name: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in records))


MIB = 1 << 20


class NetworkNotAllowed(ConfigError):
    """A run asked for `network=True`, but the operator allows no network, or the sandbox's tier
    cannot offer one.
    """

    @classmethod
    def by_operator(cls, tier: str, tiers: Sequence[str]) -> Self:
        """Make the error for an operator who has set no policy; the message tells how to.

        Args:
            tier: the tier of the sandbox.
            tiers: the tiers that can offer a network. Where `tier` is not among them, no policy
                would help, so the error is that of `by_tier`.
        """
        if tier not in tiers:
            return cls.by_tier(tier, tiers)
        return cls(
            "network=True is not allowed by the operator of this sandbox; to allow it, open it "
            "with open_sandbox(network=NetworkPolicy(hosts=(...))) or set "
            "LUDUS_SANDBOX_NETWORK to the hosts, such as 'example.org,*.example.net' or '*'"
        )

    @classmethod
    def by_tier(cls, tier: str, tiers: Sequence[str]) -> Self:
        """Make the error for a tier that cannot offer a network; the message names `tiers`."""
        return cls(
            f"the tier {tier!r} cannot offer a network, because its programs have no network "
            f"namespace of their own; these have: {', '.join(tiers)}"
        )


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts and ports that programs may reach: by default every public host, on the ports of
    the web.

    Loopback, private, link-local, cloud metadata and all other addresses that are not public are
    refused whatever `hosts` says, and so are the addresses of this machine. Only `exceptions` lifts
    that.

    Raises:
        ValueError: a limit is not above 0, or an exception is not "ADDRESS:PORT".
    """

    hosts: tuple[str, ...] = ("*",)
    """Allowed names or patterns, in any case: "example.org", "*.example.net", "*".

    "*.example.net" covers names of any depth below example.net, but not example.net.
    """
    ports: tuple[int, ...] = (80, 443)
    """Allowed ports; `exceptions` name their own."""
    exceptions: tuple[str, ...] = ()
    """"ADDRESS:PORT" pairs that may be reached although the address is not public or the port not
    allowed: a package mirror, say. An IPv6 address is written without brackets.

    A host given as this address needs no entry in `hosts`; a name that leads to it does.
    """
    origin: str = ""
    """The "ADDRESS:PORT" of a server that answers requests which are made to the way out itself.
    Programs that know no proxy reach that one server; it needs no exception of its own.
    """
    connections: int = 32
    """The most connections of a run at the same time; further ones wait."""
    total_bytes: int = 256 * MIB
    """The most bytes of a run, over all connections and both directions. Beyond, connections are
    cut.
    """
    connect_timeout_s: float = 10.0
    """The limit in seconds for looking up a name, and again for connecting to an address."""

    def __post_init__(self) -> None:
        # Names are looked up in lower case and without a final full stop.
        hosts = tuple(host.lower().rstrip(".") for host in self.hosts)
        msgspec.structs.force_setattr(self, "hosts", hosts)
        for name in ("connections", "total_bytes", "connect_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")
        if self.origin:
            msgspec.structs.force_setattr(self, "exceptions", (*self.exceptions, self.origin))
        for exception in self.exceptions:
            _, colon, port = exception.rpartition(":")
            if not colon or not port.isdigit():
                raise ValueError(f"an exception is 'ADDRESS:PORT', got {exception!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Make a policy from a comma-separated list of hosts, as in LUDUS_SANDBOX_NETWORK.

        Raises:
            ConfigError: the list has no host.
        """
        hosts = tuple(host.strip().lower() for host in text.split(",") if host.strip())
        if not hosts:
            raise ConfigError(f"{text!r} names no host; give names, patterns or '*'")
        return cls(hosts=hosts)


class EgressRefused(Exception):
    """A host and port that may not be reached; the program is shown the message."""


class EgressDecision:
    """Decides by a policy where a connection may go."""

    def __init__(self, policy: NetworkPolicy, resolve: Resolver) -> None:
        self.policy = policy
        self._resolve = resolve

    async def addresses(self, host: str, port: int) -> list[str]:
        """Look `host` up and return the addresses, all allowed, in the order to try.

        Args:
            host: a name, in any case and perhaps with a final full stop, or an address.
            port: the port of the connection that is wanted.

        Raises:
            EgressRefused: the host, the port or an address of the host is not allowed.
            OSError: the name has no address.
            TimeoutError: the look-up took longer than the policy's `connect_timeout_s`.
        """
        name = host.lower().rstrip(".")
        excepted = f"{name}:{port}" in self.policy.exceptions
        allowed = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.policy.hosts)
        if not (excepted or allowed):
            raise EgressRefused(f"the host {name!r} is not among those that may be reached")
        async with asyncio.timeout(self.policy.connect_timeout_s):
            addresses = await self._resolve(name, port)
        for address in addresses:
            if f"{address}:{port}" in self.policy.exceptions:
                continue
            if port not in self.policy.ports:
                ports = ", ".join(map(str, self.policy.ports))
                raise EgressRefused(f"port {port} may not be reached, only {ports}")
            reason = refusal(address) or ("this machine's own" if is_own(address) else "")
            if reason:
                raise EgressRefused(f"{name!r} is at {address}, which is {reason}")
        return addresses
