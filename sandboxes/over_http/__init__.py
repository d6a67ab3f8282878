"""Sandboxes over HTTP: the server's routes, and clients that are sandboxes themselves."""

from __future__ import annotations

from .blocking import BlockingRepl, BlockingSandbox, connect
from .fusion import FusionService
from .remote import RemoteSandbox, open_remote
from .remote_repl import RemoteRepl
from .runner import Runner
from .service import SandboxService
from .serving import sandbox_services
from .wire import Bounds, ExecuteBody, SandboxCard

__all__ = [
    "BlockingRepl",
    "BlockingSandbox",
    "Bounds",
    "ExecuteBody",
    "FusionService",
    "RemoteRepl",
    "RemoteSandbox",
    "Runner",
    "SandboxCard",
    "SandboxService",
    "connect",
    "open_remote",
    "sandbox_services",
]
