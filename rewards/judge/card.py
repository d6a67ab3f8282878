"""Cards with the measured error of a judge: rates with intervals.

The error of a judge can be measured before anybody trains with the judge's verdicts. A card holds
these rates, each with a 95% interval:

| measure | what is done |
|---|---|
| agreement | the judge's verdicts are compared with the labels given, or the built-in labels |
| false praise, false blame | the two kinds of disagreement apart |
| injection | responses that ask for a score instead of earning one, and were paid |
| position | equal pairs shown in both orders whose winner changed |
| length | pairs that differ by padding alone and whose longer side won |
| self-preference | how often a right answer of the judge's own beats a right one of ours |
| noise | criteria whose verdict changed when the judge was asked again |
| unreadable | questions that got no readable verdict |
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ludus.errors import ConfigError
from ludus.user_paths import user_path

from ..measured import KnownJudge, Measure
from .prompt import VERSION


class JudgeCard(msgspec.Struct, frozen=True, kw_only=True):
    """The measured error of a judge, for a model and a version of the prompts."""

    model: str
    base_url: str
    prompt_version: int
    measures: list[Measure]
    effort: dict[str, float]

    def measure(self, name: str) -> Measure:
        """Return the measure called `name`.

        Raises:
            KeyError: the card has no measure of this name.
        """
        return {measure.name: measure for measure in self.measures}[name]

    def known(self) -> KnownJudge:
        """Return the judge's model and measures, which a verifier reports of the judge."""
        return KnownJudge(model=self.model, measures=self.measures)


def read_card(path: str | Path, *, model: str) -> JudgeCard:
    """Read the card in a file that `ludus check-judge --out` wrote.

    Raises:
        ConfigError: the file holds no card, or the card of another model or of other prompts, which
            says nothing about this judge.
    """
    try:
        card = msgspec.json.decode(user_path(path).read_bytes(), type=JudgeCard)
    except OSError as error:
        raise ConfigError(
            f"cannot read the judge's card {str(path)!r}: {error.strerror}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not a judge's card: {error}") from None
    if (card.model, card.prompt_version) != (model, VERSION):
        raise ConfigError(
            f"{str(path)!r} measures {card.model!r} with prompts of version {card.prompt_version}; "
            f"this judge is {model!r} with prompts of version {VERSION}: measure it again with "
            "'ludus check-judge --out'"
        )
    return card
