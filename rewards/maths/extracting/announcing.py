"""Announced answers: "the answer is ..." in each of `LANGUAGES`, and "... is the answer"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..reading.vocabulary import NUMBER_WORDS
from .asides import CONCLUDES
from .candidate import Candidate, CandidateKind
from .expressions import last_expression
from .languages import ENGLISH, LANGUAGES, PhraseLanguage
from .spoken import Spoken, spoken
from .stance import announced_stance, before_noun, instead, stance
from .surface import REACH, lowered

MAX_PHRASES = 24
"""How many occurrences of one anchor are examined, counted from the end."""
MAX_FOUND = 12
"""How many announcements are examined, counted from the end."""
MAX_LINKED = 200
"""The most characters between a noun and the announced value."""
MAX_PREFIX = 8
"""The most letters of a noun before its anchor."""
# A value before its noun: `10 is the answer`, `**7** is therefore our final`.
_VALUE_FIRST = re.compile(
    r"(?P<value>\$[^$\n]{1,80}\$|\*\*[^*\n]{1,60}\*\*|\\\([^\n]{1,80}?\\\)|\(?\b[A-J]\b\)?"
    r"|(?<![\w.,])[-−]?\\?\$?\d[\d,./]*\d?\\?%?)\s+(?:is|are)\s+(?:therefore\s+|thus\s+|indeed\s+)?"
    r"(?:the|our|my)\s+(?:(?:final|correct|right|best|only|required|desired)\s+)*$"
)
# What may follow a noun that heads its value: a line break, a formula, closing emphasis.
_HEADING = re.compile(r"[*_:}\s#]*\n|\s*(?=\$|\\\(|\\\[)|[*_]{2}\s*")
# `Answer` above rows with labels heads all of them, of which the question asks for one.
_LABELLED = re.compile(r"[*_:}]*(?:\n\s*[-*•] [*_]*[^\W\d_][^:=\n]{1,40}[:=][^\n]+){2,12}\s*\Z")
# `The answer is one of 3, 5` offers several values, so that it gives none.
_ONE_OF = re.compile(r"(?i)(?:one|any|some|either one) of\b|either\b(?!.*\bor\b)|among\b")
# `The only choice is for there to be 26 girls` speaks of no listed option.
_OPTION = re.compile(r"(?i)options?\Z|choices?\Z")
_LETTERED = re.compile(r"\W{0,4}[A-Z]\b")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}")
# `20 L of the solution are needed`, `must be mixed with it`: no value of the noun.
_HAPPENS = re.compile(r"(?:(?:still|also) )?[a-z]{2,}(?:ed|wn|ght)(?: [a-z]+){0,6}\W*")
# `4 and 7, so the sum is 11`: the sentence goes on to what follows from the values.
_CONCLUDED = re.compile(
    rf"\d[^,;]*[,;] (?:and )?(?:{CONCLUDES.pattern})[^\d=]*\b(?:is|are|=)[^\d]*\d"
)
# A full sentence after the noun, whose last value is the answer (see `_candidates_at`).
_VERB = re.compile(
    r"(?:[A-Z]|the )[^.\d$]{0,60}?\b(?:is|are|was|were|has|have|had|needs?|takes?|took|costs?"
    r"|gets?|gives?"
    r"|makes?|made|will|can|appears?|seems?|looks?|earns?|earned|pays?|paid|sells?|sold|weighs?"
    r"|contains?|holds?|uses?|lies|lie|(?:accelerat|mov|travel|flow|ris|fall|act|point)e?s"
    r"|ist|sind|hat|haben|kostet|kosten|beträgt|est|sont|ont|coûte(?:nt)?|son|tienen?|cuestan?"
    r"|são|tem"
    r"|custam?|sono|costano?|стоит|стоят|равн\w+)\b"
)
_VALUE_OF = re.compile(
    r"(?:(?:the|a) [a-z]+ )?[-−]?\d[\d.]*(?:/\d+)?(?: ?[^\W\d_][\w/²³·⁻¹]{0,8})? (?:of|in "
    r"(?!total|all)|to the|"
    r"towards?|along|down|up|away|opposite|across)\b[^\d=<>]*$"
)
"""A value with words that say of what it is, or where it points to."""
# A sentence with such words may leave the value open, and is not reduced to its number.
_OPEN = re.compile(
    r"(?i)\b(?:if|when|unless|provided|except|otherwise|or|either|assuming|only|depends)\b"
)
# `The answer is 5, provided that ...` claims a value for some cases only.
_LIMITED = re.compile(r"(?i)\b(?:as long as|provided|assuming|unless|only (?:if|when|for))\b")
# `10 is the answer to the first ...` is not the answer to the question.
# `Half of 56 is the answer`: the value depends on a word before, and is not the subject.
_DEPENDENT = re.compile(
    r"(?i)\b(?:of|than|from|times|twice|double|half|minus|plus|before|after|above|below)\W*\Z"
)
_TAKEN_FROM = re.compile(
    r"\s*(?:of|to (?:the (?:first|previous|last)|part|an(?:other)?|a different))\b"
)


def _compiled(language: PhraseLanguage) -> re.Pattern[str]:
    edge = "" if language.name in {"Japanese", "Korean", "Hindi", "Chinese"} else r"(?<![^\W_])"
    noun = rf"{edge}(?:(?P<answer>{language.answer})|(?P<result>{language.result}))"
    return re.compile(rf"(?i){noun}(?:(?P<link>{language.complement}{language.link})|(?P<bare>))")


_PATTERNS = [(language, _compiled(language)) for language in LANGUAGES]
_ANCHORS = [(anchor, *pair) for pair in _PATTERNS for anchor in pair[0].anchors]
_ASCII_ANCHORS = [row for row in _ANCHORS if row[0].isascii()]
_INVERTED = {
    language.name: re.compile(language.inverted, re.IGNORECASE)
    for language in LANGUAGES
    if language.inverted
}


def announced(body: str, after: int = 0) -> list[Candidate]:
    """Return the last announcements after position `after`, in text order.

    Announcements that the writer does not claim (denied, quoted) are included, with `ignored`
    set.
    """
    after = max(after, len(body) - REACH)
    candidates: dict[int, Candidate] = {}
    small = lowered(body[after:])
    anchors = _ASCII_ANCHORS if small.isascii() else _ANCHORS
    places = [
        (after + place, language, pattern)
        for anchor, language, pattern in anchors
        if anchor in small
        for place in _occurrences(small, anchor)
    ]
    if not places:
        return []
    places.sort(key=lambda start_and_language: -start_and_language[0])
    for place, language, pattern in places:
        for candidate in _candidates_at(body, after, place, language, pattern):
            candidates.setdefault(candidate.start, candidate)
        if len(candidates) >= MAX_FOUND:
            break
    # `Answer: the final answer is 5` is a single announcement, the inner.
    outermost: list[Candidate] = []
    for candidate in sorted(candidates.values(), key=lambda place: (place.start, -place.end)):
        last = outermost[-1] if outermost else None
        if last and last.end == candidate.end and candidate.start >= last.start:
            outermost.pop()
        elif last and candidate.said_from < last.end and candidate.kind is CandidateKind.RESULT:
            continue
        outermost.append(candidate)
    return outermost


def _occurrences(text: str, anchor: str) -> Iterator[int]:
    place = len(text)
    for _ in range(MAX_PHRASES):
        place = text.rfind(anchor, 0, place)
        if place < 0:
            return
        yield place


def _candidates_at(
    body: str, after: int, place: int, language: PhraseLanguage, pattern: re.Pattern[str]
) -> Iterator[Candidate]:
    # The start of the word that contains the anchor at `place`.
    start = place
    while start > max(after, place - MAX_PREFIX) and body[start - 1].isalpha():
        start -= 1
    match = pattern.match(body, start, place + MAX_LINKED)
    match = match or pattern.match(body, place, place + MAX_LINKED)
    if match is None:
        return
    noun = "answer" if match["answer"] else "result"
    in_english = language is ENGLISH and noun == "answer"
    if in_english and (first := _value_first(body, after, match.start(), match.end(noun))):
        yield first
    if _LABELLED.match(body, match.end(noun)):
        return
    link, reach = match["link"] or "", match.end()
    if match["link"] is None:
        bare = _linked(body, match.end(noun), match.start(), language)
        if bare is None:
            return
        reach = bare
    value_start = instead(body, link, reach)
    phrase = spoken(body, value_start)
    if not phrase.text.strip(" .*$:_{}"):
        return
    # `The solution is acidic` describes it, while `Result: mar.` is a value.
    is_predicate = link.strip()[-1:].isalpha() and phrase.text.isalpha() and phrase.text.islower()
    if noun == "result" and is_predicate and phrase.text not in NUMBER_WORDS:
        return
    if noun == "result" and (_HAPPENS.fullmatch(phrase.text) or _CONCLUDED.search(phrase.text)):
        return
    prose = len(_PROSE.findall(phrase.text)) >= 3
    if prose and _OPTION.match(match[noun]) and not _LETTERED.match(phrase.text):
        return
    if (prose and _VERB.match(phrase.text)) or _VALUE_OF.match(phrase.text):
        # A sentence stands for the number that it states: `Answer: Ann is 3 years older than Tom.`
        stated = last_expression(phrase.text)
        if stated is not None and not stated.void and not _OPEN.search(phrase.text):
            begin = phrase.start
            phrase = Spoken(stated.text, begin + stated.start, begin + stated.end, phrase.asked)
    # The statement starts at words such as "the final" before the noun.
    base = max(after, match.start() - 80)
    ahead = body[base : match.start()]
    # No run of determiners begins before a full stop, comma or colon.
    noun_start = base + before_noun(ahead, max(map(ahead.rfind, ".,:")) + 1)
    ignored = announced_stance(
        body, noun_start, "" if value_start > reach else link, phrase.start, phrase.end
    )
    if not ignored and phrase.asked:
        ignored = "it is asked"
    void = "several answers are offered" if _ONE_OF.match(phrase.text) else ""
    if _LIMITED.search(phrase.text):
        void = "the value holds only under a condition"
    yield Candidate(
        CandidateKind.ANNOUNCED if noun == "answer" else CandidateKind.RESULT,
        phrase.text, phrase.start, phrase.end,
        noun_start, phrase.end, ignored=ignored, void=void,
    )  # fmt: skip


def _linked(body: str, verb_end: int, noun: int, language: PhraseLanguage) -> int | None:
    """Return the start of the value after a noun without a verb: in a heading or an inverted
    sentence. None if neither fits.
    """
    inverted = _INVERTED.get(language.name)
    if inverted and inverted.search(body[max(0, noun - 80) : noun]):
        return verb_end
    heading = _HEADING.match(body, verb_end)
    if heading is None:
        return None
    line = body[max(0, noun - 80) : noun].rpartition("\n")[2]
    return None if line[: before_noun(line)].strip(" \t#*_>-.\r0123456789") else heading.end()


def _value_first(body: str, after: int, noun: int, verb_end: int) -> Candidate | None:
    """Return the candidate of `10 is the answer`, where the noun is at `noun`, or None."""
    base = max(after, noun - 100)
    ahead = body[base:noun]
    match = _VALUE_FIRST.search(ahead) if " is" in ahead or " are" in ahead else None
    if match is None or _TAKEN_FROM.match(body, verb_end):
        return None
    text = match["value"].strip("*")
    text = text[1:-1] if text[0] == "$" == text[-1] else text
    said_from, start = base + match.start(), base + match.start("value") + match["value"].find(text)
    end = start + len(text)
    ignored = stance(body, said_from, start, end)
    if _DEPENDENT.search(body, base, said_from):
        ignored = "it depends on the words before"
    return Candidate(
        CandidateKind.ANNOUNCED, text, start, end, said_from, verb_end, ignored=ignored
    )
