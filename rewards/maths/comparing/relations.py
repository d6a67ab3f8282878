"""Equations, inequalities and definitions compared with each other."""

from __future__ import annotations

from ..proving.canonical import difference
from ..proving.judge import Judge, NeedsPool
from ..proving.sums import Sum
from ..reading.nodes import Node, TooBig, add, is_scalar, neg, rename, symbols, walk

_EQUALS = frozenset({"=", "~=", "->"})
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONSTANT_NAMES = frozenset("CcKk")


def is_name(node: Node) -> bool:
    """Whether `node` only names a thing: `x`, `f(x)`, `S_n`, `AB`, `a+b`, `(x, y)`; never `x+2`
    or `2x`.
    """
    if node.op in {"sym", "call", "text"}:
        return True
    if node.op in {"bracket", "ratio", "list"}:
        return all(is_name(item) for item in node.args)
    if node.op == "func":
        return all(is_name(item) for item in node.args)
    if node.op == "such" or not is_scalar(node):
        return False
    if any(
        part.op in {"dec", "const"} or (part.op == "num" and part.value not in {-1, 2, 3})
        for part in walk(node)
    ):
        return False
    return len(symbols(node)) >= 2 and not any(
        part.op == "add" and any(term.op == "num" for term in part.args) for part in walk(node)
    )


def assigned(node: Node, judge: Judge) -> tuple[Node, Node] | None:
    """(name, value) of `x = 3`, also of a chain `x = 2 + 1 = 3` whose steps are true; None for
    anything else.
    """
    if node.op != "rel" or set(node.note.split()) - _EQUALS:
        return None
    *heads, value = exact_sides(node)
    if not heads or not is_name(heads[0]):
        return None
    for head in heads[1:]:
        if not is_name(head) and not (
            is_scalar(head) and is_scalar(value) and judge.equal(head, value)
        ):
            return None
    return heads[0], value


def exact_sides(node: Node) -> list[Node]:
    """The sides up to an approximation of a value: `x = 5/9 ~= 0.556` claims 5/9."""
    kept = [node.args[0]]
    for sign, side in zip(node.note.split(), node.args[1:], strict=True):
        if sign == "~=" and not is_name(kept[-1]):
            break
        kept.append(side)
    return kept


def true_chain(node: Node, judge: Judge) -> Node | None:
    """The last side of `2 + 3 = 5`, if every step is true and none is a bare name."""
    if (
        node.op != "rel"
        or set(node.note.split()) - _EQUALS
        or not all(is_scalar(side) for side in node.args)
    ):
        return None
    *heads, value = exact_sides(node)
    return value if all(judge.equal(head, value) for head in heads) else None


def aligned(gold: Node, answer: Node) -> Node:
    """`answer` with the parameters of its function definition renamed to the gold's: f(z)=z is
    f(x)=x.
    """
    if gold.op == "rel" and answer.op == "rel" and gold.args[0].op == answer.args[0].op == "call":
        mine, theirs = answer.args[0].args, gold.args[0].args
        if len(mine) == len(theirs) and all(part.op == "sym" for part in mine + theirs):
            return rename(answer, {a.note: b.note for a, b in zip(mine, theirs, strict=True)})
    return answer


_WHOLE_NUMBER_NAMES = frozenset("knmljtpqrs")


def same_parameter(gold: Node, answer: Node) -> Node:
    """`answer` with its whole-number parameter renamed: pi/6 + n pi is pi/6 + k pi. Only in
    families with pi. The constant of an integral may have any of its usual names.
    """
    mine, theirs = symbols(answer) - symbols(gold), symbols(gold) - symbols(answer)
    if len(mine) == len(theirs) == 1 and mine | theirs <= _WHOLE_NUMBER_NAMES:
        periodic = all(
            any(part.op == "const" and part.note == "pi" for part in walk(node))
            for node in (gold, answer)
        )
        if periodic:
            return rename(answer, {mine.pop(): theirs.pop()})
    if (
        len(mine) == len(theirs) == 1
        and mine <= _added_constants(answer)
        and theirs <= _added_constants(gold)
    ):
        return rename(answer, {mine.pop(): theirs.pop()})
    return answer


def _added_constants(node: Node) -> set[str]:
    """Names like the constant of an integral, added at the top: x^2 + C."""
    if node.op != "add":
        return set()
    return {term.note for term in node.args if term.op == "sym" and term.note in _CONSTANT_NAMES}


def same_relation(gold: Node, answer: Node, judge: Judge) -> bool:
    """Whether two equations or inequalities say the same: their differences are proportional
    (sign kept for <).
    """
    first, second = _oriented(gold), _oriented(answer)
    if first is None or second is None or first[0] != second[0]:
        return judge.decided("relation", False, "they are not relations of one kind")
    if first[0] in {"=", "!="} and gold.args == answer.args[::-1]:
        return judge.decided("relation", True)
    try:
        ratio = _ratio(
            difference(*first[1], judge.products), difference(*second[1], judge.products)
        )
    except TooBig as error:
        if judge.deep is None:
            raise NeedsPool from error
        ratio = None
    except (ZeroDivisionError, OverflowError):
        ratio = None
    if ratio is not None and (ratio > 0 or first[0] in {"=", "!="}):
        return judge.decided("relation", True)
    if judge.deep is not None:
        same = judge.equal(_minus(first[1]), _minus(second[1]))
        return judge.decided("relation", same, "the equations are not multiples of each other")
    if len(gold.args) == 2 and _might_agree(first[1], second[1]):
        raise NeedsPool
    return judge.decided("relation", False, "the equations are not multiples of each other")


def _minus(sides: tuple[Node, Node]) -> Node:
    return add(sides[0], neg(sides[1]))


def _might_agree(first: tuple[Node, Node], second: tuple[Node, Node]) -> bool:
    """Only worth the pool if something in them is not a polynomial."""
    nodes = [*walk(first[0]), *walk(first[1]), *walk(second[0]), *walk(second[1])]
    return any(part.op == "func" for part in nodes)


def _oriented(node: Node) -> tuple[str, tuple[Node, Node]] | None:
    """(sign, sides) with > and >= turned round."""
    if node.op != "rel" or len(node.args) != 2 or not all(is_scalar(side) for side in node.args):
        return None
    sign, (left, right) = node.note.replace("~=", "="), node.args
    if sign in {">", ">="}:
        sign, left, right = _FLIPPED[sign], right, left
    return sign, (left, right)


def _ratio(first: Sum, second: Sum) -> float | None:
    """The constant between two sums, or None."""
    if not first or not second or first.keys() != second.keys():
        return None
    ratios = {first[key] / second[key] for key in first}
    return float(ratios.pop()) if len(ratios) == 1 else None
