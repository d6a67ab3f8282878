"""The loop in the background: one for a process, and another for each fork of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from ludus.background import all_or_none

ASKED_AT_ONCE = """
import sys, threading
from ludus.background import all_or_none, background_loop
sys.setswitchinterval(1e-6)
loops, together = set(), threading.Barrier(16)
def ask():
    together.wait()
    loops.add(background_loop())
threads = [threading.Thread(target=ask) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(loops))
"""
FORKED = """
import asyncio, os
from ludus.background import run_on_loop
async def pid():
    return os.getpid()
assert run_on_loop(pid(), timeout_s=20) == os.getpid()
child = os.fork()
if not child:
    os._exit(run_on_loop(pid(), timeout_s=20) != os.getpid())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run_on_loop(pid()) == os.getpid())
"""


def printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout


def test_threads_that_ask_at_once_get_the_same_loop() -> None:
    assert printed(ASKED_AT_ONCE) == "1\n"


def test_a_fork_has_a_loop_that_runs() -> None:
    assert printed(FORKED) == "0 True\n"


async def test_where_one_of_several_fails_the_others_are_cancelled() -> None:
    cancelled = list[int]()

    async def work(number: int) -> int:
        try:
            await asyncio.sleep(60 * number)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        raise ValueError(f"the failure of {number}")

    with pytest.raises(ValueError, match="the failure of 0"):
        await all_or_none(map(work, range(3)))
    await asyncio.sleep(0)
    assert cancelled == [1, 2]
