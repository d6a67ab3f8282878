"""What is known of the error of a run's judges, in the run's folder and report."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ludus.errors import ConfigError
from ludus.rewards.measured import KnownJudge

from ..rollout.scoring import WeightedVerifier

FILE = "judges.json"
"""In the folder of a run whose rewards ask language models."""
MEASURE_IT = (
    "measure it with 'ludus check-judge URL --model MODEL --out card.json' and add card=card.json "
    "to the judge's options"
)


class RewardJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A model behind one of the run's rewards."""

    reward: str
    judge: KnownJudge


def keep_judges(folder: Path, verifiers: Sequence[WeightedVerifier]) -> None:
    """Write down who judges, where somebody does."""
    judges = _judges(verifiers)
    if judges:
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(judges)) + b"\n")


def unmeasured(verifiers: Sequence[WeightedVerifier]) -> list[str]:
    """What a person should hear of judges whose error nobody has measured."""
    return [
        f"reward {one.reward!r} comes from the judge {one.judge.model!r}, whose error was never "
        f"measured; {MEASURE_IT}"
        for one in _judges(verifiers)
        if one.judge.measures is None
    ]


def told_judges(folder: Path) -> str:
    """The judges of a run as HTML: a table of measured rates each, or that there is none; empty for
    a run without judges.

    Raises:
        ConfigError: the file of the run cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return ""
    try:
        judges = msgspec.json.decode(path.read_bytes(), type=list[RewardJudge])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{str(path)!r} is no list of judges: {error}") from None
    return "<h2>Judges</h2>" + "".join(map(_told, judges))


def _judges(verifiers: Sequence[WeightedVerifier]) -> list[RewardJudge]:
    return [
        RewardJudge(reward=one.name.partition("?")[0], judge=judge)
        for one in verifiers
        for judge in one.judges
    ]


def _told(one: RewardJudge) -> str:
    lead = f"The reward {one.reward!r} comes from the model {one.judge.model!r}"
    if one.judge.measures is None:
        return f"<p>{html.escape(f'{lead}, whose error was never measured: {MEASURE_IT}.')}</p>"
    rows = "".join(
        f"<tr><td>{html.escape(measure.name)}</td><td>{rate}</td><td>{interval}</td>"
        f"<td>{measure.events} of {measure.trials}</td><td>{measure.ideal:g}</td></tr>"
        for measure in one.judge.measures
        for rate, interval in [measure.rate.cells() if measure.rate else ("not measured", "-")]
    )
    head = "<tr><th>measure<th>rate<th>95% interval<th>cases<th>without error</tr>"
    return f"<p>{html.escape(lead)}. Its measured error:</p><table>{head}{rows}</table>"
