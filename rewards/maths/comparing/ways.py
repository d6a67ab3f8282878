"""Quantities with a direction in words: `6 m/s^2 east`, which `it accelerates eastward at 6 m/s²`
gives too.
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
)
_BEHIND = re.compile(
    r"(?i)(?<=[\w}²³])(?:\\[ ,;]|\\(?:text|mathrm)\b|[\s,~({])*+"
    r"(?:(?:in|directed|pointing|due|towards?|to|the) ){0,5}+"
    rf"(?:{_WAY}|(?<=to the )(?P<to>left|right)|(?<=[a-z²³}}] )(?P<on>up|down))"
    r"(?: direction)?[\s.)}]*$"
)
_TURNED = re.compile(
    r"(?i)\b(?:oppos\w+|not|never|against|away|from|if|or|reversed?|contrary|other way|no longer)\b"
    r"|n['’]t\b"
)
"""Words that leave a direction open, or turn it round."""


@lru_cache(maxsize=1024)
def apart(text: str) -> tuple[str, str]:
    r"""Return (magnitude, direction) of a quantity with a direction behind it; "" for no direction.

    >>> apart("6 m/s^2 east"), apart(r"6\text{ m to the left}"), apart("6 m")
    (('6 m/s^2', 'east'), ('6\\text{ m}', 'left'), ('6 m', ''))
    """
    said = _BEHIND.search(text)
    magnitude = text[: said.start()] if said else ""
    if said is None or not re.search(r"\d", magnitude) or re.search(r",|\band\b", magnitude):
        return text, ""
    return magnitude + "}" * (magnitude.count("{") - magnitude.count("}")), _name(said)


def said_beside(sentence: str) -> str:
    """Return the only direction that a sentence names (`eastward`), or ""."""
    ways = {_name(way) for way in _SAID.finditer(sentence)}
    return f"{ways.pop()}ward" if len(ways) == 1 and not _TURNED.search(sentence) else ""


def _name(way: re.Match[str]) -> str:
    groups = way.groupdict()
    name = next(filter(None, map(groups.get, ("compass", "side", "led", "to", "on"))), "")
    return re.sub(r"[- ]", "", name.lower())
