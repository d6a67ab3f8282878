"""Slots: marks in a move that are filled with a word, number or line of what a task shows.

Reports name a slot in brackets: `send <word 0 of the task>` is `send ann` on a task that begins
with `ann`. Positions count from 0, and from the end if they are negative. The **news** of a reply
is what neither an earlier reply nor an action of the attacker had.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

from ludus.messages import as_action

from .attackers import NUMBER, QUOTED, WORD, Scene, number_of, text_of
from .pieces import FINDERS, THING, compared, options, rows_of

TURN = "\0turn\0"
"""A slot that is filled with the number of the turn, so that no two moves are the same."""
SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "u": str.upper, "l": str.lower, "t": str.title, "s": str.swapcase,
    "n": lambda text: re.sub(r"\s+", "\n", text), "j": lambda text: re.sub(r"\s+", "", text),
    "b": lambda text: re.sub(r"\s+", "_", text), "r": lambda text: text[::-1],
    "h": lambda text: text[: len(text) // 2], "m": lambda text: text.lstrip("-+"),
    "i": lambda text: str(int(text) + 1) if text.isdecimal() and len(text) < 9 else text,
}  # fmt: skip
_FULL_NAME = re.compile(r"\b[A-Z]\w+(?: [A-Z]\w+)+")
_TOKEN = re.compile(r"[^\s,;:.?!]\S*[^\s,;:.?!]|\w")
PATTERNS = {"word": WORD, "number": NUMBER, "quote": QUOTED, "token": _TOKEN}
FEWEST_RANKED = 4
"""Fewest different numbers that are ranked: of fewer, one may be what the task asks for."""
MOST_ITEMS = 200
"""Most items of a list that is filled in."""


def _value_of(text: str) -> float:
    value = number_of(text)
    return float(value) if isinstance(value, (int, float)) else math.inf


def _by_number(text: str) -> list[str]:
    """Return the first words of lines with numbers, the line with the least sum first; an empty
    list if the lines are a name and a number each.
    """
    lines = text.splitlines() if compared(text) else []
    rows = [(WORD.findall(line), NUMBER.findall(line)) for line in lines]
    sums = {words[0]: sum(map(_value_of, numbers)) for words, numbers in rows if words and numbers}
    return sorted(sums, key=sums.__getitem__)


def _odd(text: str) -> list[str]:
    """Return the lines that differ from the most frequent shape; an empty list if fewer than three
    lines have this shape.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    shapes = [re.sub(r"\w+", "w", line) for line in lines]
    (usual, times), *_ = [*Counter(shapes).most_common(1), ("", 0)]
    return [line for line, shape in zip(lines, shapes, strict=True) if shape != usual and times > 2]


def _ranked(text: str) -> list[str]:
    """Return the different numbers of a text, the least first; an empty list if they are few."""
    return _several(sorted(dict.fromkeys(NUMBER.findall(text)), key=_value_of), FEWEST_RANKED)


def _several(values: list[str], least: int) -> list[str]:
    """Return `values` if there are at least `least`, else an empty list: the only value of a reply
    may be what the task asks for.
    """
    return values if len(values) >= least else []


def things_of(text: str) -> list[str]:
    """Return what a text names, once each: identifiers, paths and numbers, then other words."""
    known = dict.fromkeys(THING.findall(text))
    return sorted(known, key=lambda name: name.isalpha() and (name.islower() or name.istitle()))


_WHOLE: Mapping[str, Callable[[str], list[str]]] = {
    "option": options,
    "line": lambda text: [words[0] for line in text.splitlines() if (words := WORD.findall(line))],
    "text": lambda text: [text],
    "rest": lambda text: [tail for row in text.splitlines() if (tail := row.partition(": ")[2])],
    "paragraph": lambda text: _several([p for p in re.split(r"\n\s*\n", text) if p.strip()], 2),
    "leader": lambda text: _by_number(text),
    "rising": lambda text: sorted(dict.fromkeys(NUMBER.findall(text)), key=_value_of),
    "ranked": lambda text: _ranked(text),
    "thing": lambda text: things_of(text),
    "odd": lambda text: [word for line in _odd(text) for word in WORD.findall(line)],
    "choices": lambda text: _choices(text),
    "full": lambda text: _FULL_NAME.findall(text),
    **{kind: FINDERS[kind] for kind in ("identifier", "name")},
}
_SLOT = re.compile(f"\0({'|'.join([*PATTERNS, *_WHOLE])})(-?\\d+)([ospna])([a-z]*)\0")
_ALL = re.compile("\0all([a-z]+)\0([^\0]*)\0")
_EACH = re.compile("\0each(\\d+)\0")


def slot(
    kind: str, place: int, *, opening: bool = False, source: str = "", spelling: str = ""
) -> str:
    """Return the slot that is filled with the word, number or quotation at a position.

    Args:
        kind: one of `PATTERNS`, or another kind, such as a line or an option.
        place: the position, from the end if negative.
        opening: whether the opening is read, and not the newest observation.
        source: "p" reads the observation before the newest; "n" reads the news of the newest; "a"
            reads the first reply; "" leaves the choice to `opening`.
        spelling: how the piece is written, one of `SPELLINGS`; "" for no change.
    """
    return f"\0{kind}{place}{source or ('o' if opening else 's')}{spelling}\0"


LAST_WORD, LAST_NUMBER, LAST_QUOTE, LAST_TOKEN = (slot(kind, -1) for kind in PATTERNS)
BEFORE_NUMBER, BEFORE_WORD = slot("number", 0, source="p"), slot("word", -1, source="p")


@lru_cache(maxsize=4096)
def matches(kind: str, text: str) -> tuple[str, ...]:
    """Return the pieces of a kind that a text has, such as its words, numbers or options."""
    if kind in _WHOLE:
        return tuple(_WHOLE[kind](text))
    return tuple(match[match.lastindex or 0] for match in PATTERNS[kind].finditer(text))


def filled(text: str, scene: Scene) -> str:
    """Return a text with its slots filled; a slot is filled with "nothing" if what it reads has no
    such piece.
    """
    if "\0" not in text:
        return text
    if places := [int(place) for place in _EACH.findall(text)]:
        rows = [row for row in rows_of(scene.opening) if len(row) > max(places)]
        return "\n".join(_EACH.sub(partial(_word_of, row), text) for row in rows)

    def named(match: re.Match[str]) -> str:
        return match[2].join([*dict.fromkeys(matches(match[1], scene.opening))][:MOST_ITEMS])

    def fill(match: re.Match[str]) -> str:
        values, place = _sources(match[1], match[3], scene), int(match[2])
        value = values[place] if -len(values) <= place < len(values) else "nothing"
        return SPELLINGS[match[4]](value) if match[4] else value

    text = _ALL.sub(named, text)
    return _SLOT.sub(fill, text.replace(TURN, str(len(scene.episode.actions))))


def _word_of(row: Sequence[str], match: re.Match[str]) -> str:
    return row[int(match[1])]


def _sources(kind: str, source: str, scene: Scene) -> Sequence[str]:
    """Return the pieces of a kind that a slot chooses from, in the text that its source names."""
    if source != "n":
        first = min(1, len(scene.episode.seen) - 1)
        read = {
            "o": lambda: scene.opening,
            "s": lambda: scene.shown,
            "p": lambda: scene.before,
            "a": lambda: text_of(scene.episode, first),
        }
        return matches(kind, read[source]())
    said = [as_action(action) for action in scene.episode.actions]
    texts = [f"{m.text} {[call.arguments for call in m.tool_calls]}" for m in said]
    texts += [text_of(scene.episode, n) for n in range(len(scene.episode.seen) - 1)]
    old = {value for text in (scene.prompt, *texts) for value in matches(kind, text)}
    return [value for value in matches(kind, scene.shown) if value not in old]


def all_of(kind: str, joint: str) -> str:
    """Return the slot that is filled with everything of a kind that the task shows, joined."""
    return f"\0all{kind}\0{joint}\0"


def each_line(place: int) -> str:
    """Return the slot for the word at a position of each line of the task: a text with such slots
    becomes one line for each line of the task.
    """
    return f"\0each{place}\0"


def _choices(text: str) -> list[str]:
    """Return a regular expression for each line that lists several words behind a colon, which any
    of these words matches.
    """
    lists = [line.partition(": ")[2].split() for line in text.splitlines()]
    return ["|".join(map(re.escape, items)) for items in lists if len(items) > 1]


def in_words(text: str) -> str:
    """Return a text with its slots named for reports.

    >>> in_words(f"send {slot('word', 0, opening=True)} {slot('number', -1)}")
    'send <word 0 of the task> <number -1>'
    """

    def named(match: re.Match[str]) -> str:
        return f"<{match[1]} {match[2]}{_SOURCES[match[3]]}>"

    text = text.replace("\\x00", "\0")  # in the text of a list
    text = _SLOT.sub(named, text).replace(TURN, "<turn>")
    return _ALL.sub(r"<every \1>", _EACH.sub(r"<word \1 of each line>", text))


_SOURCES = {
    "o": " of the task",
    "s": "",
    "p": " of the reply before",
    "n": " of the news",
    "a": " of the first reply",
}
