"""The answer inside a gold that is given as a whole solution with boxes."""

from __future__ import annotations

import itertools
import re

from .marks import Box, all_boxes, joined


def unboxed(gold: str) -> str:
    r"""Return the content of a gold's boxes, or the gold itself if no box is present.

    Several boxes with different contents are one answer with several parts: the contents joined
    by commas, each with its name if the boxes have different names.

    >>> unboxed(r"$x = \boxed{2}$, so $y = \boxed{3}$.")
    'x = 2 , y = 3'
    """
    if boxes := _filled(gold):
        return joined(gold, boxes)
    said = _SAID.search(gold) if "#### " in gold or gold[:1].isupper() else None
    return said["last"] or said["formula"] or said["value"] if said else gold


_SAID = re.compile(
    r"####\s(?P<last>[^\n]+)\s*$"
    r"|^(?:The|It|There|She|He|They|We|This)\b[^.$\d\\]{0,80}?\b"
    r"(?:is|are|equals|takes(?: \w+)?|has|have"
    r"|was|were|costs?|needs?|gets?|earns?)\s(?:\$(?P<formula>[^$]+)\$"
    r"|(?P<value>-?\$?\d[\d,.]*(?:/\d+)?(?:\s(?!times|of|more|less|fewer)[a-z]{1,12}){0,2}))\.?\s*$"
)
"""What a gold says that is a sentence, or a solution of GSM8K."""


def parts(gold: str) -> int:
    """Return how many boxes with different contents a gold has; 0 without a box."""
    boxes = _filled(gold)
    return len({gold[box.open : box.close].strip() for box in boxes})


def _filled(gold: str) -> list[Box]:
    if "\\boxed" not in gold and "\\fbox" not in gold:
        return []
    return [box for box in all_boxes(gold) if box.closed and gold[box.open : box.close].strip()]


def boxed_apart(gold: str, response: str) -> bool:
    """Return whether a response boxes each of the several values of a gold, close to each other:
    `Mean: $\\boxed{6}$, median: $\\boxed{8}$` for `mean 6, median 8`.
    """
    if response.count("box") < 2:
        return False
    bare = _SIZES.sub("", gold).strip(" $")
    enclosed = _ENCLOSED.fullmatch(bare)
    wanted = values_of(bare) if enclosed else len(_SEVERAL.findall(gold)) + 1
    wanted += len(_SIGNED.findall(gold))  # `\pm 1, \pm 2`
    if wanted < 2 or parts(response) != wanted:
        return False
    boxes = _filled(response)
    # The coordinates of a point are boxed apart with their names.
    letters = {name[1] for box in boxes if (name := _ASSIGNS.match(response, box.open, box.close))}
    if enclosed and (bare[0] != "(" or len(letters) != wanted):
        return False
    between = [response[a.end : b.start] for a, b in itertools.pairwise(boxes)]
    contents = [response[box.open : box.close] for box in boxes]
    return (
        len(boxes) == wanted
        and not any(len(text) > MAX_BETWEEN or _RIVALS.search(text) for text in between)
        and not any(re.search("[,;]", _BRACKETED.sub("", text)) for text in contents)
        and not _ONLY.search(response, boxes[-1].end)
    )


def boxed_in_turn(prompt: str, response: str) -> str:
    """Return the contents of the boxes of a response that stand behind the names of a tuple for
    which the question asks (`Give (quotient, remainder)`), each once and in this order, or "".
    """
    asked = _TUPLE.search(prompt) if response.count("box") > 1 else None
    names = asked[1].lower().split(", ") if asked else []
    boxes = _filled(response)
    if not names or len(boxes) != len(names):
        return ""
    starts = [0, *(box.end for box in boxes)]
    ahead = [response[a : b.start].lower() for a, b in zip(starts, boxes, strict=False)]
    named = all(
        re.search(rf"\b{name}\W{{0,8}}(?:is\W{{1,4}})?$", text)
        and not any(_RIVALS.search(text) for text in ahead[1:])
        for name, text in zip(names, ahead, strict=True)
    )
    is_only = named and not _ONLY.search(response, boxes[-1].end)
    return ", ".join(response[box.open : box.close] for box in boxes) if is_only else ""


_TUPLE = re.compile(r"\(([^\W\d_]{3,}(?:, [^\W\d_]{3,}){1,3})\)")


def unmarked(text: str) -> str:
    """Return words without the command that sets them upright."""
    return _MARKED.sub(r"\1", text) if text.startswith("\\text") else text


_MARKED = re.compile(r"^\\text\s*\{\s*([^\W\d_][^{}\\]*?)\s*\}$")


def values_of(gold: str) -> int:
    """Return how many values a gold lists, by the commas and words between them.

    >>> values_of("(5, 2)"), values_of("17, -15"), values_of("f(1, 2)"), values_of("x=1 and y=2")
    (2, 2, 1, 2)
    """
    bare = _OF_LETTERS.sub("", unmarked(unboxed(gold).replace("$", "").strip()))
    if bare[:1] in {"(", "[", "{"} and bare[-1:] in {")", "]", "}"} and _ENCLOSED.fullmatch(bare):
        bare = bare[1:-1]
    depth, count = 0, 1
    for mark in _MARKS.finditer(bare):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(mark[0], 0)
        count += depth == 0 and mark[0] not in "()[]{}"
    return max(count, len(set(_LABELS.findall(bare))))


def parts_labelled(gold: str) -> int:
    """Return how many parts a gold has behind labels: `(a) 1, 3; (b) -1` has two."""
    return len(set(_LABELS.findall(gold)))


_LABELS = re.compile(r"(?<!\w)\(([a-h]|i{1,3}|iv)\)\s")
"""The label of a part of a gold."""
_OF_LETTERS = re.compile(r"^\([^()=]*\)\s*=\s*(?=\()")
"""The letters of a tuple: `(x, y) = (1, 2)`."""
_SIGNED = re.compile(r"\\pm(?![a-z])|±")
_ASSIGNS = re.compile(r"\s*([A-Za-z])\s*=")


_BRACKETED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_SIZES = re.compile(r"\\(?:left|right)?(?![a-zA-Z])")
_ENCLOSED = re.compile(r"(?s)[(\[{](?:[^()\[\]{}]|[(\[{][^()\[\]{}]*[)\]}])*[)\]}]")
_MARKS = re.compile(r"[()\[\]{}]|(?<!\\)[,;](?!\d{3}(?!\d))|\band\b")
_SEVERAL = re.compile(
    r"[,;](?:\s|~|\\[ ,;:]|\\q?quad)|\s(?:\\text\s*\{\s*)?and\s|[^,;\s]\s+(?=\([b-h2-8]\)\s)"
)
_ONLY = re.compile(r"(?i)\b(?:only|of which|reject\w*|discard\w*|extraneous|wrong|not)\b")
"""Words behind the last box that take one of them back."""
MAX_BETWEEN = 160
"""Most characters between boxes that belong together."""
_RIVALS = re.compile(
    r"(?i)\b(?:or|oder|ou|o|wait|no|not|actually|sorry|instead|either|correct\w*|alternative\w*|should"
    r"|rather|maybe|perhaps|but|final|recheck\w*|mistake|error|again|intermediate|hmm|result|answer"
    r"|oops|recomput\w*|estimate\w*|better|candidate|fails?|extraneous)\b"
)
