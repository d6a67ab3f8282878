"""The reader's engine: one loop over tokens, driven by two tables of notation.

A `Grammar` says for every kind of token what it means where a value should start (`prefix`) and
what it means after a value (`infix`, each rule with its binding power). `Parser.expression` is the
whole algorithm: read a value, then extend it for as long as a rule that binds tighter than the
floor applies. The tables are in `grammar.py`; nothing else decides what a notation means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .lexer import Token
from .nodes import Node, TooBig, Unreadable

MAX_DEPTH = 40
MAX_NODES = 500
TIGHTEST = 1000

Prefix = Callable[["Parser"], Node]
"""Reads a value; the token that led here is still in front."""
Extend = Callable[["Parser", Node], "Node | None"]
"""Extends the value on the left, or returns None with no token used if the rule does not fit."""


class Infix(NamedTuple):
    """What a token may mean after a value, and how tightly it binds."""

    power: int
    extend: Extend


@dataclass(frozen=True, slots=True)
class Grammar:
    """The tables, by kind of token (by sign for the operators + - * / ^) and by command."""

    prefix: Mapping[str, Prefix]
    infix: Mapping[str, tuple[Infix, ...]]
    commands: Mapping[str, Prefix]
    """LaTeX commands that begin a value; they read their arguments, the command itself is
    taken."""


@dataclass(slots=True)
class Parser:
    """A place in a list of tokens, with bounds on how deep and how much may be built."""

    tokens: list[Token]
    grammar: Grammar
    position: int = 0
    depth: int = 0
    made: int = 0
    bar_ends: bool = False
    """Inside |...| or before the bar of a set, a bar ends the value instead of starting one."""
    french: bool = False
    """Inside ]...[, an opening bracket ends the interval."""
    colon_ends: bool = False
    """In braces, a colon means "such that"; elsewhere it is a ratio."""

    # --- the algorithm ---

    def expression(self, floor: int = 0) -> Node:
        """A value with everything after it that binds tighter than `floor`."""
        token = self.tokens[self.position]
        prefix = self.grammar.prefix.get(token.value if token.kind == "op" else token.kind)
        if prefix is None:
            raise Unreadable(f"{token.value or token.kind!r} where a value should be")
        node, ceiling = prefix(self), TIGHTEST
        while ceiling:
            node, ceiling = self._extended(node, floor, ceiling)
        return node

    def _extended(self, node: Node, floor: int, ceiling: int) -> tuple[Node, int]:
        """(longer node, power of the rule that made it), power 0 if no rule applies. What binds
        tighter than the last rule cannot reach inside what that rule made.
        """
        token = self.tokens[self.position]
        for power, extend in self.grammar.infix.get(
            token.value if token.kind == "op" else token.kind, ()
        ):
            if floor < power <= ceiling and (longer := extend(self, node)) is not None:
                return self.count(longer), power
        return node, 0

    def inside(self, floor: int = 0) -> Node:
        """`expression` one level down: in brackets, exponents and arguments."""
        return self.deeper(lambda parser: parser.expression(floor))

    def deeper(self, read: Prefix) -> Node:
        """Run `read` one level down."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig(f"nested deeper than {MAX_DEPTH}")
        node = read(self)
        self.depth -= 1
        return node

    def count(self, node: Node) -> Node:
        """Count a made node against the limit."""
        self.made += 1
        if self.made > MAX_NODES:
            raise TooBig(f"more than {MAX_NODES} terms and factors")
        return node

    # --- tokens ---

    @property
    def here(self) -> Token:
        """The token in front."""
        return self.tokens[self.position]

    def ahead(self, offset: int = 1) -> Token:
        """A token further on (the last one when past the end)."""
        return self.tokens[min(self.position + offset, len(self.tokens) - 1)]

    def rest(self) -> list[Token]:
        """The tokens up to the end."""
        return self.tokens[self.position : -1]

    def sees(self, kind: str) -> bool:
        """Whether the token in front is of this kind."""
        return self.tokens[self.position].kind == kind

    def at(self, kind: str, value: str) -> bool:
        """Whether the token in front is this one."""
        token = self.tokens[self.position]
        return token.kind == kind and token.value == value

    def take(self) -> Token:
        """Consume the token in front."""
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def accept(self, kind: str, value: str | None = None) -> bool:
        """Consume the token in front if it is this one."""
        token = self.tokens[self.position]
        if token.kind != kind or (value is not None and token.value != value):
            return False
        self.position += 1
        return True

    def expect(self, kind: str, value: str | None = None) -> None:
        """Consume a token that must be there; a missing one at the very end is forgiven (a
        cut-off answer).
        """
        if not self.accept(kind, value) and self.here.kind != "end":
            raise Unreadable(
                f"expected {value or kind} before {self.here.value or self.here.kind!r}"
            )
