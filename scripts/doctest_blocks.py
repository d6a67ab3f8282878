"""An extension of griffe that shows doctests of docstrings as blocks of code on the site."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"(?m)^(?P<indent>[ ]*)>>> .*\n?(?:(?P=indent)\S.*\n?)*")


class DoctestBlocks(griffe.Extension):
    """Puts every doctest between fences: a paragraph of Markdown would read it as a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return `text` with a fence around each run of lines from `>>>` to the next empty line.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """

    def block(match: re.Match[str]) -> str:
        indent = match["indent"]
        return f"{indent}```pycon\n{match[0].rstrip()}\n{indent}```\n"

    return _DOCTEST.sub(block, text).rstrip("\n")
