"""`ludus/calls-v0`: say which function to call, with which arguments."""

from .env import Calls
from .matching import Expected, fault_of_calls

__all__ = ["Calls", "Expected", "fault_of_calls"]
