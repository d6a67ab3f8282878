"""What an answer may be taken from: candidates, each with its kind, its place and its doubts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_ANSWER = 4096
"""Characters of an answer, beyond which it is no answer."""


class Kind(StrEnum):
    """How a response marks an answer."""

    BOX = "box"
    TAG = "answer tag"
    HASH = "#### line"
    ANNOUNCED = "announced"
    CORRECTION = "correction"
    RESULT = "result"
    CHOICE = "choice"
    WHOLE = "whole response"
    WORD = "word"
    EMPHASIS = "emphasis"
    FORMULA = "last formula"
    NUMBER = "last number"


MARKS = frozenset({Kind.BOX, Kind.TAG, Kind.HASH})
"""The formal marks: they hold their answer, whatever it reads like."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that may be the answer. Places are characters of the searched text."""

    kind: Kind
    text: str
    start: int
    """Where the text begins."""
    end: int
    """Where the text ends."""
    said_from: int
    """Where the statement begins that holds the text: its phrase or its mark."""
    said_to: int
    """Where that statement ends."""
    firm: bool = False
    """Whether the statement calls itself final, correct or right."""
    ignored: str = ""
    """Why nobody claims this answer (denied, supposed, quoted); such a candidate never wins."""
    void: str = ""
    """Why this statement gives no answer although it is one (empty, cut off); if it wins, the
    response has no answer."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer of a response, and where it is; `text` is None if there is none, and `reason`
    says why.
    """

    text: str | None
    rule: str
    """The kind of the candidate that won."""
    start: int = 0
    end: int = 0
    reason: str = ""
    rivals: tuple[str, ...] = ()
    """Other answers claimed in the same breath: the answer counts only if these say the same."""
