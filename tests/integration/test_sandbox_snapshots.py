"""Snapshots: a session is kept as it is, and goes on from there as often as asked, each apart."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ludus.errors import SessionGone
from ludus.sandboxes import (
    ExecutionStatus,
    Limits,
    NotSnapshotable,
    Session,
    SlotSandbox,
    open_sandbox,
)
from ludus.sandboxes.guest.jail.syscalls import landlock_version
from ludus.sandboxes.repl.snapshot_client import SnapshotClient

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.skipif(landlock_version() < 6, reason="needs Landlock 6 (Linux 6.12)"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=2)
    assert isinstance(opened, SlotSandbox)
    if opened.groups is None:
        pytest.skip(opened.no_groups)
    yield opened
    await opened.close()


async def said(session: Session, code: str) -> str:
    done = await session.run(code)
    return done.stdout + done.stderr


async def test_branches_go_on_from_the_same_state_and_apart_from_each_other(
    sandbox: SlotSandbox,
) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("xs = [1]\ndef f(n):\n    return n + len(xs)")
        async with await session.snapshot() as snapshot:
            await session.run("xs.append('later')")
            one, two = await snapshot.restore(), await snapshot.restore()
            assert await said(one, "xs.append(2)\nxs, f(1)") == "([1, 2], 3)\n"
            assert await said(two, "xs, f(1)") == "([1], 2)\n"
            assert await said(session, "xs") == "[1, 'later']\n"
            await one.close()
            await two.close()


async def test_each_has_a_copy_of_the_files_as_they_were(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        await session.write({"d/e/in.bin": b"\xff\0", "run.sh": b"#!/bin/sh\necho ran\n"})
        await session.run("import os\nos.symlink('d/e', 'way')\nos.chmod('run.sh', 0o755)")
        await session.run("open(b'\\xfe odd', 'w').write('x')\nos.mkfifo('fifo')")
        async with await session.snapshot() as snapshot:
            await session.write({"d/e/in.bin": b"changed"})
            one, two = await snapshot.restore(), await snapshot.restore()
            assert await one.read("d/e/in.bin") == b"\xff\0"
            await one.write({"d/e/in.bin": b"one"})
            assert await two.read("d/e/in.bin") == b"\xff\0"
            assert await said(two, "sorted(os.listdir(b'.'))") == (
                "[b'd', b'run.sh', b'way', b'\\xfe odd']\n"
            )
            shown = "import subprocess\nsubprocess.run(['./run.sh'], capture_output=True).stdout"
            assert await said(two, shown) == "b'ran\\n'\n"
            await one.close()
            await two.close()


async def test_chance_is_new_in_each_branch(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)")
        async with await session.snapshot() as snapshot:
            branches = [await snapshot.restore() for _ in range(3)]
            drawn = [await said(b, "random.random(), numpy.random.random()") for b in branches]
            for branch in branches:
                await branch.close()
    assert len({number for text in drawn for number in text.strip("()\n").split(", ")}) == 6


async def test_a_branch_may_be_branched_and_outlives_where_it_came_from(
    sandbox: SlotSandbox,
) -> None:
    session = await Session.open(sandbox)
    await session.run("path = ['session']")
    snapshot = await session.snapshot()
    await session.close()
    branch = await snapshot.restore()
    await snapshot.close()
    await branch.run("path.append('branch')\nopen('kept', 'w').write('k')")
    again = await branch.snapshot()
    await branch.close()
    leaf = await again.restore()
    await again.close()
    assert await said(leaf, "path, open('kept').read()") == "(['session', 'branch'], 'k')\n"
    await leaf.close()
    with pytest.raises(SessionGone, match="it was closed"):
        await snapshot.restore()
    assert (await sandbox.execute("print('fine')")).stdout == "fine\n"


NOT_COPIED = {
    "threads": "import threading\nt = threading.Timer(60, print)\nt.daemon = True\nt.start()",
    "children": "import subprocess\np = subprocess.Popen(['sleep', '60'])",
    "sockets": "import socket\na, b = socket.socketpair()",
    "files": "f = open('f', 'w')",
    "shared_memory": "import mmap\nm = mmap.mmap(-1, 4096)",
}


@pytest.mark.parametrize("reason", NOT_COPIED)
async def test_what_branches_would_share_is_refused_by_name(
    sandbox: SlotSandbox, reason: str
) -> None:
    async with await Session.open(sandbox) as session:
        assert (await session.run(NOT_COPIED[reason])).ok
        with pytest.raises(NotSnapshotable) as caught:
            await session.snapshot()
        assert caught.value.reason == reason
        assert await said(session, "1 + 1") == "2\n", "the session itself goes on"


async def test_it_can_be_copied_once_they_are_gone(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        await session.run(NOT_COPIED["children"])
        with pytest.raises(NotSnapshotable):
            await session.snapshot()
        await session.run("p.kill(); p.wait()\nf = open('f', 'w')\nf.close()")
        async with await session.snapshot() as snapshot:
            await (await snapshot.restore()).close()


@pytest.mark.parametrize("tier", ["slots-landlock"])
async def test_other_tiers_say_that_they_have_none(tier: str) -> None:
    other = SlotSandbox(tier, size=1)
    async with await Session.open(other) as session:
        with pytest.raises(NotSnapshotable, match=tier) as caught:
            await session.snapshot()
        assert caught.value.reason == "tier"
        assert await said(session, "'on'") == "'on'\n"
    await other.close()


async def test_limits_hold_in_each_branch_by_itself(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        snapshot = await session.snapshot()
        small = Limits(timeout_s=60, cpu_s=0.5, memory_bytes=64 << 20, output_bytes=1000)
        for code, reason in (("x = bytearray(200 << 20)", "oom"), ("while True: pass", "CPU")):
            branch = await snapshot.restore(limits=small)
            with pytest.raises(SessionGone, match=reason):
                await run_twice(branch, code)
        branch = await snapshot.restore(limits=small)
        flood = await branch.run("while True: print('x' * 100)")
        assert flood.status is ExecutionStatus.OUTPUT_LIMIT
        slow = await branch.run("import time\ntime.sleep(60)", timeout_s=0.2)
        assert slow.status is ExecutionStatus.TIMEOUT
        full = await said(branch, "open('big', 'wb').write(bytes(100 << 20))")
        assert "No space left" in full or "ended" in full
        await branch.close()
        assert await said(session, "'unharmed'") == "'unharmed'\n"
        await snapshot.close()


async def run_twice(session: Session, code: str) -> None:
    for cell in (code, "1"):
        await session.run(cell, timeout_s=20)


async def test_a_branch_that_is_killed_ends_alone(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session, await session.snapshot() as snapshot:
        one, two = await snapshot.restore(), await snapshot.restore()
        os.kill(one._session_process.pid, signal.SIGKILL)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(SessionGone, match="its process ended"):
            await one.run("1")
        assert await said(two, "'alive'") == "'alive'\n"
        assert await said(session, "'alive'") == "'alive'\n"
        await two.close()


async def test_a_session_that_is_killed_leaves_its_branches(sandbox: SlotSandbox) -> None:
    session = await Session.open(sandbox)
    snapshot = await session.snapshot()
    branch = await snapshot.restore()
    os.kill(session._session_process.pid, signal.SIGKILL)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(SessionGone):
        await session.run("1")
    assert await said(branch, "'alive'") == "'alive'\n"
    another = await snapshot.restore()
    assert await said(another, "'more'") == "'more'\n"
    for ended in (branch, another, snapshot):
        await ended.close()


async def test_without_the_snapshot_server_snapshots_end_and_branches_go_on(
    sandbox: SlotSandbox,
) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("x = 5")
        snapshot = await session.snapshot()
        branch = await snapshot.restore()
        os.kill(SnapshotClient.of(sandbox).pid, signal.SIGKILL)
        with pytest.raises((SessionGone, NotSnapshotable)):
            await snapshot.restore()
        with pytest.raises(SessionGone):
            await snapshot.restore()
        assert await said(branch, "x") == "5\n"
        later = await session.snapshot()
        another = await later.restore()
        assert await said(another, "x") == "5\n"
        for ended in (snapshot, later, branch, another):
            await ended.close()


async def test_the_slot_s_end_is_everybody_s(sandbox: SlotSandbox) -> None:
    session = await Session.open(sandbox)
    snapshot = await session.snapshot()
    branch = await snapshot.restore()
    slot = session._session_process.tree.slot  # pyright: ignore[reportPrivateUsage]
    os.kill(slot.pid, signal.SIGKILL)
    await asyncio.sleep(0.3)
    for gone in (session, branch):
        with pytest.raises(SessionGone):
            await gone.run("1")
    with pytest.raises((SessionGone, NotSnapshotable)):
        await snapshot.restore()
    for ended in (session, branch, snapshot):
        await ended.close()
    assert (await sandbox.execute("print('fine')")).stdout == "fine\n"


async def test_idle_snapshots_and_branches_end(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        snapshot = await session.snapshot(idle_ttl_s=0.2)
        branch = await snapshot.restore(idle_ttl_s=0.2)
        pid = branch._session_process.pid  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.5)
        with pytest.raises(SessionGone, match="idle"):
            await snapshot.restore()
        with pytest.raises(SessionGone, match="idle"):
            await branch.run("1")
        assert not is_running(pid)


async def test_closing_a_snapshot_leaves_the_others_and_their_server(
    sandbox: SlotSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("x = 1")
        first = await session.snapshot()
        await session.run("x = 2")
        async with await session.snapshot() as second:
            server = SnapshotClient.of(sandbox).pid
            await first.close()
            async with await second.restore() as branch:
                assert (await branch.run("print(x)")).stdout == "2\n"
            assert SnapshotClient.of(sandbox).pid == server
    assert not [record for record in caplog.records if "stay until" in record.message]


async def test_who_is_cancelled_while_closing_leaves_nothing(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        snapshot = await session.snapshot()
        branch = await snapshot.restore()
        for ended in (branch, snapshot):
            closing = asyncio.ensure_future(ended.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await ended.close()  # waits for the first
        assert groups_left() == []


async def test_nothing_is_left_of_them(sandbox: SlotSandbox) -> None:
    assert sandbox.groups
    async with asyncio.timeout(60):  # what the tests before let expire ends by itself
        while groups_left():
            await asyncio.sleep(0.01)
    async with await Session.open(sandbox) as session, await session.snapshot():
        pass  # the snapshot server runs from here on, with descriptors of its own
    before = groups_left(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with await Session.open(sandbox) as session, await session.snapshot() as snapshot:
            branches = [await snapshot.restore() for _ in range(4)]
            for branch in branches:
                await branch.run("import os\nif os.fork() == 0:\n    os.setsid()\n    os.pause()")
                await branch.close()
    assert (groups_left(), len(os.listdir("/proc/self/fd"))) == before
    children = Path(
        f"/proc/{SnapshotClient.of(sandbox).pid}/task/{SnapshotClient.of(sandbox).pid}/children"
    ).read_text()
    assert children.split() == []


async def test_a_session_whose_copy_could_not_be_kept_can_be_copied_again(
    sandbox: SlotSandbox,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with await Session.open(sandbox) as session:
        await session.run("n = 1")
        await (await session.snapshot()).close()  # starts the snapshot server
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, before[1]))
        try:
            with pytest.raises(NotSnapshotable, match="Too many open files"):
                await session.snapshot()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        async with await session.snapshot() as snapshot, await snapshot.restore() as branch:
            assert await said(branch, "n") == "1\n"


def is_running(pid: int) -> bool:
    """Whether it is more than an entry its parent has not looked at yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def groups_left() -> list[str]:
    """Control groups of this process alone: one that was killed may have left others."""
    return sorted(
        place.name
        for place in Path("/sys/fs/cgroup").glob(f"**/ludus-{os.getpid()}-*/*")
        if place.name.startswith(("branch-", "frozen-"))
    )


async def test_a_session_has_several_snapshots_and_a_snapshot_several_branches(
    sandbox: SlotSandbox,
) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("import numpy")
        first = await session.snapshot()  # starts the snapshot server
        async with await session.snapshot() as snapshot:
            branches = [await snapshot.restore() for _ in range(4)]
        await asyncio.gather(*(branch.close() for branch in branches), first.close())


SEIZES = """
import subprocess, sys, time
from ludus.sandboxes.guest.fork.tracee import Tracee
code = "n = 0\\nwhile n < 3_000_000: n += 1\\ninput()"
counting = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
try:
    time.sleep(0.1)  # it counts now, or still starts
    tracee = Tracee.seize(counting.pid)
    assert tracee.call(39) == counting.pid  # getpid(2)
    tracee.release()
    counting.communicate(b"\\n", timeout=20)
    assert counting.returncode == 0
finally:
    counting.kill()
"""


async def test_a_process_that_still_runs_is_stopped_at_its_next_call() -> None:
    tracing = [sys.executable, "-c", SEIZES]
    done = subprocess.run(tracing, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
