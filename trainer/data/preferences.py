"""`ludus train dpo` and its relatives: a policy learns from preferences in files or recorded runs.

The losses are those of `ludus.trainer.algorithms`; rows, passes, updates and checkpoints are those
of reinforcement learning. Both answers of a pair are in one pass, in which their prompt is computed
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from ludus.agent import ChatFormat, Sampling
from ludus.agent.data.loading import load_items
from ludus.agent.data.preferences import PreferenceReader, RankedAnswers, RatedAnswer, doubts
from ludus.envs.problem_files import UnusableRow
from ludus.errors import ConfigError

from .. import algorithms
from ..algorithms.aggregation import Sum
from ..engines.local import EngineLimits, LocalEngine
from ..learning.learner import Predicted, UpdatePasses
from ..learning.policy_model import BelowAdapter
from ..learning.reader import PolicyReader
from ..models.devices import DTYPES, pick_device
from ..models.loading import load_model, load_tokenizer
from ..models.tiny import TINY, find_model
from ..rollout.batch import Batch
from ..run.claim import settled_resume
from ..settings.data import NUMBERS, WITH_REFERENCE, PreferenceConfig
from .encoding import DataRow, batch_of, rows_of_segments, segments_of
from .examples import Example, ExampleSet, encode_all, logger
from .losses import SAMPLED, PreferenceInputs, preference_loss
from .recorded import SameTokenizer, digest_of, holds_episodes, recorded_groups
from .rollout_pairs import RolloutPreferences, accepted_pairs
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
        opened = open_run(config, folder_of(config), stack)
        run = PreferenceRun(config, opened, load_preferences(config, opened))
        return await run.to_end(progress)


def folder_of(config: PreferenceConfig) -> Path:
    """Return the run folder."""
    return Path(config.run.folder or f"runs/{config.method}")


class PreferenceRun(PolicyRun[PreferenceConfig, Example]):
    """A run that learns from preferences.

    Args:
        config: the settings.
        opened: the folder and the model.
        examples: the pairs, or the labelled answers.
    """

    def __init__(
        self, config: PreferenceConfig, opened: OpenedRun, examples: ExampleSet[Example]
    ) -> None:
        super().__init__(config, opened, examples)
        self.reference: PolicyReader | BelowAdapter | None = None
        self.before: PolicyReader | BelowAdapter | None = None
        """The model that training started from, where it is not the reference."""
        if config.method in WITH_REFERENCE:
            start = _start(config, opened, self)
            self.reference = start
            if config.reference:
                self.reference = _frozen(config, opened, config.reference)
                self.before = start if config.method == "inpo" else None

    async def learn(self) -> dict[str, float]:
        """Make an update on the next examples."""
        drawn = self.drawn()
        sampled = await self.sampled(drawn) if self.config.method == "hypo" else []
        return await asyncio.to_thread(self._learn, drawn, sampled)

    async def sampled(self, drawn: Sequence[Example]) -> list[tuple[int, DataRow]]:
        """Return answers of the policy as it is now, each with the number of its pair."""
        stop = self.opened.chat_format.stop_token_ids
        engine = LocalEngine(self.learner.model, EngineLimits(kept_tokens=0))
        count, most = self.config.samples, self.config.sample_tokens

        async def answer(number: int, sample: int) -> tuple[int, DataRow]:
            row = drawn[number].rows[0][0]
            if row.images:
                raise ConfigError("hypo samples answers to prompts of text; these show images")
            prompt = row.ids[: int(row.mask.argmax())]
            place = np.random.SeedSequence((self.config.seed, self.step, number, sample))
            seed = int(place.generate_state(1)[0])
            sampling = Sampling(max_tokens=most, seed=seed, stop_token_ids=stop)
            said = (await engine.generate(prompt.tolist(), sampling)).ids
            mask = np.arange(len(prompt) + len(said)) >= len(prompt)
            return number, DataRow(np.append(prompt, np.array(said, np.int32)), mask)

        try:
            return await asyncio.gather(
                *(answer(number, n) for number in range(len(drawn)) for n in range(count))
            )
        finally:
            await engine.close()

    def _learn(
        self, drawn: Sequence[Example], sampled: Sequence[tuple[int, DataRow]]
    ) -> dict[str, float]:
        answers = self.answers(drawn, sampled)
        seen = _Statistics()

        def loss(part: Batch, predicted: Predicted) -> Sum:
            value = self.loss(part, predicted.logp)
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

    def measured(self) -> dict[str, float]:
        """Measure the loss and the agreement on what is held out."""
        total, weight, seen = 0.0, 0.0, _Statistics()
        held_out, size = self.examples.held_out, self.config.batch_size
        for start in range(0, len(held_out), size):
            batch = self.answers(held_out[start : start + size])
            logp = self.learner.score(batch)
            value, count = self.loss(batch, logp)
            seen.add(self._rewards(batch, logp), batch)
            total, weight = total + float(value), weight + float(count)
        return {"held_out/loss": total / weight, **seen.metrics("held_out")}

    def answers(
        self, drawn: Sequence[Example], sampled: Sequence[tuple[int, DataRow]] = ()
    ) -> Batch:
        """Return the answers of examples as a batch: `groups` tells pairs, or answers, apart,
        `rewards` is 1 for good ones, and `target` has the numbers of answers.
        """
        rows: list[DataRow] = []
        groups: list[int] = []
        good: list[float] = []
        given: list[float] = []
        paired = self.config.method != "kto"
        for number, example in enumerate(drawn):
            for side, answer in enumerate(example.rows):
                rows += answer
                groups += [number] * len(answer)
                good += [float(side == 0) if paired else example.label] * len(answer)
                given += [example.numbers[side] if example.numbers else 0.0] * len(answer)
        for number, row in sampled:
            rows, groups = [*rows, row], [*groups, number]
            good, given = [*good, SAMPLED], [*given, 0.0]
        batch = batch_of(rows)
        inputs = replace(
            batch.inputs,
            groups=torch.tensor(groups),
            rewards=torch.tensor(good),
            target=torch.tensor(given),
        )
        if self.reference is not None:
            inputs = replace(inputs, ref_logp=self.reference.score(batch))
        if self.before is not None:
            inputs = replace(inputs, old_logp=self.before.score(batch))
        if not paired:
            shift = self._shift(drawn)
            inputs = replace(inputs, bootstrap=shift.expand(len(rows)).clone())
        return replace(batch, inputs=inputs)

    def _shift(self, drawn: Sequence[Example]) -> Tensor:
        """Return KTO's z over the prompts of a batch, each with the answer of its neighbour."""
        assert self.reference is not None
        neighbours = [*drawn[1:], drawn[0]]
        rows = [
            _spliced(example.rows[0][0], neighbour.rows[0][0])
            for example, neighbour in zip(drawn, neighbours, strict=True)
            if example.prompt != neighbour.prompt
        ]
        if not rows:
            return torch.zeros(())
        batch = batch_of(rows)
        logp, ref_logp = self.learner.score(batch), self.reference.score(batch)
        return algorithms.kto_shift(logp, ref_logp, torch.arange(len(rows)), batch.mask)

    def loss(self, part: Batch, logp: Tensor) -> Sum:
        """Return the loss of answers as a sum and the number of pairs."""
        return preference_loss(self.config, PreferenceInputs.of(part, logp))

    def _rewards(self, part: Batch, logp: Tensor) -> Tensor:
        """Return the reward that the policy implies of each row, [B]."""
        given = PreferenceInputs.of(part, logp)
        ratio = logp if part.inputs.ref_logp is None else logp - given.ref_logp
        sums = (ratio * part.mask).sum(-1)
        if self.config.method in ("simpo", "orpo"):
            sums = sums / part.mask.sum(-1).clamp(min=1)
        return sums * (1.0 if self.config.method == "orpo" else self.config.strength)


class _Statistics:
    """Implied rewards of good and bad answers, over the passes of an update."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what an earlier attempt at the update has added."""
        self.good: list[float] = []
        self.bad: list[float] = []
        self.gaps: list[float] = []

    def add(self, rewards: Tensor, part: Batch) -> None:
        """Add the rows of a pass; rows of one answer add up, and both of a pair are in a pass."""
        assert part.inputs.groups is not None
        assert part.inputs.rewards is not None
        sums: dict[float, dict[int, float]] = {1.0: {}, 0.0: {}, SAMPLED: {}}
        groups, sides = part.inputs.groups.tolist(), part.inputs.rewards.tolist()
        for group, side, reward in zip(groups, sides, rewards.tolist(), strict=True):
            sums[side][group] = sums[side].get(group, 0.0) + reward
        good, bad = sums[1.0], sums[0.0]
        self.good += good.values()
        self.bad += bad.values()
        self.gaps += [good[pair] - bad[pair] for pair in sorted(good.keys() & bad.keys())]

    def metrics(self, prefix: str) -> dict[str, float]:
        """Return means, and where answers are paired how often the chosen one has more."""
        gaps = np.array(self.gaps)
        means = {"chosen": self.good, "rejected": self.bad, "margin": self.gaps}
        numbers = {f"{prefix}/{name}": float(np.mean(of)) for name, of in means.items() if of}
        if len(gaps):
            numbers[f"{prefix}/accuracy"] = float((gaps > 0).mean() + (gaps == 0).mean() / 2)
        return numbers


def _start(
    config: PreferenceConfig, opened: OpenedRun, run: PreferenceRun
) -> PolicyReader | BelowAdapter:
    """Return the model that training started from."""
    if config.trainer.lora.rank:
        return BelowAdapter(run.learner)
    first = config.model.path
    return _frozen(config, opened, str(opened.folder.path / "model") if first == TINY else first)


def _frozen(config: PreferenceConfig, opened: OpenedRun, path: str) -> PolicyReader:
    """Load a model that is only read.

    Raises:
        ConfigError: it cannot be loaded, or its tokenizer is another one.
    """
    path = str(find_model(path))
    tokenizer: Any = load_tokenizer(path)
    if tokenizer.get_vocab() != opened.tokenizer.get_vocab():
        raise ConfigError(f"the reference {path!r} has another tokenizer than the model")
    device = pick_device(config.model.device)
    model = load_model(path, dtype=DTYPES[config.model.weights], device=device)
    model.requires_grad_(requires_grad=False)
    return PolicyReader(model, config.trainer, opened.reading())


def _spliced(prompt: DataRow, answer: DataRow) -> DataRow:
    """Return the prompt of one row with the answer of another."""
    end, start = int(prompt.mask.argmax()), int(answer.mask.argmax())
    ids = np.concatenate([prompt.ids[:end], answer.ids[start:]])
    mask = np.concatenate([prompt.mask[:end], answer.mask[start:]])
    return DataRow(ids, mask)


def load_preferences(config: PreferenceConfig, opened: OpenedRun) -> ExampleSet[Example]:
    """Load and encode the data of a run."""
    max_tokens = config.max_tokens or opened.longest()
    encode = partial(_example, opened.chat_format, max_tokens)
    if holds_episodes(config.data):
        check = SameTokenizer(opened.chat_format, config.data).check
        groups = RolloutPreferences(config, check)
        examples = [
            example for group in recorded_groups(config.data) for example in groups.examples(group)
        ]
        if not examples:
            raise ConfigError(
                f"{config.data!r} holds no group of rollouts whose rewards differ, and preferences "
                "are made of those"
            )
        fitting = partial(Example.fitting, max_tokens=max_tokens)
        return encode_all(examples, fitting, config, digest=digest_of(examples))
    reader = PreferenceReader(Path(config.data).parent, numbers=NUMBERS.get(config.method, ""))
    if config.method == "kto":
        answers = load_items(config.data, reader.rating, fields=config.fields)
        return encode_all(answers.items, encode, config, digest=answers.digest)
    chooses = config.method == "rso"
    read = reader.ranking if chooses else reader.pair
    pairs = load_items(config.data, lambda row: _numbered(config, read(row)), fields=config.fields)
    for doubt in doubts(config.data, pairs.items):
        logger.warning("%s", doubt)
    items = pairs.items
    if chooses:
        items = [pair for item in items for pair in chosen_pairs(config, item)]
    return encode_all(items, encode, config, digest=pairs.digest)


def _numbered(config: PreferenceConfig, item: RankedAnswers) -> RankedAnswers:
    """Refuse a row where the method needs numbers that it does not have."""
    if item.numbers or config.method not in NUMBERS:
        return item
    if config.method == "sppo":  # the hard form: a pair says who has won
        return msgspec.structs.replace(item, numbers=[1.0, 0.0])
    column = NUMBERS[config.method]
    raise UnusableRow(f"without {column}, a number for each answer, which {config.method} reads")


def chosen_pairs(config: PreferenceConfig, item: RankedAnswers) -> list[RankedAnswers]:
    """Return the pairs that RSO makes of answers with rewards."""
    key = msgspec.msgpack.encode(item.prompt)
    return [
        msgspec.structs.replace(
            item,
            answers=[item.answers[better], item.answers[worse]],
            ranks=[1.0, 2.0],
            numbers=[item.numbers[better], item.numbers[worse]],
        )
        for better, worse in accepted_pairs(config, item.numbers, key)
    ]


def _example(
    chat_format: ChatFormat, max_tokens: int, item: RankedAnswers | RatedAnswer
) -> Example:
    prompt = msgspec.msgpack.encode(item.prompt)
    if isinstance(item, RankedAnswers):
        conversations = [item.conversation(index) for index in (0, 1)]
        label, numbers = 1.0, tuple(item.numbers)
    elif item.rating in (0, 1):
        conversations, label, numbers = [item.conversation], item.rating, ()
    else:
        raise ConfigError(f"kto's labels are true and false, and a row has {item.rating:g}")
    rows = tuple(
        rows_of_segments(segments_of(each, chat_format, max_tokens)) for each in conversations
    )
    return Example(rows, prompt, label, numbers).fitting(max_tokens)
