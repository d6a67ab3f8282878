"""Host names and listening sockets: which hosts are local, and how a server binds a port."""

from __future__ import annotations

import ipaddress
import socket

from .faults import Refused

BACKLOG = 1024


def is_loopback(host: str) -> bool:
    """Say whether `host`, a name or an IP address, can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str) -> None:
    """Refuse a request that addresses a server without a token by a name other than localhost.

    This stops DNS rebinding: a web page whose own name is made to resolve to 127.0.0.1 could
    otherwise use a visitor's browser to reach a server that asks for no token.

    Args:
        host: the value of the request's `Host` header, with or without a port.

    Raises:
        Refused: `host` is neither localhost nor a loopback address (421).
    """
    bare = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if not is_loopback(bare):
        raise Refused(
            f"this server has no token and answers only to localhost, not to {host!r}; "
            "start it with --token to use another name",
            "misdirected",
        )


def listen(host: str, port: int) -> socket.socket:
    """Bind `host` and `port`, and return a socket that listens without blocking.

    A server listens before its services are built, so that a taken port fails at once and clients
    that connect early wait in the backlog instead of being refused.

    Raises:
        OSError: the port is taken, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)  # with SO_REUSEADDR, only this makes it ours
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
