"""Derivatives of formulas by the rules of elementary calculus."""

from __future__ import annotations

from collections.abc import Callable

from ..reading import nodes
from ..reading.nodes import Node, func, mul, neg, num, over, power

MAX_NODES = 200


def derivative(node: Node, variable: str) -> Node | None:
    """Return the derivative of a formula, or None for a function without a rule here or a formula
    that is too large.

    >>> from ..reading.reader import read
    >>> derivative(read("x"), "x").value, derivative(read("y"), "x").value
    (1, 0)
    """
    if sum(1 for _ in nodes.walk(node)) > MAX_NODES:
        return None
    try:
        return _derived(node, variable)
    except LookupError:
        return None


def _derived(node: Node, variable: str) -> Node:
    """Return the derivative; raises LookupError for a node without a rule."""
    if variable not in nodes.symbols(node):
        return num(0)
    match node.op:
        case "sym":
            return num(1)
        case "add":
            return nodes.add(*(_derived(term, variable) for term in node.args))
        case "mul":
            slopes = [_derived(factor, variable) for factor in node.args]
            turns = range(len(slopes))
            terms = [mul(*node.args[:n], slopes[n], *node.args[n + 1 :]) for n in turns]
            return nodes.add(*terms)
        case "pow":
            # d(b^e) = e b^(e-1) b' + b^e ln(b) e', where zero terms are left out
            base, exponent = node.args
            parts: list[Node] = []
            if variable in nodes.symbols(base):
                lowered = power(base, nodes.add(exponent, nodes.MINUS_ONE))
                parts.append(mul(exponent, lowered, _derived(base, variable)))
            if variable in nodes.symbols(exponent):
                natural = base.op == "const" and base.note == "e"
                factor = num(1) if natural else func("ln", base)
                parts.append(mul(power(base, exponent), factor, _derived(exponent, variable)))
            return nodes.add(*parts)
        case "func" if len(node.args) == 1:
            inner = node.args[0]
            return mul(_OUTER[node.note](inner), _derived(inner, variable))
        case _:
            raise LookupError(node.op)


def _square(node: Node) -> Node:
    return power(node, num(2))


def _circular(inner: Node) -> Node:
    """Return 1 / sqrt(1 - x^2), the derivative of arcsin."""
    return power(nodes.add(num(1), neg(_square(inner))), neg(nodes.HALF))


_OUTER: dict[str, Callable[[Node], Node]] = {
    "sin": lambda x: func("cos", x), "cos": lambda x: neg(func("sin", x)),
    "tan": lambda x: power(func("cos", x), num(-2)),
    "cot": lambda x: neg(power(func("sin", x), num(-2))),
    "sec": lambda x: mul(func("sec", x), func("tan", x)),
    "csc": lambda x: neg(mul(func("csc", x), func("cot", x))),
    "ln": lambda x: power(x, nodes.MINUS_ONE),
    "log": lambda x: over(num(1), mul(x, func("ln", num(10)))), "arcsin": _circular,
    "arccos": lambda x: neg(_circular(x)),
    "arctan": lambda x: over(num(1), nodes.add(num(1), _square(x))),
    "sinh": lambda x: func("cosh", x), "cosh": lambda x: func("sinh", x),
    "tanh": lambda x: power(func("cosh", x), num(-2)), "abs": lambda x: over(x, func("abs", x)),
}  # fmt: skip
