"""Text in a policy's turn that claims to be somebody else's: made-up results and turns.

A policy that goes on after its call often writes the result itself, or the next user's turn. A
call in there is not the policy's own, and nothing after a made-up turn is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

_RESULTS = (
    ("<tool_response>", "</tool_response>"),
    ("<tool_responses>", "</tool_responses>"),
    ("<tool_result>", "</tool_result>"),
    ("<tool_results>", "</tool_results>"),
    ("<tool_output>", "</tool_output>"),
    ("<tool_outputs>", "</tool_outputs>"),
    ("<function_response>", "</function_response>"),
    ("<function_result>", "</function_result>"),
    ("<function_results>", "</function_results>"),
    ("<information>", "</information>"),
    ("<observation>", "</observation>"),
    ("<search_result>", "</search_result>"),
    ("<search_results>", "</search_results>"),
    ("<interpreter>", "</interpreter>"),
    ("<result>", "</result>"),
    ("<|tool_response>", "<tool_response|>"),
    ("<start_function_response>", "<end_function_response>"),
    ("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ("<user>", "</user>"),
    ("<!--", "-->"),
)
"""Marks that environments and templates write around results, and a comment's."""
_ROLE = r"(?:user|system|developer|tool|ipython|environment|observation|function)"
_TURNS = (
    rf"<\|im_start\|>\s*{_ROLE}",
    rf"<\|start_header_id\|>\s*{_ROLE}\s*<\|end_header_id\|>",
    rf"<\|header_start\|>\s*{_ROLE}\s*<\|header_end\|>",
    rf"<start_of_turn>\s*{_ROLE}",
    rf"<\|turn>\s*{_ROLE}",
    r"<\|start\|>(?!\s*assistant)",
    r"<\|(?:user|observation|system|tool)\|>",
    r"<\|im_(?:user|system)\|>",
    r"<\|(?:USER|SYSTEM)_TOKEN\|>",
    r"<｜User｜>",
    r"\[INST\]",
    rf"\]~b\]\s*{_ROLE}",
    rf"<beginning_of_sentence>\s*{_ROLE}",
)
"""Marks with which templates begin somebody else's turn."""
_RESULT = re.compile("|".join(re.escape(begin) for begin, _ in _RESULTS))
_TURN = re.compile("|".join(_TURNS))
_WORD = re.compile(
    r"(?<![^\n])(?:#{1,4}[ ]*|\*\*)?(?:(?P<user>User|Human|USER|HUMAN)"
    r"|Observation|Tool (?:result|response|output)|Tool|Result)(?:\*\*)?[ ]?:"
)
"""How turns and results begin in plain transcripts. The words for results are common in prose, so
that they count only after a call.
"""
_CLOSING = dict(_RESULTS)
_QUOTES = "\"'`“‘«"
_CLOSES = {"“": "”", "‘": "’", "«": "»"}
_TRIED = 8
"""How many marks are tried as the end of what the policy said itself."""
_NEAR = 400
"""How many characters before and after a call are searched for the ends of its line."""


class Claim(NamedTuple):
    """A mark after which text claims to be somebody else's."""

    start: int
    end: int
    """The position after the mark."""
    closing: str
    """The mark that ends a result; empty for a turn, which nothing ends."""
    only_after_call: bool


def find_result(text: str, start: int) -> int:
    """Return the position from `start` on of a mark that begins a result, or -1."""
    match = _RESULT.search(text, start)
    return -1 if match is None else match.start()


def find_turn(text: str, start: int) -> int:
    """Return the position from `start` on of a mark that begins a turn, or -1."""
    match = _TURN.search(text, start)
    return -1 if match is None else match.start()


def find_word(text: str, start: int) -> int:
    """Return the position from `start` on of a line that begins like a transcript, or -1."""
    match = _WORD.search(text, start)
    return -1 if match is None else match.start()


def claim_at(text: str, position: int) -> Claim:
    """Return the mark, or the word, at position `position`."""
    for pattern in (_RESULT, _TURN):
        match = pattern.match(text, position)
        if match is not None:
            return Claim(position, match.end(), _CLOSING.get(match[0], ""), only_after_call=False)
    match = _WORD.match(text, position)
    assert match is not None
    return Claim(position, match.end(), "", only_after_call=match["user"] is None)


def is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether quotation marks stand right before and after a part of the text."""
    before = text[start - 1] if start else ""
    return bool(before) and before in _QUOTES and text.startswith(_CLOSES.get(before, before), end)


def begins_line(text: str, position: int) -> bool:
    """Return whether only white space, or a mark that just ended, stands between the line's
    beginning and `position`.
    """
    window_start = max(0, position - _NEAR)
    before = text[
        max(text.rfind("\n", window_start, position) + 1, window_start) : position
    ].rstrip()
    return not before or before[-1] in ">]}"


def end_of_block(text: str, claim: Claim) -> int:
    """Return the position after the mark that ends a result, or -1.

    A result inside the result, with marks of its own, does not end the outer one. Where marks of
    ends are missing, the last of them counts.
    """
    begin = text[claim.start : claim.end]
    depth, position = 1, claim.end
    while depth:
        closed = text.find(claim.closing, position)
        if closed < 0:
            return position if position > claim.end else -1
        depth += text.count(begin, position, closed) - 1
        position = closed + len(claim.closing)
    return position


def begins_here(text: str, position: int) -> bool:
    """Return whether a mark, or a word of a transcript, stands at position `position`."""
    return any(pattern.match(text, position) is not None for pattern in (_RESULT, _TURN, _WORD))


def own_beginnings(text: str) -> Iterator[str]:
    """Yield the text up to each of the first marks, or words, of somebody else, for turns in which
    a call comes first.
    """
    for pattern in (_RESULT, _TURN, _WORD):
        for match in islice(pattern.finditer(text), _TRIED):
            yield text[: match.start()]


def quotation_end(text: str, start: int, after: int) -> int:
    """Return where a quotation ends in which a call from `start` to `after` stands, or -1.

    Quotation marks, or a code span, begin right before the call and end in the same line as the
    call. A line that begins with `>` is a quotation too.
    """
    window_start, far = max(0, start - _NEAR), min(len(text), after + _NEAR)
    line = max(text.rfind("\n", window_start, start) + 1, window_start)
    end = text.find("\n", after, far)
    end = far if end < 0 else end
    if text[line:start].lstrip().startswith("> "):
        return end
    mark = text[start - 1] if start else ""
    if not mark or mark not in _QUOTES:
        return -1
    return text.find(_CLOSES.get(mark, mark), after, end)
