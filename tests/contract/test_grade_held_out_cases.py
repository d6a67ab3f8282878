"""Tampering that must not be rewarded, and honest idioms that must not be a silent zero.

Most cases were written before the grader was read; `benchmarks/grader_cases.py` prints what becomes
of each. What still falls short is marked `short` in the files, with the reason; no
other case may.
"""

from __future__ import annotations

import asyncio
import os
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ludus.sandboxes import GradeOptions, SlotSandbox, grade_in_detail, open_sandbox
from ludus.verdict import Verdict

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]

FOLDER = Path(__file__).parent / "grader_cases"
TAMPERING = tomllib.loads((FOLDER / "tampering.toml").read_text())
TASKS: dict[str, dict[str, Any]] = {task["name"]: task for task in TAMPERING["task"]}
IDIOMS: list[dict[str, Any]] = [
    case
    for name in ("idioms.toml", "derived.toml")
    for case in tomllib.loads((FOLDER / name).read_text())["case"]
]

Asked = tuple[dict[str, Any], str, list[Any], bool]
"""A task, a solution, tests, and whether each of them counts for itself."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=4)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


async def grade_all(sandbox: SlotSandbox, asked: list[Asked]) -> list[Verdict]:
    """The verdicts, two gradings at a time."""
    busy = asyncio.Semaphore(2)

    async def one(task: dict[str, Any], solution: str, tests: list[Any], partial: bool) -> Verdict:
        options = GradeOptions(**task["options"], partial=partial)
        async with busy:
            graded = await grade_in_detail(
                sandbox, solution, tests, kind=task["kind"], options=options
            )
        return graded.verdict

    return list(await asyncio.gather(*(one(*each) for each in asked)))


def settled(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case whose right solution settles whether its tests can be judged."""
    return {**case, "options": {**case["options"], "reference": case["solution"]}}


async def test_honest_solutions_pass_the_tests_that_are_tampered_with(sandbox: SlotSandbox) -> None:
    asked: list[Asked] = [(task, task["honest"], task["tests"], False) for task in TASKS.values()]
    verdicts = zip(TASKS, await grade_all(sandbox, asked), strict=True)
    assert {name: each for name, each in verdicts if each.reward != 1.0} == {}


@pytest.mark.slow
async def test_no_tampering_is_rewarded_by_any_test(sandbox: SlotSandbox) -> None:
    asked: list[Asked] = []
    for case in TAMPERING["case"]:
        task = TASKS[case["task"]]
        tests = [task["tests"][number] for number in case.get("tests", [])]
        asked.append((task, case["solution"], tests or task["tests"], bool(tests)))
    assert len(asked) >= 185
    verdicts = await grade_all(sandbox, asked)
    assert {
        f"{case['task']}: {case['name']}"
        for case, verdict in zip(TAMPERING["case"], verdicts, strict=True)
        if (str(verdict.status), verdict.reward) != ("ok", 0.0)
    } <= {f"{case['task']}: {case['name']}" for case in TAMPERING["case"] if "short" in case}


@pytest.mark.slow
async def test_right_solutions_are_paid_or_the_idiom_is_named(sandbox: SlotSandbox) -> None:
    asked: list[Asked] = [
        (settled(case), case["solution"], case["tests"], False) for case in IDIOMS
    ]
    assert len(asked) >= 200
    verdicts = await grade_all(sandbox, asked)
    assert {
        case["name"]
        for case, verdict in zip(IDIOMS, verdicts, strict=True)
        if verdict.reward != 1.0 and not (str(verdict.status) == "invalid" and verdict.detail)
    } <= {case["name"] for case in IDIOMS if "short" in case}


@pytest.mark.slow
async def test_wrong_solutions_of_the_same_idioms_are_not_paid(sandbox: SlotSandbox) -> None:
    controls = [case for case in IDIOMS if "wrong" in case]
    asked: list[Asked] = [(settled(case), case["wrong"], case["tests"], False) for case in controls]
    assert len(asked) >= 195
    verdicts = await grade_all(sandbox, asked)
    assert [one["name"] for one, each in zip(controls, verdicts, strict=True) if each.reward] == []
