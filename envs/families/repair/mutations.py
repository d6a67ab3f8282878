"""Makes small mistakes in functions, by changing a single node of the syntax tree.

The operators are the classic ones of mutation testing (DeMillo, Lipton and Sayward, "Hints on Test
Data Selection", 1978): another relation, another arithmetic operator, a constant off by one, a
condition negated, a statement gone.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_RELATIONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip
_CALLS = {
    "max": "min", "min": "max", "any": "all", "all": "any", "lower": "upper", "upper": "lower",
    "strip": "lstrip", "isupper": "islower", "values": "keys", "append": "extend",
}  # fmt: skip
"""The name that is mistaken for each name of a called function."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function with a single mistake."""

    source: str
    line: int
    """The line of the mistake, counted from the `def`, which is line 1."""
    kind: str


def mutants(source: str) -> list[Mutant]:
    r"""Return every function that is a single mistake away from `source`, in tree order.

    No text is returned twice.

    >>> [mutant.source.splitlines()[1].strip() for mutant in mutants("def f(a):\n return a + 1")]
    ['return a - 1', 'return a + 2']
    """
    mutants_found: dict[str, Mutant] = {}
    original = normal(source)
    for position, original_node in enumerate(ast.walk(ast.parse(source))):
        for choice, _ in enumerate(_changes(original_node)):
            # A change alters the tree, so each is applied to a fresh copy.
            tree = ast.parse(source)
            node = list(ast.walk(tree))[position]
            kind, change = list(_changes(node))[choice]
            line = getattr(node, "lineno", 1)
            change()
            mutant = Mutant(ast.unparse(ast.fix_missing_locations(tree)), line, kind)
            if mutant.source != original:
                mutants_found.setdefault(mutant.source, mutant)
    return list(mutants_found.values())


def normal(source: str) -> str:
    """Normalise the formatting of a source, so that the formatting does not show the mistake."""
    return ast.unparse(ast.parse(source))


Change = tuple[str, Callable[[], None]]


def _changes(node: ast.AST) -> Iterator[Change]:
    """Yield the changes that are possible at a node."""
    match node:
        case ast.Compare(ops=[relation]):
            if new_relation := _RELATIONS.get(type(relation)):
                yield "relation", _set(node, "ops", [new_relation()])
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            if changed := _OPERATORS.get(type(operator)):
                yield "operator", _set(node, "op", changed())
        case ast.BoolOp(op=joint):
            yield (
                "junction",
                _set(node, "op", ast.Or() if isinstance(joint, ast.And) else ast.And()),
            )
        case ast.Constant(value=bool(value)):
            yield "truth", _set(node, "value", not value)
        case ast.Constant(value=int(value)):
            yield "constant", _set(node, "value", value + 1)
        case ast.UnaryOp(op=ast.USub()):
            yield "sign", _set(node, "op", ast.UAdd())
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "negation", _set(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Call(func=ast.Name(id="range"), args=[*first, last]):
            shorter = ast.BinOp(last, ast.Sub(), ast.Constant(1))
            yield "range", _set(node, "args", [*first, shorter])
        case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
            yield "call", _set(function, "id", _CALLS[name])
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in _CALLS:
            yield "call", _set(function, "attr", _CALLS[name])
        case ast.For(body=body) | ast.While(body=body):
            yield from _omissions(body)
        case _:
            pass
    if isinstance(node, ast.If):
        yield from _omissions(node.body)


def _omissions(body: list[ast.stmt]) -> Iterator[Change]:
    """Yield the removal of each statement whose block keeps at least another statement."""
    for place, statement in enumerate(body if len(body) > 1 else []):
        if isinstance(statement, (ast.AugAssign, ast.Expr, ast.Assign)):
            yield "omission", _remove(body, place)


def _set(node: ast.AST, field: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, field, value)


def _remove(body: list[ast.stmt], place: int) -> Callable[[], None]:
    def change() -> None:
        del body[place]

    return change


KILLS: dict[str, str] = json.loads(Path(__file__).with_name("kills.json").read_text())
"""name -> a mask for each mistake, in the order of `mutants`: bit k is set where case k fails.
`survey.py` makes them.
"""
