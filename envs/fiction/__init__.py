"""Fictional worlds: invented people, towns, companies, schools and books."""

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
