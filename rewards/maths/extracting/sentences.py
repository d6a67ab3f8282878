"""Answers outside boxes: tags, "the answer is ...", and the last formula or number."""

from __future__ import annotations

import re
from itertools import islice

from .excerpt import HEDGE, TAIL, Extraction

NUMBER_TAIL = 1200
"""The same for a bare last number."""
MAX_SENTENCES = 40
_MARKER = re.compile(
    r"(?:\b(?:final answer|answer|result|solution|correct (?:option|choice)|option|choice)\**\s*"
    r"(?:is|are|would be|will be|=|:)\s*:?\**\s*"
    r"(?:therefore|thus|simply|given by|equal to|that|indeed)?\s*:?"
    r"|\#{1,6}\s*(?:final )?answer\b\s*:?|\banswer\s*(?=\$|\\\(|\\\[)"
    r"|\*\*\s*(?:final )?answer\s*\**\s*:?\s*\**"
    r"|答案\s*(?:是|为|：|:)|\#\#\#\#)",
    re.IGNORECASE,
)
_MARKER_WORDS = ("answer", "result", "solution", "option", "choice", "答案", "####")
_NEGATED = re.compile(r"\s*(?:\*\*)?\s*(?:definitely |certainly |clearly )?not\b", re.IGNORECASE)
_MATH = re.compile(
    r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$((?:[^$\\]|\\.)+?)\$", re.DOTALL
)
_NUMBER = re.compile(
    r"(?<![\w.,])[-+−]?(?:[$£€]\s?)?[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:\s?%|\\%)?(?![\w])"
)
_SENTENCE_END = re.compile(r"[.!?。](?=\s+[A-Z一-鿿<]|\s*$|\s*\n)|\n\s*\n|。|\n(?=\S)")
_HOPE = re.compile(r"I hope (?:it|this) is correct", re.IGNORECASE)


_FINAL = re.compile(r"\bfinal answer\b", re.IGNORECASE)


def restated(body: str, box: Extraction) -> Extraction | None:
    """An explicit final answer after a box in the working: the last final answer counts."""
    after = body[box.end : box.end + TAIL]
    if _FINAL.search(after) is None:
        return None
    said = announced(after)
    if said is None or (
        said.text is not None and not any(c.isdigit() or c == "\\" for c in said.text)
    ):
        return None
    if said.text is not None and HEDGE.search(after[: said.start][-300:]):
        return Extraction(
            None, "sentence", reason="several answers are offered, one in case another is wrong"
        )
    return Extraction(said.text, said.rule, box.end + said.start, box.end + said.end, said.reason)


def tagged(body: str) -> Extraction | None:
    end = body.rfind("</answer>")
    start = body.rfind("<answer>", 0, end if end >= 0 else len(body))
    if start < 0:
        return None
    start += len("<answer>")
    end = end if end >= start else len(body)
    inner = body[start:end]
    if not inner.strip():
        return Extraction(None, "tag", start, end, "the answer tag is empty")
    said = announced(inner)
    if said is not None and said.text:
        return Extraction(said.text, "tag", start + said.start, start + said.end)
    return Extraction(inner, "tag", start, end)


def announced(body: str) -> Extraction | None:
    """What follows the last "the answer is"."""
    base = max(0, len(body) - TAIL)
    tail = body[base:]
    lowered = tail.lower()
    if not any(word in lowered for word in _MARKER_WORDS):
        return None
    marks = [found for found in _MARKER.finditer(tail) if not _NEGATED.match(tail, found.end())]
    while marks and not tail[marks[-1].end() :].strip(" .*$:\n"):
        if marks[-1][0].startswith("####"):
            return Extraction(
                None, "sentence", base + marks[-1].end(), len(body), "nothing follows the mark"
            )
        marks.pop()
    if not marks:
        return None
    mark = marks[-1]
    if len(marks) > 1 and HEDGE.search(tail[marks[-2].end() : mark.start()][-300:]):
        return Extraction(
            None,
            "sentence",
            base + mark.end(),
            len(body),
            "several answers are offered, one in case another is wrong",
        )
    start = mark.end()
    text, length = _phrase(tail[start:])
    return (
        Extraction(text, "sentence", base + start, base + start + length) if text.strip() else None
    )


_CHOICE = re.compile(r"\s*[*$(\\text{bf]*\(?([A-J])\)?[}*$]*(?=[\s.,;:)]|$)(?!\s*[-+*/=^<>\d])")
_QUICK_NUMBER = re.compile(r"\s*\$?\s*(-?\d[\d,]*(?:\.\d+)?)\s*\$?\.?\s*$")


def _phrase(rest: str) -> tuple[str, int]:
    """The answer at the start of `rest`: to the end of its sentence, or its only formula."""
    hope = _HOPE.search(rest)
    rest = rest[: hope.start()].rstrip(". \n") if hope else rest
    lead = len(rest) - len(rest.lstrip())
    quick = _QUICK_NUMBER.match(rest)
    if quick:
        return quick[1], quick.end(1)
    choice = _CHOICE.match(rest)
    if choice and (
        choice.end() >= len(rest) or rest[choice.end()] in ".,;:)" or "option" in rest[:0]
    ):
        return choice[1], choice.end(1)
    math = _MATH.match(rest, lead)
    if math and _ends_here(rest, math.end()):
        return _inner(math), math.end()
    end = _sentence_end(rest, lead)
    said = _SAID.match(rest[:end])
    if said and len(_PROSE.findall(said[0])) > 1:
        return rest[said.end() : end], end
    return rest[:end], end


_SAID = re.compile(r"[^,;]*\s(?:is|are|equals)\s+(?:equal to\s+|about\s+|approximately\s+)?(?=\S)")
_AFTER_FORMULA = re.compile(
    r"\s*(?:[.,;:*。]|$|\n|(?:because|since|as|which|where|so|for|from|by|is|in)\b)", re.IGNORECASE
)


def _ends_here(rest: str, end: int) -> bool:
    return _AFTER_FORMULA.match(rest, end) is not None


def _sentence_end(rest: str, start: int) -> int:
    for found in islice(_SENTENCE_END.finditer(rest, start), MAX_SENTENCES):
        if found.start() > start and not _inside_math(rest, found.start()):
            return found.start()
    return len(rest)


def _inside_math(rest: str, place: int) -> bool:
    before = rest[:place]
    return (
        before.count("$") % 2 == 1
        or before.count("\\[") > before.count("\\]")
        or before.count("\\(") > before.count("\\)")
    )


def _inner(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group is not None)


_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
_STATED = re.compile(
    r"[^=\d]*?\b(?:is|are|equals|costs|need|needs|gives|get)\b\s*"
    r"(?:equal to|approximately|about|that)?\s*(.+)$",
    re.DOTALL,
)
_ALONE = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?!\w)")


def stated(prose: str) -> str | None:
    """What a short sentence states (`It costs 1,000`), if it states one thing and
    denies nothing.
    """
    if re.search(r"\b(?:not|or|either)\b", prose):
        return None
    said = _STATED.match(prose)
    if said:
        return said[1]
    numbers = _ALONE.findall(prose)
    return numbers[0] if len(numbers) == 1 else None


_NARRATIVE = frozenset(
    {"there", "are", "then", "hence", "thus", "have", "get", "gives", "therefore", "find", "add"}
)
_HOLDS_ANSWER = re.compile(r"\d|\\\(|\\\[|\$")
_KNOWN = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "log",
        "exp",
        "sqrt",
        "frac",
        "max",
        "min",
        "gcd",
        "lcm",
        "and",
        "inf",
        "infinity",
        "for",
        "all",
        "mod",
        "pmod",
    ]
)


def last_expression(body: str) -> Extraction:
    stripped = body.strip()
    if len(stripped) <= 200 and not _is_prose(stripped):
        start = body.find(stripped)
        return Extraction(stripped, "whole", start, start + len(stripped))
    base = max(0, len(body) - TAIL)
    tail = body[base:]
    found = _last_formula(tail)
    formula = None if found is None else (base + found[0], base + found[1])
    base = max(0, len(body) - NUMBER_TAIL)
    tail = body[base:]
    numbers = list(_NUMBER.finditer(_HOPE.sub("", tail)))
    if formula is not None and (not numbers or base + numbers[-1].start() <= formula[1]):
        return Extraction(body[slice(*formula)], "last formula", *formula)
    if numbers:
        last_number = numbers[-1]
        return Extraction(
            last_number[0], "last number", base + last_number.start(), base + last_number.end()
        )
    return Extraction(None, "none", 0, 0, "no box, no announced answer, no expression")


_ESCAPED_DOLLAR = re.compile(r"\\.|\$\$?", re.DOTALL)


def _last_formula(tail: str) -> tuple[int, int] | None:
    """(start, end) inside the last `$..$`, `\\(..\\)` or `\\[..\\]`, found in linear time."""
    found: list[tuple[int, int]] = []
    for opener, closer in (("\\(", "\\)"), ("\\[", "\\]")):
        end = tail.rfind(closer)
        start = tail.rfind(opener, 0, max(end, 0))
        if start >= 0:
            found.append((start + 2, end))
    dollars = [match for match in _ESCAPED_DOLLAR.finditer(tail) if match[0][0] == "$"]
    if len(dollars) >= 2:
        found.append((dollars[-2].end(), dollars[-1].start()))
    kept = [(start, end) for start, end in found if tail[start:end].strip()]
    return max(kept, key=lambda span: span[1], default=None)


def _is_prose(text: str) -> bool:
    """Whether text reads as sentences rather than as one answer."""
    bare = re.sub(r"\\[A-Za-z]+\s*(?:\{[A-Za-z ]*\})?", " ", text)
    found = [word for word in _PROSE.findall(bare) if word.lower() not in _KNOWN]
    return (
        len(found) > 5
        or (
            any(word.lower() in _NARRATIVE for word in found)
            and _HOLDS_ANSWER.search(text) is not None
        )
        or (len(found) > 2 and "$" in text)
        or (len(found) > 1 and re.search(r"\$.+\$", text) is not None)
    )
