"""The surroundings of calls that form a whole turn: thoughts, a tag, end-of-turn marks, a code
fence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from .json_calls import after_space
from .made_up import begins_here, find_result, find_turn
from .thoughts import closing, end_of_thoughts, opening, thinks_first

PYTHON_TAG = "<|python_tag|>"
_TAGS = (PYTHON_TAG, "<|python_start|>")
TAG = rf"(?:{'|'.join(map(re.escape, _TAGS))})"
_ENDS = (
    "<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>", "<|end_of_text|>", "<|python_end|>",
    "<end_of_turn>", "<|im_end|>",
)  # fmt: skip
_FENCE = re.compile(r"```[a-z_]{0,16}\s")


class Body(NamedTuple):
    """The text of a turn without the surroundings, and what these were."""

    text: str
    tagged: bool
    """Whether the text began with a tag that announces a call."""
    fenced: bool
    """Whether the text stood in a Markdown code block."""


def body_of(whole_text: str) -> Body:
    r"""Return `whole_text` without tag, end marks and code fence.

    >>> body_of("```json\n{}\n```<|eot_id|>")
    Body(text='{}', tagged=False, fenced=True)
    """
    text = without_ends(whole_text).lstrip()
    tag = next((candidate for candidate in _TAGS if text.startswith(candidate)), "")
    text = text[len(tag) :].lstrip()
    fence = _FENCE.match(text)
    if fence is not None:
        text = text[fence.end() :].removesuffix("```").strip()
    return Body(text, bool(tag), fence is not None)


def after_thoughts(text: str, is_call: Callable[[str], bool]) -> int:
    """Return the position where the turn begins after any thoughts.

    A turn that is a call as a whole has no thoughts: tags inside are part of the arguments.
    """
    if closing(text) < 0 or (not thinks_first(text) and is_call(text)):
        return 0
    return end_of_thoughts(text)


def announced(text: str, start: int, call: re.Pattern[str]) -> int:
    """Return the position where a tag announces a call after some text, or the end of the text."""
    match = call.search(text, start)
    if match is None or 0 <= opening(text, start) < match.start():  # a thought
        return len(text)
    # A tag inside a made-up result or turn announces nothing (decision 0517).
    invented = (find_result(text, start), find_turn(text, start))
    if any(0 <= position < match.start() for position in invented):
        return len(text)
    return match.start()


def own_words_end(text: str, position: int) -> bool:
    """Return whether the turn ends at `position`, or somebody else's words begin there."""
    while True:
        position = after_space(text, position)
        mark = next((candidate for candidate in _ENDS if text.startswith(candidate, position)), "")
        if not mark:
            return begins_here(text, position)
        position += len(mark)


def without_ends(text: str) -> str:
    """Return `text` without trailing end-of-turn marks and white space."""
    end = _before_space(text, len(text))
    while mark := next((candidate for candidate in _ENDS if text.endswith(candidate, 0, end)), ""):
        end = _before_space(text, end - len(mark))
    return text[:end]


def _before_space(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end
