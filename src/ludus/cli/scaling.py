"""What `ludus eval` says of more samples, more rounds and more summaries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from ludus.agent import Episode
from ludus.agent.evaluation import valid
from ludus.agent.scaling import ScalingRow, SummaryRow, by_summaries, sampled, scaling
from ludus.background import run_on_loop
from ludus.config import read_toml
from ludus.errors import ConfigError
from ludus.estimates import Estimate
from ludus.rewards import Sample, Verifier, make_verifier
from ludus.rewards.score import awaited_verdict, close_verifier
from ludus.verdict import Verdict
from ludus.wire.address import parse_served

CONCURRENCY = 64
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class ScalingSettings:
    """What the figures are computed with."""

    passing: float
    """The lowest return with which an episode passes."""
    verifier: str = ""
    """Picks the best of k; empty for none."""
    trained_summaries: int | None = None
    """The most summaries of an episode in training; None where that is not known."""


class ScalingFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures that `ludus eval --json` adds to an evaluation."""

    scaling: list[ScalingRow] = []
    summaries: list[SummaryRow] = []
    unscored: int = 0
    """Episodes to which the verifier gave no score; their tasks are in no best-of-k."""


def measure_scaling(
    episodes: Sequence[Episode],
    chains: Mapping[str, Sequence[Sequence[Episode]]],
    settings: ScalingSettings,
) -> ScalingFigures:
    """Return the figures; empty for single samples that were neither revised nor summarized.

    Raises:
        ConfigError: the verifier scores nothing without the gold.
    """
    passing = settings.passing
    summaries = by_summaries(episodes, passing=passing, trained=settings.trained_summaries)
    largest = max((episode.index for episode in episodes), default=0)
    if not (largest or chains or settings.verifier):
        return ScalingFigures(summaries=summaries)
    scores = _scores(settings.verifier, episodes) if settings.verifier else []
    rounds = {
        task: [sampled(chain, passing=passing)[task] for chain in members if chain]
        for task, members in chains.items()
    }
    unscored = sum(
        score is None and valid(episode.trajectories[0])
        for episode, score in zip(episodes, scores, strict=False)
    )
    tasks = sampled(episodes, passing=passing, scores=scores)
    return ScalingFigures(scaling=scaling(tasks, rounds), summaries=summaries, unscored=unscored)


def verifier_of(name: str) -> Verifier:
    """Return the verifier of `--verifier`.

    Raises:
        ConfigError: there is none of this name, or its options are wrong.
    """
    bare, options = parse_served(name)
    return make_verifier(bare, **options)


def _scores(name: str, episodes: Sequence[Episode]) -> list[float | None]:
    """Return what the verifier gives to each episode without being shown the gold."""
    from ludus.trainer.rollout.scoring import as_sample

    verifier = verifier_of(name)
    samples = [
        msgspec.structs.replace(as_sample(episode.trajectories[0]), gold=None)
        for episode in episodes
    ]
    slots = asyncio.Semaphore(CONCURRENCY)

    async def score(sample: Sample) -> Verdict:
        async with slots:
            return await awaited_verdict(
                verifier.score(sample.heard_by(verifier)), name=name, timeout_s=TIMEOUT_S
            )

    async def score_all() -> list[Verdict]:
        return await asyncio.gather(*map(score, samples))

    try:
        verdicts = run_on_loop(score_all())
    finally:
        close_verifier(verifier)
    if not any(verdict.ok for verdict in verdicts):
        raise ConfigError(
            f"--verifier {name} scores no answer ({verdicts[0].detail}); the best of k is picked "
            "without the gold, so take one that needs none, such as judge or reward-model"
        )
    return [verdict.reward for verdict in verdicts]


def trained_summaries(model: str) -> int | None:
    """Return how many summaries a checkpoint's run allowed; None where `model` is no checkpoint of
    a run.
    """
    folder = Path(model).resolve() if model else Path()
    for parent in list(folder.parents)[:2]:
        file = parent / "config.toml"
        if folder.parent.name == "checkpoints" and file.is_file():
            context = read_toml(str(file)).get("context", {})
            most = context.get("max_summaries") if isinstance(context, Mapping) else None
            return most if isinstance(most, int) else None
    return None


def show_scaling(figures: ScalingFigures, verifier: str) -> None:
    """Print the tables."""
    console = Console(highlight=False)
    if figures.scaling:
        chosen = any(row.best for row in figures.scaling)
        revised = any(row.sequential for row in figures.scaling)
        table = Table(
            "k", "tokens", "pass@k", "maj@k", *([f"best of k by {verifier}"] if chosen else []),
            *(["in rounds", "rounds"] if revised else []), box=None,
        )  # fmt: skip
        for row in figures.scaling:
            cells = [row.passed, row.majority, *([row.best] if chosen else [])]
            numbers = ["-" if cell is None else " ± ".join(_short(cell)) for cell in cells]
            if revised:
                last = row.sequential
                numbers += ["-" if last is None else " ± ".join(_short(last)), f"{row.rounds:.1f}"]
            table.add_row(str(row.k), f"{row.tokens:.0f}", *numbers)
        console.print(table)
    if figures.unscored:
        console.print(f"{figures.unscored} episodes have no score of {verifier}; see --json")
    if figures.summaries:
        table = Table("summaries at most", "passed", "95% interval", "episodes", "", box=None)
        for summary in figures.summaries:
            note = "beyond training" if summary.beyond else ""
            table.add_row(
                str(summary.summaries), *summary.success.cells(), str(summary.episodes), note
            )
        console.print(table)


def _short(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.3f}", f"{(estimate.high - estimate.low) / 2:.3f}"
