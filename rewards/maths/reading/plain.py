"""Formulas in running text, written without any mark: `so x = ln √5`, `therefore V = (1; 4)`.

A formula is a run of numbers, single letters, names of functions, signs and brackets. Whatever
else has two letters is a word, which ends the run. One linear pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .vocabulary import ALIASES, FUNCTIONS

MAX_RUNS = 60
_NAMES = "|".join(sorted({*FUNCTIONS, *ALIASES, "sqrt", "mod"}, key=len, reverse=True))
_SUPER, _SUB = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "₀₁₂₃₄₅₆₇₈₉ₙ"
_SIGNS = "leq?|geq?|lt|gt|neq?|in|equiv|approx|cdot|times|div|pm|mp|cup|cap|setminus"
_LETTER = "A-Za-zα-ωΑ-ΡΤ-Ωϕℝℤℕℚℂ"
VULGAR = "¼-¾⅐-⅞"
_TOKEN = re.compile(
    r"(?P<ends>(?<![\w)])[\]\[][^\[\]()\n=]{1,30}[;,][^\[\]()\n=]{1,30}[\]\[](?!\w))|"
    rf"(?P<number>(?<![^\W\d_{_SUPER}{_SUB}])(?:\d+(?:[.,]\d+)*[{VULGAR}]?|(?<!\d)\.\d+|[{VULGAR}]))|(?P<name>(?!\\(?:{_SIGNS})(?![A-Za-z]))\\[A-Za-z]+|(?:{_NAMES})[{_SUB}]*(?![^\W\d_{_SUPER}{_SUB}])|d[xyztuvrsθφ](?![^\W\d_])|oo(?!\w))"
    r"|(?P<joint>(?<=[)\]] )U(?= ?[(\[]))"
    rf"|(?P<letter>(?<![^\W\d_{_SUPER}{_SUB}])[{_LETTER}](?:_\w{{1,4}}|[{_SUB}]|['′](?!\w))*+(?![^\W\d_{_SUPER}{_SUB}]))"
    rf"|(?P<letters>(?<=\d)(?!st|nd|rd|th)[a-z]{{2}}(?![^\W\d_{_SUPER}{_SUB}])|[a-zA-Z]π(?![^\W\d_{_SUPER}{_SUB}])|π[a-z](?![^\W\d_{_SUPER}{_SUB}]))"
    r"|(?P<relation>[=<>≤≥≠≈≡∈∉⩽⩾]+|\\[a-z]+)|(?P<sign>[-+−–·⋅×*/÷^±∓√∛∪∩∖△∧∨¬⊕|!°%∞∅Σ∑∏∫]|\\[,;!{}])"
    rf"|(?P<power>[{_SUPER}]+)|(?P<open>[(\[{{])|(?P<close>[)\]}}])"
)
_ENDS = re.compile(
    r"(?:[\]\[][^\[\]=]{1,30}[;,][^\[\]=]{1,30}\[|\][^\[\]=]{1,30}[;,][^\[\]=]{1,30}\])$"
)
"""An interval whose open ends are brackets turned round: `]1; 7[`."""
MAX_ENDS = 70
_SPACE = re.compile(r"[ \t]*")
_APART = re.compile(r"[,;:]")
_LOOSE = "+-−–·⋅×*/÷^=<>≤≥≠≈≡∈∉±∓√∛∪∩∖∧∨⊕| \t,;"


def formulas(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the plain formulas in a text, from left to right; of each sentence of
    hostile length only the first `MAX_RUNS`.

    >>> text = "From this y - 9 = 6(x - 3), so I(5/2 ; 5) is it."
    >>> [text[slice(*span)] for span in formulas(text, 0, len(text))]
    ['y - 9 = 6(x - 3)', 'I(5/2 ; 5)']
    """
    spans: list[tuple[int, int]] = []
    for run in _runs(text, start, end):
        if (span := _trimmed(text, *run)) is not None:
            spans.append(span)
        if len(spans) >= MAX_RUNS:
            break
    return spans


def _runs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of tokens with nothing but spaces between; commas only within brackets."""
    position, begin, stop, depth, before = start, -1, -1, 0, ""
    while position < end:
        token = _TOKEN.match(text, position, end)
        kind = token.lastgroup if token else None
        spaced = stop >= 0 and position > stop
        # `a 5` are an article and a number, `(3) (4)` two labels, `1 e 4` two numbers.
        apart = before in {"letter", "close"} and kind in {"number", "letter", "name"}
        word = before == "number" and kind == "letter" and token and token[0] in _WORDS
        broken = begin >= 0 and spaced and (apart or word)
        if token and not broken:
            if begin < 0:
                begin, depth = position, 0
            depth += {"open": 1, "close": -1}.get(kind or "", 0)
            position = stop = token.end()
            before = kind or ""
            if depth >= 0:
                position = _after_space(text, position, end)
                continue
        elif not broken and begin >= 0 and depth > 0 and _APART.match(text, position):
            position = stop = _after_space(text, position + 1, end)
            before = "comma"
            continue
        if begin >= 0:
            yield begin, stop
            begin, stop, before = -1, -1, ""
            if token:
                continue
        # Over the whole word, so that none of its letters is taken for a name.
        letters = _WORD.match(text, position, end)
        position = letters.end() if letters else position + 1
    if begin >= 0:
        yield begin, stop


_WORDS = frozenset("aeoyиàв")
"""Letters that are words of some language behind a number."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+|_\{?\w{1,20}\}?)?")


def _after_space(text: str, position: int, end: int) -> int:
    space = _SPACE.match(text, position, end)
    return space.end() if space else position


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return a run without loose signs and brackets at its ends, or None if nothing is left."""
    ends = _ENDS.search(text, max(start, end - MAX_ENDS), end) if text[end - 1] in "[]" else None
    while not ends and end > start and text[end - 1] in _LOOSE + "([{":
        end -= 1
    stop = ends.start() if ends else end
    while start < stop and text[start] in "·⋅×*/÷^=<>≤≥≠≈≡∈∉∪∩∖∧∨⊕%!°)]} \t,;":
        start += 1
    if ends:
        return start, end
    run = text[start:end]
    unclosed = run.count("(") + run.count("[") - run.count(")") - run.count("]")
    if unclosed < 0 and run[-1:] in ")]":
        end -= 1
    elif unclosed > 0 and run[:1] in "([":
        start += 1
    return (start, end) if start < end else None
