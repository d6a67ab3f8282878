"""Sandboxes over HTTP: routes and sessions of a server, and the clients."""

from __future__ import annotations
