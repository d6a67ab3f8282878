"""An engine in a separate process."""

from .engine import ProcessEngine
from .messages import EngineSpec

__all__ = ["EngineSpec", "ProcessEngine"]
