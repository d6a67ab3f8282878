"""The tier `docker`: each slot runs in a container that a local Docker engine makes."""

from __future__ import annotations

from .sandbox import DockerSandbox

__all__ = ["DockerSandbox"]
