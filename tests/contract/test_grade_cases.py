"""Solutions that would decide their own tests, and honest tests of many idioms.

The cases are data: `grading/tampering.toml` (each task with a solution that is paid, and cheats
that may not be) and `grading/idioms.toml` (each with a right solution and a wrong one, or the
reason why the tests cannot be judged).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ludus.sandboxes import GradeOptions, SlotSandbox, grade_in_detail, open_sandbox
from ludus.verdict import Status, Verdict

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]

FOLDER = Path(__file__).parent / "grading"


def read(name: str, table: str) -> dict[str, dict[str, Any]]:
    rows = tomllib.loads((FOLDER / name).read_text())[table]
    return {row["name"]: row for row in rows}


TASKS = read("tampering.toml", "task")
IDIOMS = read("idioms.toml", "idiom")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=2)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


RIGHT_S = 30
"""Seconds for a right solution, which may import pytest beside many other tests."""


async def graded(
    sandbox: SlotSandbox, case: dict[str, Any], solution: str, *, timeout_s: float = 5
) -> Verdict:
    reference = case["right"] if case.get("reference") else ""
    options = GradeOptions(
        entry_point=case.get("entry_point", ""), timeout_s=timeout_s, reference=reference
    )
    kind = case.get("kind", "assert")
    return (
        await grade_in_detail(sandbox, solution, case["tests"], kind=kind, options=options)
    ).verdict


@pytest.mark.parametrize("name", TASKS)
async def test_only_the_honest_solution_is_paid(sandbox: SlotSandbox, name: str) -> None:
    task = TASKS[name]
    honest = await graded(sandbox, task, task["honest"], timeout_s=RIGHT_S)
    assert (honest.status, honest.reward) == (Status.OK, 1.0), honest.detail
    outcomes = {
        cheat: await graded(sandbox, task, task["cheats"][cheat]) for cheat in task["cheats"]
    }
    assert {
        cheat: verdict
        for cheat, verdict in outcomes.items()
        if (verdict.status, verdict.reward) != (Status.OK, 0.0)
    } == {}


@pytest.mark.parametrize("name", IDIOMS)
async def test_an_idiom_is_judged_or_named(sandbox: SlotSandbox, name: str) -> None:
    idiom = IDIOMS[name]
    right = await graded(sandbox, idiom, idiom["right"], timeout_s=RIGHT_S)
    wrong = await graded(sandbox, idiom, idiom["wrong"])
    if word := idiom.get("invalid"):
        assert right.status is Status.INVALID, right
        assert word in right.detail
        assert wrong.reward is None or wrong.reward == 0.0
    else:
        assert (right.status, right.reward) == (Status.OK, 1.0), right.detail
        assert (wrong.status, wrong.reward) == (Status.OK, 0.0), wrong.detail
