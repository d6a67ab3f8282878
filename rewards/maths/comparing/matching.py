"""The match of two parsed answers: first by structure, then value by value.

Lists, tuples, sets of reals and definitions are taken apart here; single values go to
`quantities` and from there to the `Judge`, which proves formulas equal or different. The
functions share a file because they call each other in a circle: a collection holds values, and
a value may hold collections.
"""

from __future__ import annotations

from ..proving.judge import Judge
from ..reading.nodes import EXACT, SCALAR_OPS, Node, has, is_scalar, shape, symbols, text
from .cases import same_by_cases
from .constants import apart_by_a_constant, same_constants, same_free
from .definitions import aligned, assigned, is_one_name, true_chain
from .families import (
    aligned_family,
    as_given,
    generated,
    is_membership,
    residue_class,
    same_bound,
    same_kinds,
    same_line,
    same_parameter,
    shifted,
    without_membership,
)
from .matrices import in_components, same_bold, without_unit, worked_out
from .naming import (
    about_one_variable,
    branches,
    by_letter,
    is_claim,
    is_curve,
    is_unordered,
    may_agree,
    names_fit,
    one_residue_name,
    point,
    says_otherwise,
    spread,
)
from .products import in_order
from .quantities import MARKS, same_number, same_value
from .regions import both_regional, is_outside, is_regional, is_unsolved, same_region, to_region
from .relations import FLIPPED, same_relation
from .several import MAX_SIGNS, elements, is_plural, operands, signs
from .wording import same_text

MAX_ITEMS = 64
OTHERWISE = text("otherwise")
_SYMMETRIC = frozenset({"union", "inter", "land", "lor", "iff", "oplus", "·"})
_LINEAR = frozenset({"given", "list", "rel", "add", "bracket"})
"""Kinds of nodes that may be a line with a parameter."""
_VECTORS = frozenset({"add", "bracket", "matrix", "quantity"})
"""Kinds of nodes that may be a vector, with a unit or without."""
_BINDING = frozenset({"given", "list"})
"""Kinds of nodes that may put a parameter in a set."""
_SPLITTING = frozenset({"if", "when", "whenever", "otherwise", "unless"})
"""Words that introduce a condition which an answer may not leave out: without the condition the
value would be claimed for more cases.
"""


def matches(gold: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether two parsed answers say the same.

    Raises:
        NeedsPool: the cheap steps leave the question open.
    """
    if gold == answer:
        return judge.decided("identical", True)
    if gold.op in EXACT and answer.op in EXACT:
        return same_value(gold, answer, judge)
    # Pairs of plain formulas are by far the most common: settle them before any structure.
    first, second = shape(gold), shape(answer)
    if first.ops <= SCALAR_OPS and second.ops <= SCALAR_OPS:
        # Other letters make another answer, unless these are free constants, bold variants or the
        # parameter of a family.
        if first.names != second.names:
            if gold.note == f"set {answer.note}":
                return judge.decided("named set", gold.op == answer.op)
            answer = same_constants(gold, same_bold(first.names, answer))
            answer = same_parameter(gold, answer, judge.whole, judge.counts)
        if second.names and ("const" in second.ops or judge.counts):
            answer = shifted(gold, answer, judge.whole, judge.counts)
        gold, answer = in_order(gold, answer, first.names | second.names)
        sums = gold.op == answer.op == "add"
        apart = apart_by_a_constant(gold, answer, judge) if sums else None
        return same_number(gold, answer, judge) if apart is None else apart
    if "opaque" in (gold.op, answer.op):
        return judge.decided("opaque", False, "a side cannot be parsed, and the texts differ")
    if answer.op == "rel" and answer.note == "in" and gold.op in {"list", "set"}:
        member, members = answer.args
        if members.op == "set" and (member.op == "sym" or is_one_name(member)):
            answer = members  # `x in {-2, 2}`
    if "text" in (gold.op, answer.op):
        return same_text(gold, answer, judge)
    if {gold.op, answer.op} <= _LINEAR and same_line(gold, answer):
        return judge.decided("parametric line", True)
    if gold.op in _BINDING and answer.op in _BINDING | {"such", "rel", "bracket"}:
        answer = same_bound(gold, as_given(answer))
    if "given" in (gold.op, answer.op):
        return _under_conditions(gold, answer, judge)
    if not same_kinds(gold, answer):
        return judge.decided("condition", False, "the parameter belongs to another set")
    gold, answer = worked_out(without_membership(gold)), worked_out(without_membership(answer))
    if gold.op in _VECTORS and answer.op in _VECTORS and judge.conventions.missing_unit:
        gold, answer = without_unit(gold, answer)
    answer = same_parameter(gold, aligned(gold, answer), judge.whole, judge.counts)
    answer = same_free(gold, answer, judge.free)
    if is_plural(gold) or is_plural(answer):
        return _plural(gold, answer, judge)
    return _singular(gold, answer, judge)


def _item(gold: Node, answer: Node, judge: Judge) -> bool:
    """Compare two items of collections; a set inside a collection differs from a bare element."""
    if "set" in (gold.op, answer.op) and gold.op != answer.op:
        return judge.decided("set", False, "a set differs from its only element")
    return matches(gold, answer, judge)


def _as_written(gold: Node, answer: Node, judge: Judge) -> bool:
    """Compare two nodes of the same kind part by part.

    This is all that can be done for operators without a known meaning: the parts stay in order,
    unless the operator is symmetric.
    """
    kind = (gold.op, gold.note, gold.value)
    if kind != (answer.op, answer.note, answer.value) or not gold.args:
        return judge.decided("structure", False, f"a {answer.op} is not a {gold.op}")
    if gold.op in _SYMMETRIC or gold.note in _SYMMETRIC:
        return _unordered(operands(gold), operands(answer), judge)
    if len(gold.args) != len(answer.args):
        return judge.decided("structure", False, "the sides have different numbers of parts")
    return _in_order(list(gold.args), list(answer.args), judge)


# --- conditions ---


def _under_conditions(gold: Node, answer: Node, judge: Judge) -> bool:
    """Compare the values first and the conditions after.

    The set that a parameter belongs to may be left unsaid, but must not be stated differently.
    Any other condition in the answer must be in the gold too.
    """
    (first, gold_conditions), (second, answer_conditions) = _split(gold), _split(answer)
    if not same_kinds(gold, answer):
        return judge.decided("condition", False, "the parameter belongs to another set")
    if not matches(first, second, judge):
        return False
    if gold_conditions is not None and answer_conditions is not None:
        return matches(gold_conditions, answer_conditions, judge)
    if gold_conditions is None and answer_conditions is None:
        return True
    free = is_membership(answer_conditions) if answer_conditions else gold.note not in _SPLITTING
    return judge.decided("condition", free, "the value holds only under a condition")


def _split(node: Node) -> tuple[Node, Node | None]:
    return (node.args[0], node.args[1]) if node.op == "given" else (node, None)


# --- several values ---


def _plural(gold: Node, answer: Node, judge: Judge) -> bool:
    if generated(gold) or generated(answer):
        return _described(gold, answer, judge)
    if "list" in (gold.op, answer.op):
        gold, answer = spread(gold), spread(answer)
    if gold.op == "list" and answer.op == "set" and _of_unknowns(gold) and not has(answer, "rel"):
        # The solution of a system is one tuple: `{(3, 1)}`, and not `{3, 1}`.
        if len(answer.args) != 1 or answer.args[0].op != "bracket":
            return judge.decided("set", False, "the gold has a value for each of its names")
        answer = answer.args[0]
    if both_regional(gold, answer):
        return _same_regions(gold, answer, judge)
    if "such" in (gold.op, answer.op):
        return _described(gold, answer, judge)
    if signs(gold) > MAX_SIGNS or signs(answer) > MAX_SIGNS:
        return judge.decided("too many signs", False, f"more than {MAX_SIGNS} plus-minus signs")
    first, second = elements(gold), elements(answer)
    if gold.op == "bracket" and answer.op == "list" and not has(gold, "pm"):
        # Compare a gold tuple with a list of coordinates: `x = 3, y = -4` answers (3, -4).
        if answer.note == "or" or is_regional(gold) or is_unordered(answer):
            return judge.decided("structure", False, "the gold is a tuple")
        return _in_order(list(gold.args), by_letter(answer, judge), judge)
    bracketed = (answer.op, answer.note) == ("bracket", "[]") and len(answer.args) == len(first)
    listed = gold.op in {"list", "set"} and gold.note != "or"
    if listed and bracketed and len(first) > 2 and not any(item.op == "rel" for item in first):
        # A list of a program: `[1, 2, 4]`. Of two numbers it may be an interval.
        return _unordered(first, list(answer.args), judge)
    is_tuple = answer.op == "bracket" and answer.note == "()" and not has(answer, "pm")
    if gold.op == "list" and is_tuple:
        # Compare a gold list with a tuple: (1, 2) answers `x = 1, y = 2` and `1, 2`.
        if gold.note == "or" or is_regional(answer):
            return judge.decided("structure", False, "only one side is a tuple")
        return _in_order(by_letter(gold, judge), list(answer.args), judge)
    if len(first) > MAX_ITEMS or len(second) > MAX_ITEMS:
        return judge.decided("too many items", False, f"more than {MAX_ITEMS} items")
    same_names = _by_name(gold, answer, judge)
    if same_names is not None:
        return same_names
    if {gold.note, answer.note} == {"and", "or"} and not all(map(is_claim, first)):
        return judge.decided("and, or", False, "one side joins by 'and', the other by 'or'")
    if gold.op == "list" and len(first) != len(second) and len(set(first)) < len(first):
        return judge.decided("sequence", False, f"{len(second)} values, the gold has {len(first)}")
    return _unordered(first, second, judge)


def _of_unknowns(node: Node) -> bool:
    """Return whether a list gives values to different letters: `x = 3, y = 1`."""
    names = {item.args[0] for item in node.args if item.op == "rel" and item.note == "="}
    return len(names) == len(node.args) > 1 and all(
        name.op == "sym" and len(name.note) == 1 for name in names
    )


def _described(gold: Node, answer: Node, judge: Judge) -> bool:
    """Compare set-builders by the element that generates the set where possible, else part by
    part.
    """
    first, second = generated(gold), generated(answer)
    if first and second and len(first[1]) == len(second[1]):
        answer_list = Node("list", (second[0], *second[1]))
        answer_list = aligned_family(first[0], second[0], answer_list)
        return _in_order([first[0], *first[1]], list(answer_list.args), judge)
    plain = answer if gold.op == "such" else gold
    if (first or second) and plain.op in {"rel", "mod"}:
        gold_value, answer_value = (first[0] if first else gold), (second[0] if second else answer)
        return matches(gold_value, aligned_family(gold_value, answer_value, answer_value), judge)
    same = gold.op == answer.op
    return (same or judge.decided("structure", False, "only one side is a set-builder")) and (
        _in_order(list(gold.args), list(answer.args), judge)
    )


def _condition(node: Node, other: Node) -> Node:
    """Return the condition of `{x | ...}` where the other side is a bare condition, and the
    inequality for the real numbers without a family; any other node as it is.
    """
    if other.op == "rel" and node.op == "minus" and node.args[0].note == "set R":
        excluded = generated(node.args[1])
        return Node("rel", (other.args[0], excluded[0]), 0, "!=") if excluded else node
    plain = node.op == "such" and node.args[0].op == "sym" and other.op in {"rel", "list"}
    return node.args[1] if plain else node


def _in_order(first: list[Node], second: list[Node], judge: Judge) -> bool:
    if len(first) != len(second):
        return judge.decided("length", False, f"{len(second)} values, the gold has {len(first)}")
    return all(_item(a, b, judge) for a, b in zip(first, second, strict=True))


def _by_name(gold: Node, answer: Node, judge: Judge) -> bool | None:
    """Compare two lists of assignments, such as `a=2, b=3` and `b=3, a=2`; None where neither form
    applies.

    If both sides name every value, values with the same name are compared. If only the gold has
    names, the values are compared in order, unless the gold's names differ in an index only.
    """
    if gold.op != "list" or answer.op != "list":
        return None
    gold_assignments = [assigned(item, judge) for item in gold.args]
    if None in gold_assignments:
        return None
    first = {pair[0]: pair[1] for pair in gold_assignments if pair}
    answer_assignments = [assigned(item, judge) for item in answer.args]
    if len(first) != len(gold_assignments):
        return None
    if not any(answer_assignments) and len(set(map(_stem, first))) == len(first):
        return _in_order(list(first.values()), list(answer.args), judge)
    second = {pair[0]: pair[1] for pair in answer_assignments if pair}
    in_letters = all(name.op == "text" for name in first) and all(n.op == "sym" for n in second)
    if in_letters and len(first) == len(second) == len(answer.args) > 1:
        # Letters that say nothing of the words follow their order.
        return _in_order(list(first.values()), list(second.values()), judge)
    if first.keys() != second.keys() or len(second) != len(answer_assignments):
        return None
    if len(first) > 1 and (gold.note == "or") != (answer.note == "or"):
        return judge.decided("and, or", False, "'or' joins values of different names")
    return all(matches(first[name], second[name], judge) for name in first)


def _stem(name: Node) -> Node | str:
    """Return a name without the index that may only count: `x` of `x_1`."""
    return name if name.op in {"text", "call"} else name.note[:1]


def _unordered(first: list[Node], second: list[Node], judge: Judge) -> bool:
    if len(first) != len(second):
        first, second = _distinct(first, judge), _distinct(second, judge)
    if len(first) != len(second):
        return judge.decided("set", False, f"{len(second)} values, the gold has {len(first)}")
    if judge.conventions.ordered_sets or len(first) == 1:
        return _in_order(first, second, judge)
    # Each gold value takes the first answer value that agrees. Apart from rounding, agreement is
    # transitive, so that no better pairing is missed.
    unmatched = list(second)
    for gold_item in first:
        for place, candidate in enumerate(unmatched):
            if may_agree(gold_item, candidate) and _item(gold_item, candidate, judge):
                unmatched.pop(place)
                break
        else:
            return judge.decided("set", False, "a value of the gold is missing")
    return judge.decided("set", True)


def _distinct(items: list[Node], judge: Judge) -> list[Node]:
    distinct: list[Node] = []
    written = {(True, item.value) if item.op in EXACT else item: item for item in items}
    for item in written.values():
        if not any(may_agree(kept, item) and _item(kept, item, judge) for kept in distinct):
            distinct.append(item)
    return distinct


def _same_regions(gold: Node, answer: Node, judge: Judge) -> bool:
    mixed = "rel" in (gold.op, answer.op) and gold.op != answer.op
    if mixed and not judge.conventions.interval_as_inequality:
        return judge.decided("set of reals", False, "an interval is not an inequality")
    if gold.op == answer.op == "rel" and len(symbols(gold)) > 1:
        if len(gold.args) > 2:
            return _same_chain(gold, answer, judge)
        return same_relation(gold, answer, judge)
    if not about_one_variable(gold, answer):
        return judge.decided("set of reals", False, "the answer is about another variable")
    first, second = to_region(gold), to_region(answer)
    if first is None or second is None:
        if gold.op == answer.op == "rel":
            return same_relation(gold, answer, judge)
        plain = _condition(gold, answer), _condition(answer, gold)
        if plain != (gold, answer):
            return matches(without_membership(plain[0]), without_membership(plain[1]), judge)
        return _as_written(gold, answer, judge)
    if is_unsolved(answer) and not is_unsolved(gold):
        return judge.decided(
            "set of reals", False, "the answer is an inequality that is not solved"
        )
    return same_region(first, second, judge)


# --- one value ---


def _singular(gold: Node, answer: Node, judge: Judge) -> bool:
    if both_regional(gold, answer):
        return _same_regions(gold, answer, judge)
    if "mod" in (gold.op, answer.op) and residue_class(gold) and residue_class(answer):
        same_residue_name = one_residue_name(gold, answer)
        return same_residue_name and same_value(gold, answer, judge)
    if gold.op == "mod" and gold.args[0].op == "rel" and answer.op == "rel":
        return judge.decided(
            "congruence", False, "the answer is a value, and the gold a class of numbers"
        )
    if answer.op == "mod" and gold.op == "rel":
        return judge.decided(
            "congruence", False, "the answer is a class of numbers, and the gold a value"
        )
    if "rel" in (gold.op, answer.op):
        return _related(gold, answer, judge)
    if {gold.op, answer.op} == {"call", "bracket"}:
        gold, answer = (point(node) if node.op == "call" else node for node in (gold, answer))
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
        return _same_cases(branches(gold), branches(answer), judge)
    if "cases" in (gold.op, answer.op):
        formula, cases = (answer, gold) if gold.op == "cases" else (gold, answer)
        if (agrees := same_by_cases(formula, cases, judge)) is not None:
            return judge.decided("cases", agrees, "a case has another value")
    if is_scalar(gold) and is_scalar(answer):
        return same_value(gold, shifted(gold, answer, judge.whole, judge.counts), judge)
    return _as_written(gold, answer, judge)


def _same_cases(gold: list[Node], answer: list[Node], judge: Judge) -> bool:
    """Compare the branches of two piecewise functions. An `otherwise` of one side stands for the
    only condition of the other that no branch of its own has, if that holds wherever those fail.
    """
    for first, second in ((gold, answer), (answer, gold)):
        conditions = [branch.args[1] for branch in first]
        unmatched = [b for b in second if not any(matches(c, b.args[1], judge) for c in conditions)]
        if OTHERWISE not in conditions or len(unmatched) != 1:
            continue
        place, condition = conditions.index(OTHERWISE), unmatched[0].args[1]
        if is_outside(condition, [*conditions[:place], *conditions[place + 1 :]], judge):
            first[place] = first[place]._replace(args=(first[place].args[0], condition))
    return _unordered(gold, answer, judge)


def _rows_as_matrix(gold: Node, answer: Node, judge: Judge) -> bool:
    """Compare a matrix with brackets: `[[1,2],[3,4]]` is a matrix, a flat bracket a column or a
    row.
    """
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
    first, second = assigned(gold, judge), assigned(answer, judge)
    if first and second and matches(first[1], second[1], judge):
        return names_fit(first[0], second[0], judge)
    if first and second and not (is_curve(gold) and is_curve(answer)):
        return False
    named = first is not None and is_one_name(first[0])
    if answer.op == "rel" and first and named and not symbols(first[1]):
        return judge.decided("relation", False, "the answer is an equation that is not solved")
    if gold.op == answer.op == "rel":
        if len(gold.args) == 2 and all(map(is_scalar, (*gold.args, *answer.args))):
            return same_relation(gold, answer, judge)
        return _same_chain(gold, answer, judge)
    if not judge.conventions.bare_value:
        return judge.decided("bare value", False, "only one side names its value")
    if answer.op == "rel":
        if second and says_otherwise(second[0]):
            return judge.decided("named value", False, "words before the value change its meaning")
        value = second[1] if second else true_chain(answer, judge)
        if value is None:
            return judge.decided(
                "relation", False, "the answer is an equation or inequality, and the gold a value"
            )
        return matches(gold, value, judge)
    if first is None or not named:
        return judge.decided(
            "relation", False, "the answer is a value, and the gold an equation or inequality"
        )
    return matches(first[1], answer, judge)


def _same_chain(gold: Node, answer: Node, judge: Judge) -> bool:
    """Compare chains of relations, read from the left or from the right; `a = b = c` in any
    order.
    """
    signs, answer_signs = gold.note.split(), answer.note.split()
    turned = [FLIPPED.get(sign, "") for sign in reversed(signs)]
    if signs == answer_signs and set(signs) == {"="}:
        return _unordered(list(gold.args), list(answer.args), judge)
    if signs == answer_signs:
        return _in_order(list(gold.args), list(answer.args), judge)
    if turned == answer_signs:
        return _in_order(list(gold.args[::-1]), list(answer.args), judge)
    return judge.decided("relation", False, "the relations are of different kinds")
