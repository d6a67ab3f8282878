"""Values in Python syntax, which models sometimes write instead of JSON: parsed, never
evaluated.
"""

from __future__ import annotations

import ast
import math
import warnings

MAX_PYTHON_CHARS = 1 << 17
"""The longest text that is parsed. Python's parser needs far more memory than the text."""


class UnreadableLiteral(ValueError):
    """The text is not a literal, or not a list of calls; the message gives the reason."""


def expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises:
        UnreadableLiteral: the text is not an expression, or is too long.
    """
    if len(text) > MAX_PYTHON_CHARS:
        raise UnreadableLiteral(f"{len(text)} characters; at most {MAX_PYTHON_CHARS} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes Python does not know
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError) as error:
        raise UnreadableLiteral(str(error)) from None


def read_literal(text: str) -> object:
    """Return the value of a literal that JSON can represent.

    >>> read_literal("{'a': (1, None), 'b': True}")
    {'a': [1, None], 'b': True}

    Raises:
        UnreadableLiteral: the text is not such a literal.
    """
    return literal(expression(text))


_NAMES = {"true": True, "false": False, "null": None}


def literal(node: ast.expr) -> object:
    """Return the value of a syntax tree that is a literal JSON can represent; tuples become lists.

    Raises:
        UnreadableLiteral: the tree is not such a literal.
    """
    match node:
        case ast.Constant(value=None | bool() | str() as value):
            return value
        case ast.Constant(value=int() as number) if -(1 << 63) <= number < 1 << 64:
            return number
        case ast.Constant(value=float() as number) if math.isfinite(number):
            return number
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=ast.Constant(value=int() | float() as number)) if (
            isinstance(sign, ast.USub | ast.UAdd) and not isinstance(number, bool)
        ):
            return literal(ast.Constant(-number if isinstance(sign, ast.USub) else number))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            mapping: dict[str, object] = {}
            for key, inner in zip(keys, values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    raise UnreadableLiteral("the keys of a dict must be strings")
                mapping[key.value] = literal(inner)
            return mapping
        case _:
            raise UnreadableLiteral(f"an argument must be a literal, got {type(node).__name__}")
