"""The last formula or number of a response, used as the answer where nothing marks a better
candidate.
"""

from __future__ import annotations

import re

from ..reading.locales import MEASURE, MYRIAD
from ..reading.plain import formulas
from ..reading.vocabulary import unit_symbol
from .candidate import Candidate, CandidateKind
from .running import Plain, bound_in_words, closing_formula, in_turn, states
from .sentence import (
    CALCULATED,
    NUMBER,
    POINT,
    closing_sentence,
    denied,
    governed,
    labels,
    unanswered,
)
from .surface import clause_before

TAIL = 3000
"""How many characters at the end of a response are searched for formulas."""
NUMBER_TAIL = 1200
"""How many characters at the end of a response are searched for a bare last number."""
MAX_NUMBERS = 40
MAX_COMMENTS = 4
"""How many sentences without a value may stand behind the value."""
# An unfinished relation before a number: `x <`, `0 < x <=`. It belongs to the answer.
_RELATION = re.compile(
    r"(?:-?\d[\d./]*\s*(?:<=|[<≤])\s*)?(?<![A-Za-z])[A-Za-z]\s*(?:<=|>=|!=|[<>≤≥≠])\s*$"
)
# `12π ≈ 37.70`: the exact value before its approximation.
_EXACT = re.compile(
    r"(?:(?<=[=:] )|(?<=\bis )|(?<=\bare ))(?=[^ ]*[π√])[-−\dπ√][^\s=≈,;A-Za-z]*"
    r"(?: [-+−·×/] [^\s=≈,;A-Za-z]+)* ?≈ ?$"
)
_OR = re.compile(
    r"\s*(?:[,、;]|,?\s*or(?:\s+(?:else|possibly|perhaps|maybe))?(?:\s+[a-z]\s*=)?)\s*"
)


def last_expression(
    body: str, *, joins: bool = False, comments: int = MAX_COMMENTS
) -> Candidate | None:
    """Return the last formula or the last number, whichever comes later, or None. With `joins`,
    formulas of several unknowns are one: `$p = 5$ and $q = 2$`. Behind the sentence that has it, at
    most so many `comments` may have no value.

    A value beside the point (`for 50 minutes`) is taken only if the closing sentence has no
    other.
    """
    start, end = closing_sentence(body)
    if refusal := unanswered(body, start, end):
        return refusal
    if comments and (before := _before_comment(body, start, end)):
        candidate = last_expression(before, joins=joins, comments=comments - 1)
        if candidate is not None and not candidate.void:
            return candidate
    if turns := in_turn(body, start, end):
        span = turns.start, turns.end
        return Candidate(CandidateKind.FORMULA, turns.text, *span, *span)
    base = max(0, len(body) - TAIL)
    formulas = _last_formulas(body[base:end], joins=joins)
    formula = None if formulas is None else (base + formulas[0], base + formulas[1])
    number = _last_number(body, start, end)
    between = body[formula[1] : number[0]] if formula and number else ""
    if "$" in between and len(re.findall(r"\$\$?", between)) % 2 == 0:
        number = None  # it stands in a later formula, which was passed over
    if formula is not None and denied(body, start, end, *formula):
        formula = None
    aside = (
        number is not None
        and formula is not None
        and start <= formula[0]
        and not re.search(r"[$\\]", body[formula[1] + 2 : number[1] + 2])
        and governed(body, start, *number)
        and not governed(body, start, *formula)
    )
    if formula is not None and (number is None or aside or number[0] <= formula[1]):
        text = with_unit(body, body[slice(*formula)], formula[1])
        return Candidate(CandidateKind.FORMULA, text, *formula, *formula)
    plain = bound_in_words(body, start, end) or closing_formula(body, start, end)
    plain = plain or _equation(body, start, end)
    if plain is not None and (
        number is None
        or (plain.start <= number[1] <= plain.end + 1 and plain.start <= number[0])
        or (number[1] < plain.start and states(plain.text))
        or (number[1] < start and _LEADS.search(body, start, plain.start))
    ):
        span = plain.start, plain.end
        return Candidate(CandidateKind.FORMULA, plain.text, *span, *span)
    if number is None:
        return None
    text = _JOINED.sub(", ", body[slice(*number)])
    return Candidate(CandidateKind.NUMBER, text, *number, *number)


def _before_comment(body: str, start: int, end: int) -> str:
    """Return the text before a closing sentence that has no value, or ""."""
    if _HAS_VALUE.search(body, start, end):
        return ""
    if any(stop - begin > 1 for begin, stop in formulas(body, start, end)):
        return ""
    return _NUMBERING.sub("", body[:start]).rstrip(" \n*_#>-–—•")


_NUMBERING = re.compile(r"\n[ *#>-]{0,6}\d{1,2}[.)]\s*$")
_HAS_VALUE = re.compile(r"[\d$\\=]")


def _equation(body: str, start: int, end: int) -> Plain | None:
    """Return the plain equation that a closing sentence ends in and calls one, or None."""
    spans = formulas(body, start, end)
    if not spans or any(map(str.isalnum, body[spans[-1][1] : end])):
        return None
    text = body[slice(*spans[-1])]
    alone = body[: spans[-1][0]].rstrip(" ")[-1:] == "\n" and _IN_LETTERS.fullmatch(text)
    is_equation = alone or called_equation(body, text, spans[-1][0])
    if denied(body, start, end, *spans[-1]) or not is_equation:
        return None
    return Plain(text, *spans[-1])


_IN_LETTERS = re.compile(
    r"[^=]*(?<![A-Za-z])x(?![A-Za-z])[^=]*(?<![A-Za-z])y(?![A-Za-z])[^=]*=[-\d\s.,]*"
)
"""An equation of x and y, which no number on its right side can stand for."""


def called_equation(body: str, text: str, start: int) -> bool:
    """Return whether the words before `start` call the formula there an equation, whose right side
    is then no answer.
    """
    if "=" not in text or not _COMPOUND.match(text.strip(" $")):
        return False
    subject = clause_before(body, start).rpartition(",")[2].rstrip(" $\\([{*")
    return _CALLED.search(subject.removesuffix("\\boxed").rstrip(" $\\([{*")) is not None


def _last_number(body: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the span of the number that the closing sentence states, else of the last number
    before.

    The span includes what belongs to the number: the point or list, the relation, the expression
    and the unit.
    """
    base = max(0, len(body) - NUMBER_TAIL)
    written = list(NUMBER.finditer(body, base, end))[-MAX_NUMBERS:]
    denials = [denied(body, start, end, *number.span()) for number in written]
    refused = {number[0] for number, is_denied in zip(written, denials, strict=True) if is_denied}
    numbers = [
        number
        for number, is_denied in zip(written, denials, strict=True)
        if not is_denied
        and not labels(body, number.start())
        and body[number.end() : number.end() + 1] != "?"
        # `It is not 12, as the 12th day shows.`
        and not (number[0] in refused and _ORDINAL.match(body, number.end()))
    ]
    *_, power = [None, *_SCIENTIFIC.finditer(body, start, end)]
    if power and not denied(body, start, end, *power.span()):
        stop = measured(body, power.end())
        if not NUMBER.search(body, stop, end):
            return power.start(), stop
    result = CALCULATED.search(body, start, end)
    if result and not denied(body, start, end, *result.span("value")):
        # `36 ÷ 1.5 = 24, donc elle est de 24 m/s`: the same number again has the unit.
        again = [number for number in numbers if number[0] == result["value"]]
        said = again[-1].span() if again else result.span("value")
        concluded = _CONCLUDED_POINT.match(body, result.end("value"), end)
        if concluded and (point := POINT.match(body, concluded.end(), end)):
            return point.span()  # `0.75 h = 45 min, so 2:45`
        if again and (point := POINT.match(body, said[0], end)):
            return point.span()  # `21 - 13 = 8, so it is due on 8 April`
        return _expression(body, *max(said, result.span("value")))
    if not numbers:
        return None
    closing = [number for number in numbers if number.start() >= start]
    free = [number for number in closing if not governed(body, start, *number.span())]
    last = (free or closing or numbers)[-1]
    points = list(POINT.finditer(body, max(0, last.start() - 120), end))
    for n, point in enumerate(points):
        if point.start() <= last.start() < point.end():
            begin, stop = _point_list(body, points[: n + 1])
            if denied(body, start, end, begin, stop):
                return None
            return begin, measured(body, stop)
    before = closing[: closing.index(last)] if last in closing else []
    first = _list_start(body, before, last)
    if first is not last:
        return first.start(), last.end()
    search_start = max(base, last.start() - 80)
    for pattern in (_RELATION, _EXACT):
        if label := pattern.search(body, search_start, last.start()):
            return label.start(), last.end()
    return _expression(body, *last.span())


_CONCLUDED_POINT = re.compile(r"(?: ?[a-z]{1,7})?,? (?:so|that is|i\.e\.|hence|thus)(?: it is)?,? ")
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b")
# `x = 7 und y = 3`: the word joins two named values.
_JOINED = re.compile(
    r"\s+(?:und|et|y|e|и)\s+(?=[a-z]\s*=)|(?<=\)),?\s+(?:and|und|et|y|e|и)\s+(?=\()"
)
_AND = re.compile(r"\s*(?:[,、]|,?\s*(?:and|und|et|y|e|и|和|と|와|과))\s*")
_LISTS = re.compile(
    r"(?:\b(?:the|with|two|three|both|its) (?:(?:two|three|real|only|distinct) )?[a-z]{3,}s,?"
    r"|\b(?:are|were|namely|be|sind|sont|son|são|sono)(?: (?:also|donc|entonces))?"
    r"|[:は是为有은는])\s*$"
)


_LISTED = re.compile(r" are (?:both |all )?(?:the|its) (?:\w+ )?[a-z]{3,}s\b")
"""The words behind a list that say what all of it are: `5 and 9 are the modes`."""


def _list_start(body: str, before: list[re.Match[str]], last: re.Match[str]) -> re.Match[str]:
    """Return the first number of the list that `last` ends: `5 or 6`, `are 3, 5 and 11`."""
    first = _first_of(body, before, last, _OR, _AND)
    if (
        first is last
        or _LISTS.search(body, max(0, first.start() - 32), first.start())
        or _LISTED.match(body, last.end())
    ):
        return first
    # Without a word such as `are` before, `and` may join two statements (`Ann has 3 and 5 are
    # left`), so that only commas and `or` make a list.
    return _first_of(body, before, last, _OR)


def _first_of(
    body: str, before: list[re.Match[str]], last: re.Match[str], *joints: re.Pattern[str]
) -> re.Match[str]:
    """Return the first of the matches that end in `last`, with nothing but joints between."""
    for previous in reversed(before):
        if not any(joint.fullmatch(body, previous.end(), last.start()) for joint in joints):
            break
        last = previous
    return last


def _point_list(body: str, points: list[re.Match[str]]) -> tuple[int, int]:
    """Return the span of the points that the last of some belongs to (`the pairs (2, 3) and
    (1, 6)`); without a word that leads to several, of the last one alone.
    """
    first = _first_of(body, points[:-1], points[-1], _OR, _AND)
    # Points in brackets are a list; numbers are one only behind a word that leads to several.
    ahead = body[max(0, first.start() - 24) : first.start()]
    led = (first[0][0] in "([" and not _RELATES.search(ahead)) or _SEVERAL.search(ahead)
    return (first if led else points[-1]).start(), points[-1].end()


_SEVERAL = re.compile(r"(?:\b(?:are|pairs|points|solutions|vertices)\b:?|[:是为])\s*$")
_RELATES = re.compile(
    r"\b(?:of|through|between|from|joining|connecting|to|by|containing|than|via)\s*$"
)
_SCIENTIFIC = re.compile(
    r"(?<![\w.,])[-−]?\d[\d.,]*\s?[·⋅×x*]\s?10(?:\^\{?[-−]?\d{1,3}\}?|[⁻⁺]?[⁰¹²³⁴-⁹]{1,3})"
)
_WRITES = re.compile(r"(?![一-鿿぀-ヿ가-힣])[^\W\d_]")
"""A letter of a script that writes words beside numbers with spaces."""
_DOTS = re.compile(r"(?<=\d\d)(?:\.\.\.|…)")
_MATHEMATICS = frozenset("0123456789πτ√∛^*/·×⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ+-−()!°′″")


def _expression(body: str, start: int, end: int) -> tuple[int, int]:
    """Extend a number's span to the surrounding mathematics (`5√3`, `π/6`) and the unit after the
    number.
    """
    first, last = start, end
    while first > 0 and body[first - 1] in _MATHEMATICS:
        first -= 1
    while last < len(body) and body[last] in _MATHEMATICS:
        last += 1
    while last > end and body[last - 1] == "(":  # `9π (cm²)`
        last -= 1
    text = body[first:last]
    if text[0] == "(" and text[-1] == ")":
        text = ""  # A number in brackets: the brackets are punctuation.
    # Mathematics that touches a letter, has an open bracket or ends with an operator was cut in the
    # middle; then the number stands alone.
    is_joined = not text or (first and _WRITES.match(body, first - 1)) or _WRITES.match(body, last)
    if not is_joined and text.count("(") == text.count(")") and text[-1] not in "+-−*/^":
        start, end = first, last
    if dots := _DOTS.match(body, end):
        end = dots.end()
    return start, measured(body, end)


def measured(body: str, end: int) -> int:
    """Return where the unit ends that stands behind a number, or where the number ends."""
    if scale := _SCALE.match(body, end):
        end = scale.end()
    unit = _UNIT.match(body, end)
    if unit is None or not _is_unit(unit[1]):
        return end
    # `3750 in base 8` is no inch.
    is_word = unit[1] == "in" and body[unit.end(1) :].lstrip(" ")[:1].isalpha()
    return end if is_word else unit.end(1)


_SCALE = re.compile(
    rf" (?:thousand|million|billion|trillion|lakhs?|crores?)(?![-\w])|\s?{MYRIAD}(?:\s?\d{{1,4}})?"
)


def with_unit(body: str, text: str, end: int) -> str:
    r"""Return a value with the unit behind its formula or box: `$a = 4.9$ m/s.` A unit ends its
    clause, so that `$5$ in the end` is no inch.
    """
    unit = _UNIT_BEHIND.match(body, end)
    if unit is None or not _is_unit(unit[1]) or not re.search(r"[\d}]\s*$", text):
        return text
    return f"{text}\\text{{ {unit[1]}}}"


def _is_unit(words: str) -> bool:
    return _FOREIGN.fullmatch(words) is not None or all(
        unit_symbol(part)
        for part in re.findall("[A-Za-z]+", words)
        if part not in {"per", "square", "cubic", "squared", "cubed"}
    )


# A unit with an optional power and divisor: `m/s²`. It stands right behind a number.
_FOREIGN = re.compile(MEASURE)
_UNITS = (
    rf"((?:{MEASURE}|(?:(?:square|cubic) )?[A-Za-z]{{1,12}}(?:[²³]|\^\d)?)"
    r"(?:(?:[·⋅]|(?<=kg) (?=m\b))[A-Za-z]{1,3}(?:[²³]|\^\d)?)?"
    r"(?:(?:/| per )(?:(?:square |cubic |1000? )?[A-Za-z]{1,12}(?:[²³]|\^\d)?"
    r"|\([A-Za-z]{1,4}[ ·⋅][A-Za-z]{1,4}\))(?: squared| cubed)?)?"
    r"(?:[ ·⋅][A-Za-z]{1,4}⁻[¹²³]){0,2})"
)
_UNIT = re.compile(
    rf"(?:\s|(?=[A-Za-z][A-Za-z²³])|(?=[^\x00-\x7f])){_UNITS}(?:(?![\w²³/^⁻])|(?=です|である|입니다|이다))"
)
_UNIT_BEHIND = re.compile(rf"(?m)[\s$\\)\]]{{0,4}}{_UNITS}(?=[.,;]|\s*$)")


_DOLLARS = re.compile(r"(?s)\\.|R\$(?= ?\d)|\$\$?")
# What joins two formulas of one answer: `$x = 5$ and $x = -5$`.
_JOINT = re.compile(r"\s*(?:,|;|,?\s*(?:and|or(?: (?:else|possibly|perhaps|maybe))?))\s*$")
_SIDES = re.compile(r"[=<>≤≥]|\\(?:leq?|geq?|lt|gt)(?![a-z])")
_UNKNOWN = re.compile(r"[A-Za-z](?:_\{?\w\}?)?")
_INDEX = re.compile(r"(?<=lambda)_\{?\d\}?$|(?<=λ)_?\d$")  # which only counts eigenvalues
_LETTER = re.compile(r"\s*\\?[A-Za-z]+[.,;]?\s*")
_NOTATION = re.compile(r"[\s$)\]\\]{1,4}in (?:interval|set|set-builder|inequality) notation\b")


def _last_formulas(tail: str, *, joins: bool = False) -> tuple[int, int] | None:
    r"""Return (start, end) of the last `$..$`, `\(..\)` or `\[..\]`, or None. Linear time.

    Formulas joined to the last by "and" that give values of the same name belong to the span
    (`$x = 5$ and $x = -5$`).
    """
    spans = _formulas(tail)
    if not spans:
        return None
    sentence_start = closing_sentence(tail)[0]
    closing = [span for span in spans if span[0] >= sentence_start]
    free = [
        span
        for span in closing
        if not governed(tail, sentence_start, *span) and not _LETTER.fullmatch(tail, *span)
    ]
    # Formulas of the closing sentence that are beside its point are passed over, if it has another.
    while free and spans[-1] is not free[-1]:
        spans.pop()
    last = spans.pop()
    start = last[0]
    renamed = _NOTATION.match(tail, last[1])  # then what stands before is the same set
    while spans and not renamed and _JOINT.match(tail[spans[-1][1] : start].strip("$\\()[]")):
        sides = [_SIDES.split(tail[slice(*span)], maxsplit=1) for span in (spans[-1], last)]
        names = {_INDEX.sub("", side[0].strip()) if len(side) > 1 else "" for side in sides}
        if len(names) > 1 and not (joins and all(map(_UNKNOWN.fullmatch, names))):
            break
        start = spans.pop()[0]
    return start, last[1]


# The last row of an aligned environment, without the relation that continues the row above.
_ROWS = re.compile(r"\\end\{(?:align|gather|split|eqnarray|multline)(?:ed|at)?\*?\}")
_ROW_ENDS = re.compile(
    r"(?P<begin>\\begin\{[a-z]+\*?\})|(?P<end>\\end\{[a-z]+\*?\})|\\\\(?:\[[^\]]*\])?|\\cr\b"
    r"|\\(?:Rightarrow|implies)\b"
)
_ORNAMENT = re.compile(r"(?:\s|\\(?:blacksquare|square|Box|qed|checkmark|quad)(?![A-Za-z]))*")
"""A formula that is no value, such as the sign at the end of a proof."""
# `$350 and sold for $400`: amounts of money with words between them.
_MONEY = re.compile(r"\d[\d,.]*\s[^\\]*[a-z]{3}")
# At the beginning of a sentence: what `is attained for $x = 2, y = 12$` are two values.
_SUPPOSES = re.compile(
    r"(?:^|[.!?:]\s|\n)\s*(?:With|For|If|When|Since|As|Setting|Substituting)[\s$\\(]*$"
)
_SUPPOSED = re.compile(
    r"\s*(?P<name>[A-Za-z](?:_\{?\w+\}?)?)\s*=[^=,]*,(?!\s*(?P=name)\s*=)(?=[^,]*=[^,]*$)"
)
_CHAIN = re.compile(r"=[^=]*[A-Za-z][^=]*=[^=<>]*$")
# `The largest is $n + 1 = 6$`: the words before are what the value is of.
_STATED = re.compile(
    r"\s*(?=[^=<>]*(?:[-+*/^]|\d\s*[A-Za-z]|\\(?:cdot|times"
    r"|frac)(?![a-z])))[^=<>,;&]*[A-Za-z][^=<>,;&]*=\s*(?P<value>(?:[^=<>,;&\\A-Za-z]"
    r"|\\[dt]?frac(?![a-z])|\\(?:sqrt|pi|left|right|circ)(?![a-z]))+)$"
)
_COPULA = re.compile(r"(?:\b(?:is|are|equals|be)|,\s+or)[\s$\\(*]*$")
_LEADS = re.compile(
    r"(?:\b(?:is|are|be|equals?|gives?|get|obtain|have|leaves?|becomes?)|[=:])[\s$\\(*]*$"
)
_EQUATION = (
    r"(?:(?:in)?equation|inequalit\w+|relation|constraint|condition|identit\w+|formula|locus"
    r"|asymptote|directrix)"
)
_CURVE = r"(?:line|circle|plane|curve|graph|parabola|ellipse|hyperbola|sphere|axis|tangent|normal)"
_CALLED = re.compile(
    rf"(?i)\b{_EQUATION}s?\b(?: \w+){{0,6}}\W*$|^\W*(?:\w+,?\s+)?(?:the|its|an?"
    rf"|our)\s+(?:\w+\s+){{0,2}}"
    rf"{_CURVE}\b(?! of)|\b(?:satisf|obey|fulfil|described by|governed by|modell?ed by)\w*\W*$"
)
"""Words that call the formula behind them an equation: `the tangent line is $y - x = 3$`."""
_COMPOUND = re.compile(
    r"(?=[^=<>]*(?:[-+*/^]|\d\s*[A-Za-z]|\\(?:cdot|times"
    r"|frac)(?![a-z])))[^=<>,;&]*[A-Za-z][^=<>,;&]*=[^=]*$"
)
_OF_EQUATIONS = re.compile(
    rf"(?i)\b(?:{_EQUATION}|{_CURVE}|where|when|if|suppose|given|know|have|steps? is|left|remain"
    rf"|fact"
    r"|system|form|rule|goal|claim|statement)"
)
_MEMBERS = re.compile(r"(?s)(?:(?!\\(?:q?quad|text))[^=,;&<>])+=(?!.*[=,;]|.*\\(?:q?quad|text))")
_CONTINUES = re.compile(r"(?:\s|&|\\q?quad)*(?:=|\\equiv(?![a-z]))(?:\s|&)*")


def _last_row(tail: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of the last row of the aligned environment that ends a formula, or the span
    of the formula.
    """
    rows = list(_ROWS.finditer(tail, start, end))
    if not rows and _SUPPOSES.search(tail, max(0, start - 16), start):
        # `With $T=2, x=5$`: the value follows from what is supposed before the comma.
        supposed = _SUPPOSED.match(tail, start, end)
        return (supposed.end() if supposed else start), end
    if not rows and _CONTINUES.match(tail, start, end) and _CHAIN.search(tail, start, end):
        # `Volume $= \pi r^2 h = 36\pi$`: the words before are the left side.
        return tail.rfind("=", start, end) + 1, end
    if not rows and (stated := _STATED.match(tail, start, end)):
        subject = clause_before(tail, start)
        if _COPULA.search(subject) and not _OF_EQUATIONS.search(subject):
            return stated.start("value"), end
    if not rows or tail[rows[-1].end() : end].strip(" .\n$"):
        return start, end
    inner = len(tail[: rows[-1].start()].rstrip(" \n.,\\&"))
    depth = 0
    for row_end in reversed(list(_ROW_ENDS.finditer(tail, start, inner))):
        depth += (row_end["end"] is not None) - (row_end["begin"] is not None)
        if depth < 0 or (depth == 0 and not row_end["begin"]):
            start = row_end.end()
            break
    if continued := _CONTINUES.match(tail, start, inner):
        # `&= -I = \begin{pmatrix} ...`: each member of a chain is equal to the row above.
        further = _MEMBERS.match(tail, continued.end(), inner)
        return (further or continued).end(), inner
    return start, inner


def _formulas(tail: str) -> list[tuple[int, int]]:
    """Return the spans inside the last few formulas with the latest kind of delimiter, in order."""
    rows = list(_ROWS.finditer(tail))
    if rows and not re.search(r"(?<!\\)\$|\\[\])]", tail[rows[-1].end() :]):
        return [_last_row(tail, 0, rows[-1].end())]
    closer_positions = {closer: tail.rfind(closer) for closer in ("\\)", "\\]")}
    dollars = [match for match in _DOLLARS.finditer(tail) if match[0][0] == "$"]
    if dollars and dollars[-1].start() > max(closer_positions.values()):
        if tail[dollars[-1].end() : dollars[-1].end() + 1].isdigit():
            return []  # an amount of money closes nothing
        # Dollars are paired from the end. If their number is odd, the first is a stray.
        pairs = zip(dollars[len(dollars) % 2 :: 2], dollars[len(dollars) % 2 + 1 :: 2], strict=True)
        spans = [(first.end(), second.start()) for first, second in pairs]
    else:
        closer = max(closer_positions, key=lambda mark: closer_positions[mark])
        opener = {"\\)": "\\(", "\\]": "\\["}[closer]
        spans = []
        end = closer_positions[closer]
        while end >= 0 and len(spans) < 8 and (start := tail.rfind(opener, 0, end)) >= 0:
            spans.insert(0, (start + 2, end))
            end = tail.rfind(closer, 0, start)
    return [
        _last_row(tail, start, end)
        for start, end in spans[-8:]
        if not _ORNAMENT.fullmatch(tail, start, end) and not _MONEY.match(tail, start, end)
    ]
