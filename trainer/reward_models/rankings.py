"""The data of reward models: answers with ranks or ratings, and steps with labels."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ludus.agent.data.fields import FieldNames
from ludus.agent.data.loading import load_items, share_of
from ludus.agent.data.preferences import PreferenceReader, RankedAnswers, RatedAnswer, doubts
from ludus.envs.problem_files import UnusableRow
from ludus.errors import ConfigError
from ludus.messages import Message

from ..settings.data import RewardModelConfig
from .heads import RewardHead, StepRow, Unscored

logger = logging.getLogger(__name__)
MAX_HELD_OUT = 2048
"""The most held-out examples."""


class LabelledSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A solution whose steps are right or wrong."""

    prompt: list[Message]
    steps: list[str]
    labels: list[bool]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredExample:
    """Answers as a head reads them, with what people said of them."""

    inputs: tuple[Any, ...]
    """What the head reads of each answer."""
    targets: tuple[float, ...]
    """The rank of each answer, its rating, or the labels of its steps."""
    lengths: tuple[int, ...]
    """Characters of each answer."""
    prompt: bytes
    """What decides whether the example is held out."""
    margin: float = 0.0
    source: RankedAnswers | RatedAnswer | LabelledSteps | None = None


@dataclass(frozen=True)
class RewardData:
    """The examples of a run."""

    train: list[ScoredExample]
    held_out: list[ScoredExample]
    digest: str


def load_data(config: RewardModelConfig, head: RewardHead) -> RewardData:
    """Load the data of a run, and prepare them for a head.

    Raises:
        ConfigError: the data cannot be read, or nothing of them can be used.
        MissingExtra: a package that reads the data is not installed.
    """
    reader = PreferenceReader(Path(config.data).parent)
    readers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "rating": reader.rating,
        "steps": partial(_steps, reader),
    }
    of_kind = reader.image_ranking if config.kind == "image" else reader.ranking
    read = readers.get(config.objective, of_kind)
    names = FieldNames(config.fields)
    loaded = load_items(config.data, lambda row: read(names.row(row)))
    if report := loaded.report():
        logger.warning("%s", report)
    if config.objective in ("bradley-terry", "plackett-luce"):
        for told in doubts(config.data, loaded.items):
            logger.warning("%s", told)
    train: list[ScoredExample] = []
    held_out: list[ScoredExample] = []
    left_out: Counter[str] = Counter()
    for item in loaded.items:
        try:
            example = _example(item, head)
        except Unscored as error:
            left_out[str(error)] += 1
            continue
        out = share_of(example.prompt) < config.held_out and len(held_out) < MAX_HELD_OUT
        (held_out if out else train).append(example)
    reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.most_common(4))
    if not train:
        raise ConfigError(
            f"nothing of {config.data!r} is left to train on: "
            + (f"left out {reasons}" if reasons else f"held_out is {config.held_out:g}")
        )
    if reasons:
        logger.warning("%s: left out %s", config.data, reasons)
    return RewardData(train, held_out, loaded.digest)


def _steps(reader: PreferenceReader, row: Mapping[str, Any]) -> LabelledSteps:
    """Return the steps of a row: `steps` or `completions`, with `labels`, as TRL's users have."""
    steps, labels = row.get("steps", row.get("completions")), row.get("labels")
    if (
        not isinstance(steps, Sequence)
        or isinstance(steps, str)
        or not isinstance(labels, Sequence)
    ):
        raise UnusableRow(f"without steps and labels: its columns are {', '.join(map(str, row))}")
    if len(steps) != len(labels) or not steps:
        raise UnusableRow(f"with {len(steps)} steps and {len(labels)} labels")
    if not all(label in (0, 1, True, False) for label in labels):
        raise UnusableRow("with labels that are neither right nor wrong")
    if not all(isinstance(step, str) and step.strip() for step in steps):
        raise UnusableRow("with an empty step")
    asked = reader.prompt(row)
    if not asked:
        raise UnusableRow("without a prompt")
    return LabelledSteps(prompt=asked, steps=list(steps), labels=[bool(label) for label in labels])


def _example(item: RankedAnswers | RatedAnswer | LabelledSteps, head: RewardHead) -> ScoredExample:
    prompt = msgspec.msgpack.encode(item.prompt)
    if isinstance(item, RankedAnswers):
        inputs = tuple(head.encode(item.prompt, answer) for answer in item.answers)
        lengths = tuple(map(_length, item.answers))
        ranks = tuple(item.ranks)
        return ScoredExample(inputs, ranks, lengths, prompt, item.margin, item)
    if isinstance(item, RatedAnswer):
        inputs = (head.encode(item.prompt, item.answer),)
        return ScoredExample(inputs, (item.rating,), (_length(item.answer),), prompt, 0.0, item)
    row: StepRow = head.encode_steps(item.prompt, item.steps)
    labels = tuple(map(float, item.labels))
    return ScoredExample((row,), labels, (sum(map(len, item.steps)),), prompt, 0.0, item)


def _length(answer: Sequence[Message]) -> int:
    return sum(len(message.text) for message in answer)
