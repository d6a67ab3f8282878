"""The laws of the grader over random programs, and each class of faults that they have to find."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).parents[2] / "benchmarks" / "grader_fuzz.py"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
]


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FUZZ), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_right_programs_are_paid_and_liars_neither_paid_nor_excused() -> None:
    done = fuzz("--count", "40", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "laws"),
    [
        # A name that the solution supplies pays liars, and costs right programs their tests.
        ("names", ("paid", "zero")),
        ("callables", ("paid",)),
        ("answers", ("paid",)),
        ("excuses", ("excused",)),
        ("state", ("zero",)),
    ],
)
def test_a_fault_of_each_class_is_found(fault: str, laws: tuple[str, ...]) -> None:
    """Without the fault, the same programs are judged without a finding (by the benchmark)."""
    done = fuzz("--count", "3000", "--seed", "1", "--first", "--plant", fault)
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(f"  {law} " in done.stdout for law in laws)


@pytest.fixture
def fuzzer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FUZZ.parent))
    return importlib.import_module("grader_fuzz")


def test_what_both_sides_change_is_the_same_on_both_sides_as_in_plain_python(fuzzer: Any) -> None:
    async def findings() -> list[Any]:
        programs = [fuzzer.sharing_program(random.Random(number)) for number in range(16)]
        assert all(program.near for program in programs)
        wrong = [[("near", source) for source in program.near] for program in programs]
        judged = map(fuzzer.findings, programs, wrong, [list] * len(programs))
        return [finding for each in judged for finding in await each]

    assert asyncio.run(findings()) == []


def asking(fuzzer: Any, numbers: range) -> list[Any]:
    """Tasks of one shape: `f` gives back its argument."""
    right = "def f(n):\n    return n\n"
    return [
        fuzzer.Program("given back", right, [f"assert f({n}) == {n}"], "f", ["f"]) for n in numbers
    ]


def test_an_answer_that_is_right_by_chance_is_no_lie_that_is_paid(fuzzer: Any) -> None:
    task, *sisters = asking(fuzzer, range(3, 9))
    constant = "def f(n):\n    return 3\n"
    assert asyncio.run(fuzzer.is_luck(constant, task, sisters))
    assert not asyncio.run(fuzzer.is_luck(constant, task, []))


def test_what_most_sisters_pay_or_plain_python_does_not_is_no_luck(fuzzer: Any) -> None:
    task, *sisters = asking(fuzzer, range(3, 9))
    assert not asyncio.run(fuzzer.is_luck(task.solution, task, sisters))
    assert not asyncio.run(fuzzer.is_luck("def f(n):\n    return 4\n", task, sisters))


def test_sisters_have_the_same_shape_and_other_numbers(fuzzer: Any) -> None:
    asked = 0
    for number in range(200):
        program, _ = fuzzer.drawn(1, number)
        tests = [program.tests]
        for sister in fuzzer.sisters_of(1, number):
            assert (sister.kind, sister.wanted) == (program.kind, program.wanted)
            assert sister.tests not in tests
            tests.append(sister.tests)
        asked += len(tests) > 4
    assert asked > 100
