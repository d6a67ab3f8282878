"""The laws of the grader over random programs, and each class of faults that they have to find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
