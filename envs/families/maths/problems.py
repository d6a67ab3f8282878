r"""Reads problems with a final answer from the layouts of well-known data sets.

GSM8K       {"question", "answer": "... reasoning ... #### 42"}
MATH-500    {"problem", "solution", "answer", "level"}
MATH        {"problem", "solution": "... \boxed{42}", "level": "Level 3"}
AIME, AMC   {"problem" or "question", "answer" or "expected_answer"}
SVAMP       {"Body", "Question", "Answer"}
Olympiad    {"question", "final_answer": ["42"]}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ...problem_files import UnusableRow

QUESTION_FIELDS = ("problem", "question", "Question")
ANSWER_FIELDS = ("answer", "expected_answer", "final_answer", "Answer")
SOLUTION_FIELDS = ("solution", "reference_solution")
GSM8K_MARK = "####"

Gold = str | list[str]
"""The final answer; of a list, each element counts as right."""


class MathsProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem with a final answer."""

    id: str
    """A digest of the question: the same in every file, order and split."""
    question: str
    gold: Gold
    difficulty: float | None = None
    solution: str = ""
    """A worked solution, where the data has one."""


def read_row(row: Mapping[str, Any], *, question: str = "", answer: str = "") -> MathsProblem:
    """Read a row in any of the known layouts.

    Args:
        row: a row of the file, as decoded from JSON.
        question: the field with the question; empty looks for the known fields.
        answer: the field with the answer; empty looks for the known fields.

    Raises:
        UnusableRow: there is no question or no final answer.
    """
    question_text = _question(row, question)
    gold, solution = _answer(row, answer)
    # MATH's level is a number from 1 to 5 or a text such as `Level 3`.
    level = re.fullmatch(r"(?:Level )?(\d+)", str(row.get("level")))
    return MathsProblem(
        id=digest(question_text),
        question=question_text,
        gold=gold,
        difficulty=float(level[1]) if level else None,
        solution=solution,
    )


class MathsRows(msgspec.Struct, frozen=True, kw_only=True):
    """Reads rows of mathematics; the fields are the arguments of `read_row`."""

    question: str = ""
    answer: str = ""

    def read(self, row: Mapping[str, Any]) -> MathsProblem:
        """Read a row. Raises UnusableRow."""
        return read_row(row, question=self.question, answer=self.answer)


def digest(question: str) -> str:
    """Return the id of a problem: equal where questions differ in spacing alone."""
    text = " ".join(question.split())
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _question(row: Mapping[str, Any], field: str) -> str:
    for name in [field] if field else QUESTION_FIELDS:
        text = row.get(name)
        if isinstance(text, str) and text.strip():
            body = row.get("Body") if name == "Question" else None
            return f"{body} {text}".strip() if isinstance(body, str) else text.strip()
    raise UnusableRow(f"no question among the fields {', '.join(row)}")


def _answer(row: Mapping[str, Any], field: str) -> tuple[Gold, str]:
    solution = next((row[name] for name in SOLUTION_FIELDS if isinstance(row.get(name), str)), "")
    for name in [field] if field else ANSWER_FIELDS:
        value = row.get(name)
        if isinstance(value, str) and GSM8K_MARK in value:
            reasoning, _, final = value.rpartition(GSM8K_MARK)
            # A number without the marks of GSM8K, which writes `$1,234`.
            # Remove GSM8K's calculator marks, such as `<<48/2=24>>` in `48/2 = <<48/2=24>>24`.
            return final.strip().lstrip("$").replace(",", ""), re.sub(
                r"<<[^<>]*>>", "", reasoning
            ).strip()
        gold = _gold(value)
        if gold:
            return gold, solution
    boxed = last_boxed(solution)
    if boxed:
        return boxed, solution
    raise UnusableRow(f"no final answer among the fields {', '.join(row)}")


def _gold(value: object) -> Gold:
    if isinstance(value, list):
        return [text for item in value if isinstance(text := _gold(item), str) and text]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else ""


def last_boxed(text: str) -> str:
    r"""Return the content of the last `\boxed{}`, with balanced braces, or an empty text.

    >>> last_boxed(r"so \boxed{1} or \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    begin, depth = start + len("\\boxed{"), 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position].strip()
    return ""
