"""A warm pool of killable worker processes for scorers that burn CPU."""

from .outcome import Fate, Outcome, fates_of
from .pool import Limits, WorkerPool

__all__ = ["Fate", "Limits", "Outcome", "WorkerPool", "fates_of"]
