"""Slots that cannot be made or watched: the pool stays whole, and no run goes on unwatched."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from ludus.sandboxes.grading.hidden_tests import grade_in_detail
from ludus.sandboxes.grading.repository import grade_repository
from ludus.sandboxes.grading.runners import GradingRunners
from ludus.sandboxes.guest.run.plan import JailPlan
from ludus.sandboxes.guest.run.request import Request
from ludus.sandboxes.local import slots
from ludus.sandboxes.local.control_groups import ControlGroup
from ludus.sandboxes.local.process_tree import TreeUsage, descendants
from ludus.sandboxes.local.runs import Run, SlotLost
from ludus.sandboxes.local.slot_pool import SlotPool
from ludus.sandboxes.local.slot_sandbox import PROVING, SESSION, SlotSandbox
from ludus.sandboxes.local.slots import Slot
from ludus.sandboxes.protocol import Limits, Program
from ludus.sandboxes.repl.session import Session
from ludus.verdict import Status, Verdict


async def test_a_slot_that_cannot_be_made_costs_the_pool_no_place() -> None:
    def full(number: int) -> Slot:
        raise OSError(errno.ENOSPC, "No space left on device")

    pool = SlotPool(full, 2)
    for _ in range(4):  # more often than there are places
        async with asyncio.timeout(5):
            with pytest.raises(SlotLost, match="No space left"):
                async with pool.take():
                    pass
    await pool.close()


class GoneGroup:
    """A control group that somebody has removed."""

    def cpu_s(self) -> float:
        raise FileNotFoundError(errno.ENOENT, "cpu.stat")


class UnreadableSlot:
    """A slot whose control group cannot be read."""

    group = cast(ControlGroup, GoneGroup())
    number = 1
    watches_disk = False

    def __init__(self) -> None:
        self.given_up = asyncio.Event()

    def send(self, request: Request, descriptors: list[int]) -> None:
        """Take the request."""

    def kill_run(self) -> None:
        """Nothing runs."""

    def is_busy(self) -> bool:
        return False

    def give_up(self) -> None:
        self.given_up.set()

    def new_oom_kills(self) -> int:
        return 0

    def look(self) -> TreeUsage:
        raise AssertionError("there is a control group")

    def fills_disk(self) -> bool:
        return False

    def processes(self) -> list[int]:
        return []


async def test_a_run_that_cannot_be_looked_at_the_first_time_is_given_up() -> None:
    slot = UnreadableSlot()
    run = Run(slot, Limits())
    run.begin(Request(mode="python"), b"", [])
    try:
        async with asyncio.timeout(5):
            await slot.given_up.wait()
    finally:
        run.close()


class LateSlot:
    """A slot that takes a moment to end."""

    alive, runs, has_ended = True, 0, False

    async def start(self) -> None:
        """Start at once."""

    async def close(self) -> None:
        await asyncio.sleep(0.1)
        self.has_ended = True


async def test_slots_end_though_nobody_waits_for_it_any_more() -> None:
    slot = LateSlot()
    pool = SlotPool(lambda _: cast(Slot, slot), 1)
    await pool.warm()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await pool.close()
    async with asyncio.timeout(5):
        await pool.close()
    assert slot.has_ended


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def descriptors_left(room: int) -> Generator[None]:
    """Let this process open `room` descriptors more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest number; one far above may be taken by whoever started the tests
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("room", range(2, 7))  # one line, both, what a new process needs
async def test_a_slot_for_which_no_descriptor_is_left_is_lost_and_leaves_none(room: int) -> None:
    used = open_descriptors()
    with descriptors_left(room):
        slot = Slot(JailPlan("unsafe", "", 0, 0, [], [], [], []), None)
        with pytest.raises(SlotLost, match=r"Too many open files.*\(ulimit -n\)"):
            await slot.start()
        await slot.close()
    assert open_descriptors() == used


async def test_a_slot_that_is_not_ready_in_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "START_TIMEOUT_S", 0)
    slot = Slot(JailPlan("unsafe", "", 0, 0, [], [], [], []), None)
    with pytest.raises(SlotLost, match="the slot did not start: TimeoutError"):
        await slot.start()


@pytest.fixture
async def sandbox() -> AsyncGenerator[SlotSandbox]:
    sandbox = SlotSandbox("unsafe", size=4)
    yield sandbox
    await sandbox.close()


@pytest.mark.parametrize(("kind", "needed"), [("assert", 3), ("pytest", 3), ("repository", 2)])
async def test_a_grading_for_which_no_descriptor_is_left_says_what_to_do_and_leaves_none(
    sandbox: SlotSandbox, kind: str, needed: int
) -> None:
    async def grading() -> Verdict:
        code, test = (
            "def f():\n    return 1\n",
            "from solution import f\ndef test_f():\n    assert f()",
        )
        if kind == "repository":
            names = ["test_f.py::test_f"]
            graded = await grade_repository(
                sandbox, {"solution.py": code}, {"test_f.py": test}, names
            )
        else:
            tests = ["assert f()" if kind == "assert" else test]
            graded = await grade_in_detail(sandbox, code, tests, kind=kind)
        return graded.verdict

    assert (await grading()).reward == 1.0
    used = open_descriptors()
    for room in range(needed):
        with descriptors_left(room):
            verdict = await grading()
        assert verdict.status is Status.UNAVAILABLE
        assert "raise the limit of open files (ulimit -n)" in verdict.detail
    assert (await grading()).reward == 1.0
    assert open_descriptors() == used


@pytest.mark.parametrize("room", range(1, 5))
async def test_a_session_for_which_no_descriptor_is_left_says_what_to_do_and_leaves_none(
    sandbox: SlotSandbox, room: int
) -> None:
    await sandbox.pool(SESSION).warm()
    used = open_descriptors()
    with (
        descriptors_left(room),
        pytest.raises(SlotLost, match=r"Too many open files.*\(ulimit -n\)"),
    ):
        await Session.open(sandbox)
    assert open_descriptors() == used


@pytest.mark.parametrize("fault", ["a request that cannot be encoded", "a slot that is gone"])
async def test_a_run_that_cannot_begin_leaves_no_descriptor_and_costs_the_slot(
    sandbox: SlotSandbox, fault: str
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    options: dict[str, object] = {}
    async with sandbox.pool().take() as (slot,):
        if "gone" in fault:  # and nobody has noticed yet
            for pid in (*descendants(slot.pid), slot.pid):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)  # the loop must not notice
        else:
            options = {"argv": [object()]}
        with pytest.raises((SlotLost, ValueError)):
            await slot.run(
                Request(mode="python", options=options),
                Limits(),
                peers=[("peer", writer)],
                preserve="gone" in fault,
            )
        assert not slot.alive
    assert os.read(reader, 1) == b""  # nobody holds the other end
    os.close(reader)
    async with asyncio.timeout(5):
        assert (await sandbox.run(Program(code="print(1)"))).stdout == "1\n"


async def test_a_run_whose_slot_is_closed_ends(sandbox: SlotSandbox) -> None:
    async with sandbox.pool().take() as (slot,):
        request = Request(mode="python", blobs=[b"import time\ntime.sleep(60)"])
        run = asyncio.ensure_future(slot.run(request, Limits(timeout_s=60)))
        await asyncio.sleep(0.1)
        await slot.close()
        async with asyncio.timeout(5):
            with pytest.raises(SlotLost, match="ended during the run"):
                await run


async def test_gradings_that_begin_at_once_replace_test_runners_that_have_ended(
    sandbox: SlotSandbox,
) -> None:
    async def reward() -> float | None:
        graded = await grade_in_detail(sandbox, "def f(x):\n    return x", ["assert f(1) == 1"])
        return graded.verdict.reward

    await asyncio.gather(sandbox.pool(PROVING).warm(), sandbox.pool().warm())
    for _ in range(2):
        assert set(await asyncio.gather(reward(), reward())) == {1.0}
        for slot in list(GradingRunners.of(sandbox)._test_runners):
            slot.give_up()


async def test_a_conftest_above_the_folder_of_a_slot_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conftest.py").write_text("import os\nos._exit(0)\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sandbox = SlotSandbox("unsafe", size=1)
    try:
        graded = await grade_repository(
            sandbox,
            {"solution.py": "def f():\n    return 1\n"},
            {"test_f.py": "from solution import f\ndef test_f():\n    assert f()"},
            ["test_f.py::test_f"],
        )
    finally:
        await sandbox.close()
    assert graded.verdict.reward == 1.0


async def test_a_sandbox_of_one_slot_grades_tests_that_need_a_process_of_their_own() -> None:
    sandbox = SlotSandbox("unsafe", size=1)
    try:
        left = "import sys\nsys.left = f(1)\nassert sys.left == 1"
        graded = await grade_in_detail(sandbox, "def f(x):\n    return x", [left])
    finally:
        await sandbox.close()
    assert graded.verdict.reward == 1.0
