"""The function-calling environment: the policy says which functions to call, and how."""

from .calls_env import Calls
from .matching import Expected, fault_of_calls

__all__ = ["Calls", "Expected", "fault_of_calls"]
