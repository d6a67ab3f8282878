"""The last box of a response, found from the end in linear time.

Boxes with nothing but commas, "and" or spaces between them are one list. A second box that is only
offered in case the first is wrong makes the answer no answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..reading.notation import squeeze
from .excerpt import HEDGE, MAX_ANSWER, SEVERAL_OFFERED, Extraction

MAX_BOXES = 20
_AFTERWARDS = re.compile(
    r"^\W{0,6}(?:text\s*\{\s*)?if\b[^.]{0,40}\b(?:wrong|incorrect|not)\b", re.IGNORECASE
)
_BOX_NAME = re.compile(r"\\(?:boxed|fbox|framebox)\s*")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)


class _Box(NamedTuple):
    start: int
    open: int
    close: int
    end: int
    closed: bool = True


def boxed(body: str) -> Extraction | None:
    """What the last box holds, or the last boxes that stand side by side; None without a box."""
    last = _box_before(body, len(body))
    if last is None:
        return None
    content = body[last.open : last.close]
    if not content.strip(" {}$~"):
        return Extraction(None, "box", last.start, last.end, "the last box is empty")
    boxes, previous = _side_by_side(body, last)
    if previous is not None and _hedges(body, previous, boxes[0]):
        return Extraction(None, "box", last.start, last.end, SEVERAL_OFFERED)
    texts = [body[box.open : box.close] for box in boxes]
    if len({squeeze(text) for text in texts}) == 1:
        return Extraction(content, "box", last.open, last.close)
    return Extraction(" , ".join(texts), "boxes", boxes[0].open, last.close)


def _side_by_side(body: str, last: _Box) -> tuple[list[_Box], _Box | None]:
    """The boxes that make one list with the last, and the one before them."""
    boxes = [last]
    previous: _Box | None = None
    while last.closed and len(boxes) < MAX_BOXES:
        previous = _box_before(body, boxes[0].start)
        if previous is None or not previous.closed:
            return boxes, None
        if not _joins(body[previous.end : boxes[0].start]):
            break
        boxes.insert(0, previous)
    return boxes, previous


def _box_before(body: str, end: int) -> _Box | None:
    """The last box that starts before `end`; a box inside a box belongs to the outer one."""
    place = _box_mark(body, 0, end)
    if place < 0:
        return None
    box = _box_at(body, place)
    outer = _box_mark(body, max(0, place - 40), place)
    if outer >= 0:
        around = _box_at(body, outer)
        if around.end > box.start:
            return around
    return box


def _box_mark(body: str, start: int, end: int) -> int:
    """Where the last box command in the range starts, or -1. The searches for rarer names are
    short when `\\boxed` is found late.
    """
    place = body.rfind("\\boxed", start, end)
    while place >= 0 and body.endswith("\\phantom{", 0, place):
        place = body.rfind("\\boxed", start, place)
    for name in ("\\fbox", "\\framebox"):
        place = max(place, body.rfind(name, max(start, place), end))
    return place


def _box_at(body: str, start: int) -> _Box:
    name = _BOX_NAME.match(body, start)
    place = name.end() if name else start
    if place >= len(body) or body[place] != "{":
        return _unclosed(body, start, place, min(len(body), place + 200), " ")
    limit = min(len(body), place + 2 * MAX_ANSWER)
    close = body.find("}", place, limit)
    if close >= 0 and body.find("{", place + 1, close) < 0 and body.find("\\", place, close) < 0:
        return _Box(start, place + 1, close, close + 1)
    depth = 0
    for found in _BRACES.finditer(body, place, limit):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return _Box(start, place + 1, found.start(), found.end())
    return _unclosed(body, start, place + 1, limit)


def _unclosed(body: str, start: int, inside: int, limit: int, *ends: str) -> _Box:
    """A box whose brace is missing ends where its formula or its line does."""
    found = (body.find(mark, inside, limit) for mark in ("$", "\\]", "\\)", "\n", *ends))
    end = min([limit, *(place for place in found if place >= 0)])
    return _Box(start, inside, end, end, closed=False)


_JOINT = re.compile(
    r"(?:\s|[$,;./|]|\\[,;:! ()\[\]]|\\q?quad|\\text\{\s*(?:and|,|or)\s*\}|\b(?:and|or)\b|&|\\\\"
    r"|(?<![A-Za-z])[A-Za-z](?:_\{?\d\}?)?\s*=)*$"
)


def _joins(between: str) -> bool:
    """Whether two boxes are one list: nothing but commas, 'and' and spaces between them."""
    return len(between) <= 40 and _JOINT.match(between) is not None


def _hedges(body: str, first: _Box, second: _Box) -> bool:
    """Whether the second box is offered only in case the first is wrong, as the words before,
    between or behind them say.
    """
    if squeeze(body[first.open : first.close]) == squeeze(body[second.open : second.close]):
        return False
    before = body[max(0, first.start - 40) : first.start]
    between = body[first.end : second.start][-300:]
    behind = body[second.end : second.end + 60].partition("\n")[0]
    return HEDGE.search(f"{before} {between}") is not None or _AFTERWARDS.search(behind) is not None
