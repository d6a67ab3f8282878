"""Search-R1's tags: `<search>` and `<answer>` in plain text, results in `<information>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .answers import END_OF_THOUGHTS

RETRY = (
    "That was neither a search nor an answer. To search, write the query between <search> and "
    "</search>; to answer, write the answer between <answer> and </answer>."
)
_TAG = re.compile(r"<(/?)(think|search|information|answer)>")
_ANY_TAG = re.compile(r"<(?=/?(?:think|search|information|answer)>)")


@dataclass(frozen=True, slots=True)
class TagAction:
    """The action that the first closed tag asks for."""

    name: str
    """`search` or `answer`; empty where the text has neither tag."""
    content: str = ""


def read_action(text: str) -> TagAction:
    """Return the first closed `<search>` or `<answer>` after the thoughts.

    >>> read_action("I need more. <search>capital of Kilria</search> <answer>no</answer>")
    TagAction(name='search', content='capital of Kilria')
    """
    answer_text = text.rpartition(END_OF_THOUGHTS)[2]
    tags = [
        (begin, name, answer_text[begin + len(name) + 2 : end].strip())
        for name in ("search", "answer")
        if (begin := answer_text.find(f"<{name}>")) >= 0
        and (end := answer_text.find(f"</{name}>", begin)) >= 0
    ]
    if not tags:
        return TagAction("")
    _, name, content = min(tags)
    return TagAction(name, content)


def as_information(documents: str) -> str:
    """Format search results as an observation.

    Tags inside the documents are escaped, so that no document can answer for the policy.
    """
    return f"\n\n<information>{_ANY_TAG.sub('&lt;', documents)}</information>\n\n"


def is_well_formed(text: str) -> bool:
    """Return whether a whole self-search (SSRL, arXiv 2508.10874) keeps to the format.

    All tags are closed and not nested, each search is followed by its information, and there is
    exactly one answer, at the end.
    """
    order = _tags(text)
    if order is None or order.count("answer") != 1 or order[-1] != "answer":
        return False
    acts = [name for name in order[:-1] if name != "think"]
    pairs = list(zip(acts[::2], acts[1::2], strict=False))
    return len(acts) % 2 == 0 and all(pair == ("search", "information") for pair in pairs)


def _tags(text: str) -> list[str] | None:
    """Return the tags in order; None where a tag is not closed, or another begins inside."""
    order: list[str] = []
    inside = ""
    for match in _TAG.finditer(text):
        closes, name = bool(match[1]), match[2]
        if (closes and inside != name) or (not closes and inside):
            return None
        inside = "" if closes else name
        if not closes:
            order.append(name)
    return None if inside else order
