"""Decides which addresses belong to the public internet, the only reachable part of a network.

The ranges are those of the IANA special-purpose address registries (RFC 6890 and its updates) and,
beyond them, addresses at which cloud providers answer from inside a machine.
"""

from __future__ import annotations

import ipaddress
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Network

_REFUSED_4 = {
    IPv4Network(block): reason
    for block, reason in {
        "0.0.0.0/8": "this host",
        "10.0.0.0/8": "a private range",
        "100.64.0.0/10": "a shared range, with the metadata service of Alibaba Cloud",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "the host service of Azure",
        "169.254.0.0/16": "link-local, with the metadata services of most clouds",
        "172.16.0.0/12": "a private range",
        "192.0.0.0/24": "reserved, with the metadata service of Oracle Cloud",
        "192.0.2.0/24": "for documentation",
        "192.31.196.0/24": "reserved (AS112)",
        "192.52.193.0/24": "reserved (AMT)",
        "192.88.99.0/24": "a relay to IPv6",
        "192.168.0.0/16": "a private range",
        "192.175.48.0/24": "reserved (AS112)",
        "198.18.0.0/15": "for benchmarks",
        "198.51.100.0/24": "for documentation",
        "203.0.113.0/24": "for documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
    }.items()
}

_GLOBAL_6 = IPv6Network("2000::/3")
"""All of IPv6 that is assigned to the internet; addresses outside are never reached."""

_REFUSED_6 = {
    IPv6Network(block): reason
    for block, reason in {
        "2001::/23": "reserved for protocols, with Teredo tunnels to IPv4",
        "2001:db8::/32": "for documentation",
        "2002::/16": "a tunnel to IPv4 (6to4)",
        "2620:4f:8000::/48": "reserved (AS112)",
        "3fff::/20": "for documentation",
    }.items()
}


def refusal(address: str) -> str:
    """Return why `address` may not be reached; "" for a public address.

    >>> refusal("169.254.169.254")
    'link-local, with the metadata services of most clouds'
    >>> refusal("::ffff:127.0.0.1")
    'not a public IPv6 address'
    >>> refusal("1.1.1.1")
    ''
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "not an address"
    if isinstance(parsed, IPv4Address):
        return next((reason for block, reason in _REFUSED_4.items() if parsed in block), "")
    if parsed not in _GLOBAL_6 or parsed.scope_id:
        return "not a public IPv6 address"
    return next((reason for block, reason in _REFUSED_6.items() if parsed in block), "")


def is_own(address: str) -> bool:
    """Return whether `address` belongs to this machine, whose kernel would then answer.

    The routing table is asked through a datagram socket, which sends nothing.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((address, 9))
            own_address: str = asking.getsockname()[0]
    except OSError:
        return False  # no route, so connecting will fail
    return own_address == address
