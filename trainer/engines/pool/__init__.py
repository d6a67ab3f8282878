"""Several engines that are one engine."""

from .pool import EnginePool
from .publisher import Publishing
from .seats import PooledEngine

__all__ = ["EnginePool", "PooledEngine", "Publishing"]
