"""The choice of the answer among all candidates of a response, by a fixed ranking (`RANKING`).

The gold is never looked at, and one candidate is chosen, so that naming more values never raises
the chance of a reward. Every search runs from the end within bounded windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from .candidate import MAX_ANSWER, Candidate, CandidateKind, Extraction
from .closing import picked, short_text, stressed, whole, worded
from .expressions import last_expression
from .marks import all_boxes, joined
from .reasoning import THINKING, Thinking, this_turn, visible
from .sentence import DENIAL
from .statements import Statements
from .surface import blanked, surface, without_decoration

__all__ = ["RANKING", "THINKING", "Ranked", "Thinking", "extract", "survey", "visible"]


Finder = Callable[[str, Statements], Candidate | None]


class Rank(NamedTuple):
    """A line of the ranking: a title, the rule in words, and the function that finds the
    winner.
    """

    title: str
    wins: str
    """The rule in words: which candidate of this rank wins."""
    find: Finder
    """Returns the winner of this rank in a text from which refused statements were blanked, or
    None.
    """


def _in_text(find: Callable[[str], Candidate | None]) -> Finder:
    def finder(body: str, _: Statements) -> Candidate | None:
        return find(body)

    return finder


def _last_statement(_: str, statements: Statements) -> Candidate | None:
    return statements.last


def _result(body: str, statements: Statements) -> Candidate | None:
    """Return the last `the result is ...`, unless more computation follows."""
    found = [one for one in statements.seen if one.kind is CandidateKind.RESULT and not one.ignored]
    if not found:
        return None
    rest = DENIAL.sub("", body[found[-1].end :])
    if any(c.isdigit() or c in "$\\" for c in rest[2:]):
        return None
    return found[-1]


RANKING: tuple[Rank, ...] = (
    Rank(
        "statement",
        "the last box, answer tag, #### line or announced answer that the writer claims; behind a"
        " box, an announcement counts only if it is another value",
        _last_statement,
    ),
    Rank("result", "the last 'the result is ...', if nothing is computed after it", _result),
    Rank("whole response", "a short response that is not prose", _in_text(whole)),
    Rank("choice", "the letter that the closing sentence picks", _in_text(picked)),
    Rank("word", "'No, since ...' and 'so the day is Saturday'", _in_text(worded)),
    Rank("emphasis", "the only value in bold in the closing sentence", _in_text(stressed)),
    Rank(
        "last expression",
        "the last formula or number, whichever is later; not one that is denied, nor one behind a"
        " preposition if the closing sentence has another",
        _in_text(last_expression),
    ),
    Rank(
        "short text",
        "a short response without digits, as it stands",
        _in_text(short_text),
    ),
)
"""The ranking: the first line that finds a candidate decides."""


class Ranked(NamedTuple):
    """A candidate with a rank (counted from 1) and the reason why the candidate won or lost."""

    rank: int
    candidate: Candidate
    fate: str


def extract(
    response: str, *, thinking: str = "auto", truncated: bool = False, several: bool = False
) -> Extraction:
    r"""Extract the answer of a response.

    Args:
        response: what the policy wrote.
        thinking: "auto", "none" or a key of THINKING.
        truncated: the response was cut off, so that only a finished statement counts.
        several: the gold has several boxes, so that all boxes of the response are the answer.

    >>> extract(r"so $x$ is \\boxed{\\frac{1}{2}}.").text
    '\\\\frac{1}{2}'
    """
    shown = visible(response, thinking)
    if shown is None:
        return Extraction(
            None, "thinking", reason="the reasoning is never closed, so that no answer follows"
        )
    offset, body = shown
    body = surface(this_turn(body))
    if not body.strip():
        reason = "nothing follows the reasoning" if offset else "the response is empty"
        return Extraction(None, "empty", offset, offset, reason=reason)
    statements = Statements(body, truncated=truncated)
    if statements.last is not None:
        return _extraction(body, offset, statements.last, statements.rivals, several=several)
    if truncated:
        return Extraction(
            None, "truncated", offset, offset, reason="cut off before a marked answer"
        )
    refused = [one for one in statements.seen if one.ignored]
    body = _claimed(body, statements)
    for rank in RANKING[1:]:
        found = rank.find(body, statements)
        if found is None:
            continue
        if not found.ignored:
            return _extraction(body, offset, found, [])
        # The value was refused: blank the statement, so that the next ranks search the rest.
        body = blanked(body, [(found.said_from, found.said_to)])
        refused.append(found)
    reason = next((f"the only answer does not count: {one.ignored}" for one in refused), "")
    return Extraction(
        None, "none", offset, offset, reason=reason or "no box, no announced answer, no expression"
    )


def _claimed(body: str, statements: Statements) -> str:
    """Return the text without statements that the writer does not claim, so that later ranks cannot
    find those values again.
    """
    spans = [(one.said_from, min(one.end, one.said_to)) for one in statements.seen if one.ignored]
    return blanked(body, spans) if spans else body


def _extraction(
    body: str, offset: int, won: Candidate, rivals: list[str], *, several: bool = False
) -> Extraction:
    rule, start, end = str(won.kind), offset + won.start, offset + won.end
    if won.void:
        return Extraction(None, rule, start, end, won.void)
    text = won.text
    if several and won.kind is CandidateKind.BOX:
        boxes = [
            box
            for box in all_boxes(body)
            if box.end <= won.said_to and body[box.open : box.close].strip()
        ]
        text = joined(body, boxes)
        rule, rivals = "boxes", []
    if not text.isascii():
        text = without_decoration(text)
    if len(text) > MAX_ANSWER:
        return Extraction(
            None, rule, start, end, f"the answer is longer than {MAX_ANSWER} characters"
        )
    return Extraction(text, rule, start, end, rivals=tuple(rivals))


def survey(response: str, *, thinking: str = "auto", truncated: bool = False) -> list[Ranked]:
    """Return every candidate with rank and fate in text order, for explanations.

    `start` is an offset in the response; the other places stay offsets in the searched text.
    """
    shown = visible(response, thinking)
    if shown is None:
        return []
    offset, body = shown
    body = surface(this_turn(body))
    if not body.strip():
        return []
    statements = Statements(body, truncated=truncated)
    found = [(1, one) for one in statements.seen if one.kind is not CandidateKind.RESULT]
    if statements.last is not None and statements.last not in statements.seen:
        found = [(rank, one) for rank, one in found if one.start != statements.last.start]
        found.append((1, statements.last))
    rest = _claimed(body, statements)
    for number, rank in enumerate(RANKING[1:], start=2):
        if (one := rank.find(rest, statements)) is not None:
            found.append((number, one))
    winner = statements.last
    if winner is None and not truncated:
        winner = next((one for rank, one in found if rank > 1 and not one.ignored), None)
    found.sort(key=lambda pair: (pair[1].start, pair[0]))
    return [
        Ranked(rank, replace(one, start=offset + one.start), _fate(rank, one, winner))
        for rank, one in found
    ]


def _fate(rank: int, one: Candidate, winner: Candidate | None) -> str:
    if one is winner:
        return f"wins, but gives no usable answer: {one.void}" if one.void else "wins"
    if one.ignored:
        return f"does not count: {one.ignored}"
    if winner is None:
        return "does not count: the response was cut off"
    return "a later statement wins" if rank == 1 else "a higher rank wins"
