"""Does an answer match a gold? Structure first: lists, tuples, sets of reals, definitions; then
single values.
"""

from __future__ import annotations

from ..proving.judge import EXACT, Judge
from ..reading.nodes import SCALAR_OPS, Node, has, is_scalar, shape, symbols, walk
from .definitions import aligned, assigned, true_chain
from .families import (
    aligned_family,
    generated,
    is_membership,
    residue_class,
    same_parameter,
    without_membership,
)
from .matrices import in_components, worked_out
from .quantities import MARKS, same_number, same_value
from .regions import is_regional, same_region, to_region
from .relations import same_relation
from .several import MAX_SIGNS, elements, signs
from .wording import same_text

MAX_ITEMS = 64
_AXES = frozenset({"x", "y", "z"})
"""Names that are never a matter of taste: `x = -3` is another line than `y = -3`."""
_COMPOUND = frozenset({"add", "mul", "pow"})


def matches(gold: Node, answer: Node, judge: Judge) -> bool:
    """Whether `answer` says what `gold` says.

    Raises:
        NeedsPool: deciding it takes more than cheap means.
    """
    if gold == answer:
        return judge.decided("identical", True)
    if gold.op in EXACT and answer.op in EXACT:
        return same_value(gold, answer, judge)
    first, second = shape(gold), shape(answer)
    if first.ops <= SCALAR_OPS and second.ops <= SCALAR_OPS:
        if first.names != second.names:
            if gold.note == f"set {answer.note}":
                return judge.decided("named set", gold.op == answer.op)
            answer = same_parameter(gold, answer)
        return same_number(gold, answer, judge)
    if "text" in (gold.op, answer.op):
        return same_text(gold, answer, judge)
    if "given" in (gold.op, answer.op):
        return _under_conditions(gold, answer, judge)
    gold, answer = worked_out(without_membership(gold)), worked_out(without_membership(answer))
    answer = same_parameter(gold, aligned(gold, answer))
    if _is_plural(gold) or _is_plural(answer):
        return _plural(gold, answer, judge)
    return _singular(gold, answer, judge)


# --- conditions ---


def _under_conditions(gold: Node, answer: Node, judge: Judge) -> bool:
    """A condition that only names a set of numbers (`for all x in R`) says nothing new; others
    must agree.
    """
    first, first_condition = _split(gold)
    second, second_condition = _split(answer)
    if not matches(first, second, judge):
        return False
    if first_condition is None or second_condition is None:
        extra = first_condition or second_condition
        return extra is None or judge.decided(
            "condition", gold.op == "given", "it holds only under a condition"
        )
    return matches(first_condition, second_condition, judge)


def _split(node: Node) -> tuple[Node, Node | None]:
    if node.op != "given":
        return node, None
    inner, condition = node.args
    return inner, None if is_membership(condition) else condition


# --- several values ---


def _is_plural(node: Node) -> bool:
    if node.op in {"set", "list", "such"}:
        return True
    return has(node, "pm")


def _plural(gold: Node, answer: Node, judge: Judge) -> bool:
    if generated(gold) or generated(answer):
        return _described(gold, answer, judge)
    if _both_regions(gold, answer):
        return _same_regions(gold, answer, judge)
    if "such" in (gold.op, answer.op):
        return _described(gold, answer, judge)
    if signs(gold) > MAX_SIGNS or signs(answer) > MAX_SIGNS:
        return judge.decided("too many signs", False, f"more than {MAX_SIGNS} plus-minus signs")
    first, second = elements(gold), elements(answer)
    if gold.op == "bracket" and answer.op == "list":
        return _tuple_as_list(gold, answer, judge)
    if gold.op == "list" and gold.note == "," and answer.op == "bracket" and answer.note == "()":
        return _in_order(list(gold.args), list(answer.args), judge)
    if len(first) > MAX_ITEMS or len(second) > MAX_ITEMS:
        return judge.decided("too many items", False, f"more than {MAX_ITEMS} items")
    named = _by_name(gold, answer, judge)
    if named is not None:
        return named
    if gold.op == "list" and len(first) > len(second) and len(set(first)) < len(first):
        return judge.decided("sequence", False, f"{len(second)} values, the gold has {len(first)}")
    return _unordered(first, second, judge)


def _described(gold: Node, answer: Node, judge: Judge) -> bool:
    """Set-builders: by what generates them, else part by part."""
    first, second = generated(gold), generated(answer)
    if first and second and len(first[1]) == len(second[1]):
        named = Node("list", (second[0], *second[1]))
        named = aligned_family(first[0], second[0], named)
        return _in_order([first[0], *first[1]], list(named.args), judge)
    plain = answer if gold.op == "such" else gold
    if (first or second) and plain.op == "rel":
        mine, theirs = (first[0] if first else gold), (second[0] if second else answer)
        return matches(mine, aligned_family(mine, theirs, theirs), judge)
    same = gold.op == answer.op
    return (same or judge.decided("structure", False, "only one side is a set-builder")) and (
        _in_order(list(gold.args), list(answer.args), judge)
    )


def _tuple_as_list(gold: Node, answer: Node, judge: Judge) -> bool:
    """A point given by its coordinates: `x = 3, y = -4` for (3, -4)."""
    if answer.note == "or" or is_regional(gold):
        return judge.decided("structure", False, "a tuple is wanted")
    items = list(answer.args)
    pairs = [assigned(item, judge) for item in items]
    if all(pair is not None for pair in pairs):
        items = [
            pair[1]
            for pair in sorted((pair for pair in pairs if pair), key=lambda pair: pair[0].note)
        ]
    return _in_order(list(gold.args), items, judge)


def _in_order(first: list[Node], second: list[Node], judge: Judge) -> bool:
    if len(first) != len(second):
        return judge.decided("length", False, f"{len(second)} values, the gold has {len(first)}")
    return all(matches(a, b, judge) for a, b in zip(first, second, strict=True))


def _by_name(gold: Node, answer: Node, judge: Judge) -> bool | None:
    """`a=2, b=3` against `b=3, a=2`: by name, when both sides name every value."""
    if gold.op != "list" or answer.op != "list":
        return None
    mine = [assigned(item, judge) for item in gold.args]
    theirs = [assigned(item, judge) for item in answer.args]
    if None in mine or None in theirs:
        return None
    first = {pair[0]: pair[1] for pair in mine if pair}
    second = {pair[0]: pair[1] for pair in theirs if pair}
    if first.keys() != second.keys() or len(first) != len(mine) or len(second) != len(theirs):
        return None
    return all(matches(first[name], second[name], judge) for name in first)


def _unordered(first: list[Node], second: list[Node], judge: Judge) -> bool:
    if len(first) != len(second):
        first, second = _distinct(first, judge), _distinct(second, judge)
    if len(first) != len(second):
        return judge.decided("set", False, f"{len(second)} values, the gold has {len(first)}")
    if judge.conventions.ordered_sets or len(first) == 1:
        return _in_order(first, second, judge)
    left = list(second)
    for wanted in first:
        found = next(
            (
                i
                for i, given in enumerate(left)
                if _may_agree(wanted, given) and matches(wanted, given, judge)
            ),
            None,
        )
        if found is None:
            return judge.decided("set", False, "a value of the gold is missing")
        left.pop(found)
    return judge.decided("set", True)


def _distinct(items: list[Node], judge: Judge) -> list[Node]:
    kept: list[Node] = []
    for item in {
        (item.op in EXACT, item.value) if item.op in EXACT else item: item for item in items
    }.values():
        if not any(_may_agree(other, item) and matches(other, item, judge) for other in kept):
            kept.append(item)
    return kept


def _may_agree(first: Node, second: Node) -> bool:
    """Not two different exact numbers, which is most of a long list."""
    return first.op not in EXACT or second.op not in EXACT or first.value == second.value


# --- sets of reals ---


def _both_regions(gold: Node, answer: Node) -> bool:
    if not (is_regional(gold) or is_regional(answer)):
        return False
    return all(
        is_regional(node) or node.op in {"bracket", "set", "list"} for node in (gold, answer)
    )


def _same_regions(gold: Node, answer: Node, judge: Judge) -> bool:
    if (
        not judge.conventions.interval_as_inequality
        and ("rel" in (gold.op, answer.op))
        and gold.op != answer.op
    ):
        return judge.decided("set of reals", False, "an interval is not an inequality")
    if gold.op == answer.op == "rel" and len(symbols(gold)) > 1:
        return same_relation(gold, answer, judge)
    first, second = to_region(gold), to_region(answer)
    if first is None or second is None:
        if gold.op == answer.op == "rel":
            return same_relation(gold, answer, judge)
        if gold.op == answer.op and len(gold.args) == len(answer.args):
            return _unordered(list(gold.args), list(answer.args), judge)
        return judge.decided("set of reals", False, "the sets could not be compared")
    return same_region(first, second, judge)


# --- one value ---


def _singular(gold: Node, answer: Node, judge: Judge) -> bool:
    if _both_regions(gold, answer):
        return _same_regions(gold, answer, judge)
    if "mod" in (gold.op, answer.op) and residue_class(gold) and residue_class(answer):
        return same_value(gold, answer, judge)
    if "rel" in (gold.op, answer.op):
        return _related(gold, answer, judge)
    if gold.op in MARKS or answer.op in MARKS:
        return same_value(gold, answer, judge)
    if gold.op == answer.op == "bracket":
        same = gold.note == answer.note or not judge.conventions.brackets
        return (
            same or judge.decided("brackets", False, f"{answer.note} is not {gold.note}")
        ) and _in_order(list(gold.args), list(answer.args), judge)
    if gold.op == answer.op == "matrix":
        same = gold.value == answer.value and gold.note == answer.note
        return (
            same or judge.decided("matrix", False, "the matrices have different shapes")
        ) and _in_order(list(gold.args), list(answer.args), judge)
    if "matrix" in (gold.op, answer.op) and "bracket" in (gold.op, answer.op):
        return _rows_as_matrix(gold, answer, judge)
    if "matrix" in (gold.op, answer.op) or "bracket" in (gold.op, answer.op):
        components = in_components(gold, answer), in_components(answer, gold)
        if components != (gold, answer):
            return matches(*components, judge)
    if gold.op == answer.op == "cases":
        return _unordered(_branches(gold), _branches(answer), judge)
    if is_scalar(gold) and is_scalar(answer):
        return same_value(gold, answer, judge)
    return judge.decided("structure", False, f"a {answer.op} is not a {gold.op}")


def _branches(node: Node) -> list[Node]:
    return [
        Node("bracket", (value, condition), 0, "()")
        for value, condition in zip(node.args[::2], node.args[1::2], strict=True)
    ]


def _rows_as_matrix(gold: Node, answer: Node, judge: Judge) -> bool:
    """`[[1,2],[3,4]]` is a matrix; a flat bracket is a column or a row."""
    matrix, bracket = (gold, answer) if gold.op == "matrix" else (answer, gold)
    rows = bracket.args
    if all(row.op == "bracket" for row in rows):
        cells = [cell for row in rows for cell in row.args]
        shaped = len({len(row.args) for row in rows}) == 1 and len(rows[0].args) == matrix.value
    else:
        cells, shaped = list(rows), matrix.value == 1 or matrix.value == len(matrix.args)
    if not shaped:
        return judge.decided("matrix", False, "the shapes differ")
    pair = (list(matrix.args), cells) if matrix is gold else (cells, list(matrix.args))
    return _in_order(*pair, judge)


def _related(gold: Node, answer: Node, judge: Judge) -> bool:
    mine, theirs = assigned(gold, judge), assigned(answer, judge)
    if mine and theirs:
        if matches(mine[1], theirs[1], judge):
            return _names_fit(mine[0], theirs[0], theirs[1], judge)
        return (
            same_relation(gold, answer, judge) if _is_curve(gold) and _is_curve(answer) else False
        )
    if gold.op == answer.op == "rel":
        return same_relation(gold, answer, judge)
    if not judge.conventions.bare_value:
        return judge.decided("bare value", False, "only one side names its value")
    if answer.op == "rel":
        value = theirs[1] if theirs else true_chain(answer, judge)
        if value is None:
            return judge.decided(
                "relation", False, "an equation or inequality where a value is wanted"
            )
        return matches(gold, value, judge)
    if mine is None or _is_equation_side(mine[0]):
        return judge.decided("relation", False, "a value where an equation or inequality is wanted")
    return matches(mine[1], answer, judge)


def _is_equation_side(name: Node) -> bool:
    """`x^2 + y^2` names nothing: with it on the left, a curve is wanted and not a value."""
    return name.op == "add" and any(
        part.op == "pow" and part.args[1].op == "num" and part.args[1].value > 1
        for part in walk(name)
    )


def _names_fit(mine: Node, theirs: Node, value: Node, judge: Judge) -> bool:
    """`y = f(x)` is not `x = f(y)`; other names of the same value are a matter of taste."""
    if mine != theirs and {mine.op, theirs.op} <= _COMPOUND:
        return judge.equal(mine, theirs)
    axes = mine != theirs and {mine.note, theirs.note} <= _AXES
    swapped = mine != theirs and mine.op == theirs.op == "sym" and mine in walk(value)
    return judge.decided("named value", not (swapped or axes), "it is about another variable")


def _is_curve(node: Node) -> bool:
    return node.op == "rel" and len(node.args) == 2 and all(is_scalar(side) for side in node.args)
