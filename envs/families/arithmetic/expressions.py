"""Random arithmetic expressions with exact rational values.

After "Reasoning or Memorization?" (arXiv 2507.10532): problems drawn fresh from a generator cannot
have been in anyone's training data, so a rising reward means learning.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from fractions import Fraction

from ludus.errors import ToolError

OPERATORS = "+-*/"
MAX_EXPRESSION_CHARS = 400
MAX_NUMBER_DIGITS = 30
SPLIT_BY_TENTH = (*["train"] * 8, "validation", "test")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_TOKEN = re.compile(r"\s*(?:(\d+)|([-+*/()]))")


@dataclass(frozen=True, slots=True)
class Expression:
    """An arithmetic expression as text, with the exact value."""

    text: str
    value: Fraction


def generate(
    rng: random.Random, *, operations: int, operators: str = OPERATORS, max_number: int = 99
) -> Expression:
    """Draw an expression tree with `operations` inner nodes that never divides by zero.

    At each node the number of operations on the left is uniform over all possibilities.
    """
    while True:
        try:
            text, value, _ = _tree(rng, operations, operators, max_number)
        except ZeroDivisionError:
            continue
        return Expression(text, value)


def split_of(text: str) -> str:
    """Return the split of an expression: 80 % are train, 10 % validation, 10 % test.

    The split is decided by a digest of the text alone, so no expression is ever in two splits.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return SPLIT_BY_TENTH[int.from_bytes(digest) % len(SPLIT_BY_TENTH)]


def _tree(
    rng: random.Random, operations: int, operators: str, max_number: int
) -> tuple[str, Fraction, int]:
    """Draw a random tree and return (text, value, precedence of the root operator)."""
    if operations == 0:
        number = rng.randint(1, max_number)
        return str(number), Fraction(number), 3  # a number binds more tightly than any operator
    operator = rng.choice(operators)
    left_operations = rng.randint(0, operations - 1)
    left = _tree(rng, left_operations, operators, max_number)
    right = _tree(rng, operations - 1 - left_operations, operators, max_number)
    precedence = _PRECEDENCE[operator]
    # Operators group from the left, so on the right an operator of the same precedence needs
    # parentheses: a-(b-c).
    left_text = f"({left[0]})" if left[2] < precedence else left[0]
    right_text = f"({right[0]})" if right[2] <= precedence else right[0]
    return f"{left_text}{operator}{right_text}", _apply(operator, left[1], right[1]), precedence


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


def evaluate(text: str) -> Fraction:
    """Return the exact value of an expression of digits, + - * / and parentheses.

    The shunting-yard algorithm takes time linear in the text and needs no `eval`.

    >>> evaluate("1/2+1/3")
    Fraction(5, 6)

    Raises:
        ToolError: the text is not such an expression, too long, or divides by zero.
    """
    if len(text) > MAX_EXPRESSION_CHARS:
        raise ToolError(
            f"the expression has {len(text)} characters; at most {MAX_EXPRESSION_CHARS} are read"
        )
    values: list[Fraction] = []
    waiting: list[str] = []
    operand_next = True
    for token in _tokens(text):
        if token.isdigit():
            _expect(operand_next, token, text)
            values.append(Fraction(int(token)))
            operand_next = False
        elif token == "(":
            _expect(operand_next, token, text)
            waiting.append(token)
        elif token == ")":
            _expect(not operand_next, token, text)
            _reduce(values, waiting, 0)
            if not waiting:
                raise ToolError(f"a ')' without '(' in {text!r}")
            waiting.pop()
        elif operand_next and token in "+-":
            # A sign waits as `~` or, for a plus, as the empty text. These have no entry in
            # `_PRECEDENCE`, and `_reduce` lets them bind more tightly than any operator.
            waiting.append("~" if token == "-" else "")
        else:
            _expect(not operand_next, token, text)
            _reduce(values, waiting, _PRECEDENCE[token])
            waiting.append(token)
            operand_next = True
    _expect(not operand_next, "the end", text)
    _reduce(values, waiting, 0)
    if waiting:
        raise ToolError(f"a '(' is not closed in {text!r}")
    return values[0]


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ToolError(
                f"cannot read {stripped[position : position + 12]!r} in {text!r}; use "
                "digits + - * / ( )"
            )
        token = match[1] or match[2]
        if len(token) > MAX_NUMBER_DIGITS:
            raise ToolError(
                f"a number has {len(token)} digits; at most {MAX_NUMBER_DIGITS} are read"
            )
        tokens.append(token)
        position = match.end()
    return tokens


def _expect(right: bool, token: str, text: str) -> None:
    if not right:
        raise ToolError(f"did not expect {token!r} there in {text!r}")


def _reduce(values: list[Fraction], waiting: list[str], precedence: int) -> None:
    """Apply the waiting operators that bind at least as tightly as `precedence`."""
    while waiting and waiting[-1] != "(" and _PRECEDENCE.get(waiting[-1], 3) >= precedence:
        operator = waiting.pop()
        if operator in ("~", ""):
            values[-1] = -values[-1] if operator else values[-1]
            continue
        right = values.pop()
        if operator == "/" and right == 0:
            raise ToolError("division by zero")
        values[-1] = _apply(operator, values[-1], right)
