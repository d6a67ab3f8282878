"""The wiki game environment: from page to page of a fictional encyclopedia."""

from .graph import PageGraph, page_graph
from .wikigame_env import WikiGame

__all__ = ["PageGraph", "WikiGame", "page_graph"]
