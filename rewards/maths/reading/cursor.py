"""A place in a list of tokens, and the bounds on how deep and how much a parser may build."""

from __future__ import annotations

from collections.abc import Callable

from .lexer import Token
from .nodes import Node, TooBig, Unreadable

MAX_DEPTH = 40
MAX_NODES = 500


class Cursor:
    """What every part of the grammar reads from."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.made = 0
        self.bars = 0
        self.french = False
        self.colons = True

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

    def expect(self, kind: str) -> None:
        """Consume a token that must be there; a missing one at the very end is forgiven (a
        cut-off answer).
        """
        if not self.accept(kind) and self.here.kind != "end":
            raise Unreadable(f"expected {kind} before {self.here.value or self.here.kind!r}")

    def deeper(self, parse: Callable[[], Node]) -> Node:
        """Run `parse` one level down."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig(f"nested deeper than {MAX_DEPTH}")
        node = parse()
        self.depth -= 1
        return node

    def count(self, node: Node) -> Node:
        """Count a made node against the limit."""
        self.made += 1
        if self.made > MAX_NODES:
            raise TooBig(f"more than {MAX_NODES} terms and factors")
        return node
