"""Reads a policy's expressions without `eval`, which some peers' scorers would use.

Some scorers call `eval` on an answer, or sympy's `parse_expr`, which ends in `eval`. While such a
scorer runs, both are replaced here: an answer may be a plain literal or an arithmetic expression of
a bounded size, and anything else is refused as a text that does not parse, which is how the scorers
treat malformed answers.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib._bootstrap
import re
import sys
from collections.abc import Callable, Generator
from types import CodeType
from typing import Any

MAX_CHARS = 4000
MAX_BITS = 20_000
"""The most bits of a number that an expression may come to."""
MAX_ARGUMENT_BITS = 1_000
"""The most bits of what a function or a root is taken of: sympy looks for its factors."""
MAX_DIGITS_BITS = 10
"""The most bits of a number of digits, the second argument of `Float`."""
MAX_EXPONENT = 64
"""The highest power of an expression with a variable."""
FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "asin",
        "acos",
        "atan",
        "acot",
        "asec",
        "acsc",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "log",
        "ln",
        "sqrt",
        "Abs",
        "abs",
        "Rational",
        "Integer",
        "Float",
        "erf",
        "cbrt",
        "sign",
    ]
)
"""The functions that an expression may call."""
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitXor, ast.BitAnd,
    ast.BitOr, ast.LShift, ast.RShift,
)  # fmt: skip
_FACTORIAL = re.compile(r"(?<=[\d)])!(?!=)")
"""sympy's sign of a factorial."""
_FACTORIAL_NAME = "factorial_of_what_stands_before"
"""An attribute in the place of that sign, since Python's grammar has no sign behind an operand."""


class NotPlain(ValueError):
    """An expression that is more than a literal or arithmetic, or too large."""


def check_expression(text: str) -> None:
    """Refuse a text that is not an arithmetic expression of a bounded size.

    Raises:
        NotPlain: the text holds something else, such as an attribute or an index.
        SyntaxError: the text is no expression at all.
    """
    if len(text) > MAX_CHARS:
        raise NotPlain(f"an expression of {len(text)} characters; at most {MAX_CHARS} are read")
    plain = _FACTORIAL.sub(f" .{_FACTORIAL_NAME}", text.strip())
    try:
        for reading in {plain, plain.replace("^", "**")}:  # sympy may read `^` as a power
            _bits(ast.parse(reading, mode="eval").body)
    except (RecursionError, MemoryError, OverflowError):
        raise NotPlain("an expression that is nested too deeply") from None


def read_plain(text: object, *_: object) -> object:
    """Evaluate a literal, or arithmetic on integers: what `eval` may do for a scorer.

    Raises:
        NotPlain, SyntaxError: the text is something else.
    """
    if not isinstance(text, str) or len(text) > MAX_CHARS:
        raise NotPlain("only a short text is read")
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError):
        tree = ast.parse(text.strip(), mode="eval").body
        if any(isinstance(node, (ast.Name, ast.Call)) for node in ast.walk(tree)):
            raise NotPlain("a name in a literal") from None
        _bits(tree)
        return _eval(text.strip(), {"__builtins__": {}})
    except (RecursionError, MemoryError):
        raise NotPlain("a literal that is nested too deeply") from None


@contextlib.contextmanager
def guarded() -> Generator[None, None, None]:
    """Replace `eval` and `exec` by `read_plain`, and let sympy parse only what was checked."""
    before = builtins.eval, builtins.exec
    builtins.eval, builtins.exec = _guarded_eval, _guarded_exec  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.eval, builtins.exec = before


def guard_parsers(package: str) -> None:
    """Replace sympy's `parse_expr`, wherever modules of `package` have imported it, by a function
    that checks the text first.
    """
    parser = sys.modules.get("sympy.parsing.sympy_parser")
    if parser is None:
        return
    original = parser.parse_expr
    guard = _checking(original)
    for name, module in list(sys.modules.items()):
        ours = name.partition(".")[0] in ("sympy", package)
        if ours and vars(module).get("parse_expr") is original:
            setattr(module, "parse_expr", guard)  # noqa: B010 (a module of unknown contents)


_eval: Callable[..., Any] = builtins.eval
_exec: Callable[..., Any] = builtins.exec
_RUNS_MODULES: CodeType = getattr(importlib._bootstrap, "_call_with_frames_removed").__code__  # noqa: B009
"""The function of Python's import that runs a module's code by `exec`."""
_trusted = 0
"""The depth of calls of a parser whose text was checked, and of imports: inside, `eval` and `exec`
are Python's own.
"""


def _checking(original: Callable[..., Any]) -> Callable[..., Any]:
    def parse_expr(text: str, *arguments: Any, **named: Any) -> Any:
        check_expression(text)
        return _trusting(original, text, *arguments, **named)

    return parse_expr


def _trusting(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    global _trusted
    _trusted += 1
    try:
        return function(*arguments, **named)
    finally:
        _trusted -= 1


def _guarded_eval(source: Any, *scopes: Any) -> Any:
    return _eval(source, *scopes) if _trusted else read_plain(source)


def _guarded_exec(source: Any, *scopes: Any) -> None:
    if _trusted:  # sympy's parser fills its table of names by `exec`
        _exec(source, *scopes)
    elif sys._getframe(1).f_code is _RUNS_MODULES:  # a scorer imports as it goes
        _trusting(_exec, source, *scopes)
    else:
        raise NotPlain("a program is not run here")


def _bits(node: ast.expr) -> float:
    """Return a bound on the bits of what `node` comes to."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        finite = abs(node.value) < float("inf")
        bits = float(int(node.value).bit_length()) if finite else float(MAX_BITS)
    elif isinstance(node, ast.Name) and not node.id.startswith("_"):
        bits = 1.0
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub, ast.Invert)):
        bits = _bits(node.operand)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        bits = _bits_of_pair(node)
    elif isinstance(node, ast.Attribute) and node.attr == _FACTORIAL_NAME:
        operand = _bits(node.value)
        bits = operand * 2.0 ** min(operand, MAX_BITS.bit_length())  # n! has at most n log2(n)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        bits = _bits_of_call(node.func.id, node.args)
    else:
        raise NotPlain(f"{type(node).__name__} in an expression")
    if bits > MAX_BITS:
        raise NotPlain(f"a number of more than {MAX_BITS} bits")
    return bits


def _bits_of_call(name: str, arguments: list[ast.expr]) -> float:
    if name not in FUNCTIONS or len(arguments) > 2:
        raise NotPlain(f"a call of {name!r:.40}")
    bits = [_bits(argument) for argument in arguments]
    if any(each > MAX_ARGUMENT_BITS for each in bits):
        raise NotPlain(f"{name} of a number of more than {MAX_ARGUMENT_BITS} bits")
    if name == "Float" and any(digits > MAX_DIGITS_BITS for digits in bits[1:]):
        raise NotPlain("a number of too many digits")
    return max([64.0, *bits])


def _bits_of_pair(node: ast.BinOp) -> float:
    left, right = _bits(node.left), _bits(node.right)
    if isinstance(node.op, (ast.Pow, ast.LShift)):
        if right > 15:
            raise NotPlain("an exponent of more than 15 bits")
        symbolic = any(isinstance(part, (ast.Name, ast.Call)) for part in ast.walk(node.left))
        if symbolic and 2**right > 2 * MAX_EXPONENT:
            raise NotPlain(f"an expression to a power above {MAX_EXPONENT}")
        if left > MAX_ARGUMENT_BITS and not _is_whole(node.right):
            raise NotPlain(f"a root of a number of more than {MAX_ARGUMENT_BITS} bits")
        grown = 2**right
        return left * grown if isinstance(node.op, ast.Pow) else left + grown
    return left + right + 1


def _is_whole(node: ast.expr) -> bool:
    """Return whether an expression of numbers comes to a whole number, as far as its form says."""
    return not any(
        isinstance(part, (ast.Div, ast.Call, ast.Attribute))
        or (isinstance(part, ast.Constant) and not isinstance(part.value, int))
        for part in ast.walk(node)
    )
