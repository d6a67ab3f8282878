"""The tally environment: add numbers step by step, where checking again and again costs tokens."""

from .tally_env import Tally

__all__ = ["Tally"]
