"""Fictional worlds: people, towns, companies, schools and books that nobody has read about."""

from .facts import ATTRIBUTES, NUMBERS, OUTGOING, RELATIONS, Attribute, Kind, Relation
from .pages import Pages
from .world import Entity, World, build_world

__all__ = [
    "ATTRIBUTES",
    "NUMBERS",
    "OUTGOING",
    "RELATIONS",
    "Attribute",
    "Entity",
    "Kind",
    "Pages",
    "Relation",
    "World",
    "build_world",
]
