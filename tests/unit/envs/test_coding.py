"""Programming problems: rows of data sets, the generator, what the verifier makes of a response."""

import ast
import base64
import json
import pickle
import random
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.envs.families.coding import Coding, CodingRows, read_row
from ludus.envs.families.coding.generated import (
    NUMBERS,
    RESULTS,
    STEPS,
    WORDS,
    Edit,
    GeneratedCodingProblems,
    draw,
    function_source,
)
from ludus.envs.families.maths import Maths
from ludus.envs.families.verilog import Verilog
from ludus.envs.problem_files import UnusableRow, load_problems
from ludus.envs.tasks import GeneratedTasks
from ludus.errors import ConfigError

HUMAN_EVAL = {
    "task_id": "HumanEval/38",
    "prompt": "import math\n\ndef up(n):\n    return n + 1\n\ndef twice(n: int):\n    '''2n'''\n",
    "entry_point": "twice",
    "canonical_solution": "    return up(n) + n - 1\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
MBPP = {
    "task_id": 7,
    "text": "Write a function to add.",
    "code": "def add(a, b):\r\n  return a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"],
    "test_setup_code": "import math",
    "challenge_test_list": ["assert add(-1, 1) == 0"],
}


def test_human_eval_rows_keep_imports_and_helpers_apart_from_the_function() -> None:
    problem = read_row(HUMAN_EVAL)
    assert problem.id == "HumanEval/38"
    assert problem.gold["context"] == "import math\n\ndef up(n):\n    return n + 1"
    assert problem.gold["prelude"] == problem.gold["context"]
    assert problem.gold["stub"] == HUMAN_EVAL["prompt"]
    assert problem.solution.endswith("'''2n'''\n    return up(n) + n - 1\n")
    assert "candidate(2)" not in problem.question


def test_mbpp_rows_show_as_many_tests_as_asked_and_grade_by_all() -> None:
    problem = read_row(MBPP)
    assert problem.id == "MBPP/7"
    assert problem.gold["tests"] == [
        "import math\nassert add(1, 2) == 3",
        "import math\nassert add(2, 2) == 4",
        "import math\nassert add(-1, 1) == 0",
    ]
    assert "add(1, 2)" in problem.question
    assert "add(2, 2)" not in problem.question
    assert "add(2, 2)" in read_row(MBPP, shown_tests=3).question
    assert "\r" not in problem.solution


def test_live_code_bench_rows_of_programs() -> None:
    row = {
        "question_id": "abc_1",
        "question_content": "Print the double.",
        "starter_code": "",
        "difficulty": "medium",
        "public_test_cases": '[{"input": "2\\n", "output": "4\\n", "testtype": "stdin"}]',
        "private_test_cases": packed('[{"input": "3\\n", "output": "6\\n"}]'),
    }
    problem = read_row(row, compare="tokens")
    assert problem.gold == {
        "tests": [{"input": "2\n", "output": "4\n"}, {"input": "3\n", "output": "6\n"}],
        "kind": "stdin",
        "compare": "tokens",
    }
    assert (problem.id, problem.difficulty) == ("abc_1", 2.0)
    assert "reads standard input" in problem.question


def packed(text: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


def test_live_code_bench_rows_of_methods() -> None:
    row = {
        "question_content": "Add.",
        "starter_code": "class Solution:\n    def add(self, a, b):\n",
        "metadata": '{"func_name": "add"}',
        "public_test_cases": '[{"input": "[1]\\n\\"x\\"", "output": "[1, \\"x\\"]"}]',
    }
    (test,) = read_row(row).gold["tests"]
    assert test == "assert _ludus_plain(Solution().add(*[[1], 'x'])) == [1, 'x']"
    assert "Begin with:" in read_row(row).question


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "sprung"), "w"))

    row = {"question_content": "Q", "public_test_cases": "[]", "private_test_cases": packed(Trap())}
    with pytest.raises(UnusableRow, match="not a plain value"):
        read_row(row)
    assert not (tmp_path / "sprung").exists()


def test_apps_rows_of_programs_and_functions() -> None:
    program = {
        "question": "Double.",
        "solutions": '["print(2 * int(input()))"]',
        "input_output": '{"inputs": ["2\\n", ["3"]], "outputs": ["4\\n", ["6"]]}',
        "difficulty": "interview",
    }
    problem = read_row(program)
    assert problem.gold["tests"][1] == {"input": "3", "output": "6"}
    assert problem.solution == "print(2 * int(input()))"
    function = {
        "question": "Double.",
        "input_output": {"fn_name": "double", "inputs": [[2]], "outputs": [[4]]},
    }
    (test,) = read_row(function).gold["tests"]
    assert test == "assert _ludus_plain(double(*[2])) in (4, [4])"


def test_infinity_in_a_row_is_no_name_that_a_solution_may_define() -> None:
    call = {
        "question_content": "Largest.",
        "starter_code": "def f(a):",
        "metadata": '{"func_name": "f"}',
        "public_test_cases": '[{"input": "[Infinity, NaN]", "output": "[-Infinity]"}]',
    }
    function = {
        "question": "Largest.",
        "input_output": '{"fn_name": "f", "inputs": [[NaN]], "outputs": [[Infinity]]}',
    }
    for row in (call, function):
        (test,) = read_row(row).gold["tests"]
        names = {node.id for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
        assert names == {"_ludus_plain", "f"}, test
    with pytest.raises(UnusableRow, match="NaN"):
        read_row({**call, "public_test_cases": '[{"input": "1", "output": "[NaN]"}]'})


def test_common_oj_and_own_rows() -> None:
    row = {
        "id": 5,
        "content": "Double.",
        "test": '[{"input": {"stdin": "2"}, "output": {"stdout": "4"}}]',
    }
    assert read_row(row).gold["tests"] == [{"input": "2", "output": "4"}]
    own = {"question": "Q", "tests": ["assert f()"], "entry_point": "f", "solution": "S"}
    problem = read_row(own)
    assert problem.gold == {"tests": ["assert f()"], "entry_point": "f", "reference": "S"}
    assert (problem.solution, len(problem.id)) == ("S", 16)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({}, "no known layout"),
        ({"question": "Q", "answer": "5"}, "fields question, answer"),
        ({**MBPP, "test_list": [], "challenge_test_list": []}, "no tests"),
        ({"question": " ", "tests": ["x"]}, "question is empty"),
        ({"question": "Q", "input_output": "{"}, "JSONDecodeError"),
        ({"question": "Q", "input_output": {"inputs": [1], "outputs": []}}, "ValueError"),
        ({"content": "Q", "test": [{"input": 3}]}, "TypeError"),
        ({"question_content": "Q", "public_test_cases": "x"}, "cannot be read"),
    ],
)
def test_rows_that_cannot_be_used_say_why(row: dict[str, Any], why: str) -> None:
    with pytest.raises(UnusableRow, match=why):
        read_row(row)


def test_files_are_split_by_id_and_unusable_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"question": f"Q{n}", "tests": ["assert f()"]} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    env = Coding(str(path), validation=0.1, test=0.2)
    assert [env.tasks(split).size for split in ("train", "validation", "test")] == [28, 4, 8]
    path.write_text('{"answer": 3}\n')
    with pytest.raises(ConfigError, match="no known layout"):
        load_problems(str(path), CodingRows())
    for make in (Coding, Maths, Verilog):
        with pytest.raises(ConfigError, match="name the source, too"):
            make(test_source=str(path))


# --- the generator: every line by hand ------------------------------------------------------------

NUMBERS_IN = [3, -4, 6, 3, 9]
WORDS_IN = ["abba", "cel", "hairy", "cel"]
BY_HAND: dict[str, list[tuple[Edit, object]]] = {
    NUMBERS: list(
        zip(
            STEPS[NUMBERS],
            [
                [-4, 6],
                [3, 3, 9],
                [3, 6, 3, 9],
                [3, 3],
                [8, -6, 14, 8, 20],
                [-1, 6, -4, -1, -7],
                [9, 16, 36, 9, 81],
                [3, 4, 6, 3, 9],
                [3, 4, 6, 3, 9],
                [0, 2, 0, 0, 0],
                [2, -2, 2, 2, 2],
                [9, 3, 6, -4, 3],
                [6, 3, 9, 3, -4],
                [3, -4, 6, 9],
                [-4, 3, 3, 6, 9],
                [3, 3, -4, 6, 9],
                [-7, 10, -3, 6],
                [3, -1, 5, 8, 17],
                [3, 6, 9],
                [3, 6, 9],
                [3, -2, 6, 5, 9],
                [3, 6, 3, 9],
            ],
            strict=True,
        )
    ),
    WORDS: list(
        zip(
            STEPS[WORDS],
            [
                ["abba", "cel", "hairy", "cel"],
                ["cel", "hairy", "cel"],
                ["abba", "lec", "yriah", "lec"],
                ["ab", "ce", "ha", "ce"],
                ["bb", "cl", "hry", "cl"],
                ["bbaa", "elc", "airyh", "elc"],
                ["cddc", "egn", "jckta", "egn"],
                ["aabbba", "ccell", "hhaiiryy", "ccell"],
                ["aabb", "cel", "ahiry", "cel"],
                ["ab", "cel", "hairy", "cel"],
                ["abba", "cel", "hairy"],
                ["cel", "cel", "abba", "hairy"],
                ["abba", "cel", "cel", "hairy"],
                ["cel", "hairy", "cel", "abba"],
                ["hairy", "cel"],
                ["babba", "ecel", "ahairy", "ecel"],
            ],
            strict=True,
        )
    ),
}
"""Each step with its numbers k = m = 2, except those whose range begins later (k = m = 3)."""


def worked(steps: list[Edit], result: str, items: list[Any]) -> object:
    names: dict[str, Any] = {}
    exec(function_source(steps, Edit("", result)), names)
    return names["solve"](list(items))


class Low(random.Random):
    """Draws 2, or the lowest that may be drawn where that is not in the range."""

    def randint(self, a: int, b: int) -> int:
        return 2 if a <= 2 <= b else a


@pytest.mark.parametrize("kind", [NUMBERS, WORDS])
def test_every_step_does_what_it_says(kind: str) -> None:
    given = NUMBERS_IN if kind == NUMBERS else WORDS_IN
    for step, expected in BY_HAND[kind]:
        filled = step.filled(Low())
        assert worked([filled], "return items", given) == expected, filled.says
        assert isinstance(worked([filled], "return items", []), list)
        assert "{" not in filled.says


def test_every_result_is_what_it_says() -> None:
    expected = {
        NUMBERS: [17, 9, 4, 3 + 4 + 6 - 3 + 9, 3 - 8 + 18 + 12 + 45, 2, 3, NUMBERS_IN, [-4, 9]],
        WORDS: [15, 1, "abba-cel-hairy-cel", "hairy", "achc", WORDS_IN, [4, 3, 5, 3]],
    }
    empty: dict[str, list[object]] = {
        NUMBERS: [0, 0, 0, 0, 0, 0, 0, [], []],
        WORDS: [0, 0, "", "", "", [], []],
    }
    for kind, given in ((NUMBERS, NUMBERS_IN), (WORDS, WORDS_IN)):
        lines = [step.does for _, step in RESULTS[kind]]
        assert [worked([], line, given) for line in lines] == expected[kind]
        assert [worked([], line, []) for line in lines] == empty[kind]


def test_generated_problems_show_two_examples_and_grade_by_ten_others_too() -> None:
    problems = GeneratedCodingProblems(forms="function")
    problem = problems.problem(problems.tasks("train").at(3))
    tests = problem.gold["tests"]
    assert len(tests) == 12
    shown = [test.removeprefix("assert ") in problem.question for test in tests]
    assert shown == [True] * 2 + [False] * 10


def test_generated_splits_share_no_steps() -> None:
    seen: dict[str, set[str]] = {}
    problems = GeneratedCodingProblems(min_steps=1, max_steps=1, forms="function")
    for split in ("train", "validation", "test"):
        tasks = problems.tasks(split)
        drawn = [problems.problem(tasks.at(index)).question for index in range(150)]
        seen[split] = {text.partition("Examples:")[0] for text in drawn}
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["validation"]
    assert not seen["validation"] & seen["test"]


def test_difficulty_is_the_number_of_steps() -> None:
    problems = GeneratedCodingProblems(min_steps=2, max_steps=5)
    tasks = problems.tasks("train")
    for index in range(20):
        task = tasks.at(index)
        assert task.difficulty == problems.problem(task).difficulty
    assert {tasks.at(index).difficulty for index in range(50)} == {2.0, 3.0, 4.0, 5.0}


def test_a_problem_whose_results_hardly_differ_is_not_posed() -> None:
    task = GeneratedTasks("train").at(0)
    rng = random.Random(1)
    drawn = [one for _ in range(200) if (one := draw(rng, task, 6, "function")) is not None]
    assert drawn
    for problem in drawn:
        results = {test.partition(" == ")[2] for test in problem.gold["tests"]}
        assert len(results) >= 5


def test_a_constant_passes_few_tests_also_where_each_is_paid() -> None:
    problems, passed = GeneratedCodingProblems(forms="function"), Counter[str]()
    tasks = problems.tasks("train")
    for index in range(100):
        tests = problems.problem(tasks.at(index)).gold["tests"]
        for result in (test.partition(" == ")[2] for test in tests):
            passed[result] += 1 / len(tests) / 100
    assert max(passed.values()) < 0.1


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_a_program_that_leaves_out_a_step_fails_a_test(steps: int) -> None:
    problems = GeneratedCodingProblems(min_steps=steps, max_steps=steps, forms="function")
    tasks = problems.tasks("train")
    for index in range(40):
        problem = problems.problem(tasks.at(index))
        head, *body, result = problem.solution.splitlines()
        assert len(body) == steps
        for left_out in range(steps):
            kept = [line for place, line in enumerate(body) if place != left_out]
            names: dict[str, Any] = {}
            exec("\n".join([head, *kept, result]), names)  # lines of ours alone
            tests = [test.removeprefix("assert ") for test in problem.gold["tests"]]
            assert not all(eval(test, names) for test in tests), problem.question


@pytest.mark.parametrize(
    "arguments",
    [{"min_steps": 0}, {"min_steps": 3, "max_steps": 2}, {"max_steps": 13}, {"forms": "poem"}],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Coding(**arguments)


def test_ludus_make_knows_it() -> None:
    env = ludus.make("ludus/coding-v0", forms="program")
    shown, _ = env.reset(seed=0)
    assert "reads one line" in str(shown)
