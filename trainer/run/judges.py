"""The language models that give rewards of a run, with their measured error: `judges.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ludus.rewards.measured import KnownJudge

from ..rollout.scoring import WeightedVerifier

FILE = "judges.json"
"""The file with the judges, in the folder of a run whose rewards ask language models."""
MEASURE_IT = (
    "measure it with 'ludus check-judge URL --model MODEL --out card.json' and add card=card.json "
    "to the judge's options"
)


class RewardJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A language model that gives a reward of the run."""

    reward: str
    judge: KnownJudge


def keep_judges(folder: Path, verifiers: Sequence[WeightedVerifier]) -> None:
    """Write the judges of `verifiers` to the run's folder; no file if no verifier has a judge."""
    judges = _judges(verifiers)
    if judges:
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(judges)) + b"\n")


def unmeasured(verifiers: Sequence[WeightedVerifier]) -> list[str]:
    """Return a warning for each judge whose error nobody has measured."""
    return [
        f"reward {judge.reward!r} comes from the judge {judge.judge.model!r}, whose error was "
        f"never measured; {MEASURE_IT}"
        for judge in _judges(verifiers)
        if judge.judge.measures is None
    ]


def _judges(verifiers: Sequence[WeightedVerifier]) -> list[RewardJudge]:
    return [
        RewardJudge(reward=weighted.name.partition("?")[0], judge=judge)
        for weighted in verifiers
        for judge in weighted.judges
    ]
