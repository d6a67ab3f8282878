"""Reads function-calling problems from files in the Berkeley Function Calling Leaderboard's layout.

    problems   {"id", "question": [[{"role", "content"}, ...]], "function": [{"name", ...}]}
    answers    {"id", "ground_truth": [{"name": {"argument": [values that will do]}}]}

Answers are in `possible_answer/` beside the problems, in a file of the same name, or in the rows
themselves. A problem whose id begins with `irrelevance` needs no answer: no call is right there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role

from ...rows import rows_of
from ...tools import ToolSpec
from .matching import Expected
from .schemas import as_tool

ANSWERS_FOLDER = "possible_answer"
UNANSWERED = "irrelevance"


class CallProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A request, the offered functions, and the expected calls."""

    id: str
    messages: list[Message]
    """The request, as the messages of one turn."""
    functions: list[ToolSpec]
    """The functions on offer, as tools."""
    expected: list[Expected]
    """The expected calls; empty where no call is right."""

    @property
    def difficulty(self) -> float:
        """The number of expected calls."""
        return float(len(self.expected))


def load_problems(sources: Sequence[str], answers: str = "") -> list[CallProblem]:
    """Load the problems of some files.

    Args:
        sources: the files of problems, as `rows_of` reads them.
        answers: the file of their answers; empty looks in `possible_answer/` beside each file.

    Raises:
        ConfigError: a file cannot be read, or a row is not such a problem; the message names it.
    """
    problems: list[CallProblem] = []
    for source in sources:
        beside = Path(source).parent / ANSWERS_FOLDER / Path(source).name
        path = Path(answers) if answers else beside
        # A file of answers that was named must exist; the one beside the problems need not, since
        # the rows of problems may have the answers.
        answer_rows = rows_of(str(path)) if answers or path.is_file() else []
        answers_by_id = {str(row.get("id")): row.get("ground_truth") for row in answer_rows}
        problems += [_problem(row, answers_by_id, source) for row in rows_of(source)]
    if not problems:
        raise ConfigError(f"no problems in {', '.join(map(repr, sources))}")
    return problems


def _problem(row: Mapping[str, Any], answers: Mapping[str, Any], source: str) -> CallProblem:
    """Convert a row of the file `source`, with the ground truth of each problem by id."""
    identity = str(row.get("id", ""))
    place = f"{source}, problem {identity!r}"
    functions = row.get("function", [])
    function_rows = functions if isinstance(functions, list) else [functions]
    try:
        # Of a conversation only the first turn is asked. A text becomes a user message.
        question = row.get("question")
        if isinstance(question, str):
            messages = [Message(role=Role.USER, content=question)]
        else:
            if not isinstance(question, list) or not question:
                raise ConfigError(f"there is no question: {str(question)[:80]!r}")
            turn = question[0] if isinstance(question[0], list) else question
            messages = [
                Message(role=Role(message["role"]), content=str(message["content"]))
                for message in turn
            ]
        truth = row.get("ground_truth", answers.get(identity))
        if truth is None and not identity.startswith((UNANSWERED, f"live_{UNANSWERED}")):
            raise ConfigError(
                f"it has no answer; name the file of answers, or put it in {ANSWERS_FOLDER}/"
            )
        return CallProblem(
            id=identity,
            messages=messages,
            functions=[as_tool(function) for function in function_rows],
            expected=[
                Expected(
                    name,
                    {
                        key: value if isinstance(value, list) else [value]
                        for key, value in arguments.items()
                    },
                )
                for call in truth or []
                for name, arguments in call.items()
            ],
        )
    except (ConfigError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{place}: {error}") from None
