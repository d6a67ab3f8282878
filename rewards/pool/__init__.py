"""A warm pool of killable worker processes for scorers that burn CPU."""

from .outcome import Fate, PoolOutcome, fates_of
from .pool import PoolLimits, WorkerPool

__all__ = ["Fate", "PoolLimits", "PoolOutcome", "WorkerPool", "fates_of"]
