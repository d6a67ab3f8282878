"""Verifiers as reward functions of a peer: many samples at a time, and never an exception."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Sequence
from typing import Any

from ludus.background import failing_where_given_up, on_background, run_on_loop
from ludus.errors import ConfigError
from ludus.rewards import Sample
from ludus.rewards.protocol import Verifier, as_verdict, failed, is_async_verifier
from ludus.rewards.score import shared_verifier
from ludus.verdict import Verdict
from ludus.wire.worker_threads import WorkerThreads

TIMEOUT_S = 60.0


def verdicts_of(
    verifier: str | Verifier,
    samples: Sequence[Sample],
    *,
    timeout_s: float = TIMEOUT_S,
    **options: Any,
) -> list[Verdict]:
    """Score samples at the same time, and return a verdict for each; blocks.

    Args:
        verifier: the name of a verifier, or a verifier.
        samples: what to score.
        timeout_s: the limit for one verdict in seconds; a later one is `unavailable`. A plain
            verifier's time begins when a thread is free for the sample.
        options: the options of a verifier that is named.

    Raises:
        UnknownVerifier: nobody registered the name.
        ConfigError: the verifier does not take these options, or is not named and has its own.
    """
    scorer = _found(verifier, options)

    async def score_all() -> list[Verdict]:
        return await asyncio.gather(*(_one(scorer, sample, timeout_s) for sample in samples))

    return run_on_loop(score_all())


async def verdict_of(
    verifier: str | Verifier, sample: Sample, *, timeout_s: float = TIMEOUT_S, **options: Any
) -> Verdict:
    """Score a sample from any event loop; see `verdicts_of`."""
    return await on_background(_one(_found(verifier, options), sample, timeout_s))


def _found(verifier: str | Verifier, options: dict[str, Any]) -> Verifier:
    if isinstance(verifier, str):
        return shared_verifier(verifier, **options)
    if options:
        raise ConfigError(
            f"the options {', '.join(options)} are of a verifier that is named; give this "
            f"{type(verifier).__name__} its own where it is made"
        )
    return verifier


async def _one(verifier: Verifier, sample: Sample, timeout_s: float) -> Verdict:
    late = Verdict.unavailable(f"no verdict within {timeout_s:g} s")
    clock = asyncio.timeout(timeout_s)
    try:
        heard = sample.heard_by(verifier)
        scored: object = (
            verifier.score(heard)
            if is_async_verifier(verifier)
            else await (await _threads()).submit(
                next(_turns), lambda: verifier.score(heard), timeout_s=timeout_s, late=lambda: late
            )
        )
        if inspect.isawaitable(scored):
            async with clock:
                with failing_where_given_up():
                    scored = await scored
        return as_verdict(scored, type(verifier).__name__)
    except Exception as error:  # a verifier that raises has a bug, which is no reward
        if isinstance(error, TimeoutError) and clock.expired():
            return late
        return failed(type(verifier).__name__, error)


_turns = itertools.count()
_threads_of: dict[asyncio.AbstractEventLoop, WorkerThreads] = {}
"""The threads by the background loop that their results return to: a forked child has another loop,
and none of its parent's threads.
"""


async def _threads() -> WorkerThreads:
    """Return the threads on which plain verifiers score, for the background loop that runs."""
    loop = asyncio.get_running_loop()
    if loop not in _threads_of:
        _threads_of[loop] = WorkerThreads(name="ludus-verifier")
        await _threads_of[loop].start()  # does not yield, so that nobody finds threads not started
    return _threads_of[loop]
