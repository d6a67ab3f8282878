"""Makes small mistakes in functions, by changing a single node of the syntax tree.

The operators are the classic ones of mutation testing (DeMillo, Lipton and Sayward, "Hints on Test
Data Selection", 1978): another relation, another arithmetic operator, a constant off by one, a
condition negated, a statement gone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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


KILLS: dict[str, str] = {
    "running_totals": ("fffe fffe fffe fffe fffe "),
    "longest_rise": ("fffe 0001 0000 034c cbd8 cad4 fffe 0000 4108 cad4 fffe 0014 cbdc 83d4 "),
    "merge_spans": ("fffe fffe 1612 3776 fffe 3776 fffe 1476 3776 fffe 3776 1076 fffe 1076 "),
    "place_of": ("fffe ---- fffe 4a4b fffe 2812 ---- ---- ---- 95b0 "),
    "rotated": ("ffff 6a1e fffe "),
    "pair_with_sum": ("0002 0002 bdfe bdfe 2cc6 "),
    "best_stretch": ("fffc fffc 0003 b874 fffc fffc 479a fffe "),
    "without_repeats": ("fffe fd56 fffe fffe fffe "),
    "chunks": ("fffd a0c8 f6f8 a0c8 fff8 fff8 fff8 "),
    "second_largest": ("fffe fffe 672c fffe 8264 0724 8264 f7e8 77e8 0000 "),
    "majority": ("fffe 1094 ad0a ef6a 3802 ef6a ef6a "),
    "water_held": ("fffe fffe fe5a ffff 0000 fe5a ffde fe7a fffe fffc fffe 4f9c "),
    "run_lengths": (
        "fffe fffe fffe fffe fffe fefc fffe fffe fffe fffe fffc fffe fefc fffe fffe d6fc fffc "
    ),
    "is_balanced": ("fffe fffe b93c 0000 0030 0934 1b34 bbcc 0934 8038 "),
    "shifted": ("ffff ffff f7ed ffff ffff ffff cfff ffff "),
    "is_palindrome": (
        "0432 0432 0000 8736 8732 873a fff3 0000 0436 ffff 8736 001a 001a 0436 000c "
    ),
    "wrapped": ("ffff fffe fffc d7f4 fffe fffe 0424 d7f4 be2c be2c 920c 0424 "),
    "common_start": ("ffbf 0d4c ffbe ffbe "),
    "initials": ("fffe fffe fffe fffe "),
    "edit_distance": (
        "fffc fff8 fff8 f7e8 ffff 8004 37ef ffff fff8 59b8 fff8 d7ff fbff 8c8c 85ac 59b8 "
        "ffe8 19b8 9db8 7bf8 fff8 8400 1328 fff8 3648 "
    ),
    "word_counts": ("fffe fffe fffc fffc fffc fffc fffc "),
    "is_subsequence": ("300f cfd2 ffff fff2 cfd0 ce42 33a0 f308 "),
    "snake_case": ("fffe 5bfe fffe 5bfe 5bfe fffc 5886 4bf8 5bfe 5882 4bfc 0080 0004 0004 "),
    "longest_word": ("fffe 1002 "),
    "digit_sum": ("fffe ---- ffff ---- fffe ---- 1028 fff6 fffa fb7a "),
    "greatest_divisor": ("ffff ffff 6ff8 "),
    "prime_factors": (
        "ffff ---- ffbe 0002 1598 00a8 7fb8 ---- ---- 00aa 0002 0000 ffb8 ---- 6bb0 0004 "
        "ff14 7fb8 ffb8 7fb8 "
    ),
    "to_base": ("ffff fffe ---- ffff ---- ---- 0003 4466 fffe fffe "),
    "to_roman": (
        "ffff ---- dc0c 008c 8f00 0040 fb00 002c d580 0010 7f80 0008 0d80 0006 7e81 ffff "
        "ffff ---- 0000 "
    ),
    "is_leap_year": ("ff55 ff55 f7cc 0851 0811 0833 f7c4 f7c4 0811 0022 0022 f744 0022 "),
    "fewest_coins": (
        "ffff 374c fffe ffff 2400 374c ffdc 374d 7626 fffe e9b6 fcf6 374c 374c 374c 374c "
        "c8b2 374c 374c 0000 0000 374c 0000 0004 0240 "
    ),
    "clock_time": ("ff6c fff6 1018 105c fffe ff7c "),
    "is_prime": (
        "001f ---- 0008 2020 80e0 0820 0000 0018 0008 0007 0000 0820 81c0 ffe0 3820 ffe0 "
    ),
    "binomial": ("f79b 0002 f799 7590 0201 8009 0866 7590 7590 f518 0201 7790 7590 f590 f598 "),
    "collatz_steps": (
        "---- fffe ffff ffff fffe ffff ---- fffe ---- ---- ---- ---- ---- ---- ---- ---- ---- ---- "
    ),
    "rounded_to": ("ffff fffc 0108 0802 0498 a3cc 0002 a3cc "),
    "turned": ("ffff fffe fffe abd8 fffe 5426 2bd8 "),
    "spiral": ("---- 5fd8 ffff fffe fffe fffe fffe 5fd8 5ffc 5ffc 5ffc 5ffc ---- 5fd8 5fdc "),
    "living_neighbours": (
        "ffff 0aa2 6a5a 6afa 680a ffff 0808 0800 2afa 6afa ffff 6afa 0404 0c00 af3f 4212 2afa 5501 "
    ),
    "islands": (
        "ffff 7d2c 7e2c c7e6 7ffc 7ffc ffda 7ffc 7ffc ---- 46d0 c7e6 7ffc 7ffc 46d0 46d0 "
        "7ffc 7ffc ---- 7ffc 46d0 46d0 46d0 46d0 0040 4450 00c0 40d0 4650 0280 0000 4400 "
        "0080 "
    ),
    "cheapest_path": (
        "ffff fb47 bffe bdfe ff7f ffff ffff ffff bdfe 159e ffff ffff bffe bdfe 159e 17de "
        "b9fe 15de 15de 17da 15d6 bdfe b086 15de 15d6 "
    ),
    "is_magic": ("0000 b48b 4060 0000 f4cb b4ab b002 b48b b48b 0314 b48b 4ce9 b4ab fceb 0021 "),
    "saddle_points": ("ffff ffff ffdc ffff ffff 7cff 9f4c f7dc "),
    "product": ("ffff d7bd ffff d7bd d7bd d7bd 2c67 8101 d7bd d7ad "),
    "inverted": ("fffc "),
    "ranked": ("fffc "),
    "added": ("fffe 0002 68e4 7c9c "),
    "in_order": ("fffe ---- d8f8 dffe 0000 fffe f8f8 d8f8 d8f8 80fa "),
    "steps_apart": ("---- ffff 36f2 c90d ffff 4900 ---- 4900 36f2 ffff 4900 4900 0000 4900 "),
    "most_at_once": ("fffe 3f7a fffe fffe fffe 0001 fffe fffe fffe fffe fffe fffe 1848 "),
    "kept_pages": ("fffe fffe fffe fffe fffe 7c6c 7c2c "),
    "evaluated": (
        "ffff fffe fffe ffff fffe ffff fffe fffe ffff e248 fffe e248 f31a 2de4 f31a 2de4 "
    ),
    "balance_after": ("fffe fffb fffe fffe ff7a fffe 3102 b15a "),
    "grouped": ("fffe fffe fffe fffe fffe fffe "),
}
"""name -> a mask for each mistake, in the order of `mutants`: bit k is set where case k fails."""
