"""The TextWorld environment: text games, behind the extra `textworld`."""

from .engine import GameSize
from .env import TextWorld
from .games import build_pool
from .view import Fact, Situation, View

__all__ = ["Fact", "GameSize", "Situation", "TextWorld", "View", "build_pool"]
