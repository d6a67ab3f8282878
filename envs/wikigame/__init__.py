"""The wiki game environment: from page to page of a fictional encyclopedia."""

from .env import WikiGame
from .graph import PageGraph, page_graph

__all__ = ["PageGraph", "WikiGame", "page_graph"]
