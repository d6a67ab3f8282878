"""The proof of equality for two formulas: cheap proofs first, the rest is left to the worker
pool.
"""

from __future__ import annotations

from collections.abc import Callable

from ..conventions import Conventions
from ..reading.nodes import EXACT, INFINITY, Node, TooBig, mul, num, shape, sym, walk
from .canonical import difference, normal
from .probe import approximate, differ
from .sums import MAX_PRODUCTS, Meter

Deep = Callable[[Node, Node], "bool | str"]
"""A costly proof: returns whether two formulas are equal, or, as a string, the limit that prevented
an answer ('' for a limit without a name).
"""


CALLER_NODES = 300
"""How many nodes the caller examines for one pair before the pool takes over; about half a
millisecond.
"""
CALLER_PRODUCTS = 64
"""How many elementary products the caller spends on one normal form."""


_NO_LETTERS: frozenset[str] = frozenset()


class NeedsPool(Exception):
    """A decision takes more work than the caller may spend, and has to run in a pool worker."""


class Judge:
    """Decides whether scalar formulas are equal, for a pair of answers, and records the deciding
    rule.

    Without `deep`, an open question raises NeedsPool. Inside a pool worker `deep` runs the
    costly proofs; a question that stays open even then counts as not equal and sets `undecided`.

    Args:
        conventions: the options of the comparison.
        deep: the costly proof, or None in the caller.
        directed: the first formula is a gold, so that rules which favour a gold may apply.
    """

    def __init__(
        self, conventions: Conventions, *, deep: Deep | None = None, directed: bool = True
    ) -> None:
        self.conventions = conventions
        self.deep = deep
        self.directed = directed
        self.left = CALLER_NODES
        self.products = CALLER_PRODUCTS if deep is None else MAX_PRODUCTS
        self.approximate = False
        """Whether the gold is an approximation, so that any value that rounds to the gold is
        right.
        """
        self.whole: frozenset[str] = _NO_LETTERS
        """The letters that the gold puts in the whole numbers."""
        self.counts: frozenset[str] = _NO_LETTERS
        """Those of them that only count the values of the gold, so that any other letter may."""
        self.free: frozenset[str] = _NO_LETTERS
        """The letters that the gold puts in the real numbers: its free constants."""
        self.rule = ""
        self.undecided = False
        self.why_not = ""
        self.trace: list[tuple[str, str]] = []

    def decided(self, rule: str, outcome: bool, why_not: str = "") -> bool:
        """Record the rule that settled the last question, and return `outcome`."""
        self.rule = rule
        if not outcome and why_not:
            self.why_not = why_not
        self.trace.append((rule, "equal" if outcome else why_not or "not equal"))
        return outcome

    def equal(self, left: Node, right: Node) -> bool:
        """Decide whether two scalar formulas have the same value wherever both are defined.

        Raises:
            NeedsPool: the cheap proofs leave the question open and there is no `deep`.
        """
        if left == right:
            return self.decided("identical", True)
        if left.op in EXACT and right.op in EXACT:
            same = left.value == right.value
            return self.decided("exact", same, f"{shown(right)} is not {shown(left)}")
        infinite = infinity(left), infinity(right)
        if infinite != (0, 0) and not (has_limit(left) or has_limit(right)):
            return self.decided("infinity", infinite[0] == infinite[1], "one side is infinite")
        first, second = shape(left), shape(right)
        # Count examined nodes, which bounds the work in the caller whatever the structure.
        if self.deep is None:
            self.left -= first.size + second.size
            if self.left < 0:
                raise NeedsPool
        if first.opaque or second.opaque:
            try:
                left, right = _named_calls(left), _named_calls(right)
            except (TooBig, ZeroDivisionError, OverflowError):  # `left` is not `right`
                reason = "the operator has no known meaning and is compared as written"
                return self.decided("as written", False, reason)
            first, second = shape(left), shape(right)
        if differ(left, right, first, second):
            value, other_value = approximate(left), approximate(right)
            detail = "the formulas have different values at a test point"
            if value is not None and other_value is not None:
                detail = f"its value is {other_value:.10g}, the gold's is {value:.10g}"
            return self.decided("numeric", False, detail)
        return self._proven(left, right)

    def _proven(self, left: Node, right: Node) -> bool:
        try:
            if not difference(left, right, self.products):
                return self.decided("normal form", True)
        except ZeroDivisionError:
            return self.decided("undefined", False, "a division by zero")
        except (TooBig, OverflowError):
            pass
        if self.deep is None:
            raise NeedsPool
        outcome = self.deep(left, right)
        if isinstance(outcome, str):
            self.undecided = True
            limit = f": {outcome} is not computed" if outcome else ""
            return self.decided("undecided", False, f"not proven equal within the limits{limit}")
        return self.decided("many digits", outcome, "the values differ at high precision")


def infinity(node: Node) -> int:
    r"""Return 1 or -1 for an infinity, 0 for anything else.

    >>> from ..reading.reader import read
    >>> infinity(read(r"-\\infty"))
    -1
    """
    if node == INFINITY:
        return 1
    if node.op == "mul" and len(node.args) == 2 and node.args[1] == INFINITY:
        factor = node.args[0]
        return int(factor.value) if factor.op == "num" and factor.value in {1, -1} else 0
    return 0


def _named_calls(node: Node) -> Node:
    """Replace calls of unknown functions by variables; two calls become one variable if their
    normal forms are equal.

    Raises:
        TooBig: a call without a normal form.
    """
    if node.op == "call" or (node.op == "func" and node.note.startswith("series")):
        terms = normal(node, Meter(CALLER_PRODUCTS))
        if len(terms) != 1:
            raise TooBig("a call that is a sum")
        ((monomial, factor),) = terms.items()
        return mul(num(factor), sym(f"call {monomial!r}"))
    if not node.args:
        return node
    return node._replace(args=tuple(_named_calls(arg) for arg in node.args))


def has_limit(node: Node) -> bool:
    """Return whether `node` contains a limit, whose value may be infinite."""
    return any(part.op == "func" and part.note.startswith("lim") for part in walk(node))


def shown(node: Node) -> str:
    """Return a number for a message, shortened to 40 characters."""
    numeral = str(node.value)
    return numeral if len(numeral) <= 40 else numeral[:37] + "..."
