"""Task sets from questions with answers: repetitions and unreadable golds are left out, and splits
share no question, not even with other numbers.

    train.jsonl, validation.jsonl, test.jsonl     {"id", "question", "answer", "solution", ...}
    left_out.jsonl                                a line for each row that is left out, and why
    card.json, README.md                          what the set is, and how it was made

The files are sources of `ludus/maths-v0`, whose layouts of rows are read here too.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ludus.errors import ConfigError
from ludus.rewards.maths.golds import check_golds

from ..families.maths import MathsProblem, read_row
from ..problem_files import UnusableRow, check_shares, rows_of
from ..tasks import SPLITS

SHINGLE = 4
"""Words of a shingle, the unit in which texts are compared."""
HASHES, BANDS = 64, 16
"""Numbers of a MinHash signature, and the bands in which equal ones are looked for: texts that have
0.7 of their shingles in common meet in a band with a chance of 0.99.
"""
ALIKE = 0.7
"""The share of common shingles, numbers apart, from which questions go to the same split."""
SAME = 0.9
"""The share of common shingles from which questions with the same numbers are one."""
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+|[^\w\s]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class LeftOut:
    """A row that is not in the set."""

    row: int
    """Its number in the source, from 1."""
    reason: str
    detail: str


@dataclass(frozen=True)
class CandidateTasks:
    """Problems before they are divided into splits."""

    source: str
    rows: int
    """Rows that were read."""
    kept: list[tuple[int, MathsProblem]]
    """Problems with the number of their row."""
    labels: list[int]
    """The cluster of each problem: questions that are alike up to numbers."""
    left_out: list[LeftOut]
    columns: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Further columns of a row, by the id of the problem."""
    measured: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a model has shown of the tasks, for the card."""

    @property
    def clusters(self) -> int:
        """The number of clusters, none of which is in two splits."""
        return len(set(self.labels))

    def without(self, reasons: Mapping[int, tuple[str, str]]) -> CandidateTasks:
        """Return the candidates without those rows, which are left out for a reason with a
        detail.
        """
        pairs = zip(self.kept, self.labels, strict=True)
        staying = [(problem, label) for problem, label in pairs if problem[0] not in reasons]
        return replace(
            self,
            kept=[problem for problem, _ in staying],
            labels=[label for _, label in staying],
            left_out=[*self.left_out, *(LeftOut(row, *why) for row, why in reasons.items())],
        )

    def divided(
        self, *, validation: float = 0.05, test: float = 0.1, seed: int = 0, **settings: Any
    ) -> TaskCollection:
        """Divide whole clusters into splits.

        Args:
            validation: the share of problems for validation.
            test: the share of problems for test.
            seed: decides which cluster goes where.
            settings: what else is told on the card.

        Raises:
            ConfigError: shares that cannot be, or nothing is left.
        """
        check_shares(validation, test)
        if not self.kept:
            counts = Counter(each.reason for each in self.left_out)
            reasons = "; ".join(f"{count} {reason}" for reason, count in counts.most_common(3))
            raise ConfigError(f"no task is left of {self.source!r}: {reasons or 'it is empty'}")
        # Whole clusters go to splits: the smallest digests to test, the next to validation, until
        # each has its share of the problems.
        members: dict[int, list[MathsProblem]] = defaultdict(list)
        for (_, problem), label in zip(self.kept, self.labels, strict=True):
            members[label].append(problem)

        def place(cluster: list[MathsProblem]) -> bytes:
            return hashlib.blake2b(f"{seed}/{cluster[0].id}".encode(), digest_size=8).digest()

        splits: dict[str, list[MathsProblem]] = {split: [] for split in SPLITS}
        wanted = {
            "test": round(test * len(self.kept)),
            "validation": round(validation * len(self.kept)),
        }
        for cluster in sorted(members.values(), key=place):
            # A cluster that is larger than what is missing goes on: it would swallow the split.
            split = next(
                (s for s, most in wanted.items() if len(splits[s]) + len(cluster) <= most), "train"
            )
            splits[split] += cluster
        settings = {"validation": validation, "test": test, "seed": seed, **settings}
        return TaskCollection(**vars(self), splits=splits, settings=settings)


@dataclass(frozen=True, kw_only=True)
class TaskCollection(CandidateTasks):
    """Problems that are divided into splits."""

    splits: dict[str, list[MathsProblem]]
    settings: dict[str, Any]
    """How the set was made."""
    usage: str = "ludus train grpo --env 'ludus/maths-v0?source=train.jsonl&test_source=test.jsonl'"
    """A command that uses the set, for its card."""

    def card(self) -> dict[str, Any]:
        """Return what the set is, for `card.json`."""
        content = hashlib.sha256()
        for split in SPLITS:
            for problem in self.splits[split]:
                content.update(msgspec.json.encode(problem))
        lengths = [len(problem.question) for _, problem in self.kept]
        return {
            "source": self.source,
            "rows": self.rows,
            "tasks": {split: len(self.splits[split]) for split in SPLITS},
            "clusters": self.clusters,
            "left_out": dict(Counter(each.reason for each in _in_order(self.left_out))),
            "question_characters": {"median": float(np.median(lengths)), "longest": max(lengths)},
            "sha256": content.hexdigest(),
            "settings": self.settings,
            **({"measured": self.measured} if self.measured else {}),
        }


def read_candidates(
    sources: Sequence[str], *, question: str = "", answer: str = "", verifier: str = "maths"
) -> CandidateTasks:
    """Read problems, and leave out repetitions and golds that cannot be read.

    Args:
        sources: files or hub data sets; see `problem_files.rows_of`.
        question: the field with the question; empty looks for those of known data sets.
        answer: the field with the answer, likewise.
        verifier: what will score answers; of `maths` a gold must be readable, any other takes each
            gold that is not empty.

    Raises:
        ConfigError: a source cannot be read.
        MissingExtra: a package that reads a source is not installed.
    """
    rows: list[tuple[int, MathsProblem]] = []
    left_out: list[LeftOut] = []
    number = 0
    for number, row in enumerate((row for source in sources for row in rows_of(source)), 1):
        try:
            rows.append((number, read_row(row, question=question, answer=answer)))
        except UnusableRow as error:
            left_out.append(LeftOut(number, "no question or answer", str(error)))
    kept: list[tuple[int, MathsProblem]] = []
    for row_number, problem in _without_repetitions(rows, left_out):
        if fault := gold_fault(problem.gold, verifier):
            left_out.append(LeftOut(row_number, "gold cannot be read", fault))
        else:
            kept.append((row_number, problem))
    labels = cluster_texts([problem.question for _, problem in kept])
    near = _near_repetitions(kept, labels)
    return CandidateTasks(", ".join(sources), number, kept, labels, left_out).without(near)


def write_collection(collection: TaskCollection, folder: Path) -> dict[str, Any]:
    """Write a set into a folder that is new or empty, and return its card.

    Raises:
        ConfigError: the folder holds something, or cannot be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{str(folder)!r} is not empty; name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            lines = [
                msgspec.json.encode({**_row(problem), **collection.columns.get(problem.id, {})})
                for problem in collection.splits[split]
            ]
            (folder / f"{split}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        entries = [msgspec.json.encode(each) for each in _in_order(collection.left_out)]
        (folder / "left_out.jsonl").write_bytes(b"".join(line + b"\n" for line in entries))
        card = collection.card()
        encoded = msgspec.json.format(msgspec.json.encode(card))
        (folder / "card.json").write_bytes(encoded + b"\n")
        (folder / "README.md").write_text(_readme(card, collection.usage), encoding="utf-8")
    except (OSError, NotADirectoryError) as error:
        raise ConfigError(
            f"cannot write {str(folder)!r}: {os.strerror(error.errno or 0)}"
        ) from None
    return card


def gold_fault(gold: str | list[str], verifier: str) -> str:
    """Return why a verifier could not use a gold; empty where it can.

    >>> gold_fault("1/2", "maths"), gold_fault(" ", "exact")
    ('', 'the gold is empty')
    """
    if verifier == "maths":
        for finding in check_golds([gold]):
            if finding.kind == "invalid":
                return finding.reason
    golds = [gold] if isinstance(gold, str) else gold
    return "" if golds and all(each.strip() for each in golds) else "the gold is empty"


def words_of(text: str, *, numbers: bool = True) -> list[str]:
    """Return the words of a text for comparisons; with `numbers` False every number is `#`.

    >>> words_of("What is 3+4?", numbers=False)
    ['what', 'is', '#', '+', '#', '?']
    """
    words = _WORD.findall(text.casefold())
    return words if numbers else ["#" if _NUMBER.fullmatch(word) else word for word in words]


def likeness(words: Iterable[str], other_words: Iterable[str]) -> float:
    """Return the share of common shingles of two texts in words (Jaccard).

    >>> likeness("a b c d e".split(), "a b c d f".split())
    0.3333333333333333
    """
    mine, theirs = _shingles(list(words)), _shingles(list(other_words))
    return len(mine & theirs) / max(1, len(mine | theirs))


def _without_repetitions(
    rows: Sequence[tuple[int, MathsProblem]], left_out: list[LeftOut]
) -> list[tuple[int, MathsProblem]]:
    """Keep each question once; one that has several answers is in doubt, and kept nowhere."""
    by_words: dict[str, list[tuple[int, MathsProblem]]] = defaultdict(list)
    for number, problem in rows:
        by_words[" ".join(words_of(problem.question))].append((number, problem))
    kept: list[tuple[int, MathsProblem]] = []
    for same in by_words.values():
        golds = {_answer_key(problem.gold) for _, problem in same}
        if len(golds) > 1:
            shown = " | ".join(sorted(golds)[:3])
            left_out += [LeftOut(number, "answers disagree", shown) for number, _ in same]
            continue
        kept.append(same[0])
        left_out += [LeftOut(number, "repeated", f"row {same[0][0]}") for number, _ in same[1:]]
    return sorted(kept, key=lambda each: each[0])


def _answer_key(gold: str | list[str]) -> str:
    return " ; ".join([gold] if isinstance(gold, str) else gold).replace(" ", "").casefold()


def _near_repetitions(
    rows: Sequence[tuple[int, MathsProblem]], labels: Sequence[int]
) -> dict[int, tuple[str, str]]:
    """Return the rows of questions that have the numbers and nearly the words of an earlier one."""
    seen: dict[tuple[int, tuple[str, ...]], list[tuple[int, list[str]]]] = defaultdict(list)
    reasons: dict[int, tuple[str, str]] = {}
    for (number, problem), label in zip(rows, labels, strict=True):
        words = words_of(problem.question)
        numbers = tuple(sorted(word for word in words if _NUMBER.fullmatch(word)))
        near = seen[label, numbers]
        like = next((row for row, theirs in near if likeness(words, theirs) >= SAME), None)
        if like is None:
            near.append((number, words))
        else:
            reasons[number] = "nearly repeated", f"row {like}"
    return reasons


def _in_order(left_out: Iterable[LeftOut]) -> list[LeftOut]:
    return sorted(left_out, key=lambda each: each.row)


def clusters_of(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return the cluster of each item: those that have a key in common, directly or by others,
    share one.

    >>> clusters_of([["a"], ["b"], ["a", "b"], ["c"]])
    [0, 0, 0, 3]
    """
    joined, first = _Joined(len(keys)), dict[Hashable, int]()
    for place, own in enumerate(keys):
        for key in own:
            joined.join(first.setdefault(key, place), place)
    return joined.labels()


class _Joined:
    """Items that are joined to sets, by number."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def root(self, place: int) -> int:
        """Return the number that stands for the set of an item."""
        parents = self._parents
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    def join(self, item: int, other: int) -> None:
        """Make one set of those of two items; the smaller number stands for it."""
        low, high = sorted((self.root(item), self.root(other)))
        self._parents[high] = low

    def labels(self) -> list[int]:
        """Return the number of each item's set."""
        return [self.root(place) for place in range(len(self._parents))]


def cluster_texts(questions: Sequence[str]) -> list[int]:
    """Return the cluster of each question: those that are alike up to numbers share one."""
    joined = _Joined(len(questions))
    words = [words_of(text, numbers=False) for text in questions]
    meeting: dict[tuple[int, bytes], int] = {}
    for place, signature in enumerate(_signatures(words)):
        for band, part in enumerate(signature.reshape(BANDS, -1)):
            first = meeting.setdefault((band, part.tobytes()), place)
            apart = first != place and joined.root(first) != joined.root(place)
            if apart and likeness(words[first], words[place]) >= ALIKE:
                joined.join(first, place)
    return joined.labels()


def _signatures(texts: Iterable[Sequence[str]]) -> Iterable[np.ndarray[Any, Any]]:
    """Yield the MinHash signature of each text."""
    draw = np.random.default_rng(0)
    factors = draw.integers(1, 1 << 62, HASHES, dtype=np.uint64) * 2 + 1
    added = draw.integers(0, 1 << 62, HASHES, dtype=np.uint64)
    for words in texts:
        hashed = np.array(
            [
                int.from_bytes(hashlib.blake2b(each.encode(), digest_size=8).digest())
                for each in _shingles(words)
            ],
            dtype=np.uint64,
        )
        yield (hashed[:, None] * factors + added >> np.uint64(16)).min(0)


def _shingles(words: Sequence[str]) -> set[str]:
    if len(words) <= SHINGLE:
        return {" ".join(words)}
    return {" ".join(words[place : place + SHINGLE]) for place in range(len(words) - SHINGLE + 1)}


def _row(problem: MathsProblem) -> Mapping[str, Any]:
    row = {"id": problem.id, "question": problem.question, "answer": problem.gold}
    row |= {"solution": problem.solution} if problem.solution else {}
    return row | ({"level": str(int(problem.difficulty))} if problem.difficulty else {})


def _told_of_model(measured: Mapping[str, Any]) -> list[str]:
    if not measured:
        return []
    lines = [f"- {name}: {value}" for name, value in measured.items() if name != "model"]
    return [f"Measured with {measured['model']}:", "", *lines, ""]


def _readme(card: Mapping[str, Any], usage: str) -> str:
    counts = ", ".join(f"{count} {split}" for split, count in card["tasks"].items())
    lost = [f"- {reason}: {count}" for reason, count in card["left_out"].items()] or ["- nothing"]
    return "\n".join(
        [
            f"# Task set of {card['source']}",
            "",
            f"{counts} tasks of {card['rows']} rows. Questions that are alike up to numbers form "
            f"{card['clusters']} clusters, and no cluster is in two splits.",
            "",
            "Left out (left_out.jsonl names each row):",
            "",
            *lost,
            "",
            *_told_of_model(card.get("measured", {})),
            f"    {usage}",
            "",
        ]
    )
