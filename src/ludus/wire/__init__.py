"""HTTP shared by servers and clients: typed requests and answers, retries, streams, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .async_transport import AsyncTransport
    from .background import BackgroundServer
    from .chaos import Chaos
    from .client import Client, RetryPolicy, Transport
    from .codec import Format
    from .faults import Fault
    from .routes import Route, Service
    from .server import HttpServer
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
        ".async_transport": "AsyncTransport",
        ".background": "BackgroundServer",
        ".chaos": "Chaos",
        ".client": "Client RetryPolicy Transport",
        ".codec": "Format",
        ".faults": "Fault",
        ".routes": "Route Service",
        ".server": "HttpServer",
        ".sync_transport": "SyncTransport",
    },
)
