"""Reads programming problems from the layouts of well-known data sets.

HumanEval      {"task_id", "prompt", "entry_point", "test", "canonical_solution"}
MBPP           {"task_id", "text" or "prompt", "code", "test_list", "test_setup_code"}
LiveCodeBench  {"question_content", "starter_code", "public_test_cases", "private_test_cases"}
APPS, TACO     {"question", "input_output": {"inputs", "outputs", "fn_name"}, "solutions"}
CommonOJ       {"id", "content", "test": [{"input": {"stdin"}, "output": {"stdout"}}]}
ludus          {"question" or "prompt", "tests", "kind", "entry_point", ...}: the gold of `coding`
"""

from __future__ import annotations

import ast
import base64
import binascii
import hashlib
import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never

import msgspec

from ludus.rewards.coding import GOLD_OPTIONS
from ludus.sandboxes.grading.sources import literal
from ludus.sandboxes.guest.testing.harness import PLAIN

from ...problem_files import UnusableRow

_LEVELS = {
    "easy": 1.0, "medium": 2.0, "hard": 3.0,
    "introductory": 1.0, "interview": 2.0, "competition": 3.0,
}  # fmt: skip
"""The difficulty, a number, for each level's name in data sets."""

_PROGRAM = "Write a program that reads standard input and prints to standard output."


class CodingProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A programming problem with hidden tests."""

    id: str
    """The data set's own id, or a digest of the question: the same in every file and order."""
    question: str
    gold: dict[str, Any]
    """The hidden tests and options, in the form the verifier `coding` reads."""
    solution: str = ""
    """A right program, where the data has one."""
    difficulty: float | None = None


def read_row(row: Mapping[str, Any], *, shown_tests: int = 1, compare: str = "") -> CodingProblem:
    """Read a row in any of the known layouts.

    Args:
        row: a row of the file, as decoded from JSON.
        shown_tests: how many of its tests an MBPP question shows (without any, it names no
            function); the published protocol shows all three.
        compare: how outputs of programs are compared; `exact` unless the row says otherwise.

    Raises:
        UnusableRow: there is no question or no test, or a field is not what its layout says.
    """
    reader = next((read for fields, read in _LAYOUTS if all(key in row for key in fields)), None)
    if reader is None:
        raise UnusableRow(f"no known layout has the fields {', '.join(row)}")
    try:
        return reader(row, shown_tests, compare)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError) as error:
        if isinstance(error, UnusableRow):
            raise
        raise UnusableRow(f"{type(error).__name__}: {error}") from error


class CodingRows(msgspec.Struct, frozen=True, kw_only=True):
    """Reads rows of programming problems; the fields are the arguments of `read_row`."""

    shown_tests: int = 1
    compare: str = ""

    def read(self, row: Mapping[str, Any]) -> CodingProblem:
        """Read a row. Raises UnusableRow."""
        return read_row(row, shown_tests=self.shown_tests, compare=self.compare)


def digest(text: str) -> str:
    """Return an id for a problem without an id: equal where questions differ in spacing alone."""
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).hexdigest()


def _problem(
    row: Mapping[str, Any], question: str, gold: dict[str, Any], **fields: Any
) -> CodingProblem:
    name = next((str(row[key]) for key in ("task_id", "question_id", "id") if row.get(key)), "")
    if not question.strip():
        raise UnusableRow("the question is empty")
    if not gold["tests"]:
        raise UnusableRow("there are no tests")
    level = row.get("difficulty")
    if isinstance(level, (int, float)) and not isinstance(level, bool):
        difficulty: float | None = float(level)
    else:
        difficulty = _LEVELS.get(str(level).lower())
    return CodingProblem(
        id=name or digest(question),
        question=question.strip(),
        gold={key: value for key, value in gold.items() if value}
        | ({"reference": fields["solution"]} if fields.get("solution") else {}),
        difficulty=difficulty,
        **fields,
    )


def _fenced(source: str) -> str:
    return f"```python\n{source.strip()}\n```"


# --- functions ------------------------------------------------------------------------------------


def _human_eval(row: Mapping[str, Any], _: int, __: str) -> CodingProblem:
    stub, name = str(row["prompt"]), str(row["entry_point"])
    # The imports and helpers of a prompt: everything but the function under test.
    try:
        body = ast.parse(stub).body
    except SyntaxError:
        context = ""
    else:
        other_nodes = [node for node in body if getattr(node, "name", "") != name]
        context = "\n\n".join(ast.unparse(node) for node in other_nodes)
    gold = {
        "tests": [str(row["test"])],
        "entry_point": name,
        "context": context,
        "stub": stub,
        "prelude": context,
    }
    solved = stub + str(row.get("canonical_solution", ""))
    return _problem(row, f"Complete the function:\n\n{_fenced(stub)}", gold, solution=solved)


def _mbpp(row: Mapping[str, Any], shown_tests: int, _: str) -> CodingProblem:
    text = str(row.get("text") or row["prompt"])
    setup = "\n".join([str(row.get("test_setup_code") or ""), *row.get("test_imports", [])]).strip()
    tests = [*row["test_list"], *(row.get("challenge_test_list") or [])]
    shown_tests_text = "\n".join(row["test_list"][: max(1, shown_tests)])
    question = f"{text}\n\nYour code has to pass, among others:\n\n{_fenced(shown_tests_text)}"
    name = f"MBPP/{row['task_id']}" if "task_id" in row else ""
    code = str(row.get("code", "")).replace("\r\n", "\n")
    gold = {
        "tests": [f"{setup}\n{test}".strip() for test in tests],
        "entry_point": _function_called(code, tests),
    }
    return _problem({**row, "task_id": name}, question, gold, solution=code)


def _function_called(code: str, tests: Sequence[str]) -> str:
    """Return the only function of a program that the tests call, or ""."""
    try:
        defined = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
        nodes = [node for test in tests for node in ast.walk(ast.parse(test))]
    except SyntaxError:
        return ""
    called = {
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return min(defined & called) if len(defined & called) == 1 else ""


# --- programs -------------------------------------------------------------------------------------


def _live_code_bench(row: Mapping[str, Any], _: int, compare: str) -> CodingProblem:
    cases = [*_cases(row["public_test_cases"]), *_cases(row.get("private_test_cases") or "[]")]
    text, starter = str(row["question_content"]), str(row.get("starter_code") or "")
    if starter.strip():
        metadata = _decoded(row.get("metadata") or "{}")
        question = f"{text}\n\nBegin with:\n\n{_fenced(starter)}"
        return _problem(row, question, _calls(str(metadata["func_name"]), starter, cases))
    return _problem(row, f"{text}\n\n{_PROGRAM}", _outputs(cases, compare))


def _apps(row: Mapping[str, Any], _: int, compare: str) -> CodingProblem:
    pairs = _decoded(row["input_output"])
    cases = [
        {"input": stdin, "output": expected}
        for stdin, expected in zip(pairs["inputs"], pairs["outputs"], strict=True)
    ]
    text, starter = str(row["question"]), str(row.get("starter_code") or "")
    solutions = _decoded(row.get("solutions") or "[]")
    solution = str(solutions[0]) if solutions else ""
    if name := pairs.get("fn_name"):
        question = f"{text}\n\nBegin with:\n\n{_fenced(starter or f'def {name}(...):')}"
        gold = _calls(str(name), starter or solution, cases, nested=True)
        return _problem(row, question, gold, solution=solution)
    return _problem(row, f"{text}\n\n{_PROGRAM}", _outputs(cases, compare), solution=solution)


def _common_oj(row: Mapping[str, Any], _: int, compare: str) -> CodingProblem:
    cases = [
        {"input": case["input"]["stdin"], "output": case["output"]["stdout"]}
        for case in _decoded(row["test"])
    ]
    return _problem(row, f"{row['content']}\n\n{_PROGRAM}", _outputs(cases, compare))


def _from_own_row(row: Mapping[str, Any], _: int, compare: str) -> CodingProblem:
    question = str(row.get("question") or row.get("prompt") or "")
    gold = {key: row[key] for key in ("tests", "kind", *GOLD_OPTIONS) if key in row}
    if compare:
        gold.setdefault("compare", compare)
    return _problem(row, question, gold, solution=str(row.get("solution", "")))


def _outputs(cases: Sequence[Mapping[str, Any]], compare: str) -> dict[str, Any]:
    tests = [{"input": _lines(case["input"]), "output": _lines(case["output"])} for case in cases]
    return {"tests": tests, "kind": "stdin", "compare": compare}


def _lines(text: object) -> str:
    """Return an input or output as text; APPS keeps some as lists of lines."""
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _calls(
    name: str, starter: str, cases: Sequence[Mapping[str, Any]], *, nested: bool = False
) -> dict[str, Any]:
    """Return the gold of tests that call a function, or a method of `Solution`, as assertions.

    `nested`: outputs are wrapped in a list with a single element, as in APPS.
    """
    function = f"Solution().{name}" if "class Solution" in starter else name
    tests = [_call(function, case, nested=nested) for case in cases]
    return {"tests": tests, "entry_point": name if function == name else ""}


def _call(function: str, case: Mapping[str, Any], *, nested: bool) -> str:
    call_input, expected = case["input"], case["output"]
    arguments = call_input
    if isinstance(call_input, str):  # LiveCodeBench has an argument per line, as JSON
        arguments = [json.loads(line) for line in call_input.split("\n")]
        expected = json.loads(expected) if isinstance(expected, str) else expected
    result = f"{PLAIN}({function}(*{literal(arguments)}))"
    answer = literal(expected, allow_nan=False)
    if nested and isinstance(expected, list) and len(expected) == 1:
        return f"assert {result} in ({literal(expected[0])}, {answer})"
    return f"assert {result} == {answer}"


def _cases(field: object) -> list[dict[str, Any]]:
    """Decode LiveCodeBench's cases: JSON, or a pickled JSON string under zlib and base64."""
    if not isinstance(field, str) or field.lstrip().startswith("["):
        return list(_decoded(field))
    try:
        packed = zlib.decompress(base64.b64decode(field, validate=True))
        text: object = _TextUnpickler(io.BytesIO(packed)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise UnusableRow(f"the packed test cases cannot be read: {error}") from error
    return list(_decoded(text))


class _TextUnpickler(pickle.Unpickler):
    """An unpickler for plain values only: a pickle that names a class or function is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> Never:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not a plain value")


def _decoded(field: object) -> Any:
    """Decode a field that some files keep as JSON in a string."""
    return json.loads(field) if isinstance(field, str) else field


_LAYOUTS: tuple[
    tuple[tuple[str, ...], Callable[[Mapping[str, Any], int, str], CodingProblem]], ...
] = (
    (("prompt", "entry_point", "test"), _human_eval),
    (("test_list",), _mbpp),
    (("question_content", "public_test_cases"), _live_code_bench),
    (("question", "input_output"), _apps),
    (("content", "test"), _common_oj),
    (("tests",), _from_own_row),
)
"""The fields that identify each layout, with its reader; the most specific layout comes first."""
