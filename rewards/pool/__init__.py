"""A warm pool of killable worker processes for scorers that burn CPU."""

from .outcome import Fate, Outcome
from .pool import Limits, WorkerPool

__all__ = ["Fate", "Limits", "Outcome", "WorkerPool"]
