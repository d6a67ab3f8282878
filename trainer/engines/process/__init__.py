"""An engine in a process of its own."""

from .engine import ProcessEngine
from .messages import EngineSpec

__all__ = ["EngineSpec", "ProcessEngine"]
