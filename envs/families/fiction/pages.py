"""Writes the page of an entity: the facts about the entity, in sentences."""

from __future__ import annotations

import random

from .facts import NUMBERS, OUTGOING, EntityKind
from .world import World

_SUBJECTS = {kind: f"This {kind}" for kind in EntityKind}
_LISTED = {
    EntityKind.TOWN: "born_in",
    EntityKind.COMPANY: "employer",
    EntityKind.SCHOOL: "studied_at",
}
_LISTS = {
    EntityKind.TOWN: "People from {}: {}.",
    EntityKind.COMPANY: "People at {}: {}.",
    EntityKind.SCHOOL: "Alumni of {}: {}.",
}
MAX_LISTED = 4
"""The most names listed on the page of a town, company or school. Through these lists, such pages
share words with the pages of people, which makes search harder.
"""


class Pages:
    """Writes the pages of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Who is listed on the page of each town, company and school.
        listings: dict[str, list[str]] = {}
        for entity in world.entities.values():
            for relation, target in entity.links.items():
                if _LISTED.get(world.entities[target].kind) == relation:
                    members = listings.setdefault(target, [])
                    if len(members) < MAX_LISTED:
                        members.append(entity.name)
        self._listed = listings

    def text(self, name: str) -> str:
        """Return the page of `name`: a sentence per fact; order and wording vary by page."""
        entity = self._world.entities[name]
        rng = random.Random(f"page/{self._world.seed}/{name}")
        subject = _SUBJECTS[entity.kind]
        facts = [
            f"{subject} {rng.choice(relation.sentences).format(entity.links[relation.name])}."
            for relation in OUTGOING[entity.kind]
            if relation.name in entity.links
        ]
        if entity.number is not None:
            facts.append(
                f"{subject} {rng.choice(NUMBERS[entity.kind].sentences).format(entity.number)}."
            )
        rng.shuffle(facts)
        sentences = [f"{name} is a {entity.kind}.", *facts]
        if names_listed := self._listed.get(name):
            sentences.append(_LISTS[entity.kind].format(name, ", ".join(names_listed)))
        return " ".join(sentences)

    def mentioned(self, name: str) -> list[str]:
        """Return the entities that the page of `name` names, each once, relations first."""
        links = self._world.entities[name].links.values()
        return list(dict.fromkeys([*links, *self._listed.get(name, [])]))
