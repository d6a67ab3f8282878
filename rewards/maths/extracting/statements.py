"""The statements of a response (marks and announcements), and the choice of the last valid
statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from ..reading.labels import place_of
from ..reading.notation import squeeze
from ..reading.vocabulary import NUMBER_WORDS
from .announcing import announced
from .asides import aside
from .asked import asking
from .candidate import MARKS, Candidate, CandidateKind
from .closing import stressed
from .expressions import last_expression
from .marks import CUT_OFF, MAX_MARKS, SEVERAL_OFFERED, WORDED, box_before, marks
from .phrases import (
    COMMENTS,
    CONCLUDES,
    FILLER,
    GIVES,
    HEDGE,
    HEDGE_BEHIND,
    MAY_BE,
    POINTS_BACK,
    REOPENED,
    RETRACTION,
    TURNED,
)
from .picking import picked
from .sentence import CASES, CASES_REACH, NUMBER, closing_sentence
from .spoken import spoken
from .stance import attributed, before_noun, framed
from .surface import REACH, clause_before, lowered

MAX_GAP = 80
"""The most characters between two statements made in one breath."""
MAX_RIVALS = 8
MIN_SENTENCE = 20
"""The shortest text behind a box that may mean another one."""
BEHIND = 160
"""How many characters after a statement are searched for another offered answer."""
_LETTER = re.compile(r"\W*(?:\\text(?:bf)?\{)?\W*[A-J]\W*$")
_VALUE = re.compile(r"\d|\\|\$")
_ABOUT = re.compile(
    r"(?i)\b(?:approximately|about|approx|roughly|rounded|decimals?|nearest|≈|environ|etwa|circa"
    r"|примерно)\b|≈|\\approx|~"
)
# Words that make a retraction behind them hypothetical: `if I made a mistake`.
_CONDITIONAL = re.compile(
    r"(?is)\b(?:if|had|when|were|unless|would|wouldn't|might|common|tempting|suppose|because|since)\b"
    r"(?!.*\b(?:so|hence|thus|therefore)\b)"
)
# `\boxed{5} or 7`: an alternative right behind a mark.
_OR = re.compile(
    r"(?i)^[\s)$}\\.]{0,4}\(?(?:or|oder|ou)\b(?!\s+(?:about|approximately|roughly|so\b))"
)


# `5 or \boxed{7}`: an alternative right before a mark.
_OR_BEFORE = re.compile(
    r"(?P<value>(?<![\w.,])-?\d[\d,./]*|\$[^$\n]{1,50}\$|\b[A-J])\)?\s*(?:,\s*)?\b(?:or|oder"
    r"|ou)\s*[$\\(]*$"
)


_IF = re.compile(r"(?i)\W*(?:if|when|without|ignoring|forgetting)\b")
_ENDED = re.compile(r"[.!?\n。]|$")
_WHEN = re.compile(r"(?:if|when|wenn|falls|si|se|если)\b")
"""A word that begins a case; without one no cases are looked for."""
_QUIET = re.compile(r"[\s$.\\\])}*]*\Z")
"""What closes a formula at the end of a response and says nothing."""


class Statements:
    """The marks and announcements of a searched text.

    `last` is the statement that counts, or None. `seen` holds every examined statement, and
    `rivals` the values claimed in the same breath as `last`.
    """

    def __init__(self, body: str, *, truncated: bool, prompt: str = "") -> None:
        self.body = body
        self.prompt = prompt
        self.truncated = truncated
        self.seen: list[Candidate] = []
        self.rivals: list[str] = []
        self.last = self._checked(self._last_claim())

    def _last_claim(self) -> Candidate | None:
        """Return the last mark that the writer claims, or an announcement after that mark."""
        mark = None
        for place, candidate in enumerate(marks(self.body, truncated=self.truncated)):
            self.seen.append(candidate)
            if not candidate.ignored:
                mark = self._asked(candidate)
                self._breath(mark, self._before(mark))
                break
            if place >= MAX_MARKS:
                break
        after = 0
        if mark is not None:
            # A tag may enclose an announcement: `<answer>The answer is 5</answer>`.
            after = mark.start if mark.kind is CandidateKind.TAG else mark.said_to
        if mark is not None and _QUIET.match(self.body, after):
            return mark
        announcements = announced(self.body, after)
        self.seen += announcements
        refused = [seen for seen in self.seen if seen.kind in MARKS and seen.ignored]
        texts = {squeeze(seen.text) for seen in refused}
        claims = [
            claim
            for claim in announcements
            if not claim.ignored
            and claim.kind is CandidateKind.ANNOUNCED
            and squeeze(claim.text) not in texts
            and not any(claim.start <= seen.start and seen.end <= claim.end for seen in refused)
            and (mark is None or _displaces(mark, claim, self.body))
        ]
        if not claims:
            return mark
        self._breath(claims[-1], [mark, *claims[:-1]] if mark else claims[:-1])
        return claims[-1]

    def _asked(self, last: Candidate) -> Candidate:
        """Return the box before the last in its sentence if the question asks for its name and not
        for that of the last (`The LCM is \\boxed{840} and the GCD is \\boxed{12}`), else the last.
        """
        box = box_before(self.body, last.said_from) if last.kind is CandidateKind.BOX else None
        gap = self.body[box.end : last.said_from] if box and self.prompt else "."
        if box is None or len(gap) > MAX_GAP or re.search(r"[.\n]", gap):
            return last
        places = box.start, last.said_from
        names = [WORDED.search(self.body, max(0, place - 40), place) for place in places]
        question = asking(self.prompt).lower()
        if [_in(name[1].lower(), question) for name in names if name] != [True, False]:
            return last
        self.seen.append(replace(last, ignored="the question does not ask for it"))
        text = self.body[box.open : box.close]
        return Candidate(last.kind, text, box.open, box.close, box.start, box.end)

    def _before(self, mark: Candidate) -> list[Candidate]:
        """Return the statements shortly before a mark: another tag or `####` line, or an
        announcement.
        """
        start = max(0, mark.said_from - 2 * MAX_GAP)
        window = self.body[start : mark.said_from]
        announcements = announced(window)
        if mark.kind is not CandidateKind.BOX:
            announcements += [other for other in marks(window) if other.kind is mark.kind]
        full = len(window.rstrip(" \n$\\([*:"))
        earlier = [
            replace(
                said, start=said.start + start, end=said.end + start,
                said_from=said.said_from + start, said_to=said.said_to + start,
            )
            for said in announcements
            if said.kind in MARKS
            or (
                said.kind is CandidateKind.ANNOUNCED
                and not said.ignored
                and not _COMMENT.match(said.text)
                and not _IF.match(clause_before(window, said.said_from))
                and said.end < full
            )
        ]  # fmt: skip
        return sorted(earlier, key=lambda candidate: candidate.start)

    def _breath(self, last: Candidate, before: Sequence[Candidate]) -> None:
        """Record the values that were claimed before `last` without a reason in between."""
        self.rivals.clear()
        for candidate in reversed(before[-MAX_RIVALS:]):
            gap = self.body[candidate.said_to : last.said_from]
            if candidate.void or len(gap) > MAX_GAP or not FILLER.fullmatch(gap):
                break
            if RETRACTION.search(lowered(candidate.text)):
                break
            if squeeze(candidate.text) != squeeze(last.text):
                self.rivals.append(candidate.text)
            last = candidate

    def _checked(self, last: Candidate | None) -> Candidate | None:
        """Return `last`, a correction of `last`, or `last` with a reason why the statement is
        void.
        """
        if last is None or last.void:
            return last
        announced_last = last.kind is CandidateKind.ANNOUNCED
        if self.truncated and announced_last and not self.body[last.end :].strip(" $*"):
            return replace(last, void=CUT_OFF)
        if _QUIET.match(self.body, last.said_to):
            return self._check_alternative(last)
        goes_on = len(self.body) - last.said_to > MIN_SENTENCE and last.kind is CandidateKind.BOX
        if goes_on and self._points_back(last) and (first := self._first(last)) is not None:
            self.seen.append(last)
            self.rivals.clear()
            return first
        if self.retracted(last):
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
        return self._check_alternative(last)

    def _points_back(self, last: Candidate) -> bool:
        """Return whether words behind a box claim that another one before is meant."""
        begin = max(last.said_to, len(self.body) - REACH)
        words = POINTS_BACK.search(lowered(self.body[begin:]))
        if words is None:
            return False
        start, stop = (begin + place for place in words.span())
        before = clause_before(self.body, start)
        is_theirs = attributed(before[: before_noun(before)])
        return not (is_theirs or framed(self.body, stop, stop))

    def _first(self, last: Candidate) -> Candidate | None:
        """Return the other box, which words behind the last one mean by `the first one`; a void
        statement if there are several others, and None without another.
        """
        others = [
            mark
            for mark in islice(marks(self.body[: last.said_from]), MAX_MARKS)
            if mark.kind is CandidateKind.BOX and squeeze(mark.text) != squeeze(last.text)
        ]
        if not others:
            return None
        if len({squeeze(mark.text) for mark in others}) > 1 or others[0].ignored:
            return replace(last, void="the answer is taken back and not replaced")
        return replace(others[0], kind=CandidateKind.CORRECTION)

    def retracted(self, last: Candidate) -> bool:
        """Return whether words behind a value take the value back."""
        begin = max(last.said_to, len(self.body) - REACH)
        if last.kind is CandidateKind.ANNOUNCED and (ending := _ENDED.search(self.body, begin)):
            begin = ending.start()
        tail = self.body[begin:]
        if not tail.strip(" \n.$*)]}\\"):
            return False
        if (other := _ASKS_OTHER.search(lowered(tail))) and (
            (said := other["said"] or other["value"]) in _THIS or said == squeeze(last.text)
        ):
            return True
        retractions = list(RETRACTION.finditer(lowered(tail)))[-1:]
        if not retractions:
            return False
        retraction = retractions[0]
        # A pronoun stands for what was last spoken of, such as a case that was only supposed.
        clause = clause_before(tail, retraction.start())
        other = _OTHER_VALUE.search(clause) if _EXCLUDED.match(retraction[0]) else None
        if other and squeeze(other["value"]) not in squeeze(last.text):
            return False
        return not _CONDITIONAL.search(clause + retraction[0])

    def _concluded(self, last: Candidate) -> Candidate | None:
        r"""Return another value that the closing sentence concludes, or None.

        Either words have reopened the question after the mark (`Wait. ... So the probability is
        $\frac16$.`), or the closing sentence draws a conclusion with a single number.
        """
        body = _MY_ANSWER.sub("", self.body)
        start, end = closing_sentence(body)
        start = max(start, last.said_to)
        sentence = body[start:end]
        if not sentence.strip() or _comments(sentence) or _ABOUT.search(sentence):
            return None
        tail = self.body[max(last.said_to, len(self.body) - REACH) :]
        turned = body != self.body or TURNED.search(sentence)
        reopened = REOPENED.search(tail) and GIVES.search(sentence)
        alone = CONCLUDES.search(sentence) and sum(1 for _ in NUMBER.finditer(sentence)) == 1
        if not (turned or reopened or alone):
            return None
        value = picked(body) or stressed(body) or last_expression(body)
        if value is None or value.void or value.start < start:
            return None
        is_other = _displaces(last, value, self.body)
        return replace(value, kind=CandidateKind.CORRECTION) if is_other else None

    def _check_alternative(self, last: Candidate) -> Candidate:
        """Return `last`, made void if another answer is offered in case `last` is wrong."""
        begin = max(0, last.said_from - 160, len(self.body) - CASES_REACH)
        if _WHEN.search(lowered(self.body[begin:])) and CASES.search(self.body, begin):
            return replace(last, void=SEVERAL_OFFERED)
        if last.kind is CandidateKind.ANNOUNCED and any(
            candidate.kind in MARKS and not candidate.ignored and candidate.end <= last.start
            for candidate in self.seen
        ):
            begin = max(self.seen[0].said_to, last.said_from - 300)
            if HEDGE.search(self.body[begin : last.said_from]):
                return replace(last, void=SEVERAL_OFFERED)
        tail = ""
        if not _QUIET.match(self.body, last.said_to):
            tail = self.body[last.said_to : last.said_to + BEHIND].partition("\n\n")[0]
        if last.kind is CandidateKind.BOX and (alternative := _OR.match(tail)):
            phrase = spoken(self.body, last.said_to + alternative.end())
            self.rivals.append(phrase.text.rstrip(" )"))
        ahead = self.body[max(0, last.said_from - 61) : last.said_from]
        offered = "or" in ahead or "ou" in ahead or "od" in ahead
        if offered and (before := _OR_BEFORE.search(ahead, len(ahead) > 60)):
            self.rivals.append(before["value"])
        start, end = closing_sentence(self.body)
        offer = self.body[start:end] if start >= last.said_to else ""
        if MAY_BE.match(lowered(offer)) and _VALUE.search(offer):
            return replace(last, void=SEVERAL_OFFERED)
        hedge = HEDGE_BEHIND.search(tail)
        if hedge and _VALUE.search(tail, hedge.end()):
            return replace(last, void=SEVERAL_OFFERED)
        return last


_MY_ANSWER = re.compile(
    r"(?i)[.,;]?\s+(?:and )?(?:that|this|which)(?:['’]s| is) (?:my|the final) (?:final )?answer"
    r"[.!*\s]*$"
)
_THIS = ("this", "that", "it")
_VALUE_IS = r"(?P<{}>this|that|it|\d[\d.,/]*)(?: is|['’]s) (?P<{}only>(?:only|just) )?the "
_KIND = (
    r"(?:[a-z]{2,}est|minimum|maximum|sum|product|difference|area|perimeter|radius|diameter|mean"
    r"|median|first|second|third|last|numerator|denominator)\b"
)
_ASKS = r"\b(?:asks?|asked|wants?|wanted|needs?|needed)\b"
_ASKS_OTHER = re.compile(
    rf"\b{_VALUE_IS.format('value', '')}(?P<got>{_KIND})[^\n]{{0,60}}?(?:(?:{_ASKS} (?:for )?|"
    rf"(?(only)"
    rf"not |(?!)))the (?!(?P=got)\b){_KIND}|the (?!(?P=got)\b){_KIND} (?:is|was) {_ASKS})"
    rf"|{_ASKS} (?:for )?the (?P<want>{_KIND})[^\n]{{0,40}}?\b{_VALUE_IS.format('said', '_')}"
    rf"(?!(?P=want)\b){_KIND}"
)
"""What a value is, where the question asks for another: `44 is the smallest, but it asks for the
largest`.
"""
_EXCLUDED = re.compile(
    r"(?s),.*\b(?:exclud|reject|ruled|discard|extraneous|inadmissible|not allowed)"
)
_OTHER_VALUE = re.compile(r"(?P<value>-?\d[\d.,/]*)[\s$)\\]{0,3}$")
"""`a local maximum $-6$, but this`: the pronoun means another value."""
_COMMENT = re.compile(r"(?!option\b|choice\b)[a-z][a-z'-]{2,}(?![\w{])")
"""Words instead of a value: `the answer is positive`, `is between 40 and 50`."""


def _in(name: str, question: str) -> bool:
    """Return whether a question has a name, or the words of which the name is the initials."""
    initials = r"\w*[ -]".join(name)
    return place_of(name, question) >= 0 or re.search(rf"\b{initials}", question) is not None


def _comments(sentence: str) -> bool:
    """Return whether a sentence behind a mark is a side remark or a comment on the answer."""
    return COMMENTS.search(lowered(sentence)) is not None or aside(sentence)


def _displaces(mark: Candidate, announcement: Candidate, body: str) -> bool:
    """Return whether an announcement after a mark (or within a tag) is another answer.

    A value that repeats, rounds or labels the content of the mark is not, nor is a sentence that
    checks or describes the answer.
    """
    if mark.kind is CandidateKind.TAG and announcement.end <= mark.end:
        return True
    if squeeze(mark.text) == squeeze(announcement.text) or _ABOUT.search(announcement.text):
        return False
    sentence = clause_before(body, announcement.start)
    first = announcement.text.split()[:1]
    if _comments(sentence) or (
        _COMMENT.match(announcement.text) and not set(first) <= NUMBER_WORDS
    ):
        return False
    if mark.void:
        return True
    letter = _LETTER.match(announcement.text) is not None
    if letter or _LETTER.match(mark.text):
        return letter and _LETTER.match(mark.text) is not None
    announced_words = announcement.text.lower().replace("-", " ").split()
    return _VALUE.search(announcement.text) is not None or (
        0 < len(announced_words) < 4 and set(announced_words) <= NUMBER_WORDS
    )
