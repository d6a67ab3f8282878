"""Quantities with a direction in words: `6 m/s^2 east`, which `it accelerates eastward at 6 m/s²`
gives too, and losses and profits.
"""

from __future__ import annotations

import re
from functools import lru_cache

_COMPASS = r"(?:north|south)[- ]?(?:east|west)|north|south|east|west"
_WAY = rf"(?P<compass>{_COMPASS})(?:wards?|erly|ern)?|(?P<side>left|right|up|down)(?:wards?)"
_LEADS = r"(?:directed|pointing|points|acts|due|towards?|to|direction is|direction:) (?:the )?"
_SAID = re.compile(
    rf"(?i)(?<![\w-])(?:(?P<compass>{_COMPASS})(?:wards?|(?= (?:at|with)\b|[\s.*]*$))"
    rf"|(?P<side>left|right|up|down)wards?|{_LEADS}(?P<led>{_COMPASS})"
    r"|(?:in|to) the (?P<to>left|right)|(?:straight|directed) (?P<on>up|down))"
    r"(?![\w-]| of\b| (?-i:[A-Z]))"
    r"|\b(?:(?P<loss>los(?:s|es|e|t|ing))|(?P<profit>profits?|gain(?:s|ed)?|earn(?:s|ed)?))\b"
)
_BEHIND = re.compile(
    r"(?i)(?<=[\w}²³])(?:\\[ ,;]|\\(?:text|mathrm)\b|[\s,~({])*+"
    r"(?:(?:in|directed|pointing|due|towards?|to|the) ){0,5}+"
    rf"(?:{_WAY}|(?P<loss>loss)|(?P<profit>profit|gain)|(?<=to the )(?P<to>left|right)|"
    rf"(?<=[a-z²³}}] )(?P<on>up|down))"
    r"(?: direction)?[\s.)}]*$"
)
_OUTCOME = re.compile(
    r"(?i)(?:\\text\s*\{\s*)?(?:(?:an?|net) ){0,2}(?:(?P<loss>loss)|(?P<profit>profit|gain))"
    r"(?: of|:)[\s}~]*"
    r"(?P<value>\$?\\?\$?[-−]?\d[\d.,]*[^\d]*)"
)
_TURNED = re.compile(
    r"(?i)\b(?:oppos\w+|not|never|against|away|from|if|or|reversed?|contrary|other way|no longer)\b"
    r"|n['’]t\b"
)
"""Words that leave a direction open, or turn it round."""


@lru_cache(maxsize=1024)
def apart(text: str) -> tuple[str, str]:
    r"""Return (magnitude, direction) of a quantity with a direction behind it, or with its outcome
    (`a loss of $5`); "" for no direction.

    >>> apart("6 m/s^2 east"), apart(r"6\text{ m to the left}"), apart("6 m")
    (('6 m/s^2', 'east'), ('6\\text{ m}', 'left'), ('6 m', ''))
    """
    if outcome := _OUTCOME.fullmatch(text.strip(" .")):
        return outcome["value"], _name(outcome)
    said = _BEHIND.search(text)
    magnitude = re.sub(r"^an? ", "", text[: said.start()]) if said else ""
    if said is None or not re.search(r"\d", magnitude) or re.search(r",|\band\b", magnitude):
        return text, ""
    return magnitude + "}" * (magnitude.count("{") - magnitude.count("}")), _name(said)


def said_beside(sentence: str) -> str:
    """Return the only direction that a sentence names (`eastward`), or ""."""
    ways = {_name(way) for way in _SAID.finditer(sentence)}
    if len(ways) != 1 or _TURNED.search(sentence):
        return ""
    return ways.pop() if ways <= {"loss", "profit"} else f"{ways.pop()}ward"


def _name(way: re.Match[str]) -> str:
    groups = way.groupdict()
    if outcome := next((kind for kind in ("loss", "profit") if groups.get(kind)), ""):
        return outcome
    name = next(filter(None, map(groups.get, ("compass", "side", "led", "to", "on"))), "")
    return re.sub(r"[- ]", "", name.lower())
