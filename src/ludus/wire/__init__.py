"""HTTP shared by servers and clients: typed requests and answers, retries, streams, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .chaos import Chaos
    from .client import AsyncTransport, Client, RetryPolicy, Transport
    from .codec import Format
    from .faults import Fault
    from .routes import Route, Service
    from .server import BackgroundServer, HttpServer
    from .sync_transport import SyncTransport

__all__ = [
    "AsyncTransport",
    "BackgroundServer",
    "Chaos",
    "Client",
    "Fault",
    "Format",
    "HttpServer",
    "RetryPolicy",
    "Route",
    "Service",
    "SyncTransport",
    "Transport",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".client": "AsyncTransport Client RetryPolicy Transport",
        ".server": "BackgroundServer HttpServer",
        ".chaos": "Chaos",
        ".codec": "Format",
        ".faults": "Fault",
        ".routes": "Route Service",
        ".sync_transport": "SyncTransport",
    },
)
