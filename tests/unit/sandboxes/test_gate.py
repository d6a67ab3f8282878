"""The line for slots: in order, bounded in number and in time, and nobody is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from ludus.errors import Overloaded
from ludus.sandboxes.serving.runner import Gate


async def hold(gate: Gate, done: asyncio.Event, weight: int = 1, patience_s: float = 5) -> float:
    async with gate.enter(weight, patience_s=patience_s) as waited_s:
        await done.wait()
        return waited_s


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_so_much_is_let_in_and_the_rest_waits_in_order() -> None:
    gate, order = Gate(2, max_waiting=9), list[int]()
    held = [asyncio.Event() for _ in range(4)]

    async def work(number: int) -> None:
        async with gate.enter(patience_s=5):
            order.append(number)
            await held[number].wait()

    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await turn()
    assert (order, gate.busy, gate.waiting) == ([0, 1], 2, 2)
    held[1].set()
    await turn()
    assert order == [0, 1, 2]
    for event in held:
        event.set()
    await asyncio.gather(*tasks)
    assert (order, gate.busy, gate.waiting) == ([0, 1, 2, 3], 0, 0)


async def test_heavy_work_is_not_overtaken_by_light_work_behind_it() -> None:
    gate, first, done = Gate(2, max_waiting=9), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(hold(gate, first))
    await turn()
    heavy = asyncio.create_task(hold(gate, done, weight=2))
    light = asyncio.create_task(hold(gate, done))
    await turn()
    assert (gate.busy, gate.waiting) == (1, 2)
    first.set()
    await turn()
    assert (gate.busy, gate.waiting) == (2, 1)
    done.set()
    await asyncio.gather(running, heavy, light)
    assert gate.busy == 0


async def test_weight_beyond_the_gate_takes_all_of_it() -> None:
    gate = Gate(2, max_waiting=9)
    async with gate.enter(5, patience_s=1):
        assert gate.busy == 2
    assert gate.busy == 0


async def test_a_full_line_is_refused_at_once_with_its_length_in_seconds() -> None:
    gate, done = Gate(1, max_waiting=1), asyncio.Event()
    tasks = [asyncio.create_task(hold(gate, done)) for _ in range(2)]
    await turn()
    with pytest.raises(Overloaded, match="every place in line is taken") as refused:
        await hold(gate, done)
    assert refused.value.retry_after_s > 0
    fault = refused.value
    assert (getattr(fault, "depth", 0), getattr(fault, "limit", 0)) == (2, 2)
    done.set()
    await asyncio.gather(*tasks)


async def test_unbounded_work_waits_in_a_full_line() -> None:
    gate, done = Gate(1, max_waiting=1), asyncio.Event()
    tasks = [asyncio.create_task(hold(gate, done)) for _ in range(2)]
    await turn()

    async def patient() -> None:
        async with gate.enter(patience_s=5, bounded=False):
            pass

    waiting = asyncio.create_task(patient())
    await turn()
    assert gate.waiting == 2
    done.set()
    await asyncio.gather(*tasks)
    await waiting


async def test_patience_ends_with_a_refusal_and_leaves_no_trace() -> None:
    gate, done = Gate(1, max_waiting=9), asyncio.Event()
    running = asyncio.create_task(hold(gate, done))
    await turn()
    with pytest.raises(Overloaded, match=r"no slot was free within 0\.05 s"):
        await hold(gate, done, patience_s=0.05)
    assert gate.waiting == 0
    done.set()
    await running
    assert gate.busy == 0


async def test_who_gives_up_at_the_head_lets_lighter_work_in() -> None:
    gate, first, done = Gate(2, max_waiting=9), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(hold(gate, first))
    await turn()
    heavy = asyncio.create_task(hold(gate, done, weight=2))
    light = asyncio.create_task(hold(gate, done))
    await turn()
    heavy.cancel()
    await turn()
    assert (gate.busy, gate.waiting) == (2, 0)
    first.set()
    done.set()
    await asyncio.gather(running, light)
    with pytest.raises(asyncio.CancelledError):
        await heavy
    assert gate.busy == 0


async def test_cancelled_in_the_turn_its_place_came_it_gives_the_place_on() -> None:
    gate, first, done = Gate(1, max_waiting=9), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(hold(gate, first))
    await turn()
    chosen = asyncio.create_task(hold(gate, done))
    behind = asyncio.create_task(hold(gate, done))
    await turn()
    first.set()
    while not running.done():
        await asyncio.sleep(0)
    chosen.cancel()  # its turn is set, but it has not run yet
    done.set()
    await behind
    assert (gate.busy, gate.waiting) == (0, 0)


async def test_many_at_random_never_exceed_the_width_and_all_get_in() -> None:
    gate, most = Gate(3, max_waiting=500), 0

    async def work(number: int) -> None:
        nonlocal most
        async with gate.enter(1 + number % 2, patience_s=20):
            most = max(most, gate.busy)
            await asyncio.sleep(0.0005 * (number % 3))

    tasks = [asyncio.create_task(work(number)) for number in range(300)]
    await asyncio.sleep(0.01)
    for task in tasks[::7]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3
    assert (gate.busy, gate.waiting) == (0, 0)


async def test_the_line_is_measured_by_what_work_took_lately() -> None:
    gate, done = Gate(2, max_waiting=99), asyncio.Event()
    for _ in range(60):
        async with gate.enter(patience_s=1):
            await asyncio.sleep(0.01)
    tasks = [asyncio.create_task(hold(gate, done)) for _ in range(12)]
    await turn()
    # 10 wait and the newcomer's own turn: 11 times about 0.01 s, on 2 slots
    assert 0.04 < gate.queue_s < 0.5
    done.set()
    await asyncio.gather(*tasks)
