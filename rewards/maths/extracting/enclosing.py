r"""The formula that a box stands in: a box is a transparent node of its formula, so that
`-\boxed{5}` says -5 and `\frac{\boxed{1}}{\boxed{2}}` one half.
"""

from __future__ import annotations

import re

from ..reading.vocabulary import unit_symbol

REACH_OF_FORMULA = 400
"""How many characters on each side of a box are searched for the ends of its formula."""
_ENDS = re.compile(r"(?<!\\)\$\$?|\\[\[\]()]|\n\s*\n|\\(?:begin|end)\s*\{[a-z]+\*?\}|\\\\|\\cr\b")
_OPENERS = re.compile(r"(?<!\\)\$\$?|\\[\[(]|\\begin\s*\{[a-z]+\*?\}|\\\\|\\cr\b")
# What separates the piece that holds the box from the rest of its formula.
_SEPARATOR = re.compile(
    r"[=<>:;&≤≥≈≠→⇒|]|,|\\(?:le|ge|leq|geq|leqslant|geqslant|lt|gt|ne|neq|approx|equiv|sim|simeq|cong|to|in|notin|mapsto"
    r"|mid|quad|qquad|therefore|because|p?mod|bmod|(?:long|Long)?(?:right|Right|leftright|Leftright)arrow|implies|iff"
    r"|hfill|hspace|tag|dots|ldots|cup|cap)(?![A-Za-z])|\\(?:text|mbox|textrm|mathrm|textbf)\s*\{(?P<words>[^{}]*)\}"
    r"|(?<![\\A-Za-z])[A-Za-z]{3,}"
)  # fmt: skip
_DECORATION = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|[lL]arge|LARGE|[hH]uge|bf|it|blacksquare|square|Box|qed|checkmark"
    r"|Theta|Omega|mathcal\s*\{O\}|mathbf|boldsymbol|bm|underline|overline|mathrm|text(?:bf|it)?"
    r"|(?:text)?color\s*\{[^{}]*\}|[,;:! ])(?![A-Za-z])"
    r"|(?<![A-Za-z])O(?=\s*(?:\\left)?\()"
)  # fmt: skip
_ALONE = re.compile(r"[\s{}()\[\]*_~.!'\"`#]*")
_SIMPLE = re.compile(r"[\w.\s]+|\\[A-Za-z]+(?:\{[^{}]*\})*|\([^()]*\)")
_BRACKET = {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}


def piece(body: str, first: int, last: int) -> tuple[int, int] | None:
    """Return (start, end) of the piece of a formula around the boxes from `first` to `last`, or
    None for boxes that stand alone.
    """
    alone = body[first - 1 : first] == "$" == body[last : last + 1]
    if alone and body[first - 2 : first - 1] != "\\":
        return None
    start, end, in_formula = _formula(body, first, last)
    if not body[start:first].strip() and not body[last:end].strip():
        return None
    start, end = _unbraced(body, start, end, first, last)
    start, end = _narrowed(body, start, end, first, last)
    outside = f"{body[start:first]} {body[last:end]}"
    if _ALONE.fullmatch(_DECORATION.sub("", outside)):
        return None
    if not in_formula and not re.search(r"[\\\d^+/-]", outside):
        return None
    depths = _depths(outside)
    return None if depths[-1] or min(depths) < 0 else (start, end)


def opened(content: str) -> str:
    """Return the content of a box as a node of its formula: in brackets, where it needs them."""
    content = content.strip()
    return f"{{{content}}}" if _SIMPLE.fullmatch(content) else f"({content})"


def _formula(body: str, first: int, last: int) -> tuple[int, int, bool]:
    """Return the bounds of the formula, or of the word, around a range; and whether mathematical
    delimiters enclose it.
    """
    base = max(0, first - REACH_OF_FORMULA)
    break_before = body.rfind("\n\n", base, first)
    paragraph = base if break_before < 0 else break_before
    before = list(_ENDS.finditer(body, paragraph, first))
    dollars = sum(1 for end in before if end[0].startswith("$"))
    opened = bool(before) and (
        dollars % 2 == 1 if before[-1][0].startswith("$") else _OPENERS.match(before[-1][0])
    )
    closing = _ENDS.search(body, last, last + REACH_OF_FORMULA)
    # A dollar that nothing closes is an amount of money.
    if opened and before[-1][0].startswith("$"):
        opened = closing is not None and closing[0] == before[-1][0]
    if opened:
        start = before[-1].end()
        return start, closing.start() if closing else min(len(body), last + REACH_OF_FORMULA), True
    start, end = first, last
    while start > base and not body[start - 1].isspace() and body[start - 1] not in "$":
        start -= 1
    while end < len(body) and not body[end].isspace() and body[end] not in "$":
        end += 1
    return start, end, False


def _unbraced(body: str, start: int, end: int, first: int, last: int) -> tuple[int, int]:
    """Return a formula without the braces that stand around all of it."""
    while True:
        inner = re.match(r"\s*\{", body[start:first]), re.search(r"\}\s*\Z", body[last:end])
        if inner[0] is None or inner[1] is None:
            return start, end
        bounds = start + inner[0].end(), last + inner[1].start()
        if min(_depths(body[bounds[0] : bounds[1]])) < 0:
            return start, end
        start, end = bounds


def _narrowed(body: str, start: int, end: int, first: int, last: int) -> tuple[int, int]:
    """Narrow a formula to the piece between the separators around the boxes, outside brackets."""
    separators = list(_SEPARATOR.finditer(body, start, end))
    depths = _depths(body[start:end]) if separators else []
    inner_start, inner_end = start, end
    for separator in separators:
        place = separator.start()
        words = separator["words"]
        if depths[place - start] or (words and unit_symbol(words.strip())):
            continue
        if place < first:
            inner_start = max(inner_start, separator.end())
        elif place >= last:
            inner_end = place
            break
    return min(inner_start, first), inner_end


def _depths(text: str) -> list[int]:
    depths = [0]
    for character in text:
        depths.append(depths[-1] + _BRACKET.get(character, 0))
    return depths
