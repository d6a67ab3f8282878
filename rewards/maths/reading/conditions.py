"""Conditions in words after a value: `for all x > 0`, `if n is even`."""

from __future__ import annotations

import re

from . import nodes
from .nodes import Node, TooBig, Unreadable
from .powers import MOD
from .pratt import Parser
from .vocabulary import QUALIFIERS, words

_SPLITTING = frozenset({"if", "otherwise", "whenever", "when", "unless"})
"""Words before a condition that leave room for another value in the other cases."""
_QUANTIFIERS = words("all every any each real some that integer integers")


def given(parser: Parser, node: Node) -> Node | None:
    """Read a condition after a value: `2x for all x > 0`.

    A condition that cannot be parsed is kept as words, unless that could hide another value.
    """
    if parser.here.value not in QUALIFIERS:
        return None
    qualifier = parser.take().value
    if qualifier == "otherwise" and not parser.sees("word"):
        return Node("given", (node, nodes.text(qualifier)), 0, qualifier)
    while parser.here.kind == "word" and parser.here.value in _QUANTIFIERS:
        parser.take()
    start = parser.position
    try:
        condition = of_a_kind(parser) or parser.inside(MOD - 1)
    except TooBig:
        raise
    except Unreadable:
        parser.position = start
        if qualifier in _SPLITTING or any(token.kind == "num" for token in parser.rest()):
            raise Unreadable("it depends on a condition in words") from None
        condition = nodes.text(" ".join(token.value or token.kind for token in parser.rest()))
        parser.position = len(parser.tokens) - 1
    return Node("given", (node, condition), 0, qualifier)


_ARTICLES = r"(?:(?:an?|any|some|every|each|all|arbitrary|real|free|{}) ){{0,3}}"
_LETTERS = (
    r"(?P<{0}>(?P<first_{0}>(?<!\w)[A-Za-z])(?: ?(?:,|and) ?(?!(?P=first_{0}))[A-Za-z]){{0,2}})"
)
_IN = r"\\in ?\\mathbb ?\{{? ?(?P<in_{}>[QRZ]) ?\}}?"
_SIGN = "non-?zero|positive|negative"
_REMARK = re.compile(
    r"[\s,;(]{0,9}(?:(?:for|where|with|and|here) )?(?:"
    + _ARTICLES.format(f"(?P<sign>{_SIGN})")
    + r"(?:(?P<some>(?:arbitrary )?constants?)|reals?|real numbers?|(?P<whole>integers?)) "
    + _LETTERS.format("of")
    + rf"(?: ?{_IN.format('of')})?"
    + "|"
    + _LETTERS.format("subject")
    + rf" ?(?:{_IN.format('subject')} ?)?,? ?(?:(?:is|being|are) )?"
    + _ARTICLES.format(f"(?P<kind>{_SIGN})")
    + r"(?:constants?|(?:real )?numbers?|real|parameters?|arbitrary|(?P<entire>integers?)))[\s.)]*$"
)
MAX_REMARK = 120


def with_constant(cleaned: str) -> str:
    r"""Return an equation whose constant words declare (`for a constant c`, `where c is any real
    number`, `(c constant)`) with its set, which is `K` if it is unsaid; any other text as it is.

    >>> with_constant(r"f(x) = x + c \text{ for a constant } c")
    'f(x) = x + c, c \\in \\mathbb{K}'
    """
    if "=" not in cleaned or not _DECLARES.search(cleaned[-MAX_REMARK:]):
        return cleaned
    plain = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r" \1 ", cleaned).replace("\\ ", " ")
    plain = re.sub(r"\s+", " ", plain)
    start = max(0, len(plain) - MAX_REMARK)
    remark = _REMARK.search(plain, start)
    letter = remark and (remark["of"] or remark["subject"])
    letters = re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", letter or "")
    said = plain[plain.find("=") : remark.start()] if remark else ""
    if not remark or not letters or any(letter not in said for letter in letters):
        return cleaned
    kind = "Z" if remark["whole"] or remark["entire"] else "K" if remark["some"] else "R"
    kind = remark["in_of"] or remark["in_subject"] or kind
    bound = _BOUNDS.get((remark["sign"] or remark["kind"] or "").replace("-", ""), "")
    sets = [
        rf", {letter} \in \mathbb{{{kind}}}" + (bound and f", {letter} {bound} 0")
        for letter in letters
    ]
    return plain[: remark.start()] + "".join(sets)


_BOUNDS = {"nonzero": r"\ne", "positive": ">", "negative": "<"}
_DECLARES = re.compile(r"constant|\b(?:real|arbitrary|numbers?|parameters?|integers?)\b")


def of_a_kind(parser: Parser) -> Node | None:
    """Read `n is even` or `even n`; None for another condition."""
    tokens = [parser.ahead(step) for step in range(3)]
    if tokens[1].value == "is":
        tokens.pop(1)
    kind = next((token.value for token in tokens[:2] if token.value in _KINDS), None)
    letter = next((token.value for token in tokens[:2] if token.kind == "sym"), None)
    if kind is None or letter is None:
        return None
    parser.position += 2 + (parser.ahead().value == "is")
    return Node("quantity", (nodes.sym(letter),), 0, kind)


_KINDS = words("even odd rational irrational prime composite")


def piecewise(items: list[Node]) -> Node | None:
    """Return values that each hold under a condition (`x if x > 0, -x otherwise`) as cases, with
    the name that they all have, or that the first alone has; None for other items.
    """
    if len(items) < 2 or not all(map(_is_branch, items)):
        return None
    values = [item.args[0] for item in items]
    named = [value for value in values if value.op == "rel"]
    if named and (named[0] != values[0] or len({value.args[0] for value in named}) > 1):
        return None
    if any(value.note != "=" for value in named) or len(named) not in {0, 1, len(values)}:
        return None
    bare = (value.args[1] if value.op == "rel" else value for value in values)
    cells = (cell for pair in zip(bare, items, strict=True) for cell in (pair[0], pair[1].args[1]))
    cases = Node("cases", tuple(cells))
    return Node("rel", (named[0].args[0], cases), 0, "=") if named else cases


def _is_branch(item: Node) -> bool:
    """Return whether an item is a value under a condition on a variable, which is no parameter."""
    if item.op != "given":
        return False
    condition = item.args[1]
    ordered = condition.op == "rel" and bool(_ORDER & set(condition.note.split()))
    return ordered or condition == nodes.text("otherwise") or condition.note in _KINDS


_ORDER = frozenset({"<", "<=", ">", ">=", "=", "!="})
