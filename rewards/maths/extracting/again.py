"""A value said again at the end of a response: `3 kg (the same as 3000 g)`, `63π\n\n(≈ 197.92)`,
`√5 ≈ 2.236`.

What is said again claims nothing new, and has to be the same value.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from ..reading.counting import spelled_numbers
from ..reading.units import dimension
from ..reading.vocabulary import unit_symbol
from .asides import ROUNDS

MAX_AGAIN = 90
"""How many characters at the end of a text are searched for a value that is said again."""
MARKUP = " \n\t$\\()[]{}*_.,;`"
"""Signs that may stand between a value and its repetition."""
_SAYS = (
    r"(?:=|≈|\\approx(?![a-z])|~|or\b(?:,? in other units,)?|i\.e\.|e\.g\.|that(?: i"
    r"|['’])s\b(?: to say)?"
    r"|which(?: i|['’])s\b|(?:this|that|it) (?:equals|is)\b|also\b|equal(?:s| to)\b"
    r"|equivalent(?:ly| to)?\b|in other words|the same as\b|exactly\b|about\b|approx(?:imately|\.)?"
    r"|roughly\b|around\b|a bit (?:over|under)\b|das (?:ist|sind)\b|also\b|d\. ?h\.|entspricht"
    r"|etwa\b|rund\b"
    r"|ca\.|soit\b|c['’]est-à-dire|environ\b|es decir|o sea|unos\b|ou seja|cerca de\b|cioè|circa\b"
    r"|то есть|примерно|即|约|約|つまり|즉|약)"
)
_VALUE = (
    r"(?P<value>(?:\\?\$)?[-−]?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:…|\.\.\.)?"
    r"(?:\s?(?P<unit>\\?%|[^\W\d_][\w²³/°]{0,11}))?(?P<rest>,?\s"
    r"(?:and )?\d[\d.]*\s?[^\W\d_]{1,9})?)"
)
_MEASURE = re.compile(_VALUE)
_BRACKET = re.compile(
    rf"[ \n.]*\(\$?(?P<says>(?:{_SAYS}[,:]?\s*){{0,3}})\$?{_VALUE}\$?"
    r"(?:,? (?:if you (?:want|like|prefer) a decimal|as a decimal|in decimals?|rounded"
    r"|numerically))?\)"
    r"[\s.*_]*$"
)
_LINE = re.compile(rf"\n\s*\$?(?:≈|\\approx(?![a-z]))\s*{_VALUE}\$?[\s.*_]*$")
_CLAUSE = re.compile(
    rf"[,;]? (?:which is |or |that is,? )(?:about|approximately|roughly|around) {_VALUE}[\s.*_]*$"
)
_SIDE = re.compile(rf"\s?(?:≈|\\approx(?![a-z]))\s?{_VALUE}(?P<end>\$?[\s.*_]*)$")
# A side that is exact: it has a sign of an exact number, and no decimals.
_EXACT = re.compile(
    r"(?:√|π|∛|\\(?:sqrt|pi|ln|log|frac)(?![a-z])|ln ?\S|log|[a-zA-Zπ)]\s?/|\be\b|\be\^)"
)
_DECIMAL = re.compile(r"\d[.,]\d")


class Again(NamedTuple):
    """A value that a text ends in by saying it again."""

    value: str
    cut: int
    """Where the text before the repetition ends."""
    start: int
    """Where the value begins that was said again."""
    instead: bool = False
    """Whether the repetition is the form to answer with: `(3+1)(2+1), that is to say, twelve`."""
    worked_out: bool = False
    """Whether a calculation with its result stands before the repetition."""


def again(body: str, prompt: str = "") -> Again | None:
    """Return the value that a text says again at its end, or None."""
    start = max(0, len(body) - MAX_AGAIN)
    tail = body[start:]
    if other := _reworded(body, start):
        return other
    if not any(sign in tail for sign in ("(", "≈", "\\approx", "about", "approx", "rou")):
        return None
    match = _BRACKET.search(tail)
    if (
        match
        and not match["says"].strip()
        and not _other_unit(body[: start + match.start()], match)
    ):
        return None
    if match is None and not ROUNDS.search(prompt):
        match = _LINE.search(tail) or _CLAUSE.search(tail)
        match = match or _behind_exact(body, start)
    if match is None or not _known(match["unit"]):
        return None
    shift = 0 if match.string is body else start
    if ROUNDS.search(prompt) and _ABOUT.search(match[0]):
        return None
    value = match["value"].rstrip(".…")
    cut = shift + match.start()
    if value.endswith("%") and _ABOUT.search(match[0]):  # `1/3, or about 33%`
        value = str(Decimal(value.rstrip("\\% ").replace(",", "")) / 100)
    elif (
        match["unit"]
        and _ABOUT.search(match[0])
        and match["unit"] not in body[max(0, cut - 24) : cut]
    ):
        return None  # rounded in another unit
    return Again(value, cut, shift + match.start("value")) if body[:cut].strip() else None


_ABOUT = re.compile(r"≈|approx|about|rou|~|ca\.|environ|circa|约|約")


def _reworded(body: str, start: int) -> Again | None:
    """Return the number that a text ends in behind words that only repeat what was said."""
    tail = body[start:].lower()
    joint = _REWORDS.search(body, start) if any(said in tail for said in _REWORDING) else None
    line = body[body.rfind("\n\n", 0, joint.start()) + 1 : joint.start()] if joint else ""
    if joint is None or not _VALUED.search(line):
        return None
    stop = len(body.rstrip(" \n.*_"))
    place, worked_out = joint.end(), _RESULT.search(line) is not None
    measure = _MEASURE.fullmatch(body, place, stop)
    if measure and measure["rest"] and _known(measure["unit"]):
        return Again(measure[0], joint.start(), place)
    if joint[0].strip(" *\n").endswith("that is"):  # `the sum, that is 12`, is a clause
        return None
    if number := _NUMERAL.fullmatch(body, place, stop):
        return Again(number[0], joint.start(), place, instead=True, worked_out=worked_out)
    spelt = list(spelled_numbers(body, place, stop))
    if len(spelt) != 1 or body[place : spelt[0].start].strip():
        return None
    unit = body[spelt[0].end : stop]
    if unit and not _WORD.fullmatch(unit):
        return None
    value, start = spelt[0].digits + unit, spelt[0].start
    return Again(value, joint.start(), start, instead=True, worked_out=worked_out)


_VALUED = re.compile(r"[\d$√π]")
_REWORDING = (
    *("that is,", "that is to say", "i.e.", "i. e.", "in other words", "put differently", "namely"),
    *("das heißt", "d.h.", "d. h.", "mit anderen worten", "c'est-à-dire", "c’est-à-dire"),
    *("autrement dit", "soit", "es decir", "o sea", "en otras palabras", "ou seja", "isto é"),
    *("em outras palabras", "cioè", "ossia", "in altre parole", "vale a dire", "то есть"),
    *("иными словами", "другими словами", "that is"),
)
_REWORDS = re.compile(rf"(?i)[,;.]?\s+(?:{'|'.join(map(re.escape, _REWORDING))})[,:]?\s+\**")
_RESULT = re.compile(r"=\s*[-−]?\d[\d.,]*[\s$]*$")
_WORD = re.compile(r" [^\W\d_]+")
_NUMERAL = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def _behind_exact(body: str, start: int) -> re.Match[str] | None:
    """Return the decimals behind the exact side of a chain."""
    match = _SIDE.search(body, start)
    if match is None:
        return None
    line = body[body.rfind("\n", 0, match.start()) + 1 : match.start()]
    side = re.split(r"[=≈⟹⇒→:]", line)[-1]
    if not _EXACT.search(side) or _DECIMAL.search(side) or "$" in match["end"] + line:
        return None
    has_unit = (match["unit"] or "") == "" or side.rstrip().endswith(match["unit"])
    return match if has_unit else None


def _known(unit: str | None) -> bool:
    """Return whether a value has no unit, or one whose size is known."""
    name = (unit or "").lstrip("\\")
    return name in {"", "%"} or unit_symbol(name) is not None or dimension(name) is not None


def _other_unit(before: str, bracket: re.Match[str]) -> bool:
    """Return whether a bare bracket has the value of the one before it in another unit."""
    said = _MEASURED.search(before[-40:])
    if (
        said is None
        or not bracket["unit"]
        or (bracket["unit"] == said["unit"] and not bracket["rest"])
    ):
        return False
    units = [unit_symbol(unit) or unit for unit in (bracket["unit"], said["unit"])]
    sizes = [dimension(unit) for unit in units]
    return all(sizes) and len({size[1] for size in sizes if size}) == 1


_MEASURED = re.compile(r"\d[\s}]*(?:\\text\{ ?)?(?P<unit>[^\W\d_][\w²³/]{0,11})[}$*_\s]*$")
