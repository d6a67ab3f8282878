"""The values that a sentence gives to the names that a question asks for: `Find r + s and rs`,
`find the quotient and the remainder`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from .vocabulary import FUNCTIONS


class Side(NamedTuple):
    """A name of the question, as the reader takes it, with its value and the place of the value."""

    name: str
    value: str
    rank: int
    """The place of the name in the question."""
    place: int
    """Where the name stands."""
    start: int
    end: int


_AND = r"(?:\s*,?\s(?:and|und|et|y|e|и)\s+)"
_NAME = r"[^\W\d_][\w()+*/^·' -]{0,40}?"
_ASKED = re.compile(
    r"(?i)\b(?:find|give|determine|compute|calculate|evaluate|state|what (?:is|are)|bestimme"
    r"|berechne|gib|trouve[rz]?|calcule[rz]?|détermine[rz]?|donne[rz]?|halla|encuentra|calcula"
    r"|determina"
    rf"|trova|ache|encontre|найдите)\b:?\s+(?P<names>(?:{_NAME}\s*,\s*){{0,4}}{_NAME}{_AND}{_NAME})"
    r"\s*(?:[.?。,;]|$|\b(?:when|if|for|of|where|in|to|as|von|de|der|des|del)\b)"
)
LETTER_ASKED = re.compile(
    r"(?i)\b(?:find|determine|compute|solve (?:[^.?\n]{1,60}? )?for|what is|value of|trouve[rz]?"
    r"|bestimme|encuentra|halla|determina|trova|найдите)\s+(?:the value of\s+)?"
    r"\$?([a-z])\b\$?(?=\s*(?:[.?,;]|if\b|when\b|such\b|so\b|given\b|for\b|si\b|wenn\b|$))"
)
"""The only letter of which a question asks the value."""
_JOINT = re.compile(rf"(?i){_AND}|\s*,\s*")
_ARTICLE = re.compile(
    r"(?i)^(?:(?:the|den|die|das|der|le|la|les|el|los|il|lo|o|a|both|values? of)\s+(?=[^\W\d_]))+"
)
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{3,}")
_VERB = re.compile(
    r"(?:[\s$*]|\\\)){0,4}(?:[=:]|\b(?:of|is|are|equals|ist|est|es|é|è|равн[аоы]|равен)\b)?"
    r"(?:[\s$*]|\\\(){0,4}"
)
# What stands between a value and the next name.
_BETWEEN = re.compile(
    r"(?:[\s,.$*]|\\[()]?|\b(?:and|while|with|und|et|y|e|и|the|die|der|das|le|la|les|el|il"
    r"|leaving|an?"
    r"|product|sum|its|their)\b)*$"
)


def sides(prompt: str, body: str, start: int, end: int) -> list[Side]:
    """Return the value of each of several names that a prompt asks for, in the order of the
    sentence from `start` to `end`, which gives each name once; else [].
    """
    asked = _ASKED.search(prompt.replace("$", ""))
    names = [_ARTICLE.sub("", name) for name in _JOINT.split(asked["names"])] if asked else []
    spans = [list(_spoken(name).finditer(body, start, end)) for name in names]
    if not names or any(len(matches) != 1 for matches in spans):
        return []
    placed = sorted((*matches[0].span(), name) for matches, name in zip(spans, names, strict=True))
    given = []
    for (place, begin, name), (stop, *_) in pairwise([*placed, (end, end, "")]):
        verb = _VERB.match(body, begin, stop)
        first = verb.end() if verb else begin
        last = _BETWEEN.search(body, first, stop)
        value = body[first : last.start() if last else stop]
        if not value or _WORD.search(value) or value[0] in "=:":
            return []
        label = f"\\text{{{name}}}" if _is_worded(name) else name
        given.append(Side(label, value, names.index(name), place, first, first + len(value)))
    return given


def _is_worded(name: str) -> bool:
    """Return whether a name is words, as `lcm` alone is, and no formula such as `sin x`."""
    is_formula = name not in FUNCTIONS and name.split()[0] in FUNCTIONS
    return _WORD.search(name) is not None and not is_formula


_STYLE = r"(?:\\(?:(?:text|mathrm|operatorname)\{)?)?"


def _spoken(name: str) -> re.Pattern[str]:
    """Return a pattern of a name: words as they are, a formula with any spaces and dots."""
    if _is_worded(name):
        return re.compile(rf"(?i){_STYLE}\b{re.escape(name)}\b\}}?")
    signs = r"[\s*·]*".join(map(re.escape, re.sub(r"[\s*·]", "", name)))
    return re.compile(rf"(?<![\w(+−*/^·-])(?<![-+−*/^·\d] ){signs}(?!\w)")
