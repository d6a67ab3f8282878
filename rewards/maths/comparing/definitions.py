"""Equations that assign a value: the name and the value of `x = 2 + 1 = 3`, provided all steps are
true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..proving.judge import Judge
from ..proving.probe import approximate
from ..reading.nodes import EXACT, Node, has, is_scalar, mul, rename, symbols, text, walk
from ..reading.vocabulary import UNIT_LETTERS
from .matrices import in_components, worked_out
from .quantities import MARKS, same_value

TASKS = ("series", "sum", "prod", "int", "lim", "derivative", "det", "gcd", "lcm")
"""Prefixes of functions whose value a task asks for."""
_EQUALS = frozenset({"=", "~=", "mapsto"})


def _plain_name(node: Node, named: Callable[[Node], bool]) -> bool | None:
    """Return whether a letter, a call, a task or a collection names something, where its parts
    satisfy `named`; None for another node.
    """
    if node.op in {"sym", "call", "text"} or (node.op == "func" and node.note.startswith(TASKS)):
        return True
    if node.op in {"bracket", "ratio", "list", "func"}:
        return all(map(named, node.args))
    if node.op == "pow" and node.args[0].note in {"sigma", "chi"}:
        return True
    return None


def is_one_name(node: Node) -> bool:
    r"""Return whether `node` is one unknown: `x`, `f(2)`, `AB`, `\sin A`, `(x, y)` or words.

    Only such a left side lets the right side of a gold be answered alone: `x = 5` accepts 5,
    while `x + y = 5` and `2x = 10` do not.
    """
    plain = _plain_name(node, is_one_name)
    if plain is not None:
        return plain
    if node.op == "pow" and node.args[1].op == "num" and node.args[1].value == -1:
        return is_one_name(node.args[0]) and (
            node.args[0].op == "mul" or node.args[0].note.isupper()  # `A^{-1}`
        )
    return node.op == "mul" and all(
        (part.op == "sym" and part.note.isupper() and len(part.note) == 1)
        or (part.op in {"pow", "mul"} and is_one_name(part))
        for part in node.args
    )


def is_name(node: Node) -> bool:
    """Return whether `node` only names something: `x`, `f(1) + f(2)`, `S_n`, `AB`, `a+b`, `(x, y)`
    or `sin^2 A`; never `x+2` or `2x`.
    """
    plain = _plain_name(node, is_name)
    if plain is not None:
        return plain
    if node.op == "pow" and node.args[0].op == "sym" and is_one_name(node):
        return True
    if node.op in _SET_OPERATIONS:
        return all(part.op == "sym" for part in node.args)
    parts = list(_parts(node))
    if any(part.op not in _NAMING or (part.op == "num" and part.value not in {-1, 2, 3})
           for part in parts):  # fmt: skip
        return False
    names = {part for part in parts if part.op in {"sym", "call"}}
    return len(names) >= 2 and not any(
        part.op == "add" and any(term.op == "num" for term in part.args) for part in parts
    )


_SET_OPERATIONS = frozenset({"union", "inter", "minus"})
_NAMING = frozenset({"sym", "call", "num", "add", "mul", "pow", "func"})


def _parts(node: Node) -> Iterator[Node]:
    """Yield `node` and every node below, without entering function calls."""
    yield node
    if node.op != "call":
        for arg in node.args:
            yield from _parts(arg)


def assigned(node: Node, judge: Judge) -> tuple[Node, Node] | None:
    """Return (name, value) of `x = 3` or of a true chain `x = 2 + 1 = 3`, None for anything
    else.
    """
    if node.op != "rel" or set(node.note.split()) - _EQUALS:
        return None
    if node.note == "mapsto":
        return text("a map"), node.args[1]
    *heads, value = exact_sides(node)
    if len(heads) == 1 and value.op == "sym" and not is_name(heads[0]):
        return value, heads[0]
    if not heads or not is_name(heads[0]):
        return None
    if len(heads) > 1 and value.op == "sym":
        return None
    # A side with letters cannot be refuted by a number: `E = m v^2 / 2 = 10 J`.
    true = all(
        is_name(head)
        or (bool(symbols(head)) and is_scalar(head) and value.op in MARKS)
        # `T = 2 pi / omega = 2 pi sqrt(m/k)`: a side with a letter of its own.
        or (bool(symbols(value)) and is_scalar(head) and not symbols(head) <= symbols(value))
        or _same_side(head, value, judge)
        or (value.op == "quantity" and _same_side(head, value.args[0], judge))
        for head in heads[1:]
    )
    return (heads[0], value) if true else None


def exact_sides(node: Node) -> list[Node]:
    """Return the sides of a chain that count when some are approximations.

    `x = 5/9 ~= 0.556` claims 5/9, but `24.3 ~= 24` claims 24. A whole number needs no
    approximation: `8 ~= 7` is a false equation.
    """
    sides = [node.args[0]]
    for sign, side in zip(node.note.split(), node.args[1:], strict=True):
        exact = sides[-1]
        if (
            sign != "~="
            or is_name(exact)
            or (exact.op == "num" and exact.value.denominator == 1)
            or not _may_round(exact, side)
        ):
            sides.append(side)
        elif exact.op == "dec" and side.op == "num" and -1 <= 2 * (exact.value - side.value) <= 1:
            sides[-1] = side
        else:
            break
    *before, last = sides
    is_measured = len(before) > 1 and _measured(last) is not last and not symbols(before[-1])
    if not is_measured and not any(side.op == "quantity" for side in sides):
        return sides
    # The letter of a unit reads as a name: `F = 2 kg · 3 m/s^2 = 6 N`, `5000 m = 5 km`.
    measured = [_measured(side) for side in sides]
    return [
        quantity if side is last or (quantity.args and quantity.args[0].op in EXACT) else side
        for side, quantity in zip(sides, measured, strict=True)
    ]


def _measured(side: Node) -> Node:
    """Return a product that ends in the letters of units as a quantity, or the side."""
    factors, units = list(side.args) if side.op == "mul" else [], list[str]()
    while len(factors) > 1 and (unit := _unit(factors[-1])):
        units.insert(0, unit)
        factors.pop()
    return Node("quantity", (mul(*factors),), 0, "*".join(units)) if units else side


def _unit(factor: Node) -> str:
    """Return the unit that a factor reads as (`s^-1`), or ""."""
    base, power = factor.args if factor.op == "pow" else (factor, None)
    if base.note not in UNIT_LETTERS or (power is not None and power.op != "num"):
        return ""
    return base.note if power is None else f"{base.note}^{power.value}"


_ROUGHLY = 5.0
"""The factor by which an approximation may be off; beyond this factor the rounded side is another
number.
"""


def _may_round(exact: Node, rounded: Node) -> bool:
    """Return whether `rounded` is a number near the value of `exact`, and so may approximate that
    value.
    """
    inner = [side.args[0] if side.op in MARKS and side.args else side for side in (exact, rounded)]
    first, second = (approximate(side) if is_scalar(side) else None for side in inner)
    if first is None or second is None:
        return False
    scale = 100.0 ** ((exact.op == "percent") - (rounded.op == "percent"))
    return any(
        first * value >= 0 and abs(first) <= _ROUGHLY * abs(value) <= _ROUGHLY**2 * abs(first)
        for value in (second, scale * second)
    )


def true_chain(node: Node, judge: Judge) -> Node | None:
    """Return the last side of `2 + 3 = 5` if every step is true and no side is a bare name, else
    None.
    """
    if node.op != "rel" or set(node.note.split()) - _EQUALS:
        return None
    *heads, value = exact_sides(node)
    if symbols(value):
        return value if all(_same_side(head, value, judge) for head in heads) else None
    # A side with letters cannot be refuted. One such side and a value are an equation to solve; in
    # a longer chain, and beside a matrix or a probability, the value is its result.
    numeric = [head for head in heads if not symbols(head) and not has(head, "given", "call")]
    result = len(heads) != 1 or _is_result(heads[0]) or _same_side(heads[0], value, judge)
    if len(numeric) < len(heads) and not result:
        return None
    # What is no number and no matrix as it stands (a product with a matrix) cannot be refuted.
    numeric = [head for head in numeric if is_scalar(head) or head.op in {value.op, *MARKS}]
    return value if all(_same_side(head, value, judge) for head in numeric) else None


def _is_result(head: Node) -> bool:
    """Return whether `head = value` names or works out a value, and is no equation to solve."""
    named = head.op == "given" and head.args[0].op == "sym"
    called = head.op == "mul" and len(head.args) == 2 and head.args[0].note.isupper()
    matrix = any(part.op == "matrix" for part in walk(head))
    return named or (called and head.args[1].op == "num") or matrix


def _unmarked(node: Node) -> Node:
    """Return a side without its degree and currency signs, for arithmetic between such values."""
    if node.op == "degree" or (node.op == "quantity" and node.args):
        return _unmarked(node.args[0])
    return node._replace(args=tuple(map(_unmarked, node.args))) if node.args else node


def _same_side(head: Node, value: Node, judge: Judge) -> bool:
    if head.op not in MARKS and not is_scalar(head):
        head, value = _unmarked(head), _unmarked(value)
    sides = (value, head) if value.op == "based" else (head, value)  # `45 = 101101_2`
    head, value = worked_out(head), worked_out(value)
    head, value = in_components(head, value), in_components(value, head)
    if head.op == value.op in {"matrix", "bracket"} and len(head.args) == len(value.args):
        return (head.note, head.value) == (value.note, value.value) and all(
            _same_side(*items, judge) for items in zip(head.args, value.args, strict=True)
        )
    if not all(is_scalar(side) or side.op in MARKS for side in sides):
        return False
    return same_value(*sides, judge) if MARKS & {head.op, value.op} else judge.equal(*sides)


def aligned(gold: Node, answer: Node) -> Node:
    """Rename the parameters of a function definition in `answer` to those of the gold: f(z)=z
    matches f(x)=x.
    """
    if gold.op == "rel" and answer.op == "rel" and gold.args[0].op == answer.args[0].op == "call":
        answer_arguments, gold_arguments = answer.args[0].args, gold.args[0].args
        plain = all(part.op == "sym" for part in answer_arguments + gold_arguments)
        if plain and len(answer_arguments) == len(gold_arguments):
            pairs = zip(answer_arguments, gold_arguments, strict=True)
            return rename(answer, {a.note: b.note for a, b in pairs})
    return answer
