"""Fictional worlds: invented people, towns, companies, schools and books."""

from .facts import ATTRIBUTES, NUMBERS, OUTGOING, RELATIONS, Attribute, EntityKind, Relation
from .pages import Pages
from .world import Entity, World, build_world

__all__ = [
    "ATTRIBUTES",
    "NUMBERS",
    "OUTGOING",
    "RELATIONS",
    "Attribute",
    "Entity",
    "EntityKind",
    "Pages",
    "Relation",
    "World",
    "build_world",
]
