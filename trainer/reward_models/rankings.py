"""The data of reward models: answers with ranks or ratings, and steps with labels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ludus.agent.data.loading import load_items
from ludus.agent.data.preferences import PreferenceReader, RankedAnswers, RatedAnswer, doubts
from ludus.envs.problem_files import UnusableRow
from ludus.messages import Message, assistant

from ..data.examples import ExampleSet, encode_all
from ..settings.data import RewardModelConfig
from .heads import RewardHead

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
    """Answers in the form that a head reads, with people's judgements."""

    inputs: tuple[Any, ...]
    """What the head reads of each answer."""
    targets: tuple[float, ...]
    """The rank of each answer, its rating, or the labels of its steps."""
    lengths: tuple[int, ...]
    """Characters of each answer."""
    prompt: bytes
    """What decides whether the example is held out."""
    margin: float = 0.0


RewardData = ExampleSet[ScoredExample]


def load_data(config: RewardModelConfig, head: RewardHead) -> RewardData:
    """Load the data of a run, and prepare the data for a head.

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
    loaded = load_items(config.data, read, fields=config.fields)
    if config.objective in ("bradley-terry", "plackett-luce"):
        for doubt in doubts(config.data, loaded.items):
            logger.warning("%s", doubt)
    return encode_all(
        loaded.items,
        partial(_example, head),
        config,
        digest=loaded.digest,
        most_held_out=MAX_HELD_OUT,
    )


def _steps(reader: PreferenceReader, row: Mapping[str, Any]) -> LabelledSteps:
    """Return the steps of a row: `steps` or `completions`, with `labels`, as TRL's users have."""
    steps, labels = row.get("steps"), row.get("labels")
    if steps is None:  # a column that only other rows of the file have
        steps = row.get("completions")
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


def _example(head: RewardHead, item: RankedAnswers | RatedAnswer | LabelledSteps) -> ScoredExample:
    margin = 0.0
    if isinstance(item, RankedAnswers):
        answers, targets, margin = item.answers, item.ranks, item.margin
    elif isinstance(item, RatedAnswer):
        answers, targets = [item.answer], [item.rating]
    else:
        answers, targets = [[assistant(step) for step in item.steps]], [*map(float, item.labels)]
    return ScoredExample(
        tuple(head.encode(item.prompt, answer) for answer in answers),
        tuple(targets),
        tuple(sum(len(message.text) for message in answer) for answer in answers),
        msgspec.msgpack.encode(item.prompt),
        margin,
    )
