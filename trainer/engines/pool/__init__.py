"""A pool of engines that acts as a single engine."""

from .pool import EnginePool
from .publisher import Publishing
from .seats import PooledEngine

__all__ = ["EnginePool", "PooledEngine", "Publishing"]
