"""The tier `docker`: a slot in a container of its own, made by a local Docker engine."""

from __future__ import annotations

from .sandbox import DockerSandbox

__all__ = ["DockerSandbox"]
