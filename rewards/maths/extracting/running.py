"""The formula that closes a sentence without any mark: `so x = ln √5`, `therefore V = (1; 4)`.

A value that is a mere number is left to the search for numbers; what counts here has letters,
brackets or signs that belong to the value.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..reading.plain import formulas
from ..reading.vocabulary import words
from .sentence import denied, governed
from .surface import clause_before

_BOUND = re.compile(r"[<>≤≥≠≡∈⩽⩾]|\\(?:leq?|geq?|lt|gt|neq?|in|equiv)(?![A-Za-z])")
_RELATION = re.compile(rf"[=≈]|{_BOUND.pattern}")
# What stands behind the last sign of a mere number, or a calculation with numbers: `= 12/4`.
_NUMBER = re.compile(r"[-+−–\d.,/·⋅×*÷^()!%°\s⁰¹²³⁴⁵⁶⁷⁸⁹]*[msghLNJWVAKCM]?\s*")
# A formula that is more than a number: a bracket with several items, braces, a sign of sets, a
# bound, or a letter beside a sign or a number.
_STRUCTURED = re.compile(
    r"[(\[\]][^()\[\]]*[,;][^()\[\]]*[)\]\[]|\{|[<>≤≥≠≡∈∪∩±∞∅√π⩽⩾∧∨¬⊕]"
    r"|[a-z]{2}|[A-Za-zα-ω]['₀-₉]*\s*[-+−*/·^²³⁰¹⁴-⁹⁻ⁿ(]|[-+−*/·\d)]\s*[A-Za-zα-ω]"
)
_JOINT = re.compile(
    r"\s*(?:,|;|,?\s*(?:and|und|et|y|e|i|и|和|と|와|과)(?!\w)"
    r"|,?\s*(?P<or>or|oder|ou|o|lub|или|或者?|または|또는)(?!\w))\s*"
)
_JOINED = re.compile(r", | or ")
_NAMED = re.compile(
    r"(?:[-−]?\d[\d./]*\s*[<≤>≥⩽⩾]\s*)?[A-Za-zλθ][\w₀-₉'()+· ]{0,11}\s*[=<>≤≥≠≡∈⩽⩾]"
)
_SUPPOSES = re.compile(
    r"(?i)(?:^|[.!?:,]\s|\n|\b(?:so|and|then)\s)\s*(?:With|For|If|When|Since|As|Setting"
    r"|Substituting"
    r"|Because|Given|Let|From|At|Mit|Für|Wenn|Da|Avec|Pour|Si|Comme|Con|Para|Como|Com|При|Если)"
    r"\s[^=<>]{0,30}$"
)


class Plain(NamedTuple):
    """A formula of running text: its place, and its text with English words between its parts."""

    text: str
    start: int
    end: int


def closing_formula(body: str, start: int, end: int) -> Plain | None:
    """Return the plain formula that a closing sentence states, with those that commas and words
    join to it, or None.

    Args:
        body: the searched text.
        start: where the closing sentence begins.
        end: where it ends.
    """
    stated = (
        plain
        for plain in reversed(_joined(body, start, end))
        if not plain.text.isalpha()  # `for any integer n`: a name is no value
        and not governed(body, start, plain.start, plain.end)
        and not denied(body, start, end, plain.start, plain.end)
    )
    last = next(stated, None) or _bound(body, start, end)
    if last is None or any(map(str.isdigit, body[last.end : end])):
        return None
    if body[last.start - 1 : last.start] in {"^", "_"}:  # the end of `Bx^{-1}`
        return None
    text = last.text
    several = len(_RELATION.findall(text)) > 1 and _JOINED.search(text)
    plain = not _BOUND.search(text) and _NUMBER.fullmatch(_RELATION.split(text)[-1])
    return last if several or (_STRUCTURED.search(text) and not plain) else None


def in_turn(body: str, start: int, end: int) -> Plain | None:
    """Return the values that a sentence ends in, if they are those of the same letters again and
    again: `$a=2$, $b=32$ oder $a=8$, $b=18$`; else None.
    """
    said: list[re.Match[str]] = []
    for match in _ASSIGNED.finditer(body, start, end):
        joined = said and _JOINTS.fullmatch(body, said[-1].end(), match.start())
        said = [*said, match] if joined else [match]
    names = [match["name"] for match in said]
    period = len({*names})
    turns = [said[place : place + period] for place in range(0, len(said), period or 1)]
    if period < 2 or len(turns) < 2 or names != names[:period] * len(turns):
        return None
    place, stop = said[0].start(), said[-1].end()
    if not _CLOSES.fullmatch(body, stop, end) or denied(body, start, end, place, stop):
        return None
    text = " or ".join(
        ", ".join(f"{match['name']} = {match['value']}" for match in turn) for turn in turns
    )
    return None if governed(body, start, place, stop) else Plain(text, place, stop)


_ASSIGNED = re.compile(
    r"(?<![\w\\])(?P<name>[A-Za-z](?:_\{?\w\}?|[₀-₉])?)[\s$]{0,3}=[\s$]{0,3}"
    r"(?P<value>(?:[^\s,;:$=<>A-Za-z\\。或または또는와과]|\\(?:[dt]?frac|sqrt|pi)(?![a-z])|(?<=\d),(?=\d))+(?<!\.))"
)
_JOINTS = re.compile(
    r"(?:[\s$,;*]|\\(?:[,;()]|q?quad(?![a-z]))|(?<!\w)(?:and|und|et|y|e|i|и|or|oder|ou|o|lub|или)(?!\w)"
    r"|[和と或]者?|와|과|または|또는)+"
)
_CLOSES = re.compile(r"[\s$.。*!)]*")


def _bound(body: str, start: int, end: int) -> Plain | None:
    """Return the inequality that ends a sentence and says for which values something holds."""
    spans = formulas(body, start, end)
    if not spans or not _BEHIND.fullmatch(body, spans[-1][1], end):
        return None
    text = body[slice(*spans[-1])]
    of_letter = _LETTERED.match(text) and _HOLDS.search(body, start, spans[-1][0])
    if not of_letter or denied(body, start, end, *spans[-1]):
        return None
    return Plain(text, *spans[-1])


_BEHIND = re.compile(
    r"(?:[\s*_$.!]|(?:works?|qualif[a-z]+|satisf[a-z]+ (?:it|the inequality)|is a solution|do)\b)*+"
)
_LETTERED = re.compile(
    r"[^=A-Za-z]*[<≤⩽>≥⩾]\s*[a-zA-Z]\s*[<≤⩽>≥⩾][^=]*$|[a-zA-Z]\s*[<≤⩽>≥⩾≠][^=]*$"
)
_HOLDS = re.compile(
    r"(?i)\b(?:all|every|exactly|precisely|only|holds?|true|satisfied|valid|solutions?|works?"
    r"|iff|gilt"
    r"|genau|vraie?|vérifiée?|válid[ao]|se cumple|vale|верно|выполняется)\b[^=.]*$"
)


_BOUNDS = {
    "smaller than": "<", "less than": "<", "below": "<", "greater than": ">", "larger than": ">",
    "bigger than": ">", "more than": ">", "above": ">", "at least": "≥", "at most": "≤",
    "no less than": "≥", "not less than": "≥", "no more than": "≤", "not more than": "≤",
    "greater than or equal to": "≥", "less than or equal to": "≤", "no smaller than": "≥",
    "no greater than": "≤", "no larger than": "≤",
}  # fmt: skip
_IN_WORDS = re.compile(
    r"(?i)\b(?:(?:all|any|every|each) (?:real )?(?:(?:numbers?|values?(?: of)?"
    r"|reals?) ?)?\$?(?P<every>[a-z])?\b\$?"
    r"|\$?(?<![\w'’])(?P<letter>[a-z])\$? (?:is|must be|has to be)) ?(?:strictly )?"
    rf"(?P<bound>{'|'.join(sorted(_BOUNDS, key=len, reverse=True))}) \$?"
    r"(?P<value>[-−]?(?:\d[\d.]*(?:/\d+)?|[√π]\d*))\$?"
    r"(?: (?:are|is) (?:the |a )?solutions?| works?| satisf\w+ (?:it|this"
    r"|the inequality))?[\s.!*_]*$"
)
"""An inequality in words: `all numbers smaller than -4`, `x must be at least 3`."""


_INTRODUCES = words(
    "so hence thus therefore then answer result the solution solutions set are is inequality it"
    " this which holds works true satisfied valid for exactly precisely when if and only all that"
    " means"
    " we need get have find conclude consists of given by equivalently in words other"
)
"""The words that may stand before an inequality in words; any other may say something else of it
(`it fails when t is greater than 3`).
"""
_LETTERS = re.compile(r"[^\W\d_]+")


def bound_in_words(body: str, start: int, end: int) -> Plain | None:
    """Return the inequality that a closing sentence says in words, or None."""
    said = _IN_WORDS.search(body, start, end)
    if said is None or not _INTRODUCES.issuperset(
        _LETTERS.findall(body[start : said.start()].lower())
    ):
        return None
    sign, value = _BOUNDS[said["bound"].lower()], said["value"].rstrip(".")
    letter = said["every"] or said["letter"]
    ends = f"(-∞, {value}{']' if sign == '≤' else ')'}", f"{'[' if sign == '≥' else '('}{value}, ∞)"
    text = f"{letter} {sign} {value}" if letter else ends[sign in ">≥"]
    return Plain(text, said.start(), said.end("value"))


def _joined(body: str, start: int, end: int) -> list[Plain]:
    """Return the formulas of a sentence, of which those that state values of names are one if only
    commas and words stand between.
    """
    joined: list[Plain] = []
    for begin, stop in formulas(body, start, end):
        last = joined[-1] if joined else None
        joint = _JOINT.fullmatch(body, last.end, begin) if last else None
        named = last and _NAMED.match(last.text) and _NAMED.match(body, begin, stop)
        twins = last and _shape(last.text.rpartition("=")[2]) == _shape(body[begin:stop])
        if (last and joint and (named or (twins and "=" in last.text))) and (
            joint["or"] or not _SUPPOSES.search(clause_before(body, last.start))
        ):
            mark = " or " if joint["or"] else ", "
            joined[-1] = Plain(f"{last.text}{mark}{body[begin:stop]}", last.start, stop)
        else:
            joined.append(Plain(body[begin:stop], begin, stop))
    return joined


def _shape(value: str) -> str:
    """Return a sum with a root without its signs, so that two conjugate roots are the same."""
    return re.sub(r"[-+−\s]", "", value) if "√" in value and re.search(r"[-+−]", value) else value


def ends_in_formula(text: str) -> bool:
    """Return whether a short text is words or another formula before the formula that it ends in:
    `m = 6: y - 9 = 6(x - 3)`, `2 - 1 = 1; logo V = (1; 4)`.
    """
    if _CONCLUDED.search(text):
        return True
    plain = closing_formula(text, 0, len(text)) if "$" not in text and "\\" not in text else None
    if plain is None or any(map(str.isalnum, text[plain.end :])):
        return False
    return _LED.search(text, 0, plain.start) is not None


# Words or a formula and a colon, before what follows.
_LED = re.compile(r"[^\W\d_]{2}[^=]*$|[⟹⇒→∴]\s*$|[\d)\]}][^:\w]*:\s+$")
# `$x - 1 > 4$: $(5, \infty)$`, `x(x - 1) = 0`, a word of consequence in ideographs, `$x = 0$`.
_CONCLUDED = re.compile(
    r"[\d$)\]][^:\n$]{0,40}:\s+\$[^$\n]+\$[\sA-Za-z.]*$"
    r"|[=\d$)\]]\W{0,4}(?:所以|因此|故|则|よって|つまり|ゆえに|따라서|즉)"
)


def states(text: str) -> bool:
    """Return whether a formula states a value, a set or a point, and is no mere name."""
    return _RELATION.search(text) is not None or _POINT.match(text) is not None


_POINT = re.compile(r"[{∅[\]]|[A-Z]?\([^()]*[;,]|[-+−]?∞$")
