"""Candidates for the answer: pieces of a response, each with a kind, a place and possible
objections.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

MAX_ANSWER = 4096
"""The longest answer in characters; a longer text is not accepted as an answer."""


class CandidateKind(StrEnum):
    """The ways in which a response can mark an answer."""

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


MARKS = frozenset({CandidateKind.BOX, CandidateKind.TAG, CandidateKind.HASH})
"""The formal marks. Whatever stands inside such a mark is meant as the answer."""


class Candidate(msgspec.Struct, frozen=True):
    """A text that may be the answer. Places are character offsets in the searched text."""

    kind: CandidateKind
    text: str
    start: int
    """Offset of the first character of the text."""
    end: int
    """Offset behind the last character of the text."""
    said_from: int
    """Offset where the statement around the text begins, with the phrase or mark."""
    said_to: int
    """Offset where that statement ends."""
    ignored: str = ""
    """The reason why the writer does not claim this answer (denied, supposed, quoted), or "". An
    ignored candidate never wins.
    """
    void: str = ""
    """The reason why this statement gives no usable answer (empty, cut off), or "". If a void
    candidate wins, the response has no answer.
    """


class Extraction(msgspec.Struct, frozen=True):
    """The extracted answer of a response, with the place; `text` is None without an answer, and
    `reason` says why.
    """

    text: str | None
    rule: str
    """The kind of the winning candidate."""
    start: int = 0
    end: int = 0
    reason: str = ""
    refused: bool = False
    """Whether the response has an answer that it does not claim."""
    equation: bool = False
    """Whether the sentence calls the answer an equation (`the tangent line is $y - x = 3$`)."""
    rivals: tuple[str, ...] = ()
    """Other values claimed in the same breath. The answer counts only if all of these are equal to
    the gold as well, so that listing guesses never pays.
    """
    said: str = ""
    """The answer as the response has it, before the question picks a part of it; a rival that says
    the same in another unit is none.
    """
