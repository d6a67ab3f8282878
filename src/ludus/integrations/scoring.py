"""Verifiers as reward functions of a peer: many samples at a time, and never an exception."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from ludus.background import run_on_loop
from ludus.rewards import Sample
from ludus.rewards.protocol import Verifier
from ludus.rewards.score import shared_verifier
from ludus.verdict import Verdict

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
        timeout_s: the limit for one verdict in seconds; a later one is `unavailable`.
        options: the options of a verifier that is named.

    Raises:
        UnknownVerifier: nobody registered the name.
        ConfigError: the verifier does not take these options.
    """
    scorer = _found(verifier, options)

    async def score_all() -> list[Verdict]:
        return await asyncio.gather(*(_one(scorer, sample, timeout_s) for sample in samples))

    return run_on_loop(score_all())


async def verdict_of(
    verifier: str | Verifier, sample: Sample, *, timeout_s: float = TIMEOUT_S, **options: Any
) -> Verdict:
    """Score a sample; see `verdicts_of`."""
    return await _one(_found(verifier, options), sample, timeout_s)


def _found(verifier: str | Verifier, options: dict[str, Any]) -> Verifier:
    return shared_verifier(verifier, **options) if isinstance(verifier, str) else verifier


async def _one(verifier: Verifier, sample: Sample, timeout_s: float) -> Verdict:
    sample = sample.heard_by(verifier)
    try:
        async with asyncio.timeout(timeout_s):
            scored: object = (
                verifier.score(sample)
                if inspect.iscoroutinefunction(verifier.score)
                else await asyncio.to_thread(verifier.score, sample)
            )
            if inspect.isawaitable(scored):
                scored = await scored
    except TimeoutError:
        return Verdict.unavailable(f"no verdict within {timeout_s:g} s")
    except Exception as error:  # a verifier that raises has a bug, which is no reward
        return Verdict.error(f"{type(error).__name__}: {error}")
    if not isinstance(scored, Verdict):
        return Verdict.error(f"the verifier returned {type(scored).__name__}, not a Verdict")
    return scored
