"""Rollouts for training: episodes are collected in groups, scored, and drawn from tasks."""

from .collect import Collector, Drawing, Group, PlayBounds, Ticket
from .scoring import EpisodeScorer
from .source import EnvSource, open_source

__all__ = [
    "Collector",
    "Drawing",
    "EnvSource",
    "EpisodeScorer",
    "Group",
    "PlayBounds",
    "Ticket",
    "open_source",
]
