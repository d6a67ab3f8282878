"""Parses a proxy request: `CONNECT host:port`, or a request with an absolute URL."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

_DROPPED = (b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection")
_HTTP_PORT = 80


class BadRequest(Exception):
    """The request is not a proxy request."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """The host and port a program wants to connect to, and the first bytes to send."""

    host: str
    port: int
    opening: bytes
    """The bytes that the host is sent first; empty for a tunnel, where the program is told about
    the connection instead.
    """

    @property
    def is_tunnel(self) -> bool:
        """Whether the program asked for `CONNECT`."""
        return not self.opening


def parse(head: bytes) -> ProxyRequest:
    r"""Parse the head of a request, up to and with the empty line.

    A plain request is sent on with `Connection: close`, so that the next request, which may be for
    another host, comes to the proxy again.

    Raises:
        BadRequest: the head has neither form; the message says what is wrong.

    >>> parse(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
    ProxyRequest(host='example.org', port=443, opening=b'')
    """
    line, *headers = head.split(b"\r\n")[:-2]
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise BadRequest("not an HTTP/1 request line")
    method, target, version = words
    try:
        url = urlsplit((b"//" + target if method == b"CONNECT" else target).decode("ascii"))
        host, port = url.hostname, url.port
    except ValueError as error:
        raise BadRequest(f"not an address: {target[:80]!r}") from error
    if method == b"CONNECT":
        if not host or port is None or url.path or url.query:
            raise BadRequest("CONNECT takes host:port")
        return ProxyRequest(host, port, b"")
    if url.scheme != "http" or not host:
        raise BadRequest("a proxy is asked for http://host/path or by CONNECT host:port")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept_headers = [
        header for header in headers if header.partition(b":")[0].strip().lower() not in _DROPPED
    ]
    first = b" ".join((method, path.encode(), version))
    opening = b"\r\n".join([first, *kept_headers, b"Connection: close", b"", b""])
    return ProxyRequest(host, port or _HTTP_PORT, opening)
