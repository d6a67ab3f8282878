"""The two lanes of the verifier's pool, and the memory of golds that cost too much.

Every pair first has a short time in the quick lane, so that questions of a few milliseconds never
wait behind an integral. A pair that needs longer, or that a stalled machine gave no time, moves to
the slow lane, after its gold alone was evaluated there once: a gold that exhausts the limits is
remembered, and its answers are compared by text and structure alone, which needs no worker.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from ludus.rewards.pool import Fate, PoolLimits, PoolOutcome, WorkerPool

QUICK_S = 0.1
"""CPU seconds of a pair in the quick lane."""
TRIES = 4
"""How often a pair is tried in the quick lane of a machine too busy to give it its time, before it
moves to the slow lane, which waits for longer.
"""
QUEUE_S = 600.0
"""Seconds that a pair may wait for the slow lane."""
WALL_FACTOR = 10.0
"""Wall seconds for each CPU second. A slow lane holds up nobody, so that a busy machine need not
make a pair `late`.
"""
GOLDS = 4096
"""How many golds that were evaluated in the slow lane are remembered."""
PROBE = "0.12345678901"
"""The answer with which a gold is evaluated alone: a number that costs nothing itself."""
TOO_COSTLY = {
    "equal": False, "rule": "limit",
    "detail": "the gold is too costly to evaluate: only the same text or structure counts",
    "undecided": True, "trace": [],
}  # fmt: skip

Request = dict[str, object]


class Lanes:
    """A quick and a slow pool with one `submit`. Thread-safe.

    Args:
        target: the scorer of both pools.
        limits: of the slow lane, and of the quick lane but for its time.
    """

    def __init__(self, target: str, limits: PoolLimits | None = None) -> None:
        self.limits = replace(limits or PoolLimits(), wall_factor=WALL_FACTOR)
        self._target = target
        self._quick = WorkerPool(target, limits=self.limits)
        self._slow: WorkerPool | None = None
        self._lock = threading.Lock()
        self._probes: OrderedDict[object, Future[PoolOutcome]] = OrderedDict()

    def submit(self, request: Request, *, cpu_s: float) -> Future[PoolOutcome]:
        """Queue a pair that may take `cpu_s` CPU seconds; the future always resolves to an
        outcome.
        """
        done: Future[PoolOutcome] = Future()
        with self._lock:
            probe = self._probes.get((request["gold"], cpu_s))
        if probe is not None and probe.done() and _too_costly(probe.result()):
            done.set_result(PoolOutcome(Fate.DONE, dict(TOO_COSTLY)))
            return done

        tries = 0

        def quick() -> None:
            nonlocal tries
            tries += 1
            job = self._quick.submit(request, cpu_s=min(QUICK_S, cpu_s))
            job.add_done_callback(_then(after_quick))

        def after_quick(outcome: PoolOutcome) -> None:
            if outcome.fate is Fate.LATE and tries < TRIES:  # The machine was too busy.
                quick()
            elif outcome.fate in {Fate.LIMIT, Fate.LATE}:
                self._probe(request, cpu_s).add_done_callback(_then(after_probe))
            else:
                done.set_result(outcome)

        def after_probe(probed: PoolOutcome) -> None:
            if _too_costly(probed):
                done.set_result(PoolOutcome(Fate.DONE, dict(TOO_COSTLY)))
            elif probed.fate is Fate.DONE:
                slow = self._slow_lane().submit(request, cpu_s=cpu_s)
                slow.add_done_callback(_then(done.set_result))
            else:  # The machine was too busy: the gold is tried again for the next answer.
                with self._lock:
                    self._probes.pop((request["gold"], cpu_s), None)
                done.set_result(probed)

        quick()
        return done

    def warm(self) -> None:
        """Start the quick lane now instead of at the first hard pair."""
        self._quick.warm()

    def close(self) -> None:
        """End the processes of both lanes."""
        with self._lock:
            slow, self._slow = self._slow, None
        if slow is not None:
            slow.close()
        self._quick.close()

    def _probe(self, request: Request, cpu_s: float) -> Future[PoolOutcome]:
        """Return the evaluation of a gold alone, which all its answers share."""
        key = request["gold"], cpu_s
        with self._lock:
            if key in self._probes:
                self._probes.move_to_end(key)
                return self._probes[key]
        probe = self._slow_lane().submit({**request, "answer": PROBE, "prompt": ""}, cpu_s=cpu_s)
        with self._lock:
            probe = self._probes.setdefault(key, probe)
            if len(self._probes) > GOLDS:
                self._probes.popitem(last=False)
        return probe

    def _slow_lane(self) -> WorkerPool:
        with self._lock:
            if self._slow is None:
                self._slow = WorkerPool(self._target, limits=replace(self.limits, queue_s=QUEUE_S))
            return self._slow


def _then(step: Callable[[PoolOutcome], None]) -> Callable[[Future[PoolOutcome]], None]:
    return lambda future: step(future.result())


def _too_costly(probed: PoolOutcome) -> bool:
    return probed.fate is Fate.LIMIT
