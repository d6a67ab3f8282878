"""The scoring of images by `ludus score NAME --image a.png b.png --prompt "..."`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ludus.background import run_on_loop
from ludus.errors import ConfigError
from ludus.messages import ImagePart
from ludus.rewards import Sample, Verdict, Verifier, make_verifier
from ludus.rewards.score import close_verifier

TIMEOUT_S = 600.0


def score_images(
    name: str, paths: Sequence[Path], prompt: str, settings: dict[str, Any], *, as_json: bool
) -> int:
    """Score image files, print rewards and ranks, and return 1 if any image has no reward, else
    0.
    """
    samples: list[Sample] = []
    for path in paths:
        try:
            image = ImagePart(data=path.read_bytes())
        except OSError as error:
            raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
        samples.append(Sample(response="", prompt=prompt, images=[image]))
    verifier = make_verifier(name, **settings)
    try:
        verdicts = run_on_loop(_score_all(verifier, samples), timeout_s=TIMEOUT_S)
    finally:
        close_verifier(verifier)
    # Rank the images, 1 for the highest reward; None for an image without a reward.
    rewards = [verdict.reward for verdict in verdicts]
    known_rewards = sorted((reward for reward in rewards if reward is not None), reverse=True)
    ranks = [None if reward is None else known_rewards.index(reward) + 1 for reward in rewards]
    rows = list(zip(paths, verdicts, ranks, strict=True))
    if as_json:
        for path, verdict, rank in rows:
            fields = {"image": str(path), "status": verdict.status, "reward": verdict.reward}
            print(json.dumps({**fields, "rank": rank, "detail": verdict.detail}))
    else:
        table = Table("image", "reward", "rank")
        for path, verdict, rank in rows:
            worth = f"{verdict.reward:.4f}" if verdict.reward is not None else str(verdict.status)
            table.add_row(str(path), worth, str(rank or verdict.detail))
        Console().print(table)
    return 0 if all(verdict.ok for verdict in verdicts) else 1


async def _score_all(verifier: Verifier, samples: Sequence[Sample]) -> list[Verdict]:
    """Score all samples concurrently, so that a verifier that batches sees the whole set."""

    async def score(sample: Sample) -> Verdict:
        scoring = verifier.score(sample)
        return scoring if isinstance(scoring, Verdict) else await scoring

    return await asyncio.gather(*map(score, samples))
