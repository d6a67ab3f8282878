"""The TextWorld environment: text games, behind the extra `textworld`."""

from .games import GameSize, MadeGames, Situation, View, ViewFact, build_pool
from .textworld_env import TextWorld

__all__ = ["GameSize", "MadeGames", "Situation", "TextWorld", "View", "ViewFact", "build_pool"]
