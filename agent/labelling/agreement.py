"""How far people agree, and who is fast, careless or one-sided.

Krippendorff's alpha is 1 - D_o / D_e: disagreement observed, over that expected of labels drawn at
random from all. It takes any number of people and missing labels. Cohen's kappa is for two people:
(p_o - p_e) / (1 - p_e).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, permutations
from statistics import median
from typing import Literal

import msgspec

from ludus.estimates import Estimate, wilson

from .journal import LabelRow
from .sheet import LabelItem, LabelQuestion

Level = Literal["nominal", "ordinal", "interval"]
FAST = 1 / 3
"""The share of everybody's median time below which a person is told to be fast."""
FEW = 10
"""Labels from which a person is judged at all."""


def cohen_kappa(first: Sequence[object], second: Sequence[object]) -> float | None:
    """Cohen's kappa of two people's labels of the same items; None where chance alone would agree
    on everything.

    Source: Cohen (1960), equation 1.

    >>> cohen_kappa(["y"] * 25 + ["n"] * 25, ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15)
    0.4
    """
    count = len(first)
    if not count:
        return None
    same = sum(a == b for a, b in zip(first, second, strict=True)) / count
    mine, theirs = Counter(first), Counter(second)
    chance = sum(mine[label] * theirs[label] for label in mine) / count**2
    return None if chance == 1 else round((same - chance) / (1 - chance), 12)


def krippendorff_alpha(units: Iterable[Sequence[float]], level: Level = "nominal") -> float | None:
    """Krippendorff's alpha.

    Args:
        units: the labels that each item got, of however many people; an item with fewer than two
            says nothing.
        level: whether labels are names, ranks, or numbers.

    Returns:
        1 for agreement without exception, 0 for that of chance; None where nothing can be said:
        no item with two labels, or a single label everywhere.

    Source: Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), section D.

    >>> krippendorff_alpha([[1, 1], [2, 2], [1, 2]])
    0.4444444444444444
    """
    paired = [list(unit) for unit in units if len(unit) > 1]
    counts = Counter(label for unit in paired for label in unit)
    total = sum(counts.values())
    distance = _distance(level, counts)
    observed = sum(
        distance(a, b) / (len(unit) - 1) for unit in paired for a, b in permutations(unit, 2)
    )
    expected = sum(counts[a] * counts[b] * distance(a, b) for a, b in permutations(counts, 2))
    if total < 2 or not expected:
        return None
    return 1 - (total - 1) * observed / expected


def _distance(level: Level, counts: Mapping[float, int]) -> Callable[[float, float], float]:
    """Return the squared distance of two labels."""
    ordered = sorted(counts)

    def ordinal(a: float, b: float) -> float:
        low, high = min(a, b), max(a, b)
        between = sum(counts[label] for label in ordered if low <= label <= high)
        return (between - (counts[a] + counts[b]) / 2) ** 2 if a != b else 0.0

    distances: dict[Level, Callable[[float, float], float]] = {
        "nominal": lambda a, b: float(a != b),
        "interval": lambda a, b: (a - b) ** 2,
        "ordinal": ordinal,
    }
    return distances[level]


class AnnotatorReport(msgspec.Struct, kw_only=True):
    """What is known of a person's labels."""

    annotator: str
    labels: int
    seconds: float | None
    """The median time of an item."""
    tests: Estimate | None
    """The share of test items that were answered as expected."""
    first: Estimate | None
    """How often the answer shown first was preferred, in pairs."""
    agreement: float | None
    """The mean of Cohen's kappa with each of the others."""
    concerns: list[str]
    """What a person should look at."""


class LabelReport(msgspec.Struct, kw_only=True):
    """How far people agree."""

    items: int
    labels: int
    labelled_twice: int
    """Items that at least two people have labelled."""
    alpha: float | None
    level: Level
    annotators: list[AnnotatorReport]
    notes: list[str]


def report_of(items: Sequence[LabelItem], rows: Sequence[LabelRow]) -> LabelReport:
    """Return agreement over all items, and what is known of each person."""
    by_item: dict[str, dict[str, LabelRow]] = defaultdict(dict)
    for row in rows:
        by_item[row.item][row.annotator] = row
    question = items[0].question if items else LabelQuestion.PAIR
    level: Level = "ordinal" if question is LabelQuestion.RATING else "nominal"
    people = sorted({row.annotator for row in rows})
    units = _units(question, by_item)
    notes = []
    if len(people) == 1:
        notes.append(f"all labels are of one person, {people[0]}: agreement cannot be known")
    twice = sum(len(labels) > 1 for labels in by_item.values())
    if len(people) > 1 and not twice:
        notes.append("no item was labelled by two people: agreement cannot be known")
    pace = median([row.seconds for row in rows]) if rows else 0.0
    expected = {item.id: item.expected for item in items if item.expected is not None}
    reports = [_of_person(name, people, by_item, expected, question, pace) for name in people]
    return LabelReport(
        items=len(items),
        labels=len(rows),
        labelled_twice=twice,
        alpha=krippendorff_alpha(units, level),
        level=level,
        annotators=reports,
        notes=notes,
    )


def _units(
    question: LabelQuestion, by_item: Mapping[str, Mapping[str, LabelRow]]
) -> list[list[float]]:
    """Return the labels to compare: of a ranking every pair of answers is a unit."""
    units: list[list[float]] = []
    for rows in by_item.values():
        labels = [row.label for row in rows.values()]
        if question in (LabelQuestion.RATING, LabelQuestion.CRITERION):
            units.append([label[0] for label in labels])
            continue
        for i, j in combinations(range(len(labels[0])), 2):
            units.append(
                [float(label[i] > label[j]) - float(label[i] < label[j]) for label in labels]
            )
    return units


def _of_person(
    name: str,
    people: Sequence[str],
    by_item: Mapping[str, Mapping[str, LabelRow]],
    expected: Mapping[str, list[float]],
    question: LabelQuestion,
    pace: float,
) -> AnnotatorReport:
    mine = {item: rows[name] for item, rows in by_item.items() if name in rows}
    tests = [row.label == expected[item] for item, row in mine.items() if item in expected]
    kappas = []
    for other in people:
        shared = [item for item in mine if other != name and other in by_item[item]]
        kappa = cohen_kappa(
            [tuple(mine[item].label) for item in shared],
            [tuple(by_item[item][other].label) for item in shared],
        )
        kappas += [] if kappa is None or other == name else [kappa]
    decided = [row for row in mine.values() if len(set(row.label)) == 2 and len(row.label) == 2]
    first = [row.label[row.shown[0]] < row.label[row.shown[1]] for row in decided]
    report = AnnotatorReport(
        annotator=name,
        labels=len(mine),
        seconds=median([row.seconds for row in mine.values()]),
        tests=wilson(sum(tests), len(tests)) if tests else None,
        first=wilson(sum(first), len(first)) if first and question is LabelQuestion.PAIR else None,
        agreement=sum(kappas) / len(kappas) if kappas else None,
        concerns=[],
    )
    report.concerns = _concerns(report, list(mine.values()), question, pace)
    return report


def _concerns(
    report: AnnotatorReport, rows: Sequence[LabelRow], question: LabelQuestion, pace: float
) -> list[str]:
    if report.labels < FEW:
        return []
    concerns = []
    if report.seconds is not None and report.seconds < FAST * pace:
        concerns.append(f"fast: {report.seconds:.1f} s an item, and the median is {pace:.1f} s")
    # A coin passes half of the tests with two outcomes.
    if report.tests is not None and report.tests.low <= 0.5 and report.tests.value < 0.8:
        concerns.append(f"test items: {report.tests.value:.0%} as expected")
    # One in twenty is outside of a 95 % interval by chance alone, so it has to be far out as well.
    first = report.first
    if first is not None and abs(first.value - 0.5) >= 0.25 and not first.low <= 0.5 <= first.high:
        concerns.append(f"one side: the answer shown first is preferred in {first.value:.0%}")
    if report.agreement is not None and report.agreement < 0.2:
        concerns.append(f"alone: kappa with others is {report.agreement:.2f}")
    same = Counter(tuple(row.label) for row in rows).most_common(1)[0][1]
    if question is not LabelQuestion.PAIR and same == len(rows):
        concerns.append("the same label everywhere")
    return concerns
