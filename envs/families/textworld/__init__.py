"""The TextWorld environment: text games, behind the extra `textworld`."""

from .engine import GameSize
from .games import MadeGames, build_pool
from .textworld_env import TextWorld
from .view import Situation, View, ViewFact

__all__ = ["GameSize", "MadeGames", "Situation", "TextWorld", "View", "ViewFact", "build_pool"]
