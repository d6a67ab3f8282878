"""`ludus/functions-v0`: small algorithms, carried out call by call on hidden data."""

from .env import Functions

__all__ = ["Functions"]
