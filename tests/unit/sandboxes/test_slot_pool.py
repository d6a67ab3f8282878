"""Slots that cannot be made or watched: the pool stays whole, and no run goes on unwatched."""

from __future__ import annotations

import asyncio
import errno
import resource
from pathlib import Path
from typing import cast

import pytest

from ludus.sandboxes.guest.run.plan import JailPlan
from ludus.sandboxes.guest.run.request import Request
from ludus.sandboxes.local.control_groups import ControlGroup
from ludus.sandboxes.local.process_tree import TreeUsage
from ludus.sandboxes.local.runs import Run, SlotLost
from ludus.sandboxes.local.slot_pool import SlotPool
from ludus.sandboxes.local.slots import Slot
from ludus.sandboxes.protocol import Limits


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


async def test_a_slot_for_which_no_descriptor_is_left_is_lost_and_leaves_none() -> None:
    opened = Path("/proc/self/fd")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(opened.iterdir()))
    try:
        for room in range(1, 6):  # for one line, for both, for what a new process needs
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, before[1]))
            slot = Slot(JailPlan("unsafe", "", 0, 0, [], [], [], []), None)
            with pytest.raises(SlotLost, match="Too many open files"):
                await slot.start()
            await slot.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(list(opened.iterdir())) == used
