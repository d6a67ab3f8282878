"""Sessions keep their state, obey their limits, and end in ways that are told apart."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ludus.errors import ConfigError, SessionGone
from ludus.sandboxes import ExecutionStatus, Limits, Session, SlotSandbox, open_sandbox

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]

LIMITS = Limits(timeout_s=60, cpu_s=30, output_bytes=20_000)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=2)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


async def test_state_lives_from_cell_to_cell_and_the_last_value_is_shown(
    sandbox: SlotSandbox,
) -> None:
    async with await Session.open(sandbox) as session:
        assert (await session.run("x = 6\ndef f(n):\n    return n * 7")).ok
        assert (await session.run("print('hi')\nf(x)")).stdout == "hi\n42\n"
        failed = await session.run("f('a') + 1")
        assert failed.status is ExecutionStatus.ERROR
        assert "TypeError" in failed.stderr
        assert (await session.run("x")).stdout == "6\n"


async def test_sessions_do_not_see_each_other(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as one, await Session.open(sandbox) as two:
        await one.run("secret = 1\nopen('f', 'w').write('x')")
        seen = await two.run("import os\nprint('secret' in globals(), os.listdir('.'))")
    assert seen.stdout == "False []\n"


async def test_files_go_in_and_out(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        await session.write({"d/in.bin": b"\xff\0"})
        await session.run("data = open('d/in.bin', 'rb').read()\nopen('out', 'wb').write(data * 2)")
        assert await session.read("out") == b"\xff\0\xff\0"
        await session.run("import os\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('fifo')")
        for name in ("link", "fifo", "missing"):
            with pytest.raises(OSError, match=name):
                await session.read(name)
        with pytest.raises(ConfigError):
            await session.read("../etc/passwd")


async def test_what_a_cell_puts_in_the_way_of_a_file_is_told_and_ends_nothing(
    sandbox: SlotSandbox,
) -> None:
    async with asyncio.timeout(20), await Session.open(sandbox) as session:
        await session.run("import os; os.mkdir('folder'); os.mkfifo('pipe'); os.symlink('a', 'b')")
        for name in ("folder", "pipe", "b"):
            with pytest.raises(OSError, match="cannot be written"):
                await session.write({name: b"data"})
        await session.write({"file": b"data"})
        assert await session.read("file") == b"data"


async def test_a_late_cell_is_interrupted_and_the_session_lives_on(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("x = 1")
        with pytest.raises(ConfigError, match="timeout_s=nan must be above 0"):
            await session.run("x = 2", timeout_s=float("nan"))
        late = await session.run("while True: x += 1", timeout_s=0.2)
        assert late.status is ExecutionStatus.TIMEOUT
        assert "KeyboardInterrupt" in late.stderr
        assert (await session.run("x > 1")).stdout == "True\n"


async def test_a_flood_of_output_is_cut_and_interrupted(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox, limits=LIMITS) as session:
        flood = await session.run("while True: print('x' * 100)")
        assert flood.status is ExecutionStatus.OUTPUT_LIMIT
        assert len(flood.stdout) == LIMITS.output_bytes
        assert (await session.run("1 + 1")).stdout == "2\n"


STUBBORN = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("import os\nos._exit(3)", "process ended"),
        (STUBBORN, "did not stop"),
        ("import os\nos.write(3, b'\\xff' * 8)", "ended"),
        (
            "import os, time\nos.closerange(3, 99)\ntime.sleep(60)",
            "process ended, or closed its line",
        ),
    ],
)
async def test_a_session_that_ends_says_so_and_stays_ended(
    sandbox: SlotSandbox, cell: str, reason: str
) -> None:
    session = await Session.open(sandbox)
    with pytest.raises(SessionGone, match=reason):
        await session.run(cell, timeout_s=0.3 if cell is STUBBORN else 5)
    with pytest.raises(SessionGone):
        await session.run("1")
    await session.close()


async def test_a_session_closed_as_soon_as_it_was_asked_for_gives_its_slot_back(
    sandbox: SlotSandbox,
) -> None:
    async with asyncio.timeout(60):
        for _ in range(40):  # more than there are slots
            await (await Session.open(sandbox)).close()
        async with await Session.open(sandbox) as session:
            assert (await session.run("1 + 1")).stdout == "2\n"


async def test_a_session_closed_under_a_cell_ends_it_and_hurts_no_other(
    sandbox: SlotSandbox,
) -> None:
    async with asyncio.timeout(60):
        for _ in range(5):
            session = await Session.open(sandbox)
            cell = asyncio.ensure_future(session.run("import time\ntime.sleep(60)"))
            await asyncio.sleep(0.05)
            await session.close()
            # the descriptors that are free now are taken at once
            async with await Session.open(sandbox) as another:
                assert (await another.run("1 + 1")).stdout == "2\n"
            with pytest.raises(SessionGone, match="closed"):
                await cell


SLOW_FILES = (
    "import os, time\nreal = os.open\nos.open = lambda *a, **k: time.sleep(0.5) or real(*a, **k)"
)


async def requested(session: Session, request: str) -> object:
    match request:
        case "run":
            return await session.run("import time\ntime.sleep(0.5)\nprint('late')")
        case "write":
            return await session.write({"a": "x"})
        case _:
            return await session.read("a")


@pytest.mark.parametrize("request_name", ["run", "write", "read"])
async def test_a_cancelled_request_ends_the_session_and_answers_no_other(
    sandbox: SlotSandbox, request_name: str
) -> None:
    async with asyncio.timeout(60):
        for _ in range(3):  # more than there are slots
            session = await Session.open(sandbox)
            await session.write({"a": "x"})
            await session.run(SLOW_FILES)
            first = asyncio.ensure_future(requested(session, request_name))
            second = asyncio.ensure_future(session.run("1 / 0"))
            await asyncio.sleep(0.1)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            with pytest.raises(SessionGone, match="cancelled"):
                await second
            with pytest.raises(SessionGone, match="cancelled"):
                await session.run("1")


async def test_a_cancelled_request_that_waits_for_its_turn_leaves_the_session_alone(
    sandbox: SlotSandbox,
) -> None:
    async with await Session.open(sandbox) as session:
        first = asyncio.ensure_future(session.run("import time\ntime.sleep(0.3)\n1"))
        second = asyncio.ensure_future(session.run("2"))
        await asyncio.sleep(0.1)
        second.cancel()
        assert (await first).stdout == "1\n"
        assert (await session.run("3")).stdout == "3\n"


async def test_a_session_closed_under_a_cell_leaves_the_output_of_the_next_alone(
    sandbox: SlotSandbox,
) -> None:
    flood = "import time\nfor _ in range(40):\n    time.sleep(0.02)\n    print('x' * 9999)"
    async with asyncio.timeout(60):
        async with await Session.open(sandbox), await Session.open(sandbox):
            pass  # Both slots run now, so that the next sessions are open at once.
        session = await Session.open(sandbox)
        cell = asyncio.ensure_future(session.run("import time\ntime.sleep(60)"))
        await asyncio.sleep(0.12)  # A running cell looks every 0.1 s whether it was closed.
        closing = asyncio.ensure_future(session.close())
        await asyncio.sleep(0)
        # This session gets the descriptors that are free now, before the closed cell is over.
        async with await Session.open(sandbox) as another:
            assert not cell.done()
            assert len((await another.run(flood, timeout_s=5)).stdout) == 400_000
        with pytest.raises(SessionGone, match="closed"):
            await cell
        await closing


async def test_an_idle_session_ends_and_gives_its_slot_back(sandbox: SlotSandbox) -> None:
    session = await Session.open(sandbox, idle_ttl_s=0.1)
    await asyncio.sleep(0.4)
    with pytest.raises(SessionGone, match="idle"):
        await session.run("1")
