"""Rollouts for training: episodes are collected in groups, scored, and drawn from tasks."""

from .collect import Collector, Group, Ticket
from .scoring import EpisodeScorer
from .source import EnvSource, open_source

__all__ = ["Collector", "EnvSource", "EpisodeScorer", "Group", "Ticket", "open_source"]
