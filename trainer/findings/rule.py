"""A rule: a quantity over a window of steps, the threshold from which it holds, and what to do.

The rules are the table `rules.toml`, whose head says how an entry is written. Their quantities,
conditions and words are functions of a run's history, in `quantities.py` and `words.py`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ludus.config import read_toml
from ludus.findings import Severity, State

from .history import SHORT, RunHistory
from .quantities import CONDITIONS, QUANTITIES
from .words import WORDS


class FindingRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule for findings, as an entry of `rules.toml`."""

    name: str
    quantity: str
    """A column, whose mean is compared, or a name of `QUANTITIES`."""
    threshold: float
    source: str
    """Where the threshold comes from; "house" for a measurement by `benchmarks/planted_runs.py`."""
    sentence: str
    """The text of a finding; see `Sentence` for the words in braces."""
    remedy: str = ""
    """A command, or options of `ludus train`; empty where nothing is to be done."""
    evidence: tuple[str, ...]
    """Columns of `metrics.jsonl` that show the finding."""
    when: tuple[str, ...] = ()
    """Names of `CONDITIONS` that the run has to meet; else the quantity is unknown."""
    last: int = SHORT
    """Steps over which columns and reward are averaged, in the quantity and in the sentence."""
    absent: float | None = None
    """The value of a step without the column; None leaves the step out."""
    severity: Severity = "warning"
    state: State | None = None
    causes: tuple[str, ...] = ()
    """Names of findings that explain this one if they hold, the deepest first."""
    after: int = 3
    """Fewest steps of a run before the rule is applied."""
    below: bool = False
    """Whether the rule holds below the threshold, and not from the threshold on."""
    clears: float | None = None
    """The quantity at which a finding closes; by default half the threshold, twice for `below`."""

    def number(self, run: RunHistory) -> float | None:
        """Return the quantity after the newest step; None where it is unknown, or the rule does not
        apply.
        """
        if not all(CONDITIONS[condition](run) for condition in self.when):
            return None
        if "/" in self.quantity:
            return run.mean(self.quantity, self.last, absent=self.absent)
        return QUANTITIES[self.quantity](run)

    def sentence_of(self, run: RunHistory, number: float) -> str:
        """Return the sentence with the numbers of a run."""
        return Sentence(run, number, self.last).format(self.sentence)

    def remedy_of(self, run: RunHistory) -> str:
        """Return the remedy with the settings of a run."""
        return Sentence(run, 0.0, self.last).format(self.remedy)

    def holds(self, number: float) -> bool:
        """Whether the quantity has reached the threshold."""
        return number < self.threshold if self.below else number >= self.threshold

    def is_over(self, number: float) -> bool:
        """Whether the quantity is so far back that an open finding closes."""
        if self.below:
            return number >= (2 * self.threshold if self.clears is None else self.clears)
        return number < (self.threshold / 2 if self.clears is None else self.clears)


class Sentence(string.Formatter):
    """Fills the words in braces, which may have a format as in Python: `number`, the mean reward
    `level`, one of `WORDS`, a column (`turn/cut`, 0 where it is unknown), a setting (`trainer.lr`).
    """

    def __init__(self, run: RunHistory, number: float, last: int) -> None:
        self._run, self._number, self._last = run, number, last

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, str]:
        """Return the value of a word in braces, and the word."""
        if field_name == "number":
            return self._number, field_name
        if field_name == "level":
            return str(self._run.level(self._last)), field_name
        if field_name in WORDS:
            return WORDS[field_name](self._run), field_name
        if "/" in field_name:
            return self._run.mean(field_name, self._last) or 0.0, field_name
        return self._run.setting(field_name), field_name


RULES: tuple[FindingRule, ...] = tuple(
    msgspec.convert({"name": name, **entry}, FindingRule)
    for name, entry in read_toml(Path(__file__).with_name("rules.toml")).items()
)
"""Every rule; causes stand before their consequences where possible."""
