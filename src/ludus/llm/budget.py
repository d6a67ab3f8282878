"""A bound on the tokens that a client may use."""

from __future__ import annotations

import msgspec

from ludus.errors import BudgetExceeded


class TokenUsage(msgspec.Struct, kw_only=True):
    """Tokens as counted by a server."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total(self) -> int:
        """Tokens of prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, other: TokenUsage) -> None:
        """Add the tokens of `other` to these counts."""
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens


class TokenBudget:
    """A bound on the tokens of prompts and answers, shared by all clients that hold the budget.

    The cost of requests under way is known only when they are answered, so the bound can be
    exceeded by them; no request starts after the bound is reached.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.spent = TokenUsage()

    def ensure_left(self) -> None:
        """Raise BudgetExceeded if nothing is left."""
        if self.spent.total >= self.max_tokens:
            raise BudgetExceeded(
                f"the budget of {self.max_tokens} tokens is spent ({self.spent.total} used); raise "
                "it, or ask for less"
            )
