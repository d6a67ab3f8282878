"""The egress of a slot with a network: a listening socket that is handed to the driver.

The socket belongs to the slot's own network namespace, which has no route anywhere. The driver's
proxy answers every connection and decides what may be reached; nothing runs in the slot for it, and
the program has no descriptor of the socket.
"""

from __future__ import annotations

import array
import os
import socket

NAME = "egress"
"""The name of the socket to the driver among a request's descriptors."""

_BACKLOG = 64


def hand_over(line: int) -> None:
    """Listen on a free loopback port, give the socket to the driver, and tell the program the port.

    The program finds the port in its environment, as the address of a proxy.
    """
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener,
        socket.socket(fileno=line) as driver,
    ):
        listener.bind(("127.0.0.1", 0))
        listener.listen(_BACKLOG)
        port = listener.getsockname()[1]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))]
        driver.sendmsg([b"L"], rights)
    os.environ.update(environment(port))


def environment(port: int) -> dict[str, str]:
    """Return the environment variables of a proxy, in both spellings that programs use."""
    address = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    return {spelling: address for name in names for spelling in (name, name.upper())}
