"""Sessions in this process whose plain methods run on threads: one that hangs is given up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from ludus.wire.lanes import Lanes

from .offload import offload
from .session import EnvSession

THREADS = 32


class OwnThreads:
    """Threads for the environments of one event loop; a session always runs on the same one.

    Args:
        call_timeout_s: of one reset, step or tool; its thread is then left to itself.
    """

    def __init__(self, *, call_timeout_s: float) -> None:
        self._lanes = Lanes(THREADS, name="ludus-env")
        self._call_timeout_s = call_timeout_s
        self._placed = 0

    async def __aenter__(self) -> Self:
        await self._lanes.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._lanes.stop()

    def place(self, session: EnvSession) -> EnvSession:
        """`session`, its plain methods on a thread; environments that never block stay here."""
        if not session.env.never_blocks:
            self._placed += 1
            offload(session.env, partial(self._run, str(self._placed)))
        return session

    async def _run(self, key: str, work: Callable[[], Any]) -> Any:
        late = TimeoutError(f"no answer within {self._call_timeout_s:g} s")
        made = await self._lanes.submit(
            key, work, timeout_s=self._call_timeout_s, late=lambda: late
        )
        if made is late:
            raise late
        return made
