"""What an operator lets sandboxed programs reach, and the decision about one host and port.

A name is looked up once, here; every address it has must be allowed, and the connection goes to an
address that was checked, so an answer that changes between two look-ups changes nothing.
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
    """`network=True` where the operator of the sandbox, or its tier, does not offer one."""

    @classmethod
    def by_operator(cls, tier: str, tiers: Sequence[str]) -> Self:
        """Say how a network would be allowed."""
        if tier not in tiers:
            return cls.by_tier(tier, tiers)
        return cls(
            "network=True is not allowed by the operator of this sandbox; to allow it, open it "
            "with open_sandbox(network=NetworkPolicy(hosts=(...))) or set "
            "LUDUS_SANDBOX_NETWORK to the hosts, such as 'pypi.org,*.pythonhosted.org' or '*'"
        )

    @classmethod
    def by_tier(cls, tier: str, tiers: Sequence[str]) -> Self:
        """Say which tiers could."""
        return cls(
            f"the tier {tier!r} cannot offer a network: its programs have no network of their own "
            f"that could be given one way out; these have: {', '.join(tiers)}"
        )


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What programs may reach: by default the web of the public internet.

    Loopback, private, link-local, metadata and all other addresses that are not public are refused
    whatever `hosts` says; so are this machine's own. `exceptions` alone lifts that.
    """

    hosts: tuple[str, ...] = ("*",)
    """Names or patterns: "pypi.org", "*.pythonhosted.org", "*"."""
    ports: tuple[int, ...] = (80, 443)
    exceptions: tuple[str, ...] = ()
    """"ADDRESS:PORT" that may be reached although it is not public: a package mirror, say."""
    connections: int = 32
    """Of one run, at once."""
    total_bytes: int = 256 * MIB
    """Of one run, in both directions together."""
    connect_timeout_s: float = 10.0
    """For looking a name up and for connecting, each."""

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
        """The policy a comma-separated list of hosts stands for.

        Raises:
            ConfigError: there is no host in it.
        """
        hosts = tuple(host.strip().lower() for host in text.split(",") if host.strip())
        if not hosts:
            raise ConfigError(f"{text!r} names no host; give names, patterns or '*'")
        return cls(hosts=hosts)


class Refused(Exception):
    """A host and port that may not be reached; the message is shown to the program."""


class Decision:
    """Decides by a policy where a connection may go."""

    def __init__(self, policy: NetworkPolicy, resolve: Resolver) -> None:
        self.policy = policy
        self._resolve = resolve

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses to connect to.

        Raises:
            Refused: the host, the port or one of its addresses is not allowed.
            OSError: the name has no address. TimeoutError: nobody said in time.
        """
        name = host.lower().rstrip(".")
        if f"{name}:{port}" not in self.policy.exceptions:
            self._check_name(name)
        async with asyncio.timeout(self.policy.connect_timeout_s):
            found = await self._resolve(name, port)
        for address in found:
            self._check_address(name, address, port)
        return found

    def _check_name(self, name: str) -> None:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.policy.hosts):
            raise Refused(f"the host {name!r} is not among those that may be reached")

    def _check_address(self, name: str, address: str, port: int) -> None:
        if f"{address}:{port}" in self.policy.exceptions:
            return
        if port not in self.policy.ports:
            allowed = ", ".join(map(str, self.policy.ports))
            raise Refused(f"port {port} may not be reached, only {allowed}")
        why = refusal(address) or ("this machine's own" if is_own(address) else "")
        if why:
            raise Refused(f"{name!r} is at {address}, which is {why}")
