"""The statements of a response (marks and announcements), and the choice of the last valid
statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..reading.notation import squeeze
from ..reading.vocabulary import NUMBER_WORDS
from .announcing import announced
from .candidate import MARKS, Candidate, CandidateKind
from .closing import picked, stressed
from .expressions import last_expression
from .marks import CUT_OFF, MAX_MARKS, SEVERAL_OFFERED, marks
from .phrases import (
    CHECKS,
    CONCLUDES,
    FILLER,
    GIVES,
    HEDGE,
    HEDGE_BEHIND,
    REOPENED,
    RETRACTION,
    UPHELD,
)
from .sentence import NUMBER, closing_sentence
from .spoken import spoken
from .surface import REACH, clause_before

MAX_GAP = 80
"""The most characters between two statements made in one breath."""
MAX_RIVALS = 8
BEHIND = 160
"""How many characters after a statement are searched for another offered answer."""
_LETTER = re.compile(r"\W*(?:\\text(?:bf)?\{)?\W*[A-J]\W*$")
_VALUE = re.compile(r"\d|\\|\$")
_ABOUT = re.compile(
    r"\b(?:approximately|about|approx|roughly|rounded|decimals?|nearest|≈|environ|etwa|circa"
    r"|примерно)\b"
    r"|≈|\\approx|~",
    re.IGNORECASE,
)
# Words that make a retraction behind them hypothetical: `if I made a mistake`.
_CONDITIONAL = re.compile(
    r"\b(?:if|had|when|were|unless|would|wouldn't|might|common)\b[^.]*$", re.IGNORECASE
)
# `\boxed{5} or 7`: an alternative right behind a mark.
_OR = re.compile(
    r"^[\s)$}\\.]{0,4}\(?(?:or|oder|ou)\b(?!\s+(?:about|approximately|roughly|so\b))", re.IGNORECASE
)


_LINE_BEHIND = re.compile(r"[ \t]*\n\s*(-?\d[\d.,/]*)\s*$")
# `5 or \boxed{7}`: an alternative right before a mark.
_OR_BEFORE = re.compile(
    r"(?P<value>(?<![\w.,])-?\d[\d,./]*|\$[^$\n]{1,50}\$|\b[A-J])\)?\s*(?:,\s*)?\b(?:or|oder"
    r"|ou)\s*[$\\(]*$"
)


_ENDED = re.compile(r"[.!?\n。]|$")


class Statements:
    """The marks and announcements of a searched text.

    `last` is the statement that counts, or None. `seen` holds every examined statement, and
    `rivals` the values claimed in the same breath as `last`.
    """

    def __init__(self, body: str, *, truncated: bool) -> None:
        self.body = body
        self.truncated = truncated
        self.seen: list[Candidate] = []
        self.rivals: list[str] = []
        self.last = self._judged(self._found())

    def _found(self) -> Candidate | None:
        """Return the last mark that the writer claims, or an announcement after that mark."""
        mark = self._mark()
        after = 0
        if mark is not None:
            # A tag may enclose an announcement: `<answer>The answer is 5</answer>`.
            after = mark.start if mark.kind is CandidateKind.TAG else mark.said_to
        said = announced(self.body, after)
        self.seen += said
        claims = [one for one in said if not one.ignored and one.kind is CandidateKind.ANNOUNCED]
        if mark is not None:
            claims = [one for one in claims if _displaces(mark, one)]
        if not claims:
            return mark
        self._breath(claims[-1], [mark, *claims[:-1]] if mark else claims[:-1])
        return claims[-1]

    def _mark(self) -> Candidate | None:
        for place, one in enumerate(marks(self.body, truncated=self.truncated)):
            self.seen.append(one)
            if not one.ignored:
                self._breath(one, self._before(one))
                return one
            if place >= MAX_MARKS:
                break
        return None

    def _before(self, mark: Candidate) -> list[Candidate]:
        """Return the statements shortly before a mark: another tag or `####` line, or an
        announcement.
        """
        start = max(0, mark.said_from - 2 * MAX_GAP)
        window = self.body[start : mark.said_from]
        near = announced(window)
        if mark.kind is not CandidateKind.BOX:
            near += [one for one in marks(window) if one.kind is mark.kind]
        full = len(window.rstrip(" \n$\\([*:"))
        near = [
            _moved(one, start)
            for one in near
            if one.kind in MARKS
            or (one.kind is CandidateKind.ANNOUNCED and not one.ignored and one.end < full)
        ]
        return sorted(near, key=lambda one: one.start)

    def _breath(self, last: Candidate, before: Sequence[Candidate]) -> None:
        """Record the values that were claimed before `last` without a reason in between."""
        self.rivals.clear()
        for one in reversed(before[-MAX_RIVALS:]):
            gap = self.body[one.said_to : last.said_from]
            if last.firm and not one.firm:
                break
            if one.void or len(gap) > MAX_GAP or not FILLER.fullmatch(gap):
                break
            if squeeze(one.text) != squeeze(last.text):
                self.rivals.append(one.text)
            last = one

    def _judged(self, last: Candidate | None) -> Candidate | None:
        """Return `last`, a correction of `last`, or `last` with a reason why the statement is
        void.
        """
        if last is None or last.void:
            return last
        if (
            self.truncated
            and last.kind is CandidateKind.ANNOUNCED
            and not (self.body[last.end :].strip(" $*"))
        ):
            return replace(last, void=CUT_OFF)
        if self._retracted(last):
            # The value that replaces a retracted statement without a new announcement, or a void
            # statement.
            value = picked(self.body) or stressed(self.body) or last_expression(self.body)
            if self.truncated or value is None or value.void or value.start < last.said_to:
                return replace(last, void="the answer is taken back and not replaced")
            self.seen.append(last)
            self.rivals.clear()
            return replace(value, kind=CandidateKind.CORRECTION)
        if not self.truncated and (concluded := self._concluded(last)):
            self.rivals.clear()
            return concluded
        return self._offered(last)

    def _retracted(self, last: Candidate) -> bool:
        begin = max(last.said_to, len(self.body) - REACH)
        if last.kind is CandidateKind.ANNOUNCED and (ended := _ENDED.search(self.body, begin)):
            begin = ended.start()
        found = list(RETRACTION.finditer(self.body, begin))[-1:]
        if not found:
            return False
        place = found[0].start()
        before = clause_before(self.body, place)
        return _CONDITIONAL.search(before) is None and UPHELD.search(self.body, place) is None

    def _concluded(self, last: Candidate) -> Candidate | None:
        r"""Return another value that the closing sentence concludes, or None.

        Either words have reopened the question after the mark (`Wait. ... So the probability is
        $\frac16$.`), or the closing sentence draws a conclusion with a single number.
        """
        start, end = closing_sentence(self.body)
        start = max(start, last.said_to)
        sentence = self.body[start:end]
        if not sentence.strip() or CHECKS.search(sentence) or _ABOUT.search(sentence):
            return None
        behind = self.body[max(last.said_to, len(self.body) - REACH) :]
        reopened = REOPENED.search(behind) is not None
        alone = CONCLUDES.search(sentence) and sum(1 for _ in NUMBER.finditer(sentence)) == 1
        if not (reopened and GIVES.search(sentence)) and not alone:
            return None
        value = picked(self.body) or stressed(self.body) or last_expression(self.body)
        if value is None or value.void or value.start < start or not _displaces(last, value):
            return None
        return replace(value, kind=CandidateKind.CORRECTION)

    def _offered(self, last: Candidate) -> Candidate:
        """Return `last`, made void if another answer is offered in case `last` is wrong."""
        gap = self.body[
            max(self.seen[0].said_to if self.seen else 0, last.said_from - 300) : last.said_from
        ]
        marked = any(
            one.kind in MARKS and not one.ignored and one.end <= last.start for one in self.seen
        )
        if last.kind is CandidateKind.ANNOUNCED and marked and HEDGE.search(gap):
            return replace(last, void=SEVERAL_OFFERED)
        behind = self.body[last.said_to : last.said_to + BEHIND].partition("\n\n")[0]
        if last.kind is CandidateKind.BOX and (alternative := _OR.match(behind)):
            said = spoken(self.body, last.said_to + alternative.end())
            self.rivals.append(said.text.rstrip(" )"))
        if before := _OR_BEFORE.search(self.body, max(0, last.said_from - 60), last.said_from):
            self.rivals.append(before["value"])
        if last.kind is CandidateKind.ANNOUNCED and (
            more := _LINE_BEHIND.match(self.body, last.end)
        ):
            self.rivals.append(more[1])
        hedge = HEDGE_BEHIND.search(behind)
        if hedge and _VALUE.search(behind, hedge.end()):
            return replace(last, void=SEVERAL_OFFERED)
        return last


def _moved(one: Candidate, by: int) -> Candidate:
    return replace(
        one,
        start=one.start + by,
        end=one.end + by,
        said_from=one.said_from + by,
        said_to=one.said_to + by,
    )


def _displaces(mark: Candidate, said: Candidate) -> bool:
    """Return whether an announcement after a mark (or within a tag) is another answer.

    A value that repeats, rounds or labels the content of the mark is not.
    """
    if mark.kind is CandidateKind.TAG and said.end <= mark.end:
        return True
    if squeeze(mark.text) == squeeze(said.text) or _ABOUT.search(said.text):
        return False
    if mark.void:
        return True
    letter = _LETTER.match(said.text) is not None
    if letter or _LETTER.match(mark.text):
        return letter and _LETTER.match(mark.text) is not None
    found = said.text.lower().replace("-", " ").split()
    return _VALUE.search(said.text) is not None or (
        0 < len(found) < 4 and set(found) <= NUMBER_WORDS
    )
