"""`ludus/functions-v0`: the policy carries out small algorithms, call by call, on hidden data."""

from .functions_env import Functions

__all__ = ["Functions"]
