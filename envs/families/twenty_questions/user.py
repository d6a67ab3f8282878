"""The scripted user, who answers a yes-or-no question or says why the question has no answer.

The user never guesses what was meant: a question with a negation, two questions in one, or words
that change the meaning of others are not answered, so that a `yes` or `no` is always true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .things import ORDERED, PROPERTIES, Thing

MAX_QUESTION_CHARS = 1_000
SYNONYMS = {
    "wooden": "wood", "woollen": "wool", "woolen": "wool", "metal": "iron", "middling": "medium",
    "hums": "humming", "hum": "humming", "rings": "ringing", "ring": "ringing",
    "rattles": "rattling", "rattle": "rattling", "quiet": "silent", "elongated": "long",
}  # fmt: skip
_VALUES = {value: name for name, values in PROPERTIES.items() for value in values}
_SIZES = PROPERTIES[ORDERED]
_TURNS = """
not no never neither nor none except without unless but than least most almost nearly rather other
both either same different if isnt doesnt arent hasnt cant wont
"""
_TURNING = frozenset(_TURNS.split())
"""Words that change the meaning of others: a question with such a word is not answered."""
_WITHOUT_APOSTROPHES = str.maketrans("", "", "'\u2019")
_WORD = re.compile(r"[a-z]+")
_LARGER = re.compile(r"\b(?:larger|bigger|greater) than (?:a )?(\w+)")
_SMALLER = re.compile(r"\b(?:smaller|littler) than (?:a )?(\w+)")

Test = Callable[[Thing], bool]


class NotUnderstood(ValueError):
    """The question cannot be answered; the message tells the policy why."""


@dataclass(frozen=True, slots=True)
class AskedProperty:
    """A question that was understood."""

    is_true: Test
    """Returns whether the answer would be yes if the given thing were the secret."""
    guess: str = ""
    """The thing that the question names, if it names a single thing and asks nothing else."""


def understand(question: str, names: Iterable[str]) -> AskedProperty:
    """Read a question.

    Args:
        question: what the policy said.
        names: the names of all things.

    Raises:
        NotUnderstood: the question cannot be answered with yes or no.
    """
    if len(question) > MAX_QUESTION_CHARS:
        raise NotUnderstood("that is too long to follow")
    if question.count("?") > 1:
        raise NotUnderstood("one question at a time, please")
    text = question.lower().translate(_WITHOUT_APOSTROPHES)
    if (compared := _comparison(text)) is not None:
        return compared
    words: list[str] = [SYNONYMS.get(word, word) for word in _words(text)]
    names_used = list(dict.fromkeys(word for word in words if word in frozenset(names)))
    values = list(dict.fromkeys(word for word in words if word in _VALUES))
    if turning := sorted(_TURNING & set(words)):
        raise NotUnderstood(f"please ask without {turning[0]!r}")
    if names_used and values:
        raise NotUnderstood("ask about properties or about things, one of the two")
    if names_used:
        return AskedProperty(
            lambda thing: thing.name in names_used, names_used[0] if len(names_used) == 1 else ""
        )
    if values:
        # Combine the values that a question names into a test.
        # Values of the same property are alternatives; if several properties are named, all have to
        # hold, unless `or` joins them.
        wanted_values: dict[str, set[str]] = {}
        for value in values:
            wanted_values.setdefault(_VALUES[value], set()).add(value)
        if "and" in words and (
            "or" in words or any(len(names_wanted) > 1 for names_wanted in wanted_values.values())
        ):
            raise NotUnderstood("please use either 'and' or 'or', and 'and' between properties")
        combine = any if "or" in words and len(wanted_values) > 1 else all
        return AskedProperty(
            lambda thing: combine(
                thing.values[name] in names_wanted for name, names_wanted in wanted_values.items()
            )
        )
    raise NotUnderstood(
        "ask about a property, such as 'Is it red?', or name a thing, such as 'Is it the ...?'"
    )


def _words(text: str) -> list[str]:
    return [match[0] for match in _WORD.finditer(text)]


def _comparison(text: str) -> AskedProperty | None:
    """Read a comparison of sizes, such as "larger than small"; None without a comparison."""
    larger, smaller = _LARGER.search(text), _SMALLER.search(text)
    comparison = larger or smaller
    if comparison is None or comparison[1] not in _SIZES:
        return None
    rest = set(_words(text.replace(comparison[0], " ")))
    if (larger and smaller) or rest & (set(_VALUES) | _TURNING | {"and", "or"}):
        raise NotUnderstood("compare with one size, and ask nothing else")
    limit = _SIZES.index(comparison[1])
    if larger:
        return AskedProperty(lambda thing: _SIZES.index(thing.values[ORDERED]) > limit)
    return AskedProperty(lambda thing: _SIZES.index(thing.values[ORDERED]) < limit)
