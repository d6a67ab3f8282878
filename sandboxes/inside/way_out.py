"""The way out of a slot with a network: a listening socket handed to the driver before the program
starts.

The socket belongs to the slot's own network namespace, which has no route anywhere. Whoever
connects to it is answered by the driver's proxy, which decides what may be reached; nothing runs in
the slot for it, and the program holds no descriptor of it.
"""

from __future__ import annotations

import array
import os
import socket

NAME = "way_out"
"""What the line to the driver is called among a request's descriptors."""

_BACKLOG = 64


def hand_over(line: int) -> None:
    """Listen on a free port of loopback, give the socket to the driver, tell the program by its
    environment.
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
    """What programs look at to find a proxy, in both spellings they use."""
    address = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    return {spelling: address for name in names for spelling in (name, name.upper())}
