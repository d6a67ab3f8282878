"""The code repair environment: small functions that were broken on purpose have to be repaired."""

from .repair_env import CodeRepair, MistakeReport

__all__ = ["CodeRepair", "MistakeReport"]
