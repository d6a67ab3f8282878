"""The units of a data set: encoded once, split by their prompts, and drawn in an order that the
seed decides.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from ludus.agent.data.loading import share_of
from ludus.agent.images import ImageRefused
from ludus.errors import ConfigError
from ludus.metrics import replace_file

from ..settings.data import SupervisedConfig
from ..settings.run import RunConfig
from .encoding import DataRow, Unlearnable

logger = logging.getLogger(__name__)

DIGEST = "data.sha256"
"""The file of a run with the digest of its data."""
MAX_HELD_OUT = 512
"""The most held-out examples; more would cost time and tell little."""


class Prompted(Protocol):
    """What is learned as a whole."""

    @property
    def prompt(self) -> bytes:
        """What decides whether the example is held out."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """What is drawn as a whole: a conversation, a pair, or an answer with a label."""

    rows: tuple[tuple[DataRow, ...], ...]
    """The rows of each answer; a conversation is one answer."""
    prompt: bytes
    """What decides whether the example is held out."""
    label: float = 1.0
    """1 for a good answer and 0 for a bad one, where answers are labelled by themselves."""
    numbers: tuple[float, ...] = ()
    """A number for each answer, where the loss reads one: a reward, or a win rate."""

    def fitting(self, max_tokens: int) -> Example:
        """Return the example if it can be learned in rows of at most `max_tokens` tokens.

        Raises:
            Unlearnable: a row is longer, or nothing of an answer is trained.
        """
        if not self.rows or not all(self.rows):
            raise Unlearnable("without a token to train")
        if any(len(row) > max_tokens for rows in self.rows for row in rows):
            raise Unlearnable(f"longer than {max_tokens} tokens")
        return self


ExampleT = TypeVar("ExampleT", bound=Prompted)
Source = TypeVar("Source")


@dataclass(frozen=True)
class ExampleSet(Generic[ExampleT]):
    """Examples for training, and those that are held out."""

    train: list[ExampleT]
    held_out: list[ExampleT]
    digest: str
    """SHA-256 of the data."""

    def steps(self, batch_size: int, *, epochs: float, steps: int) -> int:
        """Return the number of updates: `steps`, or those of `epochs` where that is positive."""
        return -(-round(epochs * len(self.train)) // batch_size) if epochs else steps

    def batch(self, step: int, size: int, *, seed: int) -> list[ExampleT]:
        """Return the examples of an update, numbered from 0. Every pass over the data has an order
        of its own, which the seed decides: a resumed run draws what it would have drawn.
        """
        count = len(self.train)
        drawn: list[ExampleT] = []
        for number in range(step * size, (step + 1) * size):
            epoch, place = divmod(number, count)
            drawn.append(self.train[int(_order_of(seed, epoch, count)[place])])
        return drawn


@lru_cache(maxsize=2)  # a batch may lie in two passes
def _order_of(seed: int, epoch: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the order in which a pass over `count` examples draws them."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def encode_all(
    items: Iterable[Source],
    encode: Callable[[Source], ExampleT],
    config: SupervisedConfig,
    *,
    digest: str,
    most_held_out: int = MAX_HELD_OUT,
) -> ExampleSet[ExampleT]:
    """Encode items, and leave out those that the model cannot read.

    Args:
        items: what was loaded.
        encode: makes an example of an item.
        config: the settings, which say what share of prompts is held out.
        digest: the digest of the data.
        most_held_out: the most examples that are held out.

    Raises:
        ConfigError: nothing is left to train on.
    """
    examples: ExampleSet[ExampleT] = ExampleSet([], [], digest)
    left_out: Counter[str] = Counter()
    last = ""
    for item in items:
        try:
            example = encode(item)
        except Unlearnable as error:
            left_out[str(error)] += 1
        except (ConfigError, ImageRefused) as error:  # TemplateRefused is a ConfigError
            left_out["that cannot be shown to this model"] += 1
            last = str(error)
        else:
            room = len(examples.held_out) < most_held_out
            out = room and share_of(example.prompt) < config.held_out
            (examples.held_out if out else examples.train).append(example)
    reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
    if not examples.train:
        held = f"all of them are held out (held_out is {config.held_out})"
        why = f"left out {reasons}" if reasons else held
        raise ConfigError(f"nothing of {config.data!r} is left to train on: {why}. {last}".strip())
    if left_out:
        logger.warning("%s: left out %s. %s", config.data, reasons, last)
    return examples


def refuse_changed_data(folder: Path, digest: str, run: RunConfig) -> None:
    """Keep the digest of a run's data in its folder, and compare it where the run goes on.

    Raises:
        ConfigError: the data have changed, so that a resumed run would see other examples in
            another order, and `run.resume_changed` is not set.
    """
    path = folder / DIGEST
    before = path.read_text(encoding="utf-8").strip() if run.resume and path.exists() else digest
    if before != digest and not run.resume_changed:
        raise ConfigError(
            f"the data of the run in {str(folder)!r} have changed since it began; give the data as "
            "they were, or continue with the new ones by --run.resume-changed"
        )
    replace_file(path, digest.encode() + b"\n")


def rows_of_examples(examples: Sequence[Example]) -> list[DataRow]:
    """Return the rows of examples in order: those of each answer, answer by answer."""
    return [row for example in examples for answer in example.rows for row in answer]
