"""Function-calling problems from files, in the layout of the Berkeley Function Calling Leaderboard.

    problems   {"id", "question": [[{"role", "content"}, ...]], "function": [{"name", ...}]}
    answers    {"id", "ground_truth": [{"name": {"argument": [values that will do]}}]}

Answers stand in `possible_answer/` beside the problems, in a file of the same name, or in the rows
themselves. Without any, problems called `irrelevance` are those on which nothing is to be called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role

from ..rows import rows_of
from ..tools import ToolSpec
from .matching import Expected
from .schemas import as_tool

ANSWERS_FOLDER = "possible_answer"
UNANSWERED = "irrelevance"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One request, the functions on offer, and the calls it asks for."""

    id: str
    messages: list[Message]
    functions: list[ToolSpec]
    expected: list[Expected]
    """None where nothing is to be called."""

    @property
    def difficulty(self) -> float:
        """How many calls are asked for."""
        return float(len(self.expected))


def load_problems(sources: Sequence[str], answers: str = "") -> list[Problem]:
    """The problems of some files.

    Raises:
        ConfigError: a file cannot be read, or a row of it is no such problem; the message names it.
    """
    problems: list[Problem] = []
    for source in sources:
        known = _answers(source, answers)
        problems += [_problem(row, known, source) for row in rows_of(source)]
    if not problems:
        raise ConfigError(f"no problems in {', '.join(map(repr, sources))}")
    return problems


def _answers(source: str, named: str) -> dict[str, Any]:
    """id -> ground truth."""
    path = Path(named) if named else Path(source).parent / ANSWERS_FOLDER / Path(source).name
    if not named and not path.is_file():
        return {}
    return {str(row.get("id")): row.get("ground_truth") for row in rows_of(str(path))}


def _problem(row: Mapping[str, Any], answers: Mapping[str, Any], source: str) -> Problem:
    identity = str(row.get("id", ""))
    where = f"{source}, problem {identity!r}"
    functions = row.get("function", [])
    listed = functions if isinstance(functions, list) else [functions]
    try:
        return Problem(
            id=identity,
            messages=_messages(row.get("question")),
            functions=[as_tool(one) for one in listed],
            expected=_expected(row.get("ground_truth", answers.get(identity)), identity),
        )
    except (ConfigError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from None


def _messages(question: Any) -> list[Message]:
    """The first turn of a conversation; text is one message of the user."""
    if isinstance(question, str):
        return [Message(role=Role.USER, content=question)]
    if not isinstance(question, list) or not question:
        raise ConfigError(f"there is no question: {str(question)[:80]!r}")
    turn = question[0] if isinstance(question[0], list) else question
    return [Message(role=Role(one["role"]), content=str(one["content"])) for one in turn]


def _expected(truth: Any, identity: str) -> list[Expected]:
    if truth is None and not identity.startswith((UNANSWERED, f"live_{UNANSWERED}")):
        raise ConfigError(
            f"it has no answer; name the file of answers, or put it in {ANSWERS_FOLDER}/"
        )
    return [
        Expected(name, {key: _values(given) for key, given in arguments.items()})
        for call in truth or []
        for name, arguments in call.items()
    ]


def _values(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]
