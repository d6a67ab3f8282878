"""The early end of a group: what has finished counts, the rest is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any


class Cut:
    """A signal that ends a group of rollouts early; also ends the group at a deadline.

    Args:
        deadline_s: seconds after which the group ends by itself; None for no deadline.
    """

    def __init__(self, deadline_s: float | None = None) -> None:
        self.deadline_s = deadline_s
        self._asked = asyncio.Event()

    @property
    def asked(self) -> bool:
        """Whether the group was asked to end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """End the group with the rollouts that have finished."""
        self._asked.set()

    async def wait(self, rollouts: Sequence[asyncio.Task[Any]]) -> dict[int, float]:
        """Wait until all rollouts have finished, or for the cut.

        Returns:
            The unfinished rollouts by index, with the seconds that each was played; they are
            cancelled, and have ended.

        Raises:
            Exception: that of the first rollout that failed.
        """
        clock = asyncio.get_running_loop()
        started = clock.time()
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            unfinished: set[asyncio.Task[Any]] = set(rollouts)
            while unfinished and not self.asked:
                patience = (
                    None
                    if self.deadline_s is None
                    else max(0.0, started + self.deadline_s - clock.time())
                )
                done, _ = await asyncio.wait(
                    {*unfinished, asked}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done - {asked}:
                    task.result()  # raises the rollout's error at once
                unfinished -= done
                if not done and patience is not None:
                    self._asked.set()  # the deadline has passed
        finally:
            await cancelled([asked])
        late = {n: clock.time() - started for n, task in enumerate(rollouts) if not task.done()}
        await cancelled([rollouts[n] for n in late])
        return late


async def cancelled(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until each has ended; a task that is done already stays as it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
