"""Episodes for training: where they are played, how groups are collected, what they are worth."""

from .collect import Collector, Group
from .scoring import EpisodeScorer
from .source import EnvSource, open_source

__all__ = ["Collector", "EnvSource", "EpisodeScorer", "Group", "open_source"]
