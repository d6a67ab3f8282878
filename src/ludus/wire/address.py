"""Addresses: which reach beyond this machine, and taking one."""

from __future__ import annotations

import ipaddress
import socket

from .faults import Refused

BACKLOG = 1024


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str) -> None:
    """Without a token, only names of this machine are served: a web page that has its own name
    resolve to 127.0.0.1 must not reach us from a browser.
    """
    bare = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if not is_loopback(bare):
        raise Refused(
            f"this server has no token and answers only to localhost, not to {host!r}; "
            "start it with --token to use another name",
            "misdirected",
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, before anything is built: a taken port fails at once, and clients that
    come early wait.
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
