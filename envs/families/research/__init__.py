"""Reports with citations about a fictional world, whose truth is known exactly."""

from .research_env import Research

__all__ = ["Research"]
