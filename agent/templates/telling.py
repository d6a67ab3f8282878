"""Texts about the findings of a probe: roles, lost words, errors and changes."""

from __future__ import annotations

from collections.abc import Sequence

from . import cases
from .cases import Case


def roles_of(case: Case) -> str:
    """Return the roles of a conversation, or how many messages a long one has."""
    roles = [str(message.role) for message in case.messages]
    return ", ".join(roles) if len(roles) <= 6 else f"{len(roles)} messages"


KINDS = {
    cases.SYSTEM: "the system message",
    cases.LATER: "the later system message",
    cases.USER: "the question",
    cases.SECOND: "the next user message",
    cases.SUMMARY: "the request for a summary",
    cases.ANSWER: "the answer",
    cases.SPOKEN: "text beside a call",
    cases.VALUE: "the call's arguments",
    cases.OTHER_VALUE: "the second call",
    cases.RESULT: "the result",
    cases.OTHER_RESULT: "the second result",
    cases.NAMES[0]: "the tool's name",
    cases.NAMES[1]: "the parameter's name",
    cases.DESCRIPTIONS[0]: "the tool's description",
    cases.DESCRIPTIONS[1]: "the parameter's description",
}
"""What each marker word stands for."""


def kinds_of(words: Sequence[str]) -> str:
    """Return what marker words of the cases stand for, such as "the question, the answer"."""
    return ", ".join(KINDS[word] for word in words)


def short_reason(error: Exception) -> str:
    """Return the words of the error behind a refusal, at most 120 characters."""
    cause = error.__cause__ or error
    return f"{str(cause).strip()[:120]!r}"


def first_change(sampled: str, rendered: str) -> str:
    """Return short quotations of both texts around the first character in which they differ."""
    index = next(
        (
            position
            for position, (a, b) in enumerate(zip(sampled, rendered, strict=False))
            if a != b
        ),
        min(len(sampled), len(rendered)),
    )
    near = slice(max(0, index - 12), index + 24)
    return f"{rendered[near]!r} for {sampled[near]!r}"
