"""Answers outside boxes that say so: tags, and sentences like "the answer is ..."."""

from __future__ import annotations

import re
from itertools import islice

from .excerpt import HEDGE, HOPE, PROSE, SEVERAL_OFFERED, TAIL, Extraction

MAX_SENTENCES = 40
MAX_LISTED = 64
_MARKER = re.compile(
    r"(?:\b(?:final answers?|answers?|(?P<weak>results?|solutions?|roots)"
    r"|correct (?:option|choice)|option|choice)[\"'*]*\s*"
    r"(?:is|are|would be|will be|=|:)\s*:?\**\s*"
    r"(?:therefore|thus|simply|given by|equal to|that|indeed)?\s*:?"
    r"|\#{1,6}\s*(?:final )?answer\b\s*:?|\banswer\s*(?=\$|\\\(|\\\[)"
    r"|\*\*\s*(?:final )?answer\s*\**\s*:?\s*\**"
    r"|答案\**\s*(?:是|为|：|:)|(?:故|应)?选择?\s*[：:]?\s*(?=[A-J])|\#\#\#\#)",
    re.IGNORECASE,
)
_MARKER_WORDS = ("answer", "result", "solution", "roots", "option", "choice", "答案", "选", "####")
_NEGATED = re.compile(r"\s*(?:\*\*)?\s*(?:definitely |certainly |clearly )?not\b", re.IGNORECASE)
_MATH = re.compile(
    r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$((?:[^$\\]|\\.)+?)\$(?!\d)", re.DOTALL
)
_SENTENCE_END = re.compile(r"[.!?。](?=\s+[A-Z一-鿿<]|\s*$|\s*\n)|\n\s*\n|。|\n(?=\S)")
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
        return Extraction(None, "sentence", reason=SEVERAL_OFFERED)
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
    between = tail[marks[-2].end() : mark.start()][-300:] if len(marks) > 1 else ""
    if HEDGE.search(between) or between.endswith(" or "):
        return Extraction(None, "sentence", base + mark.end(), len(body), SEVERAL_OFFERED)
    start = mark.end()
    text, length = _phrase(tail[start:])
    if mark["weak"] and _WORKED_ON.search(tail, start + length):
        return None
    return (
        Extraction(text, "sentence", base + start, base + start + length) if text.strip() else None
    )


_WORKED_ON = re.compile(r"\d|\$|\\\(")
"""After "the solution is ..." a response may go on to what was asked: then this was no answer."""
_CHOICE = re.compile(r"\s*[*$(\\text{bf]*\(?([A-J])\)?[}*$]*(?=[\s.,;:)]|$)(?!\s*[-+*/=^<>\d])")
_QUICK_NUMBER = re.compile(r"\s*\$?\s*(-?\d[\d,]*(?:\.\d+)?)\s*\$?\.?\s*$")


def _phrase(rest: str) -> tuple[str, int]:
    """The answer at the start of `rest`: to the end of its sentence, or its only formula."""
    hope = HOPE.search(rest)
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
    listed = _list_end(rest, math) if math else 0
    if math and listed > math.end():
        return rest[lead:listed], listed
    if math and _ends_here(rest, math.end()):
        return _inner(math), math.end()
    end = _sentence_end(rest, lead)
    said = _SAID.match(rest[:end])
    if said and len(PROSE.findall(said[0])) > 1:
        return rest[said.end() : end], end
    return rest[:end], end


_SAID = re.compile(r"[^,;]*\s(?:is|are|equals)\s+(?:equal to\s+|about\s+|approximately\s+)?(?=\S)")
_AFTER_FORMULA = re.compile(
    r"\s*(?:[.,;:*。]|$|\n|(?:because|since|as|which|where|so|for|from|by|is|in)\b)", re.IGNORECASE
)


_AND = re.compile(r"\s*(?:,\s*and\b|,|\band\b|\bor\b)\s*(?=\$|\\\(|\\\[)")


def _list_end(rest: str, math: re.Match[str]) -> int:
    """Where a list of formulas ends that begins with this one: `$8$, $4$`."""
    end = math.end()
    for _ in range(MAX_LISTED):
        joint = _AND.match(rest, end)
        following = _MATH.match(rest, joint.end()) if joint else None
        if following is None:
            break
        end = following.end()
    return end if _ends_here(rest, end) else math.end()


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
