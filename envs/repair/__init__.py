"""Repairing small functions that were broken on purpose."""

from .env import CodeRepair, Report

__all__ = ["CodeRepair", "Report"]
