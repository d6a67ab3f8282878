"""A rubric holds the criteria of a judge, and the formula that combines the scores into a reward.

# rubric.toml
aggregation = "positive_normalised"

[[items]]
id = "names-capital"
text = "The response names the capital of France."
weight = 2.0

[[items]]
text = "The response invents a source."
weight = -1.0
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError

MAX_ITEMS = 64
MAX_ITEM_CHARS = 4000


class ItemKind(StrEnum):
    """The kind of question that a judge is asked about a criterion."""

    BINARY = "binary"
    """Whether the criterion is met: a score of 0 or 1."""
    GRADED = "graded"
    """How far the criterion is met: a whole number from 0 to `max_score`, divided by it."""


class Aggregation(StrEnum):
    """The formula that combines the scores of items into a reward; see `aggregate`."""

    POSITIVE_NORMALISED = "positive_normalised"
    WEIGHTED_SUM = "weighted_sum"
    WEIGHTED_MEAN = "weighted_mean"
    EVOLVING = "evolving"
    IMPLICIT = "implicit"
    MEAN = "mean"
    MIN = "min"
    WORST_K = "worst_k"


class RubricItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rubric item is a criterion with a weight and a scale.

    Args:
        text: the criterion as a sentence about the response. The judge reads the text and nothing
            executes it.
        id: name of the item in verdicts; unique in its rubric, `item-1` and so on by default.
        weight: importance. A negative weight marks a flaw: meeting the criterion costs.
        kind: binary or graded.
        max_score: highest score of a graded item.
        gate: an item that has to hold (or, with a negative weight, a flaw that must be absent)
            before anything else counts; otherwise the reward is `floor`. Gates are asked first.

    Raises:
        ValueError: a weight that is 0 or not finite, an empty or overlong text.
    """

    text: str
    id: str = ""
    weight: float = 1.0
    kind: ItemKind = ItemKind.BINARY
    max_score: int = 2
    gate: bool = False

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError(f"item {self.id!r} has no text; write the criterion as a sentence")
        if len(self.text) > MAX_ITEM_CHARS:
            raise ValueError(
                f"the text of item {self.id!r} has {len(self.text)} characters, of at most "
                f"{MAX_ITEM_CHARS}; split the criterion"
            )
        if not 0 < abs(self.weight) < float("inf"):
            raise ValueError(
                f"the weight of item {self.id!r} must not be 0 and must be finite: {self.weight!r}"
            )
        if not 1 <= self.max_score <= 100:
            raise ValueError(f"max_score of item {self.id!r} must be 1 to 100: {self.max_score}")

    @property
    def highest(self) -> int:
        """The highest score a judge may give."""
        return 1 if self.kind is ItemKind.BINARY else self.max_score

    @property
    def is_flaw(self) -> bool:
        """Whether meeting the criterion lowers the reward, which a negative weight says."""
        return self.weight < 0


class Rubric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rubric is a list of criteria with the formula that combines the scores into a reward.

    Args:
        items: the criteria, at most 64.
        aggregation: the formula.
        clip: bound the reward to [0, 1]. HealthBench does not clip single responses.
        floor: reward of a response that fails a gate.
        worst: how many of the lowest items `worst_k` averages.
        instructions: further advice to the judge, written by whoever owns the rubric.

    Raises:
        ValueError: no items, ids that repeat, weights the formula cannot work with or whose sum is
            not finite, or a floor that is not finite.
    """

    items: tuple[RubricItem, ...]
    aggregation: Aggregation = Aggregation.POSITIVE_NORMALISED
    clip: bool = True
    floor: float = 0.0
    worst: int = 1
    instructions: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.items) <= MAX_ITEMS:
            raise ValueError(f"a rubric has 1 to {MAX_ITEMS} items, got {len(self.items)}")
        numbered_items = tuple(
            item if item.id else msgspec.structs.replace(item, id=f"item-{number}")
            for number, item in enumerate(self.items, start=1)
        )
        msgspec.structs.force_setattr(self, "items", numbered_items)
        repeated = [
            name for name, count in Counter(i.id for i in numbered_items).items() if count > 1
        ]
        if repeated:
            raise ValueError(f"items share the id {repeated[0]!r}; each needs its own")
        if not math.isfinite(sum(abs(item.weight) for item in self.items)):
            raise ValueError("the sum of the weights is beyond all numbers; make them smaller")
        positive = sum(item.weight for item in self.graded if not item.is_flaw)
        if self.aggregation is Aggregation.POSITIVE_NORMALISED and not positive:
            raise ValueError(
                "positive_normalised divides by the positive weights and every weight is negative; "
                "add an item that can be met, or use aggregation = 'weighted_sum'"
            )
        total = sum(item.weight for item in self.graded)
        if self.aggregation is Aggregation.WEIGHTED_MEAN and total <= 1e-9:
            raise ValueError(
                f"weighted_mean divides by the sum of the weights, which is {total:g}; use "
                "'positive_normalised' where flaws weigh as much as merits"
            )
        if self.worst < 1:
            raise ValueError(f"worst must be at least 1, got {self.worst}")
        if not math.isfinite(self.floor):
            raise ValueError(f"floor must be finite, got {self.floor}")

    @property
    def gates(self) -> tuple[RubricItem, ...]:
        """The items that are asked first."""
        return tuple(item for item in self.items if item.gate)

    @property
    def graded(self) -> tuple[RubricItem, ...]:
        """The items that the formula combines: all but gates, or all where every item is a gate."""
        return tuple(item for item in self.items if not item.gate) or self.items


def read_rubric(data: object) -> Rubric:
    """Build a rubric from plain data: a mapping such as the TOML file holds, or a list of items.

    >>> read_rubric(["The answer is polite."]).items[0].id
    'item-1'

    Raises:
        ConfigError: what is wrong with the data, and where.
    """
    if isinstance(data, Rubric):
        return data
    if isinstance(data, list):
        data = {"items": data}
    if isinstance(data, Mapping):
        items = data.get("items")
        if isinstance(items, list):
            data = {**data, "items": [{"text": i} if isinstance(i, str) else i for i in items]}
    try:
        return msgspec.convert(data, Rubric)
    except msgspec.ValidationError as error:
        raise ConfigError(f"this rubric cannot be used: {error}") from None


def load_rubric(path: str | Path) -> Rubric:
    """Read the rubric of a TOML file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds no usable rubric.
    """
    try:
        data: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the rubric {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not TOML: {error}") from None
    try:
        return read_rubric(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


class Rubrics:
    """The rubrics of questions: one for all, or one for each.

    Args:
        path: a TOML file with a rubric for all questions, or a .jsonl file of rows with `question`
            and `rubric`, as `ludus tasks --write rubrics` writes them.

    Raises:
        ConfigError: the file cannot be read, or a rubric cannot be used.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._all = None if self.path.endswith(".jsonl") else load_rubric(path)
        self._each = {} if self._all else self._read()

    def of(self, prompt: str) -> Rubric:
        """Return the rubric of a prompt: that of the longest question that fills lines of it, or
        the end of a line behind a label such as "Question: ".

        A question within a sentence is not meant: a short one would stand in many prompts.

        Raises:
            ConfigError: the file has no question of this prompt.
        """
        if self._all is not None:
            return self._all
        if prompt in self._each:
            return self._each[prompt]
        standing = [
            question
            for question in self._each
            if re.search(
                rf"(?:^|: )[ \t]*{re.escape(question.strip())}[ \t\r]*$", prompt, re.MULTILINE
            )
        ]
        if not standing:
            raise ConfigError(f"{self.path!r} has no rubric for the question {prompt[-200:]!r}")
        return self._each[max(standing, key=len)]

    def _read(self) -> dict[str, Rubric]:
        rubrics: dict[str, Rubric] = {}
        try:
            lines = Path(self.path).read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(f"cannot read the rubrics {self.path!r}: {error.strerror}") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line, type=_QuestionRubric)
                if not row.question.strip():  # it would stand in every prompt with an empty line
                    raise ConfigError("the question is empty")
                rubric = read_rubric(row.rubric)
                if rubrics.setdefault(row.question, rubric) != rubric:
                    raise ConfigError(
                        f"the question {row.question[:80]!r} has another rubric above"
                    )
            except (msgspec.DecodeError, UnicodeDecodeError, ConfigError) as error:
                raise ConfigError(f"{self.path}, row {number}: {error}") from None
        if not rubrics:
            raise ConfigError(f"{self.path!r} has no row")
        return rubrics


class _QuestionRubric(msgspec.Struct):
    question: str
    rubric: Any


def fails_gate(item: RubricItem, score: float) -> bool:
    """Return whether a gate fails: a merit with a score below 0.5, or a flaw with 0.5 or more."""
    return (score >= 0.5) is item.is_flaw


def aggregate(rubric: Rubric, scores: Mapping[str, float]) -> float:
    """Combine the scores of a rubric's items into the reward of a response.

    With scores s in [0, 1], weights w, and goodness g = s for merits and 1 - s for flaws:

    | aggregation | formula | source |
    |---|---|---|
    | positive_normalised | sum(w s) / sum(w where w > 0) | HealthBench |
    | weighted_sum | sum(w s) | |
    | weighted_mean | sum(w s) / sum(w) | Rubrics as Rewards, explicit |
    | evolving | sum(w s) / max(sum(w where w > 0), 1) | DR Tulu |
    | implicit | one holistic score, read under the id `overall` | Rubrics as Rewards, implicit |
    | mean | mean(g) | |
    | min | min(g) | |
    | worst_k | mean of the k smallest g | |

    A response that fails a gate gets `rubric.floor` whatever the other items say.

    Args:
        rubric: its items, formula, clip and floor.
        scores: score by item id. Every item needs a score, unless a gate has failed: then the
            scores of the gates are enough.

    >>> rubric = read_rubric([{"text": "a", "weight": 2.0}, {"text": "b", "weight": -1.0}])
    >>> aggregate(rubric, {"item-1": 1.0, "item-2": 1.0})
    0.5
    """
    for gate in rubric.gates:
        if gate.id in scores and fails_gate(gate, scores[gate.id]):
            return rubric.floor
    if rubric.aggregation is Aggregation.IMPLICIT:
        value = scores["overall"]
    else:
        value = _combined(rubric, rubric.graded, scores)
    return min(1.0, max(0.0, value)) if rubric.clip else value


def _combined(rubric: Rubric, items: Sequence[RubricItem], scores: Mapping[str, float]) -> float:
    total = sum(item.weight * scores[item.id] for item in items)
    positive = sum(item.weight for item in items if not item.is_flaw)
    goodness = sorted(1 - scores[i.id] if i.is_flaw else scores[i.id] for i in items)
    match rubric.aggregation:
        case Aggregation.POSITIVE_NORMALISED:
            return total / positive
        case Aggregation.WEIGHTED_MEAN:
            return total / sum(item.weight for item in items)
        case Aggregation.EVOLVING:
            return total / max(positive, 1.0)
        case Aggregation.MEAN:
            return sum(goodness) / len(goodness)
        case Aggregation.MIN:
            return goodness[0]
        case Aggregation.WORST_K:
            worst = goodness[: rubric.worst]
            return sum(worst) / len(worst)
        case _:
            return total
