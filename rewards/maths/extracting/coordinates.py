"""The coordinates of a point in words: `with x-coordinate 2 and y-coordinate 5`."""

from __future__ import annotations

import re

from .candidate import Candidate, CandidateKind
from .sentence import DENIAL, UNSURE, closing_sentence

_AXES = {
    "x": r"abscissa|abscisse|abs[cz]isse|abscisa|ascissa|абсцисса|横坐标|水平坐标",
    "y": r"ordinate|ordonnée|ordenada|ordinata|ордината|纵坐标|竖坐标",
    "z": r"applicate",
}
_KIND = (
    r"(?:[ -]?(?:coordinates?|coord\.?|values?|component|Koordinate|Wert|coordonnée|coordenada"
    r"|coordinata"
    r"|координата)|坐标|座標|좌표)"
)
_LINK = r"[ *$]*(?:(?:is|are|of|equals|being|at|ist|est|es|é|è|=|:|равна|为|是|は|는|가)[ *$]*)?"
_VALUE = (
    r"(?P<value>[-−+]?(?:\d+(?:[.,]\d+)?(?:/\d+)?|\\[dt]?frac\{-?\d+\}\{\d+\}|√\d+))"
    r"(?![A-Za-z0-9_/(^])"
)
_SAID = {
    axis: re.compile(
        rf"(?<![^\W_぀-鿿가-힣])(?:{axis}{_KIND}{_LINK}|(?:{words})[ *$]*{_LINK}"
        rf"|{axis}[ $]*(?:=|is|equals|ist)[ $]*){_VALUE}",
        re.IGNORECASE,
    )
    for axis, words in _AXES.items()
}
_WORDED = re.compile(rf"{_KIND}|{'|'.join(_AXES.values())}|\b(?:where|when) x\b", re.IGNORECASE)


def coordinates(body: str, count: int) -> Candidate | None:
    """Return the coordinates that a closing sentence gives in words, each once, if there are
    `count`; else None.
    """
    start, end = closing_sentence(body)
    if not _WORDED.search(body, start, end):
        return None
    said = [(axis, list(_SAID[axis].finditer(body, start, end))) for axis in "xyz"[:count]]
    if any(len(matches) != 1 for _, matches in said):
        return None
    sentence = body[start:end]
    if DENIAL.search(sentence) or UNSURE.search(sentence) or re.search(r"\bor\b|\bif\b", sentence):
        return None
    text = ", ".join(f"{axis} = {matches[0]['value']}" for axis, matches in said)
    places = [matches[0].span("value") for _, matches in said]
    first, last = min(places)[0], max(places)[1]
    return Candidate(CandidateKind.WHOLE, text, first, last, start, end)
