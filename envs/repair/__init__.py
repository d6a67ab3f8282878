"""The code repair environment: small functions that were broken on purpose have to be repaired."""

from .env import CodeRepair, Report

__all__ = ["CodeRepair", "Report"]
