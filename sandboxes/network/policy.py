"""The operator's network policy, and the decision about a host and port.

A name is looked up once, here. Every address of the name must be allowed, and the connection goes
to an address that was checked, so a DNS answer that changes between two look-ups changes nothing.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Sequence
from typing import Self

import msgspec

from ludus.errors import ConfigError

from .addresses import is_own, refusal
from .resolver import Resolver

MIB = 1 << 20


class NetworkNotAllowed(ConfigError):
    """A run asked for `network=True`, which the operator or the tier of the sandbox lacks."""

    @classmethod
    def by_operator(cls, tier: str, tiers: Sequence[str]) -> Self:
        """Make the error for a policy without a network, and say how to allow a network."""
        if tier not in tiers:
            return cls.by_tier(tier, tiers)
        return cls(
            "network=True is not allowed by the operator of this sandbox; to allow it, open it "
            "with open_sandbox(network=NetworkPolicy(hosts=(...))) or set "
            "LUDUS_SANDBOX_NETWORK to the hosts, such as 'example.org,*.example.net' or '*'"
        )

    @classmethod
    def by_tier(cls, tier: str, tiers: Sequence[str]) -> Self:
        """Make the error for a tier without a network, and name the tiers with networks."""
        return cls(
            f"the tier {tier!r} cannot offer a network: its programs have no network of their own "
            f"that could be given one way out; these have: {', '.join(tiers)}"
        )


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What programs may reach: by default the web of the public internet.

    Loopback, private, link-local, metadata and all other addresses that are not public are refused
    whatever `hosts` says, and so are the addresses of this machine. Only `exceptions` lifts that.
    """

    hosts: tuple[str, ...] = ("*",)
    """Allowed names or patterns: "example.org", "*.example.net", "*"."""
    ports: tuple[int, ...] = (80, 443)
    exceptions: tuple[str, ...] = ()
    """"ADDRESS:PORT" pairs that may be reached although not public: a package mirror, say."""
    connections: int = 32
    """The most connections of a run at the same time."""
    total_bytes: int = 256 * MIB
    """The most bytes of a run, in both directions together."""
    connect_timeout_s: float = 10.0
    """The limit for looking up a name, and for connecting, in seconds."""

    def __post_init__(self) -> None:
        for name in ("connections", "total_bytes", "connect_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")
        for exception in self.exceptions:
            _, colon, port = exception.rpartition(":")
            if not colon or not port.isdigit():
                raise ValueError(f"an exception is 'ADDRESS:PORT', got {exception!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Make a policy from a comma-separated list of hosts.

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
        """Return the addresses to connect to.

        Raises:
            EgressRefused: the host, the port or an address of the host is not allowed.
            OSError: the name has no address.
            TimeoutError: no answer came in time.
        """
        name = host.lower().rstrip(".")
        excepted = f"{name}:{port}" in self.policy.exceptions
        allowed = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.policy.hosts)
        if not (excepted or allowed):
            raise EgressRefused(f"the host {name!r} is not among those that may be reached")
        async with asyncio.timeout(self.policy.connect_timeout_s):
            found = await self._resolve(name, port)
        for address in found:
            self._check_address(name, address, port)
        return found

    def _check_address(self, name: str, address: str, port: int) -> None:
        if f"{address}:{port}" in self.policy.exceptions:
            return
        if port not in self.policy.ports:
            allowed = ", ".join(map(str, self.policy.ports))
            raise EgressRefused(f"port {port} may not be reached, only {allowed}")
        why = refusal(address) or ("this machine's own" if is_own(address) else "")
        if why:
            raise EgressRefused(f"{name!r} is at {address}, which is {why}")
