"""Numbers added up step by step, and checked again and again: a task where length costs."""

from .env import Tally

__all__ = ["Tally"]
