"""Formal marks: boxes, answer tags and `####` lines, found from the end in linear time.

Boxes with nothing but commas, "and", part labels or spaces in between form one list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ..reading.labels import place_of
from ..reading.notation import squeeze
from ..reading.sides import LETTER_ASKED
from ..reading.vocabulary import unit_symbol
from .asked import MAX_QUESTION
from .candidate import MAX_ANSWER, Candidate, CandidateKind
from .enclosing import opened, piece
from .expressions import with_unit
from .phrases import FILLER, HEDGE
from .rows import ValueRow, as_answer
from .stance import stance

_PLAIN_NUMBER = re.compile(r"\s*-?\d[\d,.]*\s*")
MAX_BOXES = 20
"""The most boxes that can form one list."""
MAX_MARKS = 64
"""How many marks of one kind are examined, counted from the end."""
CUT_OFF = "cut off inside its last answer"
SEVERAL_OFFERED = "several answers are offered, one in case another is wrong"
_BOX_NAME = re.compile(r"\\(?:boxed|fbox|framebox)\s*")
_BRACES = re.compile(r"(?s)\\.|[{}]")
# Words of guessing between two boxes: the second is then no correction.
_TENTATIVE = re.compile(
    r"(?i)\b(?:maybe|perhaps|possibly|probably|hmm+|could|might|may|guess\w*|else)\b"
)
# What may stand between two boxes of a list: punctuation, `and`, part labels, `y =`.
_JOINT = re.compile(
    r"(?i)(?:\s|[$,;./|*]|\\[,;:! ()\[\]]|\\q?quad|\\text\{(?:\s|,|and\b|or\b|/|for\b|part\b"
    r"|\(?[a-h\d]\))*\}|\b(?:and|or)\b|&|\\\\|\(?\b(?:[b-h]|[2-9]|i{2,3}|iv)\)|\b(?:for )?(?:part"
    r"|question)\s*\(?(?:[a-h]|\d)\b\)?:?|(?<![A-Za-z])[A-Za-z](?:_\{?\d\}?)?\s*=)*$"
)
# The name of a box's value, directly before the box: `x = `.
_NAMED = re.compile(r"(?<![A-Za-z\\])([A-Za-z](?:_\{?\w\}?)?)\s*=\s*$")


# The words that name it: `the sum is `, `radius: `.
WORDED = re.compile(
    r"(?i)\b(?!(?:answer|result|value|solution|part|which|that|this|here|there|then|and|hence|thus|so)\b)"
    r"([a-z]{3,})\**\s*(?:is|equals|=|:)[\s$*(\\]*$"
)


class Box(NamedTuple):
    """Offsets of a box: the command, the content, and the end."""

    start: int
    open: int
    close: int
    end: int
    closed: bool = True


def marks(body: str, *, truncated: bool = False) -> Iterator[Candidate]:
    """Yield the marks of a response, starting with the last."""
    # Each source yields its marks from the end and only when asked, so a caller that stops at the
    # last mark pays for few others.
    sources = [boxes(body, truncated=truncated), _tags(body, truncated), _hashes(body, truncated)]
    heads = [next(source, None) for source in sources]
    while True:
        last = max((head.said_from for head in heads if head), default=-1)
        if last < 0:
            return
        for place, candidate in enumerate(heads):
            if candidate is not None and candidate.said_from == last:
                yield candidate
                heads[place] = next(sources[place], None)
                break


# --- records ---

MAX_RECORD = 4000
MAX_LEAD = 200
"""How many characters before a record are searched for what it is not."""
_UNCLAIMED = re.compile(
    r"(?i)\b(?:not|never|wrong|incorrect|would|if|suppose\w*|example|input|given|format|instead)\b"
    r"[^\n]*\n(?:```\w*\n)?\Z"
)
"""The line before a record that is no answer."""
_OPENING = re.compile(r"\s*(?:```\w*\s*)?")
_ANSWER_KEY = re.compile(
    r"(?i)(?:final[_ ]?)?(?:answer|result|solution|antwort|ergebnis|r[ée]ponse|r[ée]sultat"
    r"|respuesta|resultado|resposta|risposta|risultato|ответ|答案|答え|정답)"
)
_UNIT_KEY = re.compile(r"(?i)units?|einheit|unit[éà]|unidade?|единица|单位|単位|단위")


def recorded(body: str, prompt: str = "") -> Candidate | None:
    """Return the answer of a response that ends in a record of JSON with a field for it, or with
    the only field for what is asked, else None.

    The answer may be a record itself, of a value and its unit.
    """
    end = len(body.rstrip("` \n"))
    start = body.rfind("\n{", 0, end) + 1 or len(body) - len(_OPENING.sub("", body, 1))
    if body[end - 1 : end] != "}" or body[start : start + 1] != "{" or end - start > MAX_RECORD:
        return None
    if _UNCLAIMED.search(body, max(0, start - MAX_LEAD), start):
        return None
    try:
        record = json.loads(body[start:end], parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    names = [name for name in record if _ANSWER_KEY.fullmatch(name)]
    names = names or [name for name in record if _asked(name, prompt)]
    if (
        len(names) != 1
        and len(record) > 1
        and all(isinstance(value, str) for value in record.values())
    ):
        text = as_answer([ValueRow(*row) for row in record.items()])
        return Candidate(CandidateKind.TAG, text, start, end, start, end)
    if len(names) != 1:
        return None
    answer = record[names[0]]
    if isinstance(answer, dict):
        record = answer
        values = [value for name, value in answer.items() if not _UNIT_KEY.fullmatch(name)]
        answer = values[0] if len(values) == 1 else None
    if isinstance(answer, bool):
        answer = str(answer)
    if not isinstance(answer, str) or not answer.strip():
        return None
    units = [value for name, value in record.items() if _UNIT_KEY.fullmatch(name)]
    unit = units[0] if len(units) == 1 and isinstance(units[0], str) else ""
    text = f"{answer} {unit}" if unit_symbol(unit) and answer[-1].isdecimal() else answer
    return Candidate(CandidateKind.TAG, text, start, end, start, end)


def _asked(name: str, prompt: str) -> bool:
    """Return whether the name of a field is that of what a question asks for: `total_cost`, `x`."""
    question = prompt[-MAX_QUESTION:]
    if name in LETTER_ASKED.findall(question):
        return True
    words = re.findall(r"[^\W\d_]+", name.lower())
    heads = re.findall(
        r"[^\W\d_]{2,}", " ".join(match["heads"] for match in _HEADS.finditer(question))
    )
    in_question = all(place_of(word, question.lower()) >= 0 for word in words)
    return in_question and any(place_of(head.lower(), name.lower()) >= 0 for head in heads)


_BREAKS = (
    r"(?:are|is|was|were|do|does|did|have|has|had|can|could|will|would|must|should|of|in|on|at|to"
    r"|for|from|with|that|which|who|when|if|where|and|or|more|less|fewer|between|per|by|he|she|it"
    r"|they|you|we|left)\b"
)
_WORD = rf"(?!{_BREAKS})[^\W\d_]"
_HEADS = re.compile(
    r"(?i)\b(?:find|what(?:['’]s| (?:is|are|was|were))|determine|calculate|compute|give|state"
    r"|how many|how much) (?:(?:the|an?|his|her|its|their) )?"
    rf"(?:{_WORD}+[ -]){{0,3}}?(?P<heads>{_WORD}{{2,}}(?:,? and (?:the )?{_WORD}{{2,}})*)"
    rf"(?=[^\w-]*$|[.?!,;:]| {_BREAKS})"
)
"""The nouns that a question asks for: `cost` in `What is the total cost in euros?`."""


# --- boxes ---


def boxes(body: str, *, truncated: bool = False) -> Iterator[Candidate]:
    """Yield the boxes, starting with the last; adjacent boxes form a single candidate."""
    end = len(body)
    for _ in range(MAX_MARKS):
        last = box_before(body, end)
        if last is None:
            return
        group, void = _side_by_side(body, last)
        void = void or ("" if last.closed or not truncated else CUT_OFF)
        first, last = group[0], group[-1]
        said_from, said_to = first.start, last.end
        around = piece(body, said_from, said_to) if last.closed else None
        text = _opened(body, *around) if around else joined(body, group)
        if not body[last.open : last.close].strip(" {}$~"):
            void = "the last box is empty"
        if not around and _PLAIN_NUMBER.fullmatch(text):
            text = with_unit(body, text, last.end)
        # Equal boxes count once, so the text may be the content of the last box alone.
        start = last.open if text == body[last.open : last.close] else first.open
        close = last.close
        if around:
            start, close = around
            said_from, said_to = min(said_from, start), max(said_to, close)
        ignored = stance(body, said_from, said_from, said_to, marked=True) if text.strip() else ""
        yield Candidate(
            CandidateKind.BOX, text, start, close, said_from, said_to,
            ignored=ignored, void=void,
        )  # fmt: skip
        end = said_from


_CLOSES = re.compile(r"\s*(?:\\right\s*)?(?:\\\}|[)\]])")


def _opened(body: str, start: int, end: int) -> str:
    """Return a piece of a formula with every box in it opened."""
    text = body[start:end]
    while (box := box_before(text, len(text))) is not None:
        before, behind = text[: box.start].rstrip(), text[box.end :]
        content = text[box.open : box.close]
        if not (before.endswith(("{", "(", "[")) and _CLOSES.match(behind)):
            content = opened(content)
        text = text[: box.start] + content + behind
    return text.strip(" \n*.~")


def all_boxes(body: str) -> list[Box]:
    """Return the last MAX_MARKS boxes in text order, without joining adjacent boxes to a list."""
    boxes_found: list[Box] = []
    end = len(body)
    while len(boxes_found) < MAX_MARKS and (box := box_before(body, end)) is not None:
        boxes_found.insert(0, box)
        end = box.start
    return boxes_found


def joined(body: str, group: list[Box]) -> str:
    r"""Return the combined answer of several boxes: each different content once, joined by commas.

    Each content keeps its name if every box has another name (`x = \boxed{2}`).
    """
    texts = [body[box.open : box.close] for box in group]
    if len(texts) == 1:
        return texts[0]
    # The dictionary is filled from the end, so each content keeps the place of its first box.
    places = reversed(list(enumerate(texts)))
    distinct = sorted({squeeze(text): place for place, text in places}.values())
    # A symbol stands close to its box, and a word may have others between.
    for pattern, width, form, joint in (
        (_NAMED, 16, "{} = {}", " , "),
        (WORDED, 40, r"\text{{{}}} = {}", ", "),
    ):
        starts = [group[place].start for place in distinct]
        names = [pattern.search(body, max(0, at - width), at) for at in starts]
        if len(distinct) > 1 and len({name[1] for name in names if name}) == len(distinct):
            pairs = zip(names, distinct, strict=True)
            return joint.join(form.format(n[1], texts[place]) for n, place in pairs if n)
    return " , ".join(texts[place] for place in distinct)


def _side_by_side(body: str, last: Box) -> tuple[list[Box], str]:
    """Return the boxes that form a list with the last, and why such a list is void ("" if
    valid).
    """
    group = [last]
    while last.closed:
        previous = box_before(body, group[0].start)
        if previous is None or not previous.closed:
            break
        if len(group) == MAX_BOXES:
            return group, f"more than {MAX_BOXES} boxes stand side by side"
        gap = body[previous.end : group[0].start]
        if len(gap) <= 60 and _JOINT.match(gap):
            group.insert(0, previous)
            continue
        # The second box is no correction if it is offered only in case the first is wrong, or if
        # both are guesses.
        tentative = len(gap) <= 60 and _TENTATIVE.search(gap) and FILLER.fullmatch(gap)
        before = body[max(0, previous.start - 40) : previous.start]
        contents = [squeeze(body[box.open : box.close]) for box in (previous, last)]
        if contents[0] != contents[1] and (tentative or HEDGE.search(f"{before} {gap[-300:]}")):
            return group, SEVERAL_OFFERED
        break
    return group, ""


def box_before(body: str, end: int) -> Box | None:
    """Return the last box that starts before `end`, or None; for nested boxes the outermost."""
    place = _box_mark(body, 0, end)
    if place < 0:
        return None
    box = _box_at(body, place)
    # Only a few characters before the box are searched for an outer one, since a search of the
    # whole text for every box would not be linear.
    outer = _box_mark(body, max(0, place - 40), place)
    if outer >= 0:
        around = _box_at(body, outer)
        if around.end > box.start:
            return around
    return box


def _box_mark(body: str, start: int, end: int) -> int:
    r"""Return the offset of the last box command in the range, or -1.

    All of their names have `box` in them, which is searched for once.
    """
    place = end
    while (place := body.rfind("box", start, place)) >= 0:
        if body.startswith("\\boxed", place - 1, end) and place > start:
            if not body.endswith("\\phantom{", 0, place - 1):  # a phantom is not printed
                return place - 1
        elif body.endswith("\\fbox", start, place + 3):
            return place - 2
        elif body.endswith("\\framebox", start, place + 3):
            return place - 6
    return -1


def _box_at(body: str, start: int) -> Box:
    name = _BOX_NAME.match(body, start)
    place = name.end() if name else start
    if place >= len(body) or body[place] != "{":
        # `\boxed 5` has no braces, so its content ends with the word.
        return _unclosed(body, start, place, min(len(body), place + 200), " ", "}")
    limit = min(len(body), place + 2 * MAX_ANSWER)
    # Most boxes hold neither braces nor commands, and need no search by brackets.
    close = body.find("}", place, limit)
    if close >= 0 and body.find("{", place + 1, close) < 0 and body.find("\\", place, close) < 0:
        return Box(start, place + 1, close, close + 1)
    depth = 0
    for brace in _BRACES.finditer(body, place, limit):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return Box(start, place + 1, brace.start(), brace.end())
    return _unclosed(body, start, place + 1, limit)


def _unclosed(body: str, start: int, inside: int, limit: int, *closers: str) -> Box:
    """Return a box without a closing brace; the content ends with the formula or the line."""
    closer_positions = (
        body.find(mark, inside, limit) for mark in ("$", "\\]", "\\)", "\n", *closers)
    )
    end = min([limit, *(place for place in closer_positions if place >= 0)])
    return Box(start, inside, end, end, closed=body[end : end + 1] == "}")


# --- tags and hashes ---

_HASH = "####"
# How a value after `####` begins; a Markdown heading begins otherwise.
_HASH_VALUE = re.compile(r"\s*(?:[-+−$£€\\(\[{|.√π\d]|[A-Ja-z]\b)")
# `#### 3. Solving ...` is a numbered heading.
_NUMBERED = re.compile(r"\s*\d{1,2}[.)]\s+[A-Za-z]")


def _tags(body: str, truncated: bool) -> Iterator[Candidate]:
    """Yield the contents of `<answer>...</answer>` from the end; an unclosed tag reaches to the
    next tag or the end.
    """
    if "<answer>" not in body and "<ANSWER>" not in body and "<Answer>" not in body:
        return
    text_end = len(body)
    # A pair of tags is a single mark, so twice as many tags are examined.
    tag_positions = list(islice(_backwards(body, ("<answer>", "</answer>")), 2 * MAX_MARKS))
    close = -1
    for place, name in tag_positions:
        if name.startswith("</"):
            close = place
            continue
        start, end = place + len(name), close if close > place else text_end
        inner = body[start:end]
        void = "" if inner.strip() else "the answer tag is empty"
        if truncated and close < 0:
            void = CUT_OFF
        ignored = stance(body, place, place, end, marked=True)
        yield Candidate(
            CandidateKind.TAG, inner, start, end, place, end + 9, void=void, ignored=ignored
        )
        close, text_end = -1, place


def _backwards(body: str, names: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield (offset, name in lower case) of the tags of a text, from the end.

    A tag may be spelt in lower case, in capitals or with a capital A. `rfind` for each spelling
    reads the text only as far as the caller asks, which a regular expression cannot do backwards.
    """
    spellings = [
        spelt for name in names for spelt in {name, name.upper(), name.replace("a", "A", 1)}
    ]
    last = {name: place for name in spellings if (place := body.rfind(name)) >= 0}
    while last:
        name = max(last, key=lambda spelling: last[spelling])
        place = last[name]
        yield place, name.lower()
        last[name] = body.rfind(name, 0, place)
        if last[name] < 0:
            del last[name]


def _hashes(body: str, truncated: bool) -> Iterator[Candidate]:
    """Yield lines such as `#### 72`, the convention of GSM8K, from the end."""
    end = len(body)
    for _ in range(MAX_MARKS):
        place = body.rfind(_HASH, 0, end)
        if place < 0:
            return
        end = place
        # A heading of a deeper level, or a mark that does not begin its line.
        line = body[max(0, place - 40) : place].rpartition("\n")[2]
        if body[place - 1 : place] == "#" or line.strip():
            continue
        stop = body.find("\n", place)
        to_end = stop < 0
        stop = min(len(body) if to_end else stop, place + MAX_ANSWER + 8)
        text = body[place + len(_HASH) : stop]
        # A heading has text below it, so a single word at the very end of the response is a value.
        final_words = text.split()[:2] if not body[stop:].strip() else []
        is_value = _HASH_VALUE.match(text) or len(final_words) == 1
        if text.strip() and (not is_value or _NUMBERED.match(text)):
            continue  # a heading of the fourth level
        void = "" if text.strip() else "nothing follows the mark"
        void = CUT_OFF if truncated and to_end else void
        start = place + len(_HASH) + len(text) - len(text.lstrip())
        end_of_text = start + len(text.strip())
        yield Candidate(
            CandidateKind.HASH, text.strip(), start, end_of_text, place, stop, void=void
        )
