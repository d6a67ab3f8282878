"""What a sandboxed program may reach of a network, and the proxy that is its only way there."""

from __future__ import annotations

from .policy import NetworkNotAllowed, NetworkPolicy
from .proxy import EgressProxy

__all__ = ["EgressProxy", "NetworkNotAllowed", "NetworkPolicy"]
