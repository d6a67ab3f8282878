"""Families of values with a parameter: `pi/6 + 2k pi`, `{2k | k in Z}`, `11k + 4`.

A letter is a parameter where the gold puts it in the whole numbers (`k in Z`); `question.family`
does so for a gold that leaves the set unsaid. A condition that only states the parameter's set
adds no information.
"""

from __future__ import annotations

import itertools

from ..proving.canonical import difference
from ..proving.probe import approximate
from ..proving.sums import ONE
from ..reading.nodes import (
    Node,
    TooBig,
    add,
    has,
    is_scalar,
    neg,
    num,
    rename,
    replaced,
    sym,
    symbols,
    walk,
)

WHOLE_NUMBER_NAMES = frozenset("knmljtpqrs")
_INDICES = frozenset("knmjl")
_CONSTANT_NAMES = frozenset("CcKk")
_LINES = frozenset({"t", "s", "r", "u", "k", "lambda", "mu"})
_LINE_PRODUCTS = 40


def is_membership(condition: Node) -> bool:
    """Return whether a condition only states sets for the variables (`k in Z`, `real x`, `for all
    x`), and so excludes nothing.
    """
    if condition.op in {"sym", "list"}:
        return all(part.op in {"sym", "list"} for part in (condition, *condition.args))
    member = condition.op == "rel" and condition.note == "in" and condition.args[1].op == "sym"
    return member and condition.args[1].note.startswith("set ")


def same_kinds(first: Node, second: Node) -> bool:
    """Return whether both nodes put their parameters in the same sets; a node that names no set
    agrees with any.
    """
    first_kinds, second_kinds = _kinds(first), _kinds(second)
    if first_kinds == {"set Q"} and second_kinds == {_UNSAID}:
        return True
    return not first_kinds or not second_kinds or _real(first_kinds) == _real(second_kinds)


_UNSAID = "set K"
"""The set of a constant that words declare: the real numbers, unless the gold has others."""


def _real(kinds: set[str]) -> set[str]:
    return {"set R" if kind == _UNSAID else kind for kind in kinds}


def _kinds(node: Node) -> set[str]:
    if node.op == "given":
        return _kinds(node.args[0]) | _kinds(node.args[1])
    items = node.args if node.op == "list" else (node,)
    return {item.args[1].note for item in items if item.op == "rel" and is_membership(item)}


def without_membership(node: Node) -> Node:
    """Return a list such as `k pi, k in Z` without the items that only state a parameter's set."""
    if node.op != "list":
        return node
    memberships = [item for item in node.args if item.op == "rel" and is_membership(item)]
    other_names = {name for item in node.args if item not in memberships for name in symbols(item)}
    conditions = tuple(
        item for item in node.args if item not in memberships or not symbols(item) & other_names
    )
    if len(conditions) == len(node.args) or not conditions:
        return node
    return conditions[0] if len(conditions) == 1 else node._replace(args=conditions)


def whole_numbers(gold: Node) -> frozenset[str]:
    """Return the letters that a gold puts in the whole numbers, as in `k pi, k in Z`."""
    letters: set[str] = set()
    for part in walk(gold):
        if part.op == "rel" and part.note == "in" and part.args[1].note == "set Z":
            letters |= symbols(part.args[0])
    return WHOLE_NUMBER_NAMES & letters


def counting(gold: Node) -> frozenset[str]:
    """Return the whole-number letters that only count the values of a gold `x = 5k + 3`. In a
    tuple, in a list, or as the argument of a function they say which values belong together, and a
    bare value may have the letter of the question.
    """
    node = without_membership(gold)
    if node.op != "rel" or len(node.args) != 2 or not is_scalar(node.args[1]):
        return frozenset()
    return whole_numbers(gold) - symbols(node.args[0])


def real_numbers(gold: Node) -> frozenset[str]:
    """Return the letters of an equation that a gold puts in the real numbers: `y = c x, c in R`."""
    equations = [part for part in gold.args if part.op == "rel" and part.note == "="]
    if gold.op != "list" or len(equations) != 1:
        return frozenset()
    stated = [part for part in gold.args if part.op == "rel" and part.note == "in"]
    letters = {part.args[0].note for part in stated if part.args[1].note.startswith("set ")}
    return frozenset(letters & symbols(equations[0].args[1]) - symbols(equations[0].args[0]))


def same_parameter(gold: Node, answer: Node, whole: frozenset[str], counts: frozenset[str]) -> Node:
    """Rename the whole-number parameter of `answer` as in the gold: pi/6 + n pi matches pi/6 + k
    pi.

    This happens where the letter of the gold only counts (`counts`, see `counting`), and in
    families that contain pi or degrees, where the usual letters of an index need no set. The
    constant of an integral may also have any of its usual names.
    """
    in_gold, in_answer = symbols(gold), symbols(answer)
    if in_gold == in_answer:
        return answer
    answer_only, gold_only = in_answer - in_gold, in_gold - in_answer
    if len(answer_only) != 1 or len(gold_only) != 1:
        return answer
    names = WHOLE_NUMBER_NAMES if gold_only <= whole else _INDICES
    is_periodic = _periodic(gold) and _periodic(answer)
    is_integer = answer_only | gold_only <= names and (is_periodic or gold_only <= counts)
    # `n = 3^m` describes the numbers of `n = 3^k`.
    is_integer |= (
        answer_only | gold_only <= _INDICES
        and gold.op == answer.op == "rel"
        and gold.args[0] == answer.args[0]
        and gold.args[0].note in _INDICES
    )
    # The parameter of a line or plane: `(1, 2, 0) + t (3, -1, 4)`.
    is_integer |= answer_only | gold_only <= _LINES and all(
        node.op in {"add", "rel"} and has(node, "bracket", "matrix") for node in (gold, answer)
    )
    added = answer_only <= _added_constants(answer) and gold_only <= _added_constants(gold)
    return rename(answer, {answer_only.pop(): gold_only.pop()}) if is_integer or added else answer


def shifted(gold: Node, answer: Node, whole: frozenset[str], counts: frozenset[str]) -> Node:
    """Return an answer `-3pi/4 + n pi` with the whole number added to its parameter that makes it
    read like the gold `pi/4 + n pi`; both describe the same values. Other answers are unchanged.
    """
    names = symbols(gold)
    if len(names) != 1 or names != symbols(answer) or not names <= whole:
        return answer
    (name,) = names
    if not (names <= counts or (_periodic(gold) and _periodic(answer))):
        return answer
    turned = _turned(gold, answer, name)
    return answer if turned is None else replaced(answer, sym(name), turned)


def _turned(gold: Node, answer: Node, name: str) -> Node | None:
    """Return what to put for the parameter of a linear `answer` so that it reads like `gold`, or
    None where no whole number added to it does.
    """
    lines = _line(gold, name), _line(answer, name)
    if None in lines:
        return None
    (start, step), (answer_start, answer_step) = (line for line in lines if line)
    turns = (start - answer_start) / answer_step
    if not abs(turns) <= _MAX_TURNS or abs(abs(step) - abs(answer_step)) > 1e-9 * abs(step):
        return None
    if abs(turns - round(turns)) > 1e-9:
        return None
    direction = sym(name) if step * answer_step > 0 else neg(sym(name))
    return add(direction, num(round(turns)))


def _bound(node: Node) -> frozenset[str]:
    """Return the letters that a node puts in a set of numbers of its own."""
    stated = [part for part in walk(node) if part.op == "rel" and part.note == "in"]
    letters = {name for part in stated for name in symbols(part.args[0])}
    return WHOLE_NUMBER_NAMES & (letters | whole_numbers(node))


def same_bound(gold: Node, answer: Node) -> Node:
    """Return `answer` with its parameter as in the gold, where both put one in the whole numbers:
    `(5k + 2, -3k - 1), k in Z` is `x = 5t - 3, y = 2 - 3t, t in Z` for t = k + 1.
    """
    letters = _bound(gold)
    # The set may be left unsaid, as for the letter of the gold.
    others = _bound(answer) or WHOLE_NUMBER_NAMES & (symbols(answer) - symbols(gold))
    if len(letters) != 1 or len(others) != 1 or not letters.isdisjoint(symbols(answer) - others):
        return answer
    ((name,), (other,)) = letters, others
    answer = rename(answer, {other: name})
    wanted, given = _components(gold), _components(answer)
    if "set Z" not in _kinds(gold) or len(wanted) < 2 or len(wanted) != len(given):
        return answer
    turned = _turned(wanted[0], given[0], name)
    return answer if turned is None else replaced(answer, sym(name), turned)


def same_line(gold: Node, answer: Node) -> bool:
    """Return whether both are the same line in parametric form, where one puts its parameter in the
    real numbers: `(t + 1, t, 2 - 2t), t in R` is `(s, s - 1, 4 - 2s)`, and `a + t d` is `a + 2t d`.
    """
    if "set R" not in _real(_kinds(gold) | _kinds(answer)) and not _is_vector_sum(gold):
        return False
    lines = _parametric(gold), _parametric(answer)
    if None in lines:
        return False
    (start, step), (other, other_step) = (line for line in lines if line)
    if len(start) != len(other) or len(start) < 2:
        return False
    return _parallel(step, other_step) and _parallel(step, list(map(float.__sub__, start, other)))


def _is_vector_sum(node: Node) -> bool:
    named = node.op == "rel" and node.args[0].op == "sym"
    value = node.args[-1] if named else node
    return value.op == "add" and has(value, "bracket", "matrix")


def _parallel(first: list[float], second: list[float]) -> bool:
    """Return whether the second vector is a multiple of the first, which is not zero."""
    size = max(map(abs, first)) * max(map(abs, second))
    return any(first) and all(
        abs(a * d - b * c) <= 1e-9 * size
        for (a, c), (b, d) in itertools.combinations(zip(first, second, strict=True), 2)
    )


def _parametric(node: Node) -> tuple[list[float], list[float]] | None:
    """Return (point, direction) of a line by its components or as a sum of vectors, else None."""
    node = node.args[0] if node.op == "given" else node
    items = [item for item in node.args if item.op != "rel" or not is_membership(item)]
    if node.op == "list" and len(items) == 1:
        node = items[0]
    value = node.args[-1] if node.op == "rel" else node
    if value.op == "add" and len(value.args) == 2 and has(value, "bracket", "matrix"):
        point, turned = value.args
        vector = turned.args[-1].args if turned.op == "mul" else turned.args
        is_turned = turned.op == "call" or (turned.op == "mul" and turned.args[0].op == "sym")
        values = [approximate(part) for part in (*point.args, *vector)]
        if not is_turned or len(point.args) != len(vector) or None in values:
            return None
        known = [value for value in values if value is not None]
        return known[: len(vector)], known[len(vector) :]
    parts = _components(node)
    names = {name for part in parts for name in symbols(part)}
    if len(names) != 1 or not names <= _LINES or not all(map(is_scalar, parts)):
        return None
    (name,) = names
    lines = [_line(part, name) for part in parts]
    if None in lines:
        return None
    known_lines = [line for line in lines if line]
    return [start for start, _ in known_lines], [step for _, step in known_lines]


def as_given(node: Node) -> Node:
    """Return `{(5k, 3k) : k in Z}` as `(5k, 3k), k in Z`, any other node as it is."""
    is_family = node.op == "such" and is_membership(node.args[1]) and node.args[0].op == "bracket"
    return Node("given", node.args) if is_family else node


def _components(node: Node) -> list[Node]:
    """Return the values of `x = .., y = ..` or of `(x, y) = (.., ..)`, without conditions."""
    if node.op in {"given", "such"}:
        return _components(node.args[0])
    node = without_membership(node)
    items = node.args if node.op == "list" else (node,)
    values = [item.args[-1] if item.op == "rel" else item for item in items]
    return list(values[0].args) if len(values) == 1 and values[0].op == "bracket" else values


_MAX_TURNS = 1000


def _line(node: Node, name: str) -> tuple[float, float] | None:
    """Return (value at 0, step) of a formula that is linear in the parameter, by its values."""
    first, second, third = (
        approximate(replaced(node, sym(name), num(place))) for place in (0, 1, 2)
    )
    if first is None or second is None or third is None:
        return None
    step = second - first
    return (first, step) if step and abs(third - second - step) < 1e-9 * abs(step) else None


def _periodic(node: Node) -> bool:
    return any(
        part.op == "degree" or (part.op, part.note) == ("const", "pi") for part in walk(node)
    )


def _added_constants(node: Node) -> set[str]:
    """Return the names that stand as an added constant in a sum, like C in x^2 + C."""
    if node.op != "add":
        return set()
    return {term.note for term in node.args if term.op == "sym" and term.note in _CONSTANT_NAMES}


def generated(node: Node) -> tuple[Node, tuple[Node, ...]] | None:
    """Return (element, conditions on the parameter) of `{2k | k in Z}` or of `{x | x = 2k, k in
    Z}`; None for set-builders with other conditions.
    """
    if node.op != "such":
        return None
    element, condition = node.args
    items = condition.args if condition.op == "list" else (condition,)
    kinds = tuple(item for item in items if item.op == "rel" and is_membership(item))
    conditions = [item for item in items if item not in kinds]
    if not conditions and kinds and element.op != "sym":
        return element, kinds
    defined = len(conditions) == 1 and conditions[0].op == "rel" and conditions[0].note == "="
    return (conditions[0].args[1], kinds) if defined and conditions[0].args[0] == element else None


def aligned_family(gold_element: Node, element: Node, answer: Node) -> Node:
    """Rename the only parameter of `element` inside `answer` to the name used in `gold_element`.

    Both parameters are bound by their sets, so the name carries no meaning.
    """
    old, new = symbols(element), symbols(gold_element)
    return rename(answer, {old.pop(): new.pop()}) if len(old) == len(new) == 1 else answer


def residue_class(node: Node) -> tuple[Node, Node] | None:
    """Return (residue, modulus) of `x = 4 (mod 11)`, or of `11k + 4` for a whole number k; else
    None.
    """
    if node.op == "mod":
        inner, modulus = node.args
        if inner.op == "rel" and not set(inner.note.split()) <= {"=", "=="}:
            return None
        return (inner.args[-1] if inner.op == "rel" else inner), modulus
    value = node.args[-1] if node.op == "rel" and node.note == "=" else node
    if not is_scalar(value) or not symbols(value) <= WHOLE_NUMBER_NAMES or value.op != "add":
        return None
    try:
        terms = dict(difference(value, num(0), _LINE_PRODUCTS))
    except (TooBig, ZeroDivisionError, OverflowError):
        return None
    # Besides the number there has to be a single term. The placeholder for any other count is not
    # linear, and is refused below.
    offset = terms.pop(ONE, 0)
    ((monomial, step),) = terms.items() if len(terms) == 1 else (((), 0),)
    linear = len(monomial) == 1 and monomial[0][1] == 1 and not monomial[0][0][1]
    if not linear or not step or step.denominator != 1 or offset.denominator != 1:
        return None
    return num(int(offset)), num(abs(int(step)))
