"""Finds the boxes in which a policy states answers."""

from __future__ import annotations

import re

_BRACES = re.compile(r"(?P<box>\\boxed\s*\{)|\\[{}]|[{}]")


def boxes_of(text: str) -> list[tuple[int, str]]:
    r"""Return where each closed `\boxed{}` begins and what it holds, in the order of the text.

    Braces are balanced, however deep, and escaped braces count for none. A box inside another is a
    part of that one's content. The time is linear in the text.

    >>> boxes_of(r"\boxed{\frac{\sqrt{2}}{2}}, or \boxed{")
    [(0, '\\frac{\\sqrt{2}}{2}')]
    """
    opened: list[re.Match[str]] = []
    closed: list[tuple[int, int, int]] = []
    for brace in _BRACES.finditer(text):
        if brace["box"] or brace[0] == "{":
            opened.append(brace)
        elif brace[0] == "}" and opened and (begun := opened.pop())["box"]:
            while closed and closed[-1][0] > begun.start():
                closed.pop()
            closed.append((begun.start(), begun.end(), brace.start()))
    return [(start, text[inside:end]) for start, inside, end in closed]
