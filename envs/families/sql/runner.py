"""Runs a policy's SQL in a pool of worker processes, shared by all environments of a process."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Sequence

import msgspec

from ludus.errors import RewardUnavailable, ToolError
from ludus.rewards.pool import Fate, PoolLimits, WorkerPool
from ludus.verdict import Verdict

from .queries import Database
from .worker import QueryRequest, QueryResult, Results

TARGET = "ludus.envs.families.sql.worker:run"
LIMITS = PoolLimits(cpu_s=2.0, memory_bytes=192 << 20, chunk=1)
PATIENCE_S = 25.0
"""The time limit of a request, in seconds. It is below the limit of a tool call, so that a busy
machine makes the episode unusable and is not blamed on the policy.
"""


class TooCostly(ToolError):
    """The query was stopped because the CPU time or the memory was used up."""


async def run_untrusted(sql: str, databases: Sequence[Database]) -> list[QueryResult]:
    """Run a query that a policy wrote.

    Returns:
        A result for each database, up to and with the first error.

    Raises:
        TooCostly: the query met a limit; the policy's fault.
        RewardUnavailable: no worker was free in time, or SQLite crashed; not the policy's fault.
    """
    readable = sql.encode("utf-8", "replace").decode()
    request = msgspec.to_builtins(QueryRequest(sql=readable, databases=list(databases)))
    try:
        outcome = await asyncio.wait_for(_shared.pool().run(request), PATIENCE_S)
    except TimeoutError:
        late = f"no worker ran a query within {PATIENCE_S:g} s: the machine is too busy"
        raise RewardUnavailable(Verdict.unavailable(late)) from None
    if outcome.fate is Fate.LIMIT:
        raise TooCostly(f"the query was stopped: {outcome.reason}")
    if outcome.fate is not Fate.DONE:
        raise RewardUnavailable(outcome.failure())
    return msgspec.convert(outcome.value, Results).results


class _Shared:
    """The worker pool of this process, started on first use; a forked child gets a new pool."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None
        self._owner = 0

    def pool(self) -> WorkerPool:
        """Return the pool, and start a pool if this process has none."""
        with self._lock:
            if self._pool is None or self._owner != os.getpid():
                self._pool, self._owner = WorkerPool(TARGET, limits=LIMITS), os.getpid()
                atexit.register(self._pool.close)
            return self._pool


_shared = _Shared()
