"""Questions with many right answers: a vector of a direction, and a basis of a space."""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction
from itertools import combinations

from ..conventions import Conventions
from ..proving.judge import Judge, NeedsPool
from ..reading.nodes import EXACT, Node, mul, symbols
from .matrices import in_components, worked_out
from .question import parsed, value_of


def is_another(prompt: str, gold: str, answer: str) -> bool:
    """Return whether an answer is another of the many that the prompt allows: a multiple of a
    vector, or another basis of the space.
    """
    if "vector" not in prompt and "basis" not in prompt:
        return False
    return _is_multiple(prompt, gold, answer) or _is_basis(prompt, gold, answer)


def _is_multiple(prompt: str, gold: str, answer: str) -> bool:
    """Return whether an answer is a multiple of the vector of the gold, where the prompt asks for
    any vector of a direction: `Find an eigenvector`.
    """
    if not _DIRECTION.search(prompt) or _SCALED.search(prompt):
        return False
    vectors = [worked_out(value_of(node)) for text in (gold, answer) if (node := parsed(text))]
    vectors[1:] = [in_components(vector, vectors[0]) for vector in vectors[1:]]
    if len(vectors) < 2 or any(node.op not in {"matrix", "bracket"} for node in vectors):
        return False
    first, second = (node.args for node in vectors)
    if len(first) != len(second) or symbols(vectors[1]) - symbols(vectors[0]):
        return False
    judge, zero = Judge(Conventions()), Node("num")
    with suppress(NeedsPool):
        turned = all(
            judge.equal(mul(a, d), mul(b, c))
            for (a, c), (b, d) in combinations(zip(first, second, strict=True), 2)
        )
        return turned and not all(judge.equal(cell, zero) for cell in second)
    return False


_DIRECTION = re.compile(
    r"(?i)\b(?:find|give|determine|compute|state|what is) (?:an?|any|one|some) (?:\w+ ){0,2}"
    r"(?:eigenvector|(?:normal|direction) vector"
    r"|vector (?:that is )?(?:normal|orthogonal|perpendicular|parallel))\b"
)
_SCALED = re.compile(
    r"(?i)\b(?:unit|normali[sz]ed|norm|lengths?|magnitude|integers?|smallest|first|last|component|entry"
    r"|coordinate|leading|and|then|whose|times|sum|product)\b"
)
"""Words that ask for one vector of a direction, or for more than a vector."""


def _is_basis(prompt: str, gold: str, answer: str) -> bool:
    """Return whether an answer has as many vectors as the basis of the gold, and spans the same."""
    if not _BASIS.search(prompt) or _OF_A_KIND.search(prompt):
        return False
    first, second = _vectors(gold), _vectors(answer)
    sizes = {len(vector) for vector in (*first, *second)}
    if not first or len(first) != len(second) or len(sizes) != 1:
        return False
    return _rank(first) == _rank(second) == _rank([*first, *second]) == len(first)


_BASIS = re.compile(r"(?i)\b(?:an?|any|one) (?:possible )?basis\b|\bbasis (?:for|of)\b")
_OF_A_KIND = re.compile(
    r"(?i)\b(?:ortho\w+|gram|standard|coordinates?|relative|respect|reduced|echelon|integers?|ordered"
    r"|change|unit|normali[sz]ed|dual|jordan|hilbert|gr[oö]bner|lattice)\b"
)
"""Words that ask for a basis of a kind, or for more than a basis."""
MAX_VECTORS = 6


def _vectors(text: str) -> list[list[Fraction]]:
    """Return the vectors of exact numbers that a text lists, or []."""
    node = parsed(text)
    items = node.args if node and node.op in {"list", "set"} else [node] if node else []
    rows = [worked_out(value_of(item)) for item in items]
    plain = all(
        item.op == "matrix" or (item.op == "bracket" and item.note in {"()", "[]"}) for item in rows
    ) and all(cell.op in EXACT for item in rows for cell in item.args)
    if not plain or len(rows) > MAX_VECTORS or any(len(item.args) > MAX_VECTORS for item in rows):
        return []
    return [[Fraction(cell.value) for cell in item.args] for item in rows]


def _rank(vectors: list[list[Fraction]]) -> int:
    rows, rank = [list(vector) for vector in vectors], 0
    for column in range(len(rows[0])):
        pivot = next((row for row in rows if row[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rank += 1
        for row in rows:
            factor = row[column] / pivot[column]
            row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return rank
