"""Labels before an answer and remarks after an answer, within the extracted text.

A remark that takes the answer back or widens the answer (`or more`, `unless`) is kept on
purpose: the text is then something other than the answer.
"""

from __future__ import annotations

import re

from ..reading.vocabulary import NUMBER_WORDS
from .running import closing_formula
from .sentence import PRECISION

_LABEL = re.compile(
    r"(?i)^[\s*]*(?:\\text(?:bf|it|rm)?\s*\{\s*)?(?:(?:so|thus|hence|therefore),?\s+)?"
    r"(?:the\s+|my\s+|our\s+)?(?:final\s+|correct\s+)?"
    r"(?:answer|option|choice)\**\s*(?:is\s*:?|:|=)\s*(?:option\s+|choice\s+)?"
)
# `so 5`, `thus, 5`: a link word left over from the sentence.
_LINK = re.compile(
    r"(?i)^[\s*]*(?:so|thus|hence|therefore|then|all(?=\s+\$?[a-z]\s*=))(?:,\s*|\s+)(?=\S)"
)
# `all real x with -2 <= x <= 3`: the values that a relation describes.
_ALL = re.compile(
    r"(?i)^[\s*]*(?:all|every|any|alle|jedes|tous les|toutes les|todos los|todos os|tutti i|все)\s"
    r"(?:\s*(?:real|values?|numbers?|of|reellen|zahlen|réels|nombres|números|reales|reais|reali"
    r"|numeri"
    r"|действительные|числа)\b)*\s*\$?[a-zA-Z]\$?\s*(?:real(?:es)?\s)?"
    r",?\s*(?:with|such that|satisfying|where|for which|that satisfy|mit|für die|tels? que|con"
    r"|tales? que"
    r"|tais que|com|tali che|per cui|такие,? что|для которых)\s+(?=[^=]*[<>≤≥≠⩽⩾]|[^=]*\\[lgn]e)"
)
# `5 (five)`: the number again in words.
_SPELLED = re.compile(r"(?<=\d)\s*\(([A-Za-z][A-Za-z -]{1,80})\)[\s$.]*$")
# `0.5 (or 1/2)`, `300 cm (= 3 m)`, `5/9 (≈ 0.56)`: a second value, which has to be equal.
_OR_ELSE = re.compile(
    r"\([\s$]*(?:\\text\s*\{\s*)?(?P<sign>or |=|≈|\\approx(?![a-z])|(?:about|approximately) )"
    r"(?=[^()]*\)[\s$.]*$)"
)
_STATED = re.compile(
    r"(?s)[^=\d]*?\b(?:is|are|equals|costs|need|needs|gives|get|on|was|be|è|é|es|est|ist|são"
    r"|sono|vale"
    r"|vaut|beträgt|равн[аоы]?|равен)\b\s*(?:equal to|approximately|about|that|an?\s)?\s*(.+)$"
)
_ALONE = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?!\w|\.\.)")
_PLAIN = re.compile(r"(?:[\w\s.,:;$()]|(?<=\w)-(?=\w)|(?<=\s)-(?=\d)|\\\$)*[*!]*")
# `It grows at 12\text{cm}^{2}/s`: a value with a unit of other letters than a formula has.
_MEASURED = re.compile(
    r"(?<![\w.,])-?\d[\d.,]*(?:\\pi(?![a-z]))? *\\(?:text|mathrm)\{[^{}\d]{1,20}\}"
    r"(?:\^\{?[23]\}?)?(?:/[A-Za-z]{1,4})?$"
)
# Words that deny or bound a value; a sentence with any of these states none.
_DENIES = re.compile(
    r"(?i)\b(?:not|or|nor|either|neither|no longer|than|at least|at most|unless|except|if|maybe"
    r"|perhaps|might|may|could|doubt\w*|instead|wrong|incorrect|between|up to|never"
    r"|cannot|fails?|too|false|nicht|kein\w*"
    r"|pas|ne|non(?!-)|não|не|no(?!-)|without|but|(?:over|under|above|below"
    r"|exceeds?)(?=\s+[\d$]))\b|n't\b"
)


def answer_alone(answer: str) -> str:
    """Return the answer without a leading "the answer is", and a value in brackets behind it as
    one that has to be equal.

    >>> answer_alone("The answer is 5/9 (= 10/18)"), answer_alone("7 or more")
    ('5/9  =  10/18', '7 or more')
    """
    if label := _LABEL.match(answer):
        open_braces = label[0].count("{") - label[0].count("}")
        answer = answer[label.end() :]
        answer = answer.replace("}", " ", 1) if open_braces else answer
    answer = _ALL.sub("", _LINK.sub("", answer))
    if not answer.rstrip("$.} ").endswith(")"):
        return answer
    return _alternative(answer)


def _alternative(answer: str) -> str:
    """Rewrite `0.5 (or 1/2)` and `5 (five)` as two values joined by "or", which then have to be
    equal.
    """
    spelled = _SPELLED.search(answer)
    if spelled and set(spelled[1].lower().replace("-", " ").split()) <= NUMBER_WORDS | {"and"}:
        return f"{answer[: spelled.start()].rstrip()} or {spelled[1]}"
    alternative = _OR_ELSE.search(answer)
    if alternative is None:
        return answer
    other = answer[alternative.end() :].replace(")", "", 1)
    if other.count("}") > other.count("{"):
        other = other.replace("}", "", 1)
    sign = "\\approx" if alternative["sign"][:1] == "a" else alternative["sign"]
    return f"{answer[: alternative.start()]} {sign} {other}"


def stated(prose: str) -> str | None:
    """Return the value that a short sentence states (1,000 in `The tea costs 1,000`).

    None if the sentence states several values or denies anything.
    """
    prose = PRECISION.sub("", prose)
    if _DENIES.search(prose):
        return None
    measured = _MEASURED.search(prose)
    if measured and not _ALONE.search(prose, 0, measured.start()):
        return measured[0]
    plain = closing_formula(prose, 0, len(prose))
    if plain is not None and not any(map(str.isalnum, prose[plain.end :])):
        return plain.text
    statement = _STATED.match(prose)
    if statement:
        return statement[1]
    numbers = _ALONE.findall(prose)
    return numbers[0] if len(numbers) == 1 and _PLAIN.fullmatch(prose) else None
