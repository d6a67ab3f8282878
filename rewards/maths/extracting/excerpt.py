"""What was taken from a response, and the words that make an answer no answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

TAIL = 3000
"""Characters at the end of a response in which sentences and last formulas are looked for."""
MAX_ANSWER = 4096
"""Characters of an answer, beyond which it is no answer."""
HEDGE = re.compile(
    r"\b(?:if (?:that|this|it|the|my|i)\b[^.]{0,60}?"
    r"\b(?:wrong|incorrect|not (?:right|correct|accepted)|mistaken)|if not\b|if wrong|otherwise|"
    r"alternatively|or (?:maybe|perhaps|else|possibly)|(?:could|might) also be|second guess|"
    r"another (?:possible )?(?:answer|candidate)|backup answer|in case)\b",
    re.IGNORECASE,
)
HOPE = re.compile(r"I hope (?:it|this) is correct", re.IGNORECASE)
PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
"""Words outside commands."""
SEVERAL_OFFERED = "several answers are offered, one in case another is wrong"


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was taken from a response, and where; `text` is None if there is no answer, and
    `reason` says why.
    """

    text: str | None
    rule: str
    start: int = 0
    end: int = 0
    reason: str = ""
