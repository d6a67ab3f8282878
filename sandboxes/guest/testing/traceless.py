"""Decides which tests leave no trace, so that the process can run further tests.

The decision comes from their syntax, against a list of what is allowed: assertions, plain
statements and pure built-in functions. Tests that import, touch a module's attributes, define a
class or call a built-in that acts on anything but its arguments get a fresh process.
"""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

ALIASES = {"np": "numpy", "pd": "pandas"}
"""The modules that usual short names stand for."""

MODULE_NAMES = frozenset({*sys.stdlib_module_names, *ALIASES})
"""Names that may stand for a module where tests use them."""

_NODES = frozenset(
    """
    Module Expr Assert Assign AnnAssign AugAssign FunctionDef Return For While If Pass Break
    Continue Try ExceptHandler Raise arguments arg keyword comprehension
    BoolOp NamedExpr BinOp UnaryOp Lambda IfExp Dict Set List Tuple ListComp SetComp DictComp
    GeneratorExp Compare Call FormattedValue JoinedStr Constant Attribute Subscript Starred Name
    Slice Load Store And Or Add Sub Mult MatMult Div Mod Pow LShift RShift BitOr BitXor BitAnd
    FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn
    """.split()  # noqa: SIM905 - a list literal would take a line a name
)

_PURE = frozenset(
    """
    abs all any bin bool bytes callable chr complex dict divmod enumerate filter float format
    frozenset hasattr hash hex id int isinstance issubclass iter len list map max min next oct ord
    pow print range repr reversed round set slice sorted str sum tuple type zip
    Ellipsis NotImplemented __name__
    """.split()  # noqa: SIM905
)
_EXCEPTIONS = frozenset(
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
)
_IMPURE = (frozenset(dir(builtins)) | MODULE_NAMES) - _PURE - _EXCEPTIONS - {"math"}


def leave_no_trace(tests: list[ast.Module]) -> bool:
    """Return whether all tests are of the harmless kind."""
    import ast  # a large module, which only the children that grade many times load

    for test in tests:
        for node in ast.walk(test):
            name: str = getattr(node, "id", "")
            attribute: str = getattr(node, "attr", "")
            if name in _IMPURE or attribute.startswith("_"):
                return False
            if getattr(node, "decorator_list", None) or type(node).__name__ not in _NODES:
                return False
    return True
