"""Where in a response the answer is: the last box, else a closing sentence, else the last expression.

Everything is a search from the end, so 200 KB cost as much as 2 KB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from .notation import squeeze

TAIL = 3000
NUMBER_TAIL = 1200
"""The same for a bare last number."""
MAX_SENTENCES = 40
"""Characters at the end of a response in which sentences and last expressions are looked for."""
MAX_ANSWER = 4096


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was taken from a response, and where; `text` is None if there is no answer, and `reason` says why."""

    text: str | None
    rule: str
    start: int = 0
    end: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """How a model marks its reasoning."""

    opener: str
    closer: str


THINKING: dict[str, Thinking] = {
    "think": Thinking(opener="<think>", closer="</think>"),
    "thinking": Thinking(opener="<thinking>", closer="</thinking>"),
    "thought": Thinking(opener="<|begin_of_thought|>", closer="<|end_of_thought|>"),
    "gpt-oss": Thinking(opener="<|channel|>analysis", closer="<|channel|>final<|message|>"),
    "seed": Thinking(opener="<seed:think>", closer="</seed:think>"),
}
ThinkingOption = Literal["auto", "none"] | str

_TURN_ENDS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|return|>",
)
_BOX_NAME = re.compile(r"\\(?:boxed|fbox|framebox)\s*")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_HEDGE = re.compile(
    r"\b(?:if (?:that|this|it|the above|i)\b[^.]{0,60}?\b(?:wrong|incorrect|not (?:right|correct|accepted)|mistaken)|if not\b|if wrong|"
    r"otherwise|alternatively|or (?:maybe|perhaps|else|possibly)|could also be|might also be|another (?:possible )?(?:answer|candidate)|"
    r"second guess|backup answer|in case)\b",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"(?:\b(?:final answer|answer|result|solution|correct (?:option|choice|answer)|option|choice)\**\s*(?:is|are|would be|will be|=|:)\s*:?\**\s*"
    r"(?:therefore|thus|simply|given by|equal to|that|indeed)?\s*:?"
    r"|\banswer\s*(?=\$|\\\(|\\\[)|\*\*\s*(?:final )?answer\s*\**\s*:?\s*\**|答案\s*(?:是|为|：|:)|\#\#\#\#)",
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


def visible(response: str, thinking: str = "auto") -> tuple[int, str] | None:
    """(offset, text) of what follows the reasoning; None if the reasoning never ends.

    A lone closer counts: its opener was in the prompt.
    """
    if thinking == "none":
        return 0, response
    if "<" not in response:
        return 0, response
    kinds = THINKING.values() if thinking == "auto" else (THINKING[thinking],)
    for kind in kinds:
        closed = response.rfind(kind.closer)
        opened = response.rfind(kind.opener)
        if opened > closed:
            return None
        if closed >= 0:
            start = closed + len(kind.closer)
            return start, response[start:]
    return 0, response


def extract(response: str, *, thinking: str = "auto", truncated: bool = False) -> Extraction:
    """The answer in `response`.

    `thinking` is "auto", "none" or a key of THINKING; `truncated` says the response was cut off, which forbids taking
    its last expression.

    >>> extract(r"so $x$ is \\\\boxed{\\\\frac{1}{2}}.").text
    '\\\\\\\\frac{1}{2}'
    """
    shown = visible(response, thinking)
    if shown is None:
        return Extraction(
            None, "thinking", reason="the reasoning is never closed, so there is no answer after it"
        )
    offset, body = shown
    body = _this_turn(body)
    if not body.strip():
        return Extraction(
            None,
            "empty",
            offset,
            offset,
            reason="nothing follows the reasoning" if offset else "the response is empty",
        )
    found = _boxed(body)
    if found is not None and found.text is not None:
        found = _restated(body, found) or found
    found = found or _tagged(body) or _announced(body)
    if found is None:
        if truncated:
            return Extraction(
                None, "truncated", offset, offset, reason="cut off before a marked answer"
            )
        found = _last_expression(body)
    if found.text is not None and len(found.text) > MAX_ANSWER:
        return Extraction(
            None,
            found.rule,
            offset + found.start,
            offset + found.end,
            f"the answer is longer than {MAX_ANSWER} characters",
        )
    return Extraction(
        found.text, found.rule, offset + found.start, offset + found.end, found.reason
    )


def _this_turn(body: str) -> str:
    """Without what a model wrote after the end of its own turn."""
    for mark in _TURN_ENDS if "<" in body else ():
        place = body.find(mark)
        if place > 0 and body[:place].strip():
            body = body[:place]
    return body


# --- boxes ---


@dataclass(frozen=True, slots=True)
class _Box:
    start: int
    open: int
    close: int
    end: int
    closed: bool = True


def _boxed(body: str) -> Extraction | None:
    last = _box_before(body, len(body))
    if last is None:
        return None
    content = body[last.open : last.close]
    if not content.strip(" {}$~"):
        return Extraction(None, "box", last.start, last.end, "the last box is empty")
    boxes = [last]
    joined = False
    while last.closed and len(boxes) < 20:
        previous = _box_before(body, boxes[0].start)
        if previous is None or not previous.closed:
            break
        between = body[previous.end : boxes[0].start]
        if not _joins(between):
            if _hedges(body, previous, boxes[0]):
                return Extraction(
                    None,
                    "box",
                    last.start,
                    last.end,
                    "several answers are offered, one in case another is wrong",
                )
            break
        boxes.insert(0, previous)
        joined = True
    if not joined:
        return Extraction(content, "box", last.open, last.close)
    texts = [body[box.open : box.close] for box in boxes]
    distinct = {squeeze(text): text for text in texts}
    if len(distinct) == 1:
        return Extraction(content, "box", last.open, last.close)
    return Extraction(" , ".join(texts), "boxes", boxes[0].open, last.close)


_FINAL = re.compile(r"\bfinal answer\b", re.IGNORECASE)


def _restated(body: str, box: Extraction) -> Extraction | None:
    """An explicit final answer after a box in the working: the last final answer counts."""
    after = body[box.end : box.end + TAIL]
    if _FINAL.search(after) is None:
        return None
    said = _announced(after)
    if said is None or (
        said.text is not None and not any(c.isdigit() or c == "\\" for c in said.text)
    ):
        return None
    if said.text is not None and _HEDGE.search(after[: said.start][-300:]):
        return Extraction(
            None, "sentence", reason="several answers are offered, one in case another is wrong"
        )
    return Extraction(said.text, said.rule, box.end + said.start, box.end + said.end, said.reason)


def _box_before(body: str, end: int) -> _Box | None:
    """The last box that starts before `end`; a box inside a box belongs to the outer one."""
    place = _box_mark(body, 0, end)
    if place < 0:
        return None
    box = _box_at(body, place)
    outer = _box_mark(body, max(0, place - 40), place)
    if outer >= 0:
        around = _box_at(body, outer)
        if around.end > box.start:
            return around
    return box


def _box_mark(body: str, start: int, end: int) -> int:
    """Where the last box command in the range starts, or -1. The searches for rarer names are short when
    `\\boxed` is found late.
    """
    place = body.rfind("\\boxed", start, end)
    for name in ("\\fbox", "\\framebox"):
        place = max(place, body.rfind(name, max(start, place), end))
    return place


def _box_at(body: str, start: int) -> _Box:
    name = _BOX_NAME.match(body, start)
    place = name.end() if name else start
    if place >= len(body) or body[place] != "{":
        return _unclosed(body, start, place, min(len(body), place + 200), " ")
    depth = 0
    limit = min(len(body), place + 2 * MAX_ANSWER)
    for found in _BRACES.finditer(body, place, limit):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return _Box(start, place + 1, found.start(), found.end())
    return _unclosed(body, start, place + 1, limit)


def _unclosed(body: str, start: int, inside: int, limit: int, *ends: str) -> _Box:
    """A box whose brace is missing ends where its formula or its line does."""
    found = (body.find(mark, inside, limit) for mark in ("$", "\\]", "\\)", "\n", *ends))
    end = min([limit, *(place for place in found if place >= 0)])
    return _Box(start, inside, end, end, closed=False)


_JOINT = re.compile(
    r"(?:\s|[$,;.]|\\[,;:! ()\[\]]|\\q?quad|\\text\{\s*(?:and|,|or)\s*\}|\band\b|&|\\\\)*$"
)


def _joins(between: str) -> bool:
    """Whether two boxes are one list: nothing but commas, 'and' and spaces between them."""
    return len(between) <= 40 and _JOINT.match(between) is not None


def _hedges(body: str, first: _Box, second: _Box) -> bool:
    """Whether the second box is offered only in case the first is wrong."""
    if squeeze(body[first.open : first.close]) == squeeze(body[second.open : second.close]):
        return False
    return _HEDGE.search(body[first.end : second.start][-300:]) is not None


# --- sentences ---


def _tagged(body: str) -> Extraction | None:
    end = body.rfind("</answer>")
    start = body.rfind("<answer>", 0, end if end >= 0 else len(body))
    if start < 0:
        return None
    start += len("<answer>")
    end = end if end >= start else len(body)
    inner = body[start:end]
    if not inner.strip():
        return Extraction(None, "tag", start, end, "the answer tag is empty")
    announced = _announced(inner)
    if announced is not None and announced.text:
        return Extraction(announced.text, "tag", start + announced.start, start + announced.end)
    return Extraction(inner, "tag", start, end)


def _announced(body: str) -> Extraction | None:
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
    if len(marks) > 1 and _HEDGE.search(tail[marks[-2].end() : mark.start()][-300:]):
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


# --- last resort ---


_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
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


def _last_expression(body: str) -> Extraction:
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
        or (len(found) > 2 and "$" in text)
        or (len(found) > 1 and re.search(r"\$.+\$", text) is not None)
    )
