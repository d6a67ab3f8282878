"""The option that a response picks: by its letter, by a list of checked options, or several."""

from __future__ import annotations

import re

from .candidate import Candidate, CandidateKind
from .sentence import closing_sentence, denied

# `it's B`, `: B`, `only B works`, `B is correct`; the negative look-ahead refuses `B or C`.
PICKED = re.compile(
    r"(?:\b(?i:it'?s|it is|it has to be|must be|would be|be|choose|chose|pick|select|go with"
    r"|going with|leaves(?: only| us with| just)?|remains|only|so|hence|thus|therefore|then"
    r"|(?:correct|right|true)(?: one| option| choice| statement)? is|corresponds to|(?:this|that"
    r"|it|which|answer|value|result) (?:matches|agrees with)|is)\b,?\s+"
    r"(?:(?:the )?(?:option|choice|answer|letter)\s+)?[*(]*(?P<after>[A-J])\b[)*]*"
    r"(?=\s*(?:[.,;:!]|$|because\b|since\b|as\b|it is\b))"
    r"|(?::|(?:^|[.!]\s+)(?i:option|choice))\s*[*(]*(?P<colon>[A-J])[)*]*\s*\.?\s*$"
    r"|\b(?i:(?:right|correct|true|best) (?:option|choice|answer|statement|one)"
    r" is the \w+(?: one)?),? [*(]*(?P<placed>[A-J])[)*]*\s*\.?\s*$"
    r"|\b(?i:it'?s|it is)\s+[*(]*(?P<who>[A-J])\b[)*]*\s+(?:who|that|which)\b"
    r"|\b(?i:only)\s+[*(]*(?P<only>[A-J])\b[)*]*\s+(?:works?|satisf\w+|fits|holds|remains|match\w*)"
    r"|(?<![\w(*])[*(]*(?P<before>[A-J])\b[)*]*\s+(?:is|must be"
    r"|has to be)\s+(?:the\s+)?(?:only\s+)?"
    r"(?:one\s+|option\s+|choice\s+)?(?:that\s+)?(?:correct|right|true|works|fits|remains|holds)\b)"
    r"(?!\s+(?:or\b|and\b(?!.*\b(?:not|wrong|false|incorrect)\b)))"
)
# `(B) 9:15 = 3:5, yes.`: a line that judges an option.
CHECKED_OPTION = re.compile(
    r"(?m)^[\s*>-]*\(?(?P<letter>[A-J])[).:][^\n]*?(?:[,;:.—–-]\s*|\s)"
    r"(?P<verdict>(?i:yes|no|true|false|correct|incorrect|right|wrong|works|fails|[✓✔✗✘✅❌]))"
    r"[\s.!*]*$"
)
_AFFIRMS = re.compile(r"(?i)yes|true|correct|right|works|[✓✔✅]")
# Words right before a letter that turn the pick around: `not B`, `except B`, `if B`.
_NOT_PICKED = re.compile(
    r"(?i)(?:n't|\bnot|\bnever)\s+(?:\w+\s+)?$|\b(?:or|nor|and|neither)\s+$|\b(?:if"
    r"|whether)\b[^,]*$"
    r"|\b(?:wrong|incorrect|false|impossible|eliminated?|trap)\b[^,;.]*$"
    r"|\b(?:except|besides|excluding|apart from|all but|everything but)\s+(?:\w+\s+)?$"
)
_NOT_THESE = re.compile(r"(?i)\b(?:not?|never|but|without|other than)\b|n['’]t\b")
_CLAUSE = re.compile(r"[,;:.\n]\s")
_EITHER = re.compile(
    r"\b(?:with|for|is|be|choose|pick|answer|either|match(?:es)?|to) [*(]*[A-J]\b[)*]*,? or "
    r"[*(]*[A-J]\b[)*]*[\s.!*]*$"
)
_LINE_LETTER = re.compile(
    r"\n\s*(?:(?:→|⇒|∴|->|=>)\s*)?[*_(]*(?P<letter>[A-J①-⑩]|(?<=[→⇒∴>] )[a-j])[)*_.]*\s*$"
)
_LAST_LETTERS = re.compile(
    r"(?:\n\s*|\b(?:is|are|be|choose|pick|select|options|choices|letters)\s+)"
    r"(?P<all>[*(_]*[A-J][)*_]*(?:(?:,? and |, | & )[*(_]*[A-J][)*_]*)+)[\s.!]*$"
)
"""Letters that a response ends in: `**B and D**`."""
_OF_ANOTHER = re.compile(
    r"\W*(?i:the )?(?:(?i:options?|choices?|answers?)\s+)\W*[A-J]\b[^\n]*?(?:\bwould\b|['’]d\b"
    r"|\b(?:confuse|forget|ignore|mix"
    r"|neglect|omit|overlook|misread)\w*|\b(?:is|are) (?:too|wrong|incorrect|only|off)\b"
    r"|\bresults? from\b)"
    r"(?![^\n]*(?:\b(?:so|but|hence|thus|therefore|correct|right|sure|perhaps|maybe)\b|\?))"
)
"""A sentence that says how another option comes about: `Choice B would be 10%.`"""


def picked(body: str) -> Candidate | None:
    """Return the choice letter that the response settles on: `Therefore I think B`, or None.

    The closing sentence picks the letter, or the letter stands alone on the last line, or the
    letter opens an explanation. A sentence that picks two letters picks none.
    """
    if alone := _LINE_LETTER.search(body, max(0, len(body) - 40)):
        return _choice(alone["letter"], *alone.span("letter"))
    if several := _LAST_LETTERS.search(body, max(0, len(body) - 60)):
        place = several.span("all")
        before = _CLAUSE.split(body[max(0, place[0] - 60) : place[0]])[-1]
        is_other = _NOT_PICKED.search(before) or _NOT_THESE.search(before)
        if not (is_other or denied(body, *closing_sentence(body), *place)):
            return _choice(", ".join(re.findall("[A-J]", several["all"])), *place)
    checked = list(CHECKED_OPTION.finditer(body, max(0, len(body) - 1500)))
    right = [option for option in checked if _AFFIRMS.fullmatch(option["verdict"])]
    if len(checked) > 1 and len(right) == 1 and not body[checked[-1].end() :].strip():
        return _choice(right[0]["letter"], *right[0].span("letter"))
    start, end = closing_sentence(body)
    if _OF_ANOTHER.match(body, start, end) and body[:start].strip():
        return picked(body[:start].rstrip())
    picks = {
        match[group]: match.span(group)
        for match in PICKED.finditer(body, start, end)
        for group in ("after", "colon", "placed", "who", "only", "before")
        if match[group] and not _NOT_PICKED.search(body[start : match.start(group)])
    }
    if len(picks) == 1:
        letter, span = picks.popitem()
        return _choice(letter, *span)
    if _EITHER.search(body, start, end):
        reason = "the closing sentence leaves several options open"
        return Candidate(CandidateKind.CHOICE, "", start, end, start, end, void=reason)
    return None


def _choice(letter: str, start: int, end: int) -> Candidate:
    return Candidate(CandidateKind.CHOICE, letter, start, end, start, end)
