"""Reading a judge's answer: one consistent verdict in it, or none at all.

A number that merely occurs in the text is never a verdict. The answer has to hold a JSON object
with exactly the fields that were asked for; several objects must agree.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ludus.errors import LudusError

from .rubric import ItemKind, RubricItem

MAX_ANSWER_CHARS = 64_000
MAX_OBJECTS = 64
"""Places in one answer at which an object may begin before the answer counts as noise."""
HOLISTIC = (1, 10)
"""Lowest and highest score of a holistic judgement (Rubrics as Rewards, implicit)."""


class UnreadableVerdict(LudusError, ValueError):
    """A judge's answer holds no verdict, or several that contradict each other."""


def read_item(answer: str, item: RubricItem) -> float:
    """The score of one item in [0, 1].

    Raises:
        UnreadableVerdict: there is none.

    >>> read_item('{"reason": "yes", "met": true}', RubricItem(text="It is polite."))
    1.0
    """
    field = field_of(item)
    return _agreed([score_of(found, item) for found in objects(answer) if field in found])


def read_items(answer: str, items: Sequence[RubricItem]) -> dict[str, float]:
    """The scores of several items, judged in one answer.

    Raises:
        UnreadableVerdict: an item is missing, is there twice, or was not asked for.
    """
    answers = [found["verdicts"] for found in objects(answer) if "verdicts" in found]
    readings = [_read_list(given, items) for given in answers]
    if not readings:
        raise UnreadableVerdict("the answer holds no object with 'verdicts'")
    if any(reading != readings[0] for reading in readings):
        raise UnreadableVerdict("the answer holds several lists of verdicts that contradict")
    return readings[0]


def read_holistic(answer: str) -> float:
    """The holistic score in [0, 1]: (score - 1) / 9.

    Raises:
        UnreadableVerdict: there is none.
    """
    low, high = HOLISTIC
    given = [found["score"] for found in objects(answer) if "score" in found]
    return _agreed([(_whole(value, low, high) - low) / (high - low) for value in given])


def read_choice(answer: str, field: str, choices: Sequence[str]) -> str:
    """One of `choices`, named under `field`.

    Raises:
        UnreadableVerdict: none is named, another is, or two are.
    """
    given = [found[field] for found in objects(answer) if field in found]
    wrong = next((value for value in given if value not in choices), None)
    if wrong is not None:
        raise UnreadableVerdict(f"{field!r} must be one of {list(choices)}, got {wrong!r:.80}")
    if not given or any(value != given[0] for value in given):
        raise UnreadableVerdict(f"the answer names {len(given)} values of {field!r}")
    return str(given[0])


def read_ranking(answer: str, names: Sequence[str]) -> list[str]:
    """All `names`, best first.

    Raises:
        UnreadableVerdict: the list is missing, or is no permutation.
    """
    given = [found["ranking"] for found in objects(answer) if "ranking" in found]
    if not given or any(value != given[0] for value in given):
        raise UnreadableVerdict(f"the answer holds {len(given)} rankings")
    ranking = given[0]
    if not isinstance(ranking, list) or sorted(map(str, ranking)) != sorted(names):
        raise UnreadableVerdict(f"a ranking names each of {list(names)} once, got {ranking!r:.120}")
    return [str(name) for name in ranking]


def field_of(item: RubricItem) -> str:
    """The name under which the score of an item is written."""
    return "met" if item.kind is ItemKind.BINARY else "score"


def score_of(found: dict[str, Any], item: RubricItem) -> float:
    """The score in [0, 1] that one object of an answer gives an item.

    Raises:
        UnreadableVerdict: the value is of another type or out of range.
    """
    value = found.get(field_of(item))
    if item.kind is ItemKind.BINARY:
        if not isinstance(value, bool):
            raise UnreadableVerdict(f"'met' must be true or false, got {value!r:.80}")
        return float(value)
    return _whole(value, 0, item.highest) / item.highest


def objects(answer: str) -> list[dict[str, Any]]:
    """The outermost JSON objects of an answer, in order, thoughts left out.

    Raises:
        UnreadableVerdict: the answer is too long, or names a field of one object twice.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        raise UnreadableVerdict(
            f"the answer has {len(answer)} characters; at most {MAX_ANSWER_CHARS} are read"
        )
    return list(_found(_without_thoughts(answer)))


def _without_thoughts(answer: str) -> str:
    """What follows the last closed thought; an unclosed one leaves nothing to read."""
    rest = re.split(r"</think(?:ing)?>", answer)[-1]
    return re.split(r"<think(?:ing)?>", rest)[0]


def _found(text: str) -> Iterator[dict[str, Any]]:
    place = text.find("{")
    for _ in range(MAX_OBJECTS):
        if place < 0:
            return
        try:
            value, end = _decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            end = place + 1
        except RecursionError:
            raise UnreadableVerdict("the answer nests objects too deep") from None
        else:
            yield value
        place = text.find("{", end)
    raise UnreadableVerdict(f"the answer has more than {MAX_OBJECTS} places that look like JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise UnreadableVerdict("the answer names a field of one object twice")
    return made


def _no_constant(name: str) -> float:
    raise UnreadableVerdict(f"{name} is no score")


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, strict=False)


def _whole(value: object, low: int, high: int) -> int:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UnreadableVerdict(
            f"'score' must be a whole number from {low} to {high}, got {value!r:.80}"
        )
    return value


def _agreed(scores: Sequence[float]) -> float:
    if not scores:
        raise UnreadableVerdict("the answer holds no object with the field that was asked for")
    if any(score != scores[0] for score in scores):
        raise UnreadableVerdict(f"the answer holds {len(scores)} verdicts that contradict")
    return scores[0]


def _read_list(given: object, items: Sequence[RubricItem]) -> dict[str, float]:
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        raise UnreadableVerdict(f"'verdicts' must be a list of objects, got {given!r:.80}")
    asked = {item.id: item for item in items}
    named = [str(row.get("id")) for row in given]
    if sorted(named) != sorted(asked):
        raise UnreadableVerdict(f"verdicts were asked for {sorted(asked)}, got {sorted(named)}")
    return {str(row["id"]): score_of(row, asked[str(row["id"])]) for row in given}
