"""Sessions in this process whose plain methods run on threads: one that hangs is given up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ludus.errors import RewardUnavailable
from ludus.verdict import Verdict
from ludus.wire.worker_threads import Lanes

from ..session import EnvSession
from .offload import offload


class OwnThreads:
    """Threads for the environments of one event loop; a session always runs on the same one.

    Args:
        count: of threads; so many sessions in a row have one each.
        call_timeout_s: of one reset, step or tool; its thread is then left to itself, and what it
            was asked for is no reward.
    """

    def __init__(self, count: int, *, call_timeout_s: float) -> None:
        self._lanes = Lanes(count, name="ludus-env")
        self._call_timeout_s = call_timeout_s
        self._numbers: dict[int, int] = {}
        """By the session's id."""
        self._busy: set[int] = set()
        """Numbers of sessions with a call that has not come back."""
        self._placed = 0

    async def start(self) -> None:
        """Attach to the running loop."""
        await self._lanes.start()

    async def stop(self) -> None:
        """Let every thread end after the work it has."""
        await self._lanes.stop()

    def place(self, session: EnvSession) -> EnvSession:
        """`session`, its plain methods on a thread; environments that never block stay here."""
        self._numbers[id(session)] = number = self._placed
        self._placed += 1
        if not session.env.never_blocks:
            offload(session.env, partial(self._run, session.id, number))
        return session

    def is_inside(self, session: EnvSession) -> bool:
        """Whether a thread may still be in a call of `session`, given up or cancelled."""
        return self._numbers[id(session)] in self._busy

    async def _run(self, name: str, number: int, work: Callable[[], Any]) -> Any:
        waited = f"{name}: no answer within {self._call_timeout_s:g} s"
        late = RewardUnavailable(Verdict.unavailable(waited))
        self._busy.add(number)
        try:
            made = await self._lanes.submit(
                number, work, timeout_s=self._call_timeout_s, late=lambda: late
            )
        except Exception:
            self._busy.discard(number)
            raise
        if made is late:
            raise late
        self._busy.discard(number)
        return made
