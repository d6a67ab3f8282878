"""Several engines that are one engine."""

from .fleet import Publishing
from .pool import EnginePool
from .seats import PooledEngine

__all__ = ["EnginePool", "PooledEngine", "Publishing"]
