"""Reads a single verdict from a judge's answer, or refuses the answer (decision 0305).

A number or an object that merely occurs in a text is never a verdict. The answer has to *end* with
one JSON object that begins on a line of its own. Thoughts and sentences may stand before the
object, and nothing but the end of a code block after it. An object is not read if it is quoted in a
sentence, is part of a broken object, is taken back, or is followed by another object.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from ludus.errors import LudusError
from ludus.messages import assistant
from ludus.thoughts import ALL, apart

from .rubric import ItemKind, RubricItem

MAX_ANSWER_CHARS = 64_000
MAX_DIGITS = 20
"""The most digits of an integer; a longer number is refused before Python converts it."""
HOLISTIC = (1, 10)
"""Lowest and highest score of a holistic judgement (Rubrics as Rewards, implicit)."""


class UnreadableVerdict(LudusError, ValueError):
    """A judge's answer holds no verdict, or several that contradict each other."""


def read_item(answer: str, item: RubricItem) -> float:
    """Read the score of a single item, in [0, 1].

    Raises:
        UnreadableVerdict: the answer holds no score of the item.

    >>> read_item('{"reason": "yes", "met": true}', RubricItem(text="It is polite."))
    1.0
    """
    return score_of(verdict_of(answer, field_of(item)), item)


def read_items(answer: str, items: Sequence[RubricItem]) -> dict[str, float]:
    """Read the scores of several items, each in [0, 1], from the same answer.

    Raises:
        UnreadableVerdict: an item is missing, is there twice, or was not asked for.
    """
    rows = verdict_of(answer, "verdicts")["verdicts"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnreadableVerdict(f"'verdicts' must be a list of objects, got {rows!r:.80}")
    item_of = {item.id: item for item in items}
    row_ids = [str(row.get("id")) for row in rows]
    if sorted(row_ids) != sorted(item_of):
        raise UnreadableVerdict(f"verdicts were asked for {sorted(item_of)}, got {sorted(row_ids)}")
    scores: dict[str, float] = {}
    for row in rows:
        item = item_of[str(row["id"])]
        field = field_of(item)
        rival = next((name for name in row if name != field and _rivals(name, row[name])), None)
        if rival is not None:
            raise UnreadableVerdict(f"the verdict on {item.id!r} holds a second one in {rival!r}")
        scores[item.id] = score_of(row, item)
    return scores


def read_holistic(answer: str) -> float:
    """Read the holistic score, in [0, 1]: (score - 1) / 9.

    Raises:
        UnreadableVerdict: the answer holds no whole number from 1 to 10 as score.
    """
    low, high = HOLISTIC
    return (_read_integer(verdict_of(answer, "score")["score"], low, high) - low) / (high - low)


def read_choice(answer: str, field: str, choices: Sequence[str]) -> str:
    """Read which of `choices` the answer names under `field`.

    Raises:
        UnreadableVerdict: no choice is named, or the value is none of the choices.
    """
    value = verdict_of(answer, field)[field]
    if not isinstance(value, str) or value not in choices:
        raise UnreadableVerdict(f"{field!r} must be one of {list(choices)}, got {value!r:.80}")
    return value


def read_ranking(answer: str, names: Sequence[str]) -> list[str]:
    """Read a ranking: all `names`, best first.

    Raises:
        UnreadableVerdict: the list is missing, or is not a permutation.
    """
    ranking = verdict_of(answer, "ranking")["ranking"]
    names_ranked = [str(name) for name in ranking] if isinstance(ranking, list) else []
    if sorted(names_ranked) != sorted(names):
        raise UnreadableVerdict(f"a ranking names each of {list(names)} once, got {ranking!r:.120}")
    return names_ranked


def field_of(item: RubricItem) -> str:
    """Return the field under which an answer holds the score of an item."""
    return "met" if item.kind is ItemKind.BINARY else "score"


def score_of(verdict: dict[str, Any], item: RubricItem) -> float:
    """Return the score, in [0, 1], that an object of an answer gives an item.

    Raises:
        UnreadableVerdict: the value is of another type or out of range.
    """
    value = verdict.get(field_of(item))
    if item.kind is ItemKind.BINARY:
        if not isinstance(value, bool):
            raise UnreadableVerdict(f"'met' must be true or false, got {value!r:.80}")
        return float(value)
    return _read_integer(value, 0, item.highest) / item.highest


def verdict_of(answer: str, field: str) -> dict[str, Any]:
    """Return the JSON object with `field` that an answer ends with.

    Raises:
        UnreadableVerdict: there is none, it is broken or repeats a field, something other than
            thoughts or sentences goes before, something follows, or another verdict is in it.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        raise UnreadableVerdict(
            f"the answer has {len(answer)} characters; at most {MAX_ANSWER_CHARS} are read"
        )
    message = apart(assistant(answer))
    # A thought within a thought may go on after the inner one has ended.
    if message.only_thinks or ALL.opening(message.reasoning) >= 0:
        raise UnreadableVerdict("the answer ends within a thought")
    text = message.text
    place = text.find("{")
    before = text[: max(0, place)]
    if place < 0 or before.rpartition("\n")[2].strip():
        raise UnreadableVerdict("the answer holds no JSON object on a line of its own")
    if markup := _MARKUP.search(before):
        raise UnreadableVerdict(f"{markup[0]!r} stands before the object and is not closed")
    verdict: dict[str, Any]
    try:
        verdict, end = _decoder.raw_decode(text, place)
    except RecursionError:
        raise UnreadableVerdict("the answer nests objects too deep") from None
    except json.JSONDecodeError as error:
        raise UnreadableVerdict(f"the answer is not JSON: {error}") from None
    if remainder := _AFTER.sub("", text[end:]):
        raise UnreadableVerdict(f"the answer goes on after its object: {remainder!r:.80}")
    if field not in verdict:
        raise UnreadableVerdict(f"the answer's object has no field {field!r}")
    rival = next((name for name in verdict if name != field and _rivals(name, verdict[name])), None)
    if rival is not None:
        raise UnreadableVerdict(f"the answer holds a second verdict in its field {rival!r}")
    return verdict


_MARKUP = re.compile(
    r"<[|/!]?[^\W\d][^<>\n]{0,80}>|\[/?[A-Z_]{3,}\]|\u25c1[^\u25b7\n]{0,40}\u25b7|\uff5c"
)
"""Tags and special tokens. The text behind such a mark may be a quoted page, a thought or the turn
of another speaker, and not the judge's own answer.
"""
_AFTER = re.compile(r"[\s`.]+")
_ASKED = frozenset({"met", "score", "better", "ranking", "verdict", "verdicts"})
"""Fields that carry verdicts."""


def _rivals(name: str, value: object) -> bool:
    """Return whether a field beside the requested field may be a verdict too."""
    return name in _ASKED or isinstance(value, (dict, list))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of an object as a dict.

    Names that differ only by looks, case or signs are refused: such an object holds two verdicts,
    of which Python would read one and another reader the other.
    """
    plain = {
        re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name).casefold()) for name, _ in pairs
    }
    if len(plain) < len(pairs):
        raise UnreadableVerdict("the answer names a field of one object twice")
    return dict(pairs)


def _no_constant(name: str) -> float:
    raise UnreadableVerdict(f"{name} is not a score")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise UnreadableVerdict(f"a number of {len(digits)} digits is not a score")
    return int(digits)


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer, strict=False
)


def _read_integer(value: object, low: int, high: int) -> int:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UnreadableVerdict(
            f"'score' must be a whole number from {low} to {high}, got {value!r:.80}"
        )
    return value
