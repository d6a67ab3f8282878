"""Test runners are processes that run the tests of many gradings in sequence.

A grading needs two processes, and starting them is most of its cost. Where the tests leave no trace
in their process (decided by their syntax, in `guest.testing.interface`), the process need not be
new. Everything else about a grading is the same.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from ..guest.run.request import PROVE, PROVE_MANY, Request, send
from ..guest.testing.run_tests import BEGUN, MAX_JOBS, OVER
from ..local.runs import RunOutcome, SlotLost
from ..local.slot_pool import SlotPool
from ..local.slot_sandbox import PROVING, SlotSandbox
from ..local.slots import Slot
from ..local.supervisor import pair
from ..protocol import MIB, Limits

_DAYS_S = 30 * 86400.0
_LIMITS = Limits(timeout_s=_DAYS_S, cpu_s=_DAYS_S, memory_bytes=1024 * MIB)
"""Limits of the process, over all gradings; each grading has a deadline of its own."""

_BEGIN_TIMEOUT_S = 10.0
_WORD_BYTES = 64


class GradingRunner:
    """A test runner in a slot, which runs the tests of a single grading at a time."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._loop = asyncio.get_running_loop()
        self._run: asyncio.Future[RunOutcome] | None = None
        self._line: socket.socket | None = None
        self._number = 0

    async def begin(self, job: dict[str, object], far: int, report: int) -> bool:
        """Begin to run the tests of a job; return False if that is not possible in this process.

        Tests that may leave a trace need a process of their own. False is also returned if the
        process cannot be started or does not answer.

        Args:
            job: the tests and how they are run.
            far: the descriptor of the line to the solution.
            report: the descriptor of the file that results are written to.
        """
        try:
            line = await self._ready()
            request = Request(mode=PROVE, options=job, streams=["peer", "report"])
            send(line, request, self._number, [far, report])
            self._number += 1
            async with asyncio.timeout(_BEGIN_TIMEOUT_S):
                return await self._loop.sock_recv(line, _WORD_BYTES) == BEGUN
        except (OSError, TimeoutError, SlotLost):
            self.end()
            return False

    async def _ready(self) -> socket.socket:
        """Return the line to a process that waits for a job, started here if need be."""
        if self._line and self._run and not self._run.done() and self._number < MAX_JOBS:
            return self._line
        await self.close()
        self._line, far = pair()
        self._line.setblocking(False)
        run = self.slot.run(Request(mode=PROVE_MANY), _LIMITS, peers=[("peer", far.detach())])
        self._run, self._number = asyncio.ensure_future(run), 0
        # The task begins here, so the request for the process goes out before its first job.
        await asyncio.sleep(0)
        return self._line

    async def over(self, solution: asyncio.Future[RunOutcome], patience_s: float) -> bool:
        """Wait until the tests are over; return False if their process ended by itself before.

        Once the solution has ended, which the tests notice soon, the wait is `patience_s` seconds
        more.
        """
        assert self._line
        word = asyncio.ensure_future(self._loop.sock_recv(self._line, _WORD_BYTES))
        both: list[asyncio.Future[Any]] = [word, solution]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not word.done():
                await asyncio.wait([word], timeout=patience_s)
        finally:
            is_late = word.cancel()
        if not is_late and not word.exception() and word.result() == OVER:
            return True
        self.end()
        return is_late

    def end(self) -> None:
        """Kill the process, which also ends the wait in `over`; the next grading starts a new
        process.
        """
        if self._line:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
        if self._run and not self._run.done():
            self.slot.kill_run()

    async def close(self) -> None:
        """End the process, and wait until the slot is free."""
        self.end()
        if self._run:
            await self.slot.end_run(self._run)
            with suppress(SlotLost):
                await self._run
        if self._line:
            self._loop.remove_reader(self._line)  # The number of a closed descriptor is used again.
            self._line.close()
        self._run = self._line = None


class GradingRunners:
    """The test runners of a sandbox, at most a single test runner in each slot of the pool."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._test_runners: dict[Slot, GradingRunner] = {}

    @classmethod
    def of(cls, sandbox: SlotSandbox) -> GradingRunners:
        """Return the test runners that live as long as a sandbox."""
        return sandbox.companions.get(cls, lambda: cls(sandbox.pool(PROVING)))

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[GradingRunner]:
        """Hold a test runner for the length of a grading.

        Raises:
            SlotLost: no slot can be started.
        """
        async with self._pool.take() as (slot,):
            if slot not in self._test_runners:
                for earlier in [known for known in self._test_runners if not known.alive]:
                    # Another grading that begins now may have removed it meanwhile.
                    if (ended := self._test_runners.pop(earlier, None)) is not None:
                        await ended.close()
                self._test_runners[slot] = GradingRunner(slot)
            test_runner = self._test_runners[slot]
            try:
                yield test_runner
            except BaseException:
                test_runner.end()
                raise

    async def close(self) -> None:
        """End every test runner. A second call does nothing."""
        while self._test_runners:
            _, test_runner = self._test_runners.popitem()
            await test_runner.close()
