"""Network access of sandboxed programs: the policy, and the proxy that enforces the policy."""

from __future__ import annotations

from .policy import NetworkNotAllowed, NetworkPolicy
from .proxy import EgressProxy

__all__ = ["EgressProxy", "NetworkNotAllowed", "NetworkPolicy"]
