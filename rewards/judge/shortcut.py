"""Finds empty responses, which hold nothing that could be graded, without asking a judge.

Some judges pay texts such as ":" or "Solution" (the "master keys" of arXiv 2507.08794). A response
without a single content word is worth 0 without a question.
"""

from __future__ import annotations

import re

_OPENERS = frozenset({
    "a", "an", "and", "answer", "by", "conclusion", "explanation", "final", "here", "is", "let",
    "let's", "okay", "problem", "process", "reasoning", "response", "result", "so", "solution",
    "solve", "step", "sure", "the", "this", "thought", "us", "well",
})  # fmt: skip
"""Words that open an answer and say nothing by themselves."""


def empty_answer(text: str) -> str:
    """Return why a response needs no judge; "" if a judge is needed.

    >>> empty_answer("Solution:")
    'the response holds nothing to grade'
    >>> empty_answer("Paris.")
    ''
    """
    words = re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.casefold())
    if all(word in _OPENERS for word in words):
        return "the response holds nothing to grade"
    return ""
