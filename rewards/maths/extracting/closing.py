"""Answers that nothing marks: a whole short response, else what its closing sentence picks,
stresses, states, or its last number.
"""

from __future__ import annotations

import re

from ..reading.vocabulary import words
from .candidate import Candidate, Kind
from .phrases import GIVEN_UP
from .spoken import spoken
from .surface import clause_before, crossed_out, without_decoration

MAX_WHOLE = 200
"""Characters of a response that may be an answer as it stands."""
MAX_WORDS = 8
"""Words of a response without digits that may be an answer as it stands."""
TAIL = 3000
"""Characters at the end of a response in which formulas are looked for."""
NUMBER_TAIL = 1200
"""Characters at the end of a response in which a bare last number is looked for."""
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.,])[-+−]?(?:\\?[$£€]\s?)?[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:\s?%|\\%)?"
    r"(?:(?![A-Za-z0-9_])|(?=(?:[kcm]?m|k?g|s|h|L|ft|in|mi)[²³]?(?!\w)))"
)
_POINT = re.compile(r"[(\[]\s*[-−]?\d[\d./]*(?:\s*,\s*[-−]?\d[\d./]*)+\s*[)\]]")
_NARRATIVE = words("there are then hence thus have get gives therefore find add so since is")
_HOLDS_ANSWER = re.compile(r"\d|\\\(|\\\[|\$")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
_KNOWN = words(
    "sin cos tan cot sec csc log exp sqrt frac max min gcd lcm and inf infinity for all mod pmod"
)


# --- the whole response ---


def whole(body: str) -> Candidate | None:
    """A short response that is no prose."""
    stripped = body.strip()
    if len(stripped) > MAX_WHOLE or not any(map(str.isalnum, stripped)) or _is_prose(stripped):
        return None
    start = body.find(stripped)
    text = _undressed(stripped)
    ignored = ""
    if stripped.endswith("?"):
        ignored = "it is asked"
    elif crossed_out(body, start, start + len(stripped)):
        ignored = "it is crossed out"
    if (inner := stripped.find(text)) > 0:
        start += inner
    return Candidate(
        Kind.WHOLE, text, start, start + len(text), start, start + len(text), ignored=ignored
    )


_BULLET = re.compile(r"^(?:[-*•]\s+(?=\S)|>\s+|#{1,6}\s+)")


def _undressed(text: str) -> str:
    text = _BULLET.sub("", without_decoration(text)).strip()
    return text if text.isascii() else without_decoration(text)


_IDEOGRAPHS = re.compile("[一-鿿぀-ヿ가-힣]")
_SENTENCE = re.compile(r"[A-Z][a-z]*\s.*\d.*\.$")
_LETTERED = re.compile(
    r"(?!\(?[A-J][).:])(?!.*[\\=\d])(?=.*\b[A-J]\b)(?:.*?\b[A-Za-z]{3,}\b){2}", re.DOTALL
)
"""Words around a letter: `A solution exists.`"""
_OPENED = re.compile(r"^[A-Za-z][A-Za-z ,]+(?:\$[^$]+\$|\\\(.+\\\))[.\s]*$")
"""`In conclusion, $x = 7/2$.`"""


def _is_prose(text: str) -> bool:
    """Whether text reads as sentences rather than as one answer."""
    if len(_IDEOGRAPHS.findall(text)) > 2:
        return any(map(str.isdigit, text))
    bare = re.sub(r"\\[A-Za-z]+\s*(?:\{[A-Za-z ]*\})?", " ", text)
    found = [word for word in _PROSE.findall(bare) if word.lower() not in _KNOWN]
    holds = _HOLDS_ANSWER.search(text) is not None
    if (len(found) > 1 and _SENTENCE.match(without_decoration(text))) or _LETTERED.match(text):
        return True
    return (
        len(found) > 5
        or (holds and re.search(r"[.!?]\s+[A-Z]", text) is not None)
        or (holds and any(word.lower() in _NARRATIVE for word in re.findall(r"[A-Za-z]+", bare)))
        or (len(found) > 2 and "$" in text)
        or (len(found) > 1 and re.search(r"\$.+\$|\*\*.+\*\*", text) is not None)
        or (len(found) > 0 and _OPENED.search(text) is not None)
        or _PICKED.search(text) is not None
    )


# --- the closing sentence ---

_PICKED = re.compile(
    r"(?:\b(?i:it'?s|it is|it has to be|must be|would be|be|choose|chose|pick|select|go with"
    r"|going with|leaves"
    r"(?: only| us with| just)?|remains|only|so|hence|thus|therefore"
    r"|then)\b,?\s+(?:(?:the )?(?:option|choice"
    r"|answer|letter)\s+)?[*(]*(?P<after>[A-J])\b[)*]*(?=\s*(?:[.,;:!]|$|because\b|since\b|as\b))"
    r"|(?<![\w(*])[*(]*(?P<before>[A-J])\b[)*]*\s+(?:is|must be"
    r"|has to be)\s+(?:the\s+)?(?:only\s+)?(?:one\s+)?"
    r"(?:correct|right|true)\b)(?!\s+(?:and|or)\b)"
)
_UNSURE = re.compile(
    r"\b(?:either|maybe|perhaps|possibly|might|could be|whether|not sure|unsure|between|at least"
    r"|at most|more than|less than|fewer than|greater than|depends)\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"\b(?:not|isn't|aren't|never|neither|cannot be|can't be|nor|no|rather than"
    r"|instead of)\b[^;\n]*?"
    r"(?=\b(?:but|which)\b|[,.](?!\d)|[;\n]|$)|^\s*if\b[^,.;\n]*",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"(\*{1,3}|`)(?=[^\s*`])([^*`\n]{1,120}?)(?<=\S)\1")


_NOT_PICKED = re.compile(r"\b(?:n't|not|never)\s+$|\b(?:if|whether)\b[^,]*$")


def picked(body: str) -> Candidate | None:
    """The letter that the closing sentence picks: `Therefore I think it's B`."""
    if alone := _LINE_LETTER.search(body, max(0, len(body) - 40)):
        span = alone.span("letter")
        return Candidate(Kind.CHOICE, alone["letter"], *span, *span)
    start, end = closing_sentence(body)
    found = [
        one for one in _PICKED.finditer(body, start, end)
        if not _NOT_PICKED.search(body, start, one.start())
    ]  # fmt: skip
    if not found or _UNSURE.search(body, start, end) or body[:end].rstrip().endswith("?"):
        return None
    letters = {one["after"] or one["before"] for one in found}
    if len(letters) > 1:
        return None
    group = "after" if found[-1]["after"] else "before"
    place = found[-1].start(group)
    return Candidate(
        Kind.CHOICE, found[-1][group], place, place + 1, found[-1].start(), found[-1].end()
    )


_YES_NO = re.compile(
    r"^[\s*_\"]*(?P<word>yes|no|true|false)\b[*_\"]*\s*[,.;:—–-]?\s*(?=(?:since|because|as|for)\b)"
    r"(?![^.]*\b(?:unless|if|except|provided|only)\b)",
    re.IGNORECASE,
)
_CONCLUDED = re.compile(
    r"\b(?:so|hence|thus|therefore|conclude that)\b,?\s[^.\d$\\]{1,60}?\s(?:is|are|was"
    r"|on)\s+(?:an?\s+|the\s+)?"
    r"[*_]*(?P<word>[A-Za-z][a-z-]*)[*_]*[.!]?\s*$"
)
_COMMENTS = words(
    "correct right valid satisfied complete done proved proven finished possible it this that"
)


def worded(body: str) -> Candidate | None:
    """A word that answers: `No, since 91 = 7 * 13`, `so the day is Saturday`."""
    found = _YES_NO.match(body) if len(body) <= 2 * MAX_WHOLE else None
    if found is None:
        start, end = closing_sentence(body)
        found = _CONCLUDED.search(body, start, end)
    if found is None or found["word"].lower() in _COMMENTS:
        return None
    return Candidate(Kind.WORD, found["word"], *found.span("word"), *found.span())


_LINE_LETTER = re.compile(r"\n\s*[*_(]*(?P<letter>[A-J])[)*_.]*\s*$")


def stressed(body: str) -> Candidate | None:
    """What the closing sentence stresses, if it is one value: `earned **$10** for 50 minutes`."""
    start, end = closing_sentence(body)
    if refused := _unanswered(body, start, end):
        return refused
    found = [one for one in _EMPHASIS.finditer(body, start, end) if _HOLDS_ANSWER.search(one[2])]
    found = [one for one in found if not _denied(body, start, end, one.start())]
    if len({one[2] for one in found}) != 1 or _HOLDS_ANSWER.search(body[end:]):
        return None
    one = found[-1]
    said = spoken(one[2], 0)
    return Candidate(
        Kind.EMPHASIS, said.text or one[2], one.start(2), one.end(2), one.start(), one.end()
    )


def closing_sentence(body: str) -> tuple[int, int]:
    """The last sentence that is more than an aside in brackets."""
    end = len(body.rstrip())
    if aside := _REMARK.search(body, max(0, end - 120), end):
        line = body[max(0, aside.start() - 200) : aside.start()].rpartition("\n")[2]
        if any(map(str.isdigit, line)) and not _POINT.match(body, aside.start()):
            end = (
                aside.start()
                + len(body[aside.start() : end])
                - len(body[aside.start() : end].lstrip())
            )
    shown = body[max(0, end - 400) : end].rstrip(" .!?\n*_`")
    last = max(0, end - 400) + len(shown)
    return last - len(clause_before(body, last)), end


def _unanswered(body: str, start: int, end: int) -> Candidate | None:
    """A void candidate when the closing sentence asks, gives up, or leaves it open."""
    sentence = body[start:end]
    reason = ""
    if sentence.rstrip("*_ \n").endswith("?"):
        reason = "the response ends with a question"
    elif GIVEN_UP.search(sentence):
        reason = "the response gives up"
    elif _UNSURE.search(sentence) and sum(1 for _ in _NUMBER.finditer(sentence)) > 1:
        reason = "the closing sentence leaves several values open"
    if not reason:
        return None
    return Candidate(Kind.NUMBER, "", start, end, start, end, void=reason)


def _denied(body: str, start: int, end: int, place: int) -> bool:
    if place < start:
        return False
    if _BOUNDED.search(body[max(start, place - 30) : place].lower()):
        return True
    sentence = body[start:end]
    return any(one.start() <= place - start < one.end() for one in _DENIAL.finditer(sentence))


# --- the last formula, the last number ---

_REMARK = re.compile(r"\([^()\n]{1,80}\)[\s.!]*+$")
_GOVERNED = re.compile(
    r"\b(?:for|in|per|after|before|every|each|within|during|over|with|than|out of|of the|of these"
    r"|of those"
    r"|because|since|from|to [a-z]+|en|dans|pour|par|avec|für|mit|aus|nach|por|para|con|com|em|за"
    r"|в|на|из|для)(?: (?:the|these|those|all|her|his|their|its|only|about|each|every))*"
    r"[ *$]*$"
)
_BOUNDED = re.compile(
    r"\b(?:(?:more|less|fewer|greater|larger|smaller|higher|lower|bigger) than|at (?:least|most)"
    r"|up to"
    r"|under|above|below|exceeds?)[ *$]*$"
)
_ASIDE = re.compile(
    r"\b(?:which|where|when|while|although|though|if|since|because|as long as|working|using|having"
    r"|assuming"
    r"|attained|reached|achieved)\b[^,;]*",
    re.IGNORECASE,
)
"""A clause beside the main one."""
_VALUE_VERB = re.compile(
    r"\bto (?:be|about|exactly|approximately|get|make|give|roughly|equal)[ *$]*$"
)


def last_expression(body: str) -> Candidate | None:
    """The last formula or the last number, whichever is later; a number that a preposition
    governs (`for 50 minutes`) only if the closing sentence has no other.
    """
    start, end = closing_sentence(body)
    if refused := _unanswered(body, start, end):
        return refused
    base = max(0, len(body) - TAIL)
    found = _last_formulas(body[base:])
    formula = None if found is None else (base + found[0], base + found[1])
    number = _last_number(body, start, end)
    if formula is not None and _denied(body, start, end, formula[0]):
        formula = None
    if formula is not None and (number is None or number[0] <= formula[1]):
        return Candidate(Kind.FORMULA, body[slice(*formula)], *formula, *formula)
    if number is None:
        return None
    return Candidate(Kind.NUMBER, body[slice(*number)], *number, *number)


def _last_number(body: str, start: int, end: int) -> tuple[int, int] | None:
    """The number the closing sentence states, else the last before it; or the point it ends."""
    base = max(0, len(body) - NUMBER_TAIL)
    numbers = [
        one
        for one in _NUMBER.finditer(body, base, end)
        if not _denied(body, start, end, one.start())
    ]
    if not numbers:
        return None
    closing = [one for one in numbers if one.start() >= start]
    free = [one for one in closing if not _governed(body, start, one.start())]
    last = (free or closing or numbers)[-1]
    for point in _POINT.finditer(body, max(0, last.start() - 60), end):
        if point.start() < last.start() < point.end():
            return point.span()
    first = last
    for one in reversed(closing[: closing.index(last)] if last in closing else []):
        if not _OR.fullmatch(body, one.end(), first.start()):
            break
        first = one
    if first is last and (
        relation := _RELATION.search(body, max(base, last.start() - 40), last.start())
    ):
        return relation.start(), last.end()
    return first.start(), last.end()


_RELATION = re.compile(
    r"(?:-?\d[\d./]*\s*(?:<=|[<≤])\s*)?(?<![A-Za-z])[A-Za-z]\s*(?:<=|>=|!=|[<>≤≥≠])\s*$"
)
_OR = re.compile(r"\s*(?:,|,?\s*or(?:\s+[a-z]\s*=)?)\s*")


def _governed(body: str, start: int, place: int) -> bool:
    if any(
        one.end() > place for one in _ASIDE.finditer(body, start, place + 1) if one.end() > place
    ):
        return True
    before = body[max(start, place - 40) : place].lower()
    return _GOVERNED.search(before) is not None and _VALUE_VERB.search(before) is None


_DOLLARS = re.compile(r"\\.|\$\$?", re.DOTALL)
_JOINT = re.compile(r"\s*(?:,|;|,?\s*(?:and|or))\s*$")
_NAME = re.compile(r"\s*([A-Za-z](?:_\{?\w\}?)?)\s*=")


def _last_formulas(tail: str) -> tuple[int, int] | None:
    """(start, end) of the last `$..$`, `\\(..\\)` or `\\[..\\]`, with those joined to it by "and"
    that give the same thing (`$x = 5$ and $x = -5$`). Linear time.
    """
    spans = _formulas(tail)
    if not spans:
        return None
    begins = closing_sentence(tail)[0]
    closing = [span for span in spans if span[0] >= begins]
    free = [span for span in closing if not _governed(tail, begins, span[0])]
    while free and spans[-1] is not free[-1]:
        spans.pop()
    last = spans.pop()
    start = last[0]
    while spans and _JOINT.match(tail[spans[-1][1] : start].strip("$\\()[]")):
        names = [_NAME.match(tail, *span) for span in (spans[-1], last)]
        if len({name[1] if name else "" for name in names}) > 1:
            break
        start = spans.pop()[0]
    return start, last[1]


def _formulas(tail: str) -> list[tuple[int, int]]:
    """The insides of the last few formulas of one kind of delimiter, in order."""
    ends = {closer: tail.rfind(closer) for closer in ("\\)", "\\]")}
    dollars = [match for match in _DOLLARS.finditer(tail) if match[0][0] == "$"]
    if dollars and dollars[-1].start() > max(ends.values()):
        if tail[dollars[-1].end() : dollars[-1].end() + 1].isdigit():
            return []  # an amount of money closes nothing
        pairs = zip(dollars[len(dollars) % 2 :: 2], dollars[len(dollars) % 2 + 1 :: 2], strict=True)
        spans = [(first.end(), second.start()) for first, second in pairs]
    else:
        closer = max(ends, key=lambda mark: ends[mark])
        opener = {"\\)": "\\(", "\\]": "\\["}[closer]
        spans = []
        end = ends[closer]
        while end >= 0 and len(spans) < 8 and (start := tail.rfind(opener, 0, end)) >= 0:
            spans.insert(0, (start + 2, end))
            end = tail.rfind(closer, 0, start)
    return [(start, end) for start, end in spans[-8:] if tail[start:end].strip()]


def short_text(body: str) -> Candidate | None:
    """A short response as it stands, when nothing in it is an answer."""
    stripped = body.strip()
    if len(stripped) > MAX_WHOLE or not any(map(str.isalnum, stripped)) or stripped.endswith("?"):
        return None
    if any(map(str.isdigit, stripped)) or len(_PROSE.findall(stripped)) > MAX_WORDS:
        return None
    if _UNSURE.search(stripped):
        return None
    start = body.find(stripped)
    return Candidate(
        Kind.WHOLE, stripped, start, start + len(stripped), start, start + len(stripped)
    )
