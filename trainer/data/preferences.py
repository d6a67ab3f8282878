"""`ludus train dpo|ipo|kto|simpo|orpo`: a policy learns from preferences in files or recorded
runs.

The losses are those of `ludus.trainer.algorithms`; rows, passes, updates and checkpoints are those
of reinforcement learning. Both answers of a pair are in one pass, in which their prompt is computed
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from ludus.agent import ChatFormat
from ludus.agent.data.loading import load_items
from ludus.agent.data.preferences import PreferenceReader, RankedAnswers, RatedAnswer, circles
from ludus.errors import ConfigError

from .. import algorithms
from ..algorithms.aggregation import Sum
from ..learning.learner import Predicted, UpdatePasses
from ..learning.policy_model import BelowAdapter, load_policy
from ..learning.reader import PolicyReader
from ..models.devices import DTYPES, pick_device
from ..models.tiny import TINY, write_tiny_policy
from ..rollout.batch import Batch
from ..run.claim import settled_resume
from ..settings.data import WITH_REFERENCE, PreferenceConfig
from .encoding import DataRow, batch_of, rows_of_segments, segments_of
from .examples import Example, ExampleSet, encode_all, logger, refuse_changed_data
from .recorded import (
    SameTokenizer,
    digest_of,
    holds_episodes,
    labelled_rollouts,
    pair_of_rollouts,
    recorded_groups,
)
from .supervised import OpenedRun, PolicyRun, Progress, open_run


async def run_preferences(config: PreferenceConfig, *, progress: Progress | None = None) -> Path:
    """Train on preferences and return the checkpoint folder.

    Args:
        config: the settings.
        progress: called after each update with its number and metrics.

    Raises:
        ConfigError: something the run needs is missing or cannot work.
    """
    config.require_complete()
    config = replace(config, run=settled_resume(config.run, folder_of(config)))
    async with AsyncExitStack() as stack:
        opened = open_run(config, folder_of(config), stack, partial(_located, config))
        examples = _examples(config, opened)
        refuse_changed_data(opened.folder.path, examples.digest, config.run)
        return await PreferenceRun(config, opened, examples).to_end(progress)


def folder_of(config: PreferenceConfig) -> Path:
    """Return the run folder."""
    return Path(config.run.folder or f"runs/{config.method}")


def _located(config: PreferenceConfig, folder: Any) -> str:
    if config.model.path != TINY:
        return config.model.path
    return str(write_tiny_policy(folder.path / "model", seed=config.seed))


class PreferenceRun(PolicyRun):
    """A run that learns from preferences.

    Args:
        config: the settings.
        opened: the folder and the model.
        examples: the pairs, or the labelled answers.
    """

    def __init__(
        self, config: PreferenceConfig, opened: OpenedRun, examples: ExampleSet[Any]
    ) -> None:
        steps = examples.steps(config.batch_size, epochs=config.epochs, steps=config.steps)
        super().__init__(opened, steps)
        self.config, self.examples = config, examples
        self.reference: PolicyReader | BelowAdapter | None = None
        if config.method in WITH_REFERENCE:
            self.reference = _reference(config, opened, self)

    async def learn(self) -> dict[str, float]:
        """Make an update on the next examples."""
        drawn = self.examples.batch(self.step, self.config.batch_size, seed=self.config.seed)
        return await asyncio.to_thread(self._learn, drawn)

    def _learn(self, drawn: Sequence[Example]) -> dict[str, float]:
        answers = self._answers(drawn)
        seen = _Statistics()

        def loss(part: Batch, predicted: Predicted) -> Sum:
            value = self._loss(part, predicted.logp)
            seen.add(self._rewards(part, predicted.logp.detach()), part)
            return value

        numbers = answers.inputs.groups
        metrics = self.learner.update(
            answers,
            torch.arange(len(answers)),
            loss,
            UpdatePasses(together=numbers, afresh=seen.clear),
        )
        return {**metrics, **seen.metrics("preference")}

    async def measure(self) -> dict[str, float]:
        """Measure the loss and the agreement on what is held out."""
        every, last = self.config.eval_every, self.step == self.steps
        if not self.examples.held_out or not (last or (every and self.step % every == 0)):
            return {}
        return await asyncio.to_thread(self._measure)

    def _measure(self) -> dict[str, float]:
        total, weight, seen = 0.0, 0.0, _Statistics()
        held_out, size = self.examples.held_out, self.config.batch_size
        for start in range(0, len(held_out), size):
            batch = self._answers(held_out[start : start + size])
            logp = self.learner.score(batch)
            value, count = self._loss(batch, logp)
            seen.add(self._rewards(batch, logp), batch)
            total, weight = total + float(value), weight + float(count)
        return {"held_out/loss": total / weight, **seen.metrics("held_out")}

    def _answers(self, drawn: Sequence[Example]) -> Batch:
        """Return the answers of examples as a batch: `groups` tells pairs, or answers, apart, and
        `rewards` is 1 for good ones.
        """
        rows: list[DataRow] = []
        groups: list[int] = []
        good: list[float] = []
        paired = self.config.method != "kto"
        for number, example in enumerate(drawn):
            for side, answer in enumerate(example.rows):
                rows += answer
                groups += [number] * len(answer)
                good += [float(side == 0) if paired else example.label] * len(answer)
        batch = batch_of(rows)
        inputs = replace(batch.inputs, groups=torch.tensor(groups), rewards=torch.tensor(good))
        if self.reference is not None:
            inputs = replace(inputs, ref_logp=self.reference.score(batch))
        if not paired:
            shift = self._shift(drawn)
            inputs = replace(inputs, bootstrap=shift.expand(len(rows)).clone())
        return replace(batch, inputs=inputs)

    def _shift(self, drawn: Sequence[Example]) -> Tensor:
        """Return KTO's z over the prompts of a batch, each with the answer of its neighbour."""
        assert self.reference is not None
        neighbours = [*drawn[1:], drawn[0]]
        rows = [
            _spliced(one.rows[0][0], other.rows[0][0])
            for one, other in zip(drawn, neighbours, strict=True)
            if one.prompt != other.prompt
        ]
        if not rows:
            return torch.zeros(())
        batch = batch_of(rows)
        logp, ref_logp = self.learner.score(batch), self.reference.score(batch)
        return algorithms.kto_shift(logp, ref_logp, torch.arange(len(rows)), batch.mask)

    def _loss(self, part: Batch, logp: Tensor) -> Sum:
        return LOSSES[self.config.method](self.config, _Given.of(part, logp))

    def _rewards(self, part: Batch, logp: Tensor) -> Tensor:
        """Return the reward that the policy implies of each row, [B]."""
        given = _Given.of(part, logp)
        ratio = logp if part.inputs.ref_logp is None else logp - given.ref_logp
        sums = (ratio * part.mask).sum(-1)
        if self.config.method in ("simpo", "orpo"):
            sums = sums / part.mask.sum(-1).clamp(min=1)
        return sums * (1.0 if self.config.method == "orpo" else self.config.strength)


@dataclass(frozen=True)
class _Given:
    """What a loss reads of a pass."""

    logp: Tensor
    ref_logp: Tensor
    groups: Tensor
    good: Tensor
    mask: Tensor
    shift: Tensor

    @classmethod
    def of(cls, part: Batch, logp: Tensor) -> _Given:
        inputs = part.inputs
        assert inputs.groups is not None
        assert inputs.rewards is not None
        reference = logp if inputs.ref_logp is None else inputs.ref_logp
        shift = logp.new_zeros(()) if inputs.bootstrap is None else inputs.bootstrap[0]
        return cls(logp, reference, inputs.groups, inputs.rewards, part.mask, shift)


def _dpo(config: PreferenceConfig, given: _Given) -> Sum:
    return algorithms.dpo_loss(
        given.logp,
        given.ref_logp,
        given.groups,
        given.good,
        given.mask,
        beta=config.strength,
        label_smoothing=config.label_smoothing,
    )


def _ipo(config: PreferenceConfig, given: _Given) -> Sum:
    return algorithms.ipo_loss(
        given.logp, given.ref_logp, given.groups, given.good, given.mask, tau=config.strength
    )


def _kto(config: PreferenceConfig, given: _Given) -> Sum:
    return algorithms.kto_loss(
        given.logp,
        given.ref_logp,
        given.groups,
        given.good,
        given.shift,
        given.mask,
        beta=config.strength,
        good_weight=config.good_weight,
        bad_weight=config.bad_weight,
    )


def _simpo(config: PreferenceConfig, given: _Given) -> Sum:
    return algorithms.simpo_loss(
        given.logp, given.groups, given.good, given.mask, beta=config.strength, gamma=config.gamma
    )


def _orpo(config: PreferenceConfig, given: _Given) -> Sum:
    return algorithms.orpo_loss(
        given.logp, given.groups, given.good, given.mask, lam=config.strength
    )


LOSSES: Mapping[str, Callable[[PreferenceConfig, _Given], Sum]] = {
    "dpo": _dpo,
    "ipo": _ipo,
    "kto": _kto,
    "simpo": _simpo,
    "orpo": _orpo,
}


class _Statistics:
    """Implied rewards of good and bad answers, over the passes of an update."""

    def __init__(self) -> None:
        self.good: dict[int, float] = {}
        self.bad: dict[int, float] = {}

    def clear(self) -> None:
        """Forget what an earlier attempt at the update has added."""
        self.good, self.bad = {}, {}

    def add(self, rewards: Tensor, part: Batch) -> None:
        """Add the rows of a pass; rows of one answer add up."""
        assert part.inputs.groups is not None
        assert part.inputs.rewards is not None
        offset = 1 + max(self.good.keys() | self.bad.keys(), default=-1)
        rows = zip(
            part.inputs.groups.tolist(), part.inputs.rewards.tolist(), rewards.tolist(), strict=True
        )
        for group, good, reward in rows:
            side = self.good if good else self.bad
            side[offset + group] = side.get(offset + group, 0.0) + reward

    def metrics(self, prefix: str) -> dict[str, float]:
        """Return means, and where answers are paired how often the chosen one has more."""
        numbers: dict[str, float] = {}
        for name, side in (("chosen", self.good), ("rejected", self.bad)):
            if side:
                numbers[f"{prefix}/{name}"] = float(np.mean(list(side.values())))
        pairs = sorted(self.good.keys() & self.bad.keys())
        if pairs:
            gaps = np.array([self.good[pair] - self.bad[pair] for pair in pairs])
            numbers[f"{prefix}/margin"] = float(gaps.mean())
            numbers[f"{prefix}/accuracy"] = float((gaps > 0).mean() + (gaps == 0).mean() / 2)
        return numbers


def _reference(
    config: PreferenceConfig, opened: OpenedRun, run: PreferenceRun
) -> PolicyReader | BelowAdapter:
    if config.trainer.lora.rank:
        return BelowAdapter(run.learner)
    first = config.model.path
    path = str(opened.folder.path / "model") if first == TINY else first
    device = pick_device(config.model.device)
    model = load_policy(
        path, config.trainer.lora, dtype=DTYPES[config.model.weights], device=device
    )
    model.requires_grad_(requires_grad=False)
    return PolicyReader(model, config.trainer, opened.reading())


def _spliced(prompt: DataRow, answer: DataRow) -> DataRow:
    """Return the prompt of one row with the answer of another."""
    end, start = int(prompt.mask.argmax()), int(answer.mask.argmax())
    ids = np.concatenate([prompt.ids[:end], answer.ids[start:]])
    mask = np.concatenate([prompt.mask[:end], answer.mask[start:]])
    return DataRow(ids, mask)


def _examples(config: PreferenceConfig, opened: OpenedRun) -> ExampleSet[Any]:
    """Load and encode the data of a run."""
    chat_format, labelled = opened.chat_format, config.method == "kto"
    max_tokens = config.max_tokens or opened.longest()
    settings = partial(
        encode_all, source=config.data, max_tokens=max_tokens, held_out=config.held_out
    )
    if holds_episodes(config.data):
        check = SameTokenizer(chat_format, config.data).check
        of_group = labelled_rollouts if labelled else pair_of_rollouts
        found = [
            example
            for group in recorded_groups(config.data)
            for example in of_group(group, config.passing, check)
        ]
        if not found:
            raise ConfigError(
                f"{config.data!r} holds no group of rollouts whose rewards differ, and preferences "
                "are made of those"
            )
        digest = digest_of(found)
        return settings(found, lambda example: example, digest=digest)
    reader = PreferenceReader(Path(config.data).parent)
    if labelled:
        answers = load_items(config.data, reader.rating)
        _tell(answers.report())
        encode = partial(_labelled_example, chat_format, max_tokens)
        return settings(answers.items, encode, digest=answers.digest)
    pairs = load_items(config.data, reader.pair)
    _tell(pairs.report())
    if count := circles(pairs.items):
        _tell(f"{config.data}: the preferences of {count} prompts go round in a circle")
    return settings(
        pairs.items, partial(_pair_example, chat_format, max_tokens), digest=pairs.digest
    )


def _tell(report: str) -> None:
    if report:
        logger.warning("%s", report)


def _pair_example(chat_format: ChatFormat, max_tokens: int, pair: RankedAnswers) -> Example:
    rows = [
        tuple(rows_of_segments(segments_of(pair.conversation(index), chat_format, max_tokens)))
        for index in (0, 1)
    ]
    return Example(tuple(rows), msgspec.msgpack.encode(pair.prompt))


def _labelled_example(chat_format: ChatFormat, max_tokens: int, rated: RatedAnswer) -> Example:
    if rated.rating not in (0, 1):
        raise ConfigError(f"kto's labels are true and false, and a row has {rated.rating:g}")
    rows = tuple(rows_of_segments(segments_of(rated.conversation, chat_format, max_tokens)))
    return Example((rows,), msgspec.msgpack.encode(rated.prompt), rated.rating)
