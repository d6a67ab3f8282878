"""Measurements of a verifier on a file of answers: accuracy, precision, recall and throughput.

Rows with a `label` (true if the response is right) are compared with the verdicts; with a
`category`, each category is also measured by itself. The rows are read by `rows.py`.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ludus.verdict import Verdict

from .pool import fates_of
from .rows import AnswerRow


@dataclass(slots=True)
class Counts:
    """Counts of verdicts against labels. A reward of at least one half says "right"."""

    true_positive: int = 0
    false_positive: int = 0
    true_negative: int = 0
    false_negative: int = 0
    failed: int = 0
    """Number of verdicts without a reward; with a label they count as wrong in the accuracy."""

    def add(self, label: bool, verdict: Verdict) -> None:
        """Count a verdict against its label."""
        if verdict.reward is None:
            self.failed += 1
        elif verdict.reward >= 0.5:
            self.true_positive += label
            self.false_positive += not label
        else:
            self.false_negative += label
            self.true_negative += not label

    @property
    def total(self) -> int:
        """Number of verdicts that were counted."""
        decided = (
            self.true_positive + self.false_positive + self.true_negative + self.false_negative
        )
        return decided + self.failed

    @property
    def accuracy(self) -> float:
        """Share of right verdicts among all verdicts."""
        return (self.true_positive + self.true_negative) / self.total if self.total else 0.0

    @property
    def precision(self) -> float:
        """Share of right answers among the rewarded answers."""
        rewarded = self.true_positive + self.false_positive
        return self.true_positive / rewarded if rewarded else 1.0

    @property
    def recall(self) -> float:
        """Share of rewarded answers among the right answers (a failed verdict is not a reward)."""
        right = self.true_positive + self.false_negative
        return self.true_positive / right if right else 1.0


@dataclass(slots=True)
class ScoringReport:
    """What was measured on the rows of a file."""

    rows: int = 0
    scored: int = 0
    """Rows that have a reward."""
    rewards: float = 0.0
    """Sum of the rewards."""
    statuses: dict[str, int] = field(default_factory=dict[str, int])
    fates: dict[str, int] = field(default_factory=dict[str, int])
    """How often a pool worker met a limit or was lost, by fate (decision 0301)."""
    overall: Counts = field(default_factory=Counts)
    categories: dict[str, Counts] = field(default_factory=dict[str, Counts])
    wrong: list[tuple[AnswerRow, Verdict]] = field(default_factory=list[tuple[AnswerRow, Verdict]])
    unscored: list[tuple[AnswerRow, Verdict]] = field(
        default_factory=list[tuple[AnswerRow, Verdict]]
    )
    """Rows without a reward; the verdict says why."""
    cpu_s: float = 0.0
    """CPU seconds of this process and its ended children while scoring."""
    wall_s: float = 0.0

    @property
    def mean_reward(self) -> float | None:
        """Mean over the rows that have a reward; None if no row has a reward."""
        return self.rewards / self.scored if self.scored else None

    @property
    def per_cpu_second(self) -> float:
        """Number of verdicts per CPU second."""
        return self.rows / self.cpu_s if self.cpu_s else 0.0


def measured(
    rows: Sequence[AnswerRow],
    verdicts: Sequence[Verdict],
    *,
    wall_s: float = 0.0,
    cpu_s: float = 0.0,
) -> ScoringReport:
    """Count `verdicts`, one for each of `rows`."""
    report = ScoringReport(rows=len(rows), wall_s=wall_s, cpu_s=cpu_s)
    for row, verdict in zip(rows, verdicts, strict=True):
        if verdict.reward is not None:
            report.scored += 1
            report.rewards += verdict.reward
        else:
            report.unscored.append((row, verdict))
        report.statuses[verdict.status] = report.statuses.get(verdict.status, 0) + 1
        for fate in fates_of(verdict):
            report.fates[fate] = report.fates.get(fate, 0) + 1
        if row.label is not None:
            report.overall.add(row.label, verdict)
            report.categories.setdefault(row.category, Counts()).add(row.label, verdict)
            if verdict.reward is None or (verdict.reward >= 0.5) != row.label:
                report.wrong.append((row, verdict))
    return report


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    usages = (
        resource.getrusage(usage_of)
        for usage_of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def by_category(report: ScoringReport) -> Iterator[tuple[str, Counts]]:
    """Yield (category, counts), the least accurate category first."""
    yield from sorted(report.categories.items(), key=lambda item: (item[1].accuracy, item[0]))
