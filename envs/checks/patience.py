"""A wrapper that gives an environment up when a call does not return in time."""

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
    """A view of `gym` with a time limit on every call; after a late call, no further call is made.

    The limit works on the main thread alone, where a signal (SIGALRM) interrupts the waiting call.
    """

    def __init__(self, gym: GymEnv, timeout_s: float, late: list[str]) -> None:
        """Bound `gym`; instances of an environment share `late`, the calls given up."""
        self.__dict__.update(gym.__dict__)
        self._timeout_s, self._late = timeout_s, late

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode; raises CheckFailed if `reset` takes longer than the limit."""
        with self._bounded("reset()", self._timeout_s):
            return super().reset(seed=seed, options=options)

    def step(self, action: str | Message) -> Stepped:
        """Play an action; raises CheckFailed if `step` takes longer than the limit."""
        with self._bounded(f"step({action!r:.60})", self._timeout_s):
            return super().step(action)

    def close(self) -> None:
        """Release the environment, unless an earlier call is stuck."""
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
    """Interrupts a late call. The class is not an Exception, so that no handler of the environment
    stops it.
    """


@contextmanager
def _alarm(timeout_s: float) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        assert frame is not None  # the signal interrupted some frame
        raise _Late(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
