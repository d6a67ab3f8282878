"""Describes what a player of a text game can see, from the facts of the game's state.

TextWorld writes its own prose only in games compiled for the Z-machine, a C interpreter that reads
whatever a policy types. Here games run in Python, accept only commands that are possible, and have
prose of our own (decision 0514).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PLAYER = "P"
"""The name of the player in TextWorld's facts."""
INVENTORY = "I"
"""The name in TextWorld's facts of the place where carried things are."""
_DIRECTIONS = ("north", "east", "south", "west")
_STATES = (
    *("open", "closed", "locked", "raw", "cooked", "fried", "roasted", "grilled", "burned"),
    *("uncut", "chopped", "sliced", "diced"),
)
# A description may hold `[noun]`, the thing's name, and conditions such as `[if open]`.
_CONDITION = re.compile(r"\[(?!noun\]).*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ViewFact:
    """A fact of the game: `open(safe)`, `at(P, cellar)`, `north_of(shower, cellar)`."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of a game."""

    facts: tuple[ViewFact, ...]
    commands: tuple[str, ...]
    """The commands that are possible now."""
    way: tuple[str, ...] | None
    """The commands that win from here; None where the game cannot be won any more."""
    won: bool = False
    lost: bool = False


class View:
    """Describes a situation in words, with what the player can see."""

    def __init__(self, situation: Situation) -> None:
        self._facts = situation.facts

    @property
    def room(self) -> str:
        """The room in which the player is."""
        places = (fact.arguments[1] for fact in self._pairs("at") if fact.arguments[0] == PLAYER)
        return next(places, "nowhere")

    def look(self) -> str:
        """Describe the room, the things in the room, the exits, and what the player carries."""
        objects = [
            object_name for object_name in self._second("at", self.room) if object_name != PLAYER
        ]
        exits: list[str] = []
        for direction in _DIRECTIONS:
            for room in self._second(f"{direction}_of", self.room):
                door = self._door(room)
                if door:
                    exits.append(f"{direction} (through {self.described(door)})")
                elif ViewFact("free", (self.room, room)) in self._facts:  # nothing is in the way
                    exits.append(direction)
        return "\n".join(
            [
                f"You are in the {self.room}.",
                f"You see: {'; '.join(map(self.described, objects)) or 'nothing'}.",
                f"Exits: {', '.join(exits) or 'none'}.",
                self.inventory(),
            ]
        )

    def inventory(self) -> str:
        """Describe what the player carries."""
        carried_objects = self._second("in", INVENTORY)
        return f"You carry: {', '.join(map(self.described, carried_objects)) or 'nothing'}."

    def described(self, name: str) -> str:
        """Describe a thing with the state, and with the things on top or, if open, inside."""
        states = [state for state in _STATES if ViewFact(state, (name,)) in self._facts]
        inside = (
            self._second("in", name) if "closed" not in states and "locked" not in states else []
        )
        # Things in a closed container are not seen.
        notes = [*states]
        if objects_on := self._second("on", name):
            notes.append(f"on it: {', '.join(map(self.described, objects_on))}")
        if inside:
            notes.append(f"in it: {', '.join(map(self.described, inside))}")
        return f"{name} ({', '.join(notes)})" if notes else name

    def _door(self, room: str) -> str:
        """Return the door between this room and another; empty without a door."""
        # A fact `link(room, door, room)` names a door.
        for fact in self._facts:
            if fact.name == "link" and (fact.arguments[0], fact.arguments[-1]) == (
                self.room,
                room,
            ):
                return fact.arguments[1]
        return ""

    def _second(self, name: str, second: str) -> list[str]:
        """Return the first arguments of the facts `name` whose second argument is `second`."""
        return [f.arguments[0] for f in self._pairs(name) if f.arguments[1] == second]

    def _pairs(self, name: str) -> list[ViewFact]:
        return [fact for fact in self._facts if fact.name == name and len(fact.arguments) == 2]


def plain_description(name: str, description: str) -> str:
    """Return TextWorld's description of a thing, up to where the text depends on the state.

    >>> plain_description("safe", "The [noun] looks strong. [if open]It is open.[end if]")
    'The safe looks strong.'
    """
    return _CONDITION.sub("", description).replace("[noun]", name).strip()


def answer(command: str, situation: Situation, descriptions: Mapping[str, str]) -> str:
    """Describe the effect of a command that was carried out.

    Args:
        command: the command.
        situation: the situation after the command.
        descriptions: name of a thing -> TextWorld's description.
    """
    view = View(situation)
    if command == "inventory":
        return view.inventory()
    verb, _, name = command.partition(" ")
    if verb == "examine":
        description = plain_description(name, descriptions.get(name, ""))
        return f"{view.described(name)}. {description}".strip()
    return view.look()
