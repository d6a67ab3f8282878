r"""Formulas of logic in words (`A OR B`), in signs (`A \lor B`) or in the notation of algebra
(`A + B`), compared as they are built: what is only equivalent is not simplified alike.
"""

from __future__ import annotations

import re
from contextlib import suppress

from ..extracting.surface import in_signs
from ..reading.nodes import Node, Unreadable
from ..reading.reader import clean, read_cleaned

_ASKED = re.compile(
    r"(?i)\bboole?|\blogi[ckq]|логическ|булев|布[尔爾]|逻辑|邏輯|ブール|論理|불 ?대수|논리"
)
_SIGNED = re.compile(r"\\(?:lor|land|lnot|neg|vee|wedge|oplus)(?![a-z])|[∨∧¬⊕]")
_PLAIN = re.compile(r"\\(?:text|math)[a-z]*\s*\{([^{}]*)\}|\\[ ,;]")
_BAR = re.compile(r"\\(?:overline|bar)\s*(?:\{([^{}]*)\}|([A-Za-z]))|(?<![A-Za-z\\])([A-Za-z])['′]")
_ALGEBRA = {"add": "lor", "mul": "land"}
_ORDERED = frozenset({"neg", "Rightarrow"})


def same_logic(prompt: str, gold: str, answer: str) -> bool:
    """Return whether two formulas of logic are built alike, in whatever signs."""
    if not (_SIGNED.search(gold) or _ASKED.search(prompt)):
        return False
    first, second = _built(gold), _built(answer)
    return first is not None and first == second


def _built(text: str) -> tuple[object, ...] | None:
    """Return (operator, sides) of the formula that a text is or that its chain ends in, else
    None.
    """
    said = re.split(r"=|≡|\\equiv(?![a-z])", text)[-1]
    said = in_signs(" ".join(_PLAIN.sub(r" \1 ", said).split()))
    while _BAR.search(said):
        said = _BAR.sub(lambda bar: rf"(\lnot ({bar[1] or bar[2] or bar[3]}))", said)
    with suppress(Unreadable, RecursionError):
        return _shape(read_cleaned(clean(said)))
    return None


def _shape(node: Node) -> tuple[object, ...] | None:
    if node.op == "sym" or (node.op == "num" and node.value in {0, 1}):
        return (node.note or str(node.value),)
    name = _ALGEBRA.get(node.op) or (node.note.replace("'", "neg") if node.op == "call" else "")
    sides = [_shape(side) for side in node.args]
    if not name or not sides or None in sides:
        return None
    if name in _ORDERED:
        return name, *sides
    flat = [
        inner
        for side in sides
        if side is not None
        for inner in (side[1:] if side[0] == name and len(side) > 1 else (side,))
    ]
    return name, *sorted(flat, key=repr)
