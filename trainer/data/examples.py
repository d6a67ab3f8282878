"""The units of a data set: encoded once, split by their prompts, and drawn in an order that the
seed decides.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from ludus.agent.data.loading import share_of
from ludus.agent.images import ImageRefused
from ludus.errors import ConfigError

from ..run.folder import replace_file
from ..settings.run import RunConfig
from .encoding import DataRow, EndlessConversation

logger = logging.getLogger(__name__)

DIGEST = "data.sha256"
"""The file of a run with the digest of its data."""
MAX_HELD_OUT = 512
"""The most held-out examples; more would cost time and tell little."""


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

    @property
    def tokens(self) -> int:
        """Tokens of the longest row."""
        return max(len(row) for rows in self.rows for row in rows)


Source = TypeVar("Source")


@dataclass(frozen=True)
class ExampleSet(Generic[Source]):
    """Examples for training, and those that are held out."""

    train: list[Example]
    held_out: list[Example]
    digest: str
    """SHA-256 of the data."""

    def steps(self, batch_size: int, *, epochs: float, steps: int) -> int:
        """Return the number of updates: `steps`, or those of `epochs` where that is positive."""
        return -(-round(epochs * len(self.train)) // batch_size) if epochs else steps

    def batch(self, step: int, size: int, *, seed: int) -> list[Example]:
        """Return the examples of an update, numbered from 0. Every pass over the data has an order
        of its own, which the seed decides: a resumed run draws what it would have drawn.
        """
        count = len(self.train)
        drawn: list[Example] = []
        for number in range(step * size, (step + 1) * size):
            epoch, place = divmod(number, count)
            drawn.append(self.train[int(order_of(seed, epoch, count)[place])])
        return drawn


_ORDERS: dict[tuple[int, int, int], np.ndarray[tuple[int], np.dtype[np.int64]]] = {}


def order_of(seed: int, epoch: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the order in which a pass over `count` examples draws them. The last orders are kept,
    since a batch may lie in two passes.
    """
    key = (seed, epoch, count)
    if key not in _ORDERS:
        for old in list(_ORDERS)[:-1]:
            del _ORDERS[old]
        _ORDERS[key] = np.random.default_rng([seed, epoch]).permutation(count)
    return _ORDERS[key]


def encode_all(
    items: Iterable[Source],
    encode: Callable[[Source], Example],
    *,
    source: str,
    digest: str,
    max_tokens: int,
    held_out: float,
) -> ExampleSet[Source]:
    """Encode items, and leave out those that are too long or that the template cannot show.

    Args:
        items: what was loaded.
        encode: makes an example of an item.
        source: the data, for messages.
        digest: the digest of the data.
        max_tokens: the most tokens of a row.
        held_out: the share of prompts that are held out.

    Raises:
        ConfigError: nothing is left to train on.
    """
    train: list[Example] = []
    kept_out: list[Example] = []
    left_out: Counter[str] = Counter()
    last = ""
    for item in items:
        try:
            example = encode(item)
        except EndlessConversation:
            left_out[f"longer than {max_tokens} tokens"] += 1
            continue
        except (ConfigError, ImageRefused) as error:  # TemplateRefused is a ConfigError
            left_out["that cannot be shown to this model"] += 1
            last = str(error)
            continue
        if not example.rows or not all(example.rows):
            left_out["without a token to train"] += 1
        elif example.tokens > max_tokens:
            left_out[f"longer than {max_tokens} tokens"] += 1
        elif share_of(example.prompt) < held_out and len(kept_out) < MAX_HELD_OUT:
            kept_out.append(example)
        else:
            train.append(example)
    told = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
    if not train:
        why = f"left out {told}" if told else f"all of them are held out (held_out is {held_out})"
        raise ConfigError(f"nothing of {source!r} is left to train on: {why}. {last}".strip())
    if left_out:
        logger.warning("%s: left out %s. %s", source, told, last)
    return ExampleSet(train, kept_out, digest)


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
