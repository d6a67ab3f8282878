"""The parser's engine (a Pratt parser): a single loop over tokens, driven by two tables of
notation.

A `Grammar` says for every kind of token what the token means where a value should start
(`prefix`) and after a value (`infix`, each rule with a binding power). `Parser.expression` is
the whole algorithm: read a value, then extend the value for as long as a rule applies that binds
tighter than the floor. The tables are in `grammar.py`; nothing else decides what a notation
means.
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
"""Reads a value; the token that selected this rule is still the next token."""
Extend = Callable[["Parser", Node], "Node | None"]
"""Extends the value on the left, or returns None without consuming a token if the rule does not
fit.
"""


class Infix(NamedTuple):
    """A possible meaning of a token after a value, with a binding power."""

    power: int
    extend: Extend


@dataclass(frozen=True, slots=True)
class Grammar:
    """The tables of the notation, by kind of token (by sign for the operators + - * / ^) and by
    command.
    """

    prefix: Mapping[str, Prefix]
    infix: Mapping[str, tuple[Infix, ...]]
    commands: Mapping[str, Prefix]
    """LaTeX commands that begin a value. The command itself is consumed before its reader runs."""


@dataclass(slots=True)
class Parser:
    """A position in a list of tokens, with limits on the depth and the number of nodes."""

    tokens: list[Token]
    grammar: Grammar
    position: int = 0
    depth: int = 0
    made: int = 0
    bar_ends: bool = False
    """Whether a bar ends the value, as inside |...| or in a set-builder, instead of starting
    one.
    """
    french: bool = False
    """Whether an opening bracket ends the interval, as inside ]...[."""
    colon_ends: bool = False
    """Whether a colon means "such that", as in braces, instead of a ratio."""

    # --- the algorithm ---

    def expression(self, floor: int = 0) -> Node:
        """Read a value and everything after that binds tighter than `floor`.

        Raises:
            Unreadable: the next token begins no value; TooBig beyond the limits of size.
        """
        token = self.tokens[self.position]
        prefix = self.grammar.prefix.get(token.value if token.kind == "op" else token.kind)
        if prefix is None:
            raise Unreadable(f"{token.value or token.kind!r} where a value should be")
        node, ceiling = prefix(self), TIGHTEST
        while ceiling:
            node, ceiling = self._extended(node, floor, ceiling)
        return node

    def _extended(self, node: Node, floor: int, ceiling: int) -> tuple[Node, int]:
        """Apply the first infix rule that fits; returns (longer node, binding power), or power 0
        without a rule.

        The ceiling is the power of the last rule: a tighter operator must not reach inside a
        node that a looser rule has already made.
        """
        token = self.tokens[self.position]
        for power, extend in self.grammar.infix.get(
            token.value if token.kind == "op" else token.kind, ()
        ):
            if floor < power <= ceiling and (longer := extend(self, node)) is not None:
                return self.count(longer), power
        return node, 0

    def inside(self, floor: int = 0) -> Node:
        """Read an expression a level deeper: in brackets, exponents and arguments."""
        return self.deeper(Parser.expression, floor)

    def deeper(self, read: Callable[..., Node], *floor: int) -> Node:
        """Run `read` a level deeper, above a floor if it takes one.

        Raises:
            TooBig: deeper than MAX_DEPTH.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig(f"nested deeper than {MAX_DEPTH}")
        node = read(self, *floor)
        self.depth -= 1
        return node

    def count(self, node: Node) -> Node:
        """Count a new node against MAX_NODES and return the node."""
        self.made += 1
        if self.made > MAX_NODES:
            raise TooBig(f"more than {MAX_NODES} terms and factors")
        return node

    # --- tokens ---

    @property
    def here(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.position]

    def ahead(self, offset: int = 1) -> Token:
        """Return a token further on, or the last token when past the end."""
        return self.tokens[min(self.position + offset, len(self.tokens) - 1)]

    def rest(self) -> list[Token]:
        """Return the remaining tokens, without the `end` token."""
        return self.tokens[self.position : -1]

    def sees(self, kind: str) -> bool:
        """Return whether the next token is of this kind."""
        return self.tokens[self.position].kind == kind

    def at(self, kind: str, value: str) -> bool:
        """Return whether the next token has this kind and value."""
        token = self.tokens[self.position]
        return token.kind == kind and token.value == value

    def take(self) -> Token:
        """Consume and return the next token; the `end` token is never consumed."""
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def accept(self, kind: str, value: str | None = None) -> bool:
        """Consume the next token if the kind (and value) match; returns whether that happened."""
        token = self.tokens[self.position]
        if token.kind != kind or (value is not None and token.value != value):
            return False
        self.position += 1
        return True

    def expect(self, kind: str, value: str | None = None) -> None:
        """Consume a token that must come next.

        A token missing at the very end is forgiven, since the answer may have been cut off.

        Raises:
            Unreadable: another token comes next.
        """
        if not self.accept(kind, value) and self.here.kind != "end":
            raise Unreadable(
                f"expected {value or kind} before {self.here.value or self.here.kind!r}"
            )
