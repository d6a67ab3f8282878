"""The measured errors of a run's judges, in the run's folder and report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ludus.errors import ConfigError
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
        f"reward {one.reward!r} comes from the judge {one.judge.model!r}, whose error was never "
        f"measured; {MEASURE_IT}"
        for one in _judges(verifiers)
        if one.judge.measures is None
    ]


def read_judges(folder: Path) -> list[RewardJudge]:
    """Read the judges of a run; an empty list for a run without judges.

    Raises:
        ConfigError: the file of the run cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[RewardJudge])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{str(path)!r} is no list of judges: {error}") from None


def _judges(verifiers: Sequence[WeightedVerifier]) -> list[RewardJudge]:
    return [
        RewardJudge(reward=one.name.partition("?")[0], judge=judge)
        for one in verifiers
        for judge in one.judges
    ]
