"""Gradings whose tests' side stays: it is used again, it may die, and nobody's verdict changes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from ludus.sandboxes import GradeOptions, SlotSandbox, grade_in_detail, open_sandbox
from ludus.sandboxes.local.slot_sandbox import PROVING
from ludus.verdict import Status

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]

RIGHT = "def f(n):\n    return n * n\n"
WRONG = "def f(n):\n    return n + n\n"
TESTS = ["assert f(2) == 4", "assert f(3) == 9"]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=2)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


def processes_of(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in text.split()]


def runners_of(sandbox: SlotSandbox) -> list[int]:
    """The tests' processes that stay, as this process sees them."""
    slots = sandbox.pool(PROVING)._of  # pyright: ignore[reportPrivateUsage]
    supervisors = [slot._supervisor.pid for slot in slots if slot.alive]  # pyright: ignore[reportPrivateUsage]
    inner = [slot for supervisor in supervisors for slot in processes_of(supervisor)]
    return [runner for slot in inner for runner in processes_of(slot)]


async def reward(sandbox: SlotSandbox, code: str, tests: list[str]) -> float | None:
    return (await grade_in_detail(sandbox, code, tests)).verdict.reward


async def test_the_tests_side_is_used_again(sandbox: SlotSandbox) -> None:
    assert await reward(sandbox, RIGHT, TESTS) == 1.0
    assert await reward(sandbox, RIGHT, TESTS) == 1.0
    before = runners_of(sandbox)
    for _ in range(10):
        assert await reward(sandbox, RIGHT, TESTS) == 1.0
        assert await reward(sandbox, WRONG, TESTS) == 0.0
    assert runners_of(sandbox) == before


async def test_names_of_one_grading_are_unknown_to_the_next(sandbox: SlotSandbox) -> None:
    for _ in range(3):
        assert await reward(sandbox, "def leaked():\n    return 1\n", ["assert leaked() == 1"])
        assert await reward(sandbox, RIGHT, ["assert leaked() == 1"]) == 0.0
    for _ in range(3):
        assert await reward(sandbox, RIGHT, ["kept = f(3)", "assert kept == 9"]) == 1.0
        assert await reward(sandbox, RIGHT, ["assert kept == 9"]) == 0.0


async def test_a_solution_that_ends_on_its_tests_spoils_nothing(sandbox: SlotSandbox) -> None:
    hostile = "import os\ndef f(n):\n    os.write(3, b'\\xff' * 999)\n    os._exit(0)\n"
    for _ in range(4):
        assert await reward(sandbox, hostile, TESTS) == 0.0
        assert await reward(sandbox, RIGHT, TESTS) == 1.0


async def test_tests_that_never_end_by_themselves_are_ended(sandbox: SlotSandbox) -> None:
    options = GradeOptions(timeout_s=0.3)
    endless = ["while True:\n    f(1)"]
    verdict = (await grade_in_detail(sandbox, RIGHT, endless, options=options)).verdict
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)
    busy = ["f(1)\nwhile True:\n    pass"]
    verdict = (await grade_in_detail(sandbox, RIGHT, busy, options=options)).verdict
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)
    assert await reward(sandbox, RIGHT, TESTS) == 1.0


async def test_a_cancelled_grading_leaves_its_slots_usable(sandbox: SlotSandbox) -> None:
    for pause in (0.001, 0.003, 0.01, 0.05):
        slow = asyncio.ensure_future(reward(sandbox, "def f(n):\n    while True: pass\n", TESTS))
        await asyncio.sleep(pause)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await reward(sandbox, RIGHT, TESTS) == 1.0


@pytest.mark.slow
async def test_killed_tests_sides_change_no_verdict(sandbox: SlotSandbox) -> None:
    chance = random.Random(1)
    over = asyncio.Event()

    async def kill() -> int:
        killed = 0
        while not over.is_set():
            await asyncio.sleep(chance.uniform(0.001, 0.02))
            for pid in runners_of(sandbox)[:1]:
                with suppress(ProcessLookupError):  # it may have ended by itself
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        return killed

    killing = asyncio.ensure_future(kill())
    rewards = [await reward(sandbox, code, TESTS) for code in (RIGHT, WRONG) * 60]
    over.set()
    assert rewards == [1.0, 0.0] * 60
    assert await killing > 5
