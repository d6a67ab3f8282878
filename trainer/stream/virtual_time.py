"""An event loop whose clock jumps to the next timer: hours of a schedule in seconds, the same every
time.

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())

Whatever waits by `asyncio.sleep`, by timeouts or for other tasks runs as it would, in no time.
There must be no thread and no socket to wait for: a loop that has neither a timer nor anything to
do can never go on, and raises `NothingLeft`.
"""

from __future__ import annotations

import asyncio
import math
import selectors

from ludus.errors import LudusError

RESOLUTION_S = 1e-9
"""The least resolution of the virtual clock in seconds, which is that of the system's clock."""


class NothingLeft(LudusError, RuntimeError):
    """Every task waits for another: under a virtual clock nothing outside can wake one."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock, which starts at 0 s."""

    def __init__(self) -> None:
        self._now = 0.0
        self._skipping = _SkippingSelector(self)
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
        # The loop runs a timer that is due before the time plus this resolution. At large times the
        # sum would be the time itself, and the loop would wait for a due timer for ever.
        self._clock_resolution = max(RESOLUTION_S, math.ulp(self._now))


class _SkippingSelector(selectors.DefaultSelector):
    """Lets virtual time pass instead of waiting."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeft("every task waits for another, and no timer is set")
        self._loop.skip(max(0.0, timeout))
        return super().select(0)
