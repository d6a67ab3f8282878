"""Measures a verifier on a file of answers: accuracy, precision, recall and throughput.

The file is JSON Lines. A row has a `gold` and a response (`response`, `prediction` or
`completion`). Rows with a `label` (true if the response is right) are compared with the verdicts;
with a `category`, each category is also measured by itself.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import random
import resource
import time
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ludus.errors import ConfigError
from ludus.verdict import Verdict
from ludus.wire.strict import unknown_field

from .pool import fates_of
from .protocol import Sample, Verifier

RESPONSE_FIELDS = ("response", "prediction", "completion")
READ_FIELDS = ("gold", *RESPONSE_FIELDS, "label", "category", "id")
CONCURRENCY = 64
TIMEOUT_S = 600.0
"""The time limit of a row, in seconds. The limit is high, since rows wait in a pool's queue."""


class LabelledAnswer(msgspec.Struct, frozen=True):
    """A row of the file: an answer, with its label if known."""

    gold: object
    response: str
    label: bool | None = None
    category: str = ""
    id: str = ""


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
    """The measurements of `score_file`."""

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
    wrong: list[tuple[LabelledAnswer, Verdict]] = field(
        default_factory=list[tuple[LabelledAnswer, Verdict]]
    )
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


def read_rows(path: Path) -> list[LabelledAnswer]:
    """Read the rows of a JSON Lines file.

    Raises:
        ConfigError: the file cannot be read or is empty, or a line is not such a row; the message
            names the line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    rows = [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise ConfigError(f"{str(path)!r} holds no answers")
    return rows


def _row(path: Path, number: int, line: bytes) -> LabelledAnswer:
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}:{number}: not a JSON object ({error})") from error
    # A column whose name is nearly that of a missing field is refused; other columns are ignored.
    missing = [name for name in READ_FIELDS[:-1] if name not in fields]
    for name in fields:
        if name not in READ_FIELDS and difflib.get_close_matches(name, missing, n=1, cutoff=0.7):
            raise ConfigError(f"{path}:{number}: {unknown_field(name, set(missing))}")
    response = next((fields[name] for name in RESPONSE_FIELDS if name in fields), None)
    if "gold" not in fields or not isinstance(response, str):
        raise ConfigError(
            f"{path}:{number}: a row needs 'gold' and one of {', '.join(RESPONSE_FIELDS)}"
        )
    label = fields.get("label")
    return LabelledAnswer(
        fields["gold"], response, label if isinstance(label, bool) else None,
        str(fields.get("category") or ""), str(fields.get("id") or number),
    )  # fmt: skip


def score_rows(
    rows: Sequence[LabelledAnswer], verifier: Verifier, *, seed: int | None = None
) -> ScoringReport:
    """Score `rows` (shuffled when a `seed` is given) and count."""
    order = list(rows)
    if seed is not None:
        random.Random(seed).shuffle(order)
    report = ScoringReport(rows=len(order))
    started, cpu = time.perf_counter(), cpu_seconds()
    verdicts = asyncio.run(_score_all(order, verifier))
    close = getattr(verifier, "close", None)
    if callable(close):
        close()
    report.wall_s, report.cpu_s = time.perf_counter() - started, cpu_seconds() - cpu
    for row, verdict in zip(order, verdicts, strict=True):
        if verdict.reward is not None:
            report.scored += 1
            report.rewards += verdict.reward
        report.statuses[verdict.status] = report.statuses.get(verdict.status, 0) + 1
        for fate in fates_of(verdict):
            report.fates[fate] = report.fates.get(fate, 0) + 1
        if row.label is not None:
            report.overall.add(row.label, verdict)
            report.categories.setdefault(row.category, Counts()).add(row.label, verdict)
            if verdict.reward is None or (verdict.reward >= 0.5) != row.label:
                report.wrong.append((row, verdict))
    return report


def score_file(path: Path | str, verifier: Verifier) -> ScoringReport:
    """Score a JSON Lines file."""
    return score_rows(read_rows(Path(path)), verifier)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    usages = (
        resource.getrusage(usage_of)
        for usage_of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def _score_all(rows: Sequence[LabelledAnswer], verifier: Verifier) -> list[Verdict]:
    """Return verdicts in order; verdicts that have to wait are awaited together."""
    verdicts: list[Verdict | None] = [None] * len(rows)
    waiting: set[asyncio.Task[None]] = set()
    for place, row in enumerate(rows):
        scored = verifier.score(Sample(response=row.response, gold=row.gold))
        if not inspect.isawaitable(scored):
            verdicts[place] = scored
            continue
        waiting.add(asyncio.create_task(_fill(verdicts, place, scored)))
        if len(waiting) >= CONCURRENCY:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if waiting:
        await asyncio.wait(waiting)
    return [verdict or Verdict.error("no verdict") for verdict in verdicts]


async def _fill(verdicts: list[Verdict | None], place: int, scored: Awaitable[Verdict]) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            verdicts[place] = await scored
    except TimeoutError:
        verdicts[place] = Verdict.unavailable(f"no verdict within {TIMEOUT_S:g} s")
    except Exception as error:  # a boundary: one row's failure must not end the report
        verdicts[place] = Verdict.error(f"{type(error).__name__}: {error}")


def by_category(report: ScoringReport) -> Iterator[tuple[str, Counts]]:
    """Yield (category, counts), the least accurate category first."""
    yield from sorted(report.categories.items(), key=lambda item: (item[1].accuracy, item[0]))
