"""An environment that is given up on where a call of it does not come back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ludus.errors import CheckFailed
from ludus.messages import Message, Observation

from ..gym import GymEnv
from ..protocol import Info
from ..session import Stepped

STEP_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 5.0


class PatientEnv(GymEnv):
    """`gym`, with every call bounded; after one that was late, none is made.

    A call can be given up on the main thread alone, where a signal ends what it waits for.
    """

    def __init__(self, gym: GymEnv, timeout_s: float, late: list[str]) -> None:
        """Bound `gym`; instances of one environment share `late`, what was given up."""
        self.__dict__.update(gym.__dict__)
        self._timeout_s, self._late = timeout_s, late

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode, in time."""
        with self._bounded("reset()", self._timeout_s):
            return super().reset(seed=seed, options=options)

    def step(self, action: str | Message) -> Stepped:
        """Play one action, in time."""
        with self._bounded(f"step({action!r:.60})", self._timeout_s):
            return super().step(action)

    def close(self) -> None:
        """Release the environment, unless it is stuck."""
        with self._bounded("close()", CLOSE_TIMEOUT_S):
            super().close()

    @contextmanager
    def _bounded(self, call: str, timeout_s: float) -> Generator[None]:
        if self._late:
            raise CheckFailed(self._late[0])
        try:
            with _alarm(timeout_s):
                yield
        except _Late as late:
            self._late.append(
                f"{call} did not come back within {timeout_s:g} s ({late}); bound what it waits "
                "for: every episode that gets there would hang"
            )
            raise CheckFailed(self._late[0]) from None


class _Late(BaseException):
    """No `except Exception` of an environment swallows it."""


@contextmanager
def _alarm(timeout_s: float) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        assert frame is not None  # something was waited for
        raise _Late(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
