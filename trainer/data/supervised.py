"""The parts that all runs of supervised training share: the folder, the model, the loop of updates
and the checkpoints.

A run that ends early, by Ctrl-C or an error, writes a checkpoint of its last whole step first. With
`run.resume` a run continues from its newest checkpoint as if it had not ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ludus.agent import ChatFormat
from ludus.errors import ConfigError, SaveFailed
from ludus.metrics import write_plan

from ..findings.history import rows_of
from ..learning.learner import Learner
from ..learning.policy_model import load_policy
from ..learning.reader import ReadingOptions
from ..models.checkpoint import SavedModel, load_state, save_checkpoint
from ..models.checkpoint_folders import Retention, newest_checkpoint
from ..models.devices import (
    DTYPES,
    autocast_of,
    pick_device,
    refuse_unsupported,
    settled_dtype,
    slow_precision,
)
from ..models.images import ImageReader
from ..models.loading import load_images, load_tokenizer, open_chat, outline_model
from ..models.tiny import TINY, write_tiny_policy
from ..run.changes import refuse_changes
from ..run.claim import RunClaim, finished_note
from ..run.folder import RunFolder
from ..run.metrics import tokens_of
from ..run.saver import shielded
from ..settings.data import SupervisedConfig
from .examples import ExampleSet, ExampleT, refuse_changed_data

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, dict[str, float]], None]
"""Called with the number of an update, that of all updates, and the metrics."""
SettingsT = TypeVar("SettingsT", bound=SupervisedConfig)


@dataclass
class OpenedRun:
    """The folder of a run and its model, whose weights are not loaded yet."""

    settings: SupervisedConfig
    folder: RunFolder
    path: str
    """The folder of the model: that of the settings at the start of a run, else its newest
    checkpoint.
    """
    start: Path | None
    """The checkpoint that the run continues from; None at its start."""
    step: int
    """Number of finished steps."""
    tokenizer: Any
    images: ImageReader | None
    chat_format: ChatFormat

    def reading(self) -> ReadingOptions:
        """Return how the model reads examples: images, mixed precision, the type of the head."""
        settings = self.settings.model
        return ReadingOptions(
            images=self.images,
            autocast=autocast_of(settled_dtype(settings.dtype, pick_device(settings.device))),
            float32_head=settings.float32_head,
        )

    def longest(self) -> int:
        """Return the most tokens that the model reads; 2**30 if its configuration has no limit."""
        config = outline_model(self.path).config.get_text_config()
        return int(getattr(config, "max_position_embeddings", 0) or 1 << 30)

    def learner(self, planned_updates: int) -> Learner:
        """Return the learner with the model, and with the optimizer of the checkpoint if the run
        continues.

        Raises:
            ConfigError: the checkpoint is of another kind of run, or of another model.
        """
        model = self.settings.model
        learner = Learner(
            load_policy(
                self.path,
                self.settings.trainer.lora,
                dtype=DTYPES[model.weights],
                device=pick_device(model.device),
                resumed=self.start is not None,
            ),
            self.settings.trainer,
            self.reading(),
            planned_updates=planned_updates,
        )
        if self.start is not None:
            state = load_state(self.start)
            if "optimizer" not in state:
                raise ConfigError(
                    f"{str(self.start)!r} was not written by supervised training; start from it "
                    "with --model.path instead"
                )
            learner.restore(state)
        return learner


def claimed_folder(
    config: SupervisedConfig, path: Path, stack: AsyncExitStack
) -> tuple[RunFolder, Path | None, int]:
    """Return a run's folder, claimed for this process; `stack` closes the folder.

    Returns:
        The folder, the checkpoint that the run goes on from (None at its start), and the number of
        finished steps.

    Raises:
        ConfigError: the folder holds another run, or settings differ from those of the run.
    """
    claim = RunClaim(path, resume=config.run.resume is True)
    stack.callback(claim.release)
    for note in [claim.note, *(refuse_changes(claim.path, config) if config.run.resume else [])]:
        if note:
            logger.warning("%s", note)
    folder = RunFolder(claim.path, config, claim=claim, settings=config.run)
    stack.callback(folder.close)
    return folder, claim.start, claim.first_step


def open_run(
    config: SupervisedConfig,
    path: Path,
    stack: AsyncExitStack,
    located: Callable[[RunFolder], str] | None = None,
) -> OpenedRun:
    """Claim a run's folder and open its chat format; `stack` closes what was opened.

    Args:
        config: the settings, which are compared with those of a run that goes on.
        path: the run folder.
        stack: closes the folder.
        located: from the run's folder to that of the model, for a run that starts; by default the
            model of the settings. A model called "tiny" is written to the run's folder.

    Raises:
        ConfigError: the folder holds another run, settings differ, or the model cannot be trained.
    """
    folder, start, step = claimed_folder(config, path, stack)
    model_path = str(start or (located(folder) if located else config.model.path))
    if model_path == TINY:
        model_path = str(write_tiny_policy(folder.path / "model", seed=config.seed))
    tokenizer = load_tokenizer(model_path)
    images = load_images(model_path, tokenizer, max_pixels=config.model.max_image_pixels)
    chat = open_chat(config.model, model_path, tokenizer, folder.path, images=images)
    if chat.report.notice():
        logger.warning("%s", chat.report.notice())
    device = pick_device(config.model.device)
    dtype = settled_dtype(config.model.dtype, device)
    for note in slow_precision(dtype, device):
        logger.warning(note)
    refuse_unsupported(dtype, device)
    return OpenedRun(config, folder, model_path, start, step, tokenizer, images, chat.chat_format)


class SupervisedRun(ABC, Generic[SettingsT, ExampleT]):
    """A run of supervised training: each step is one update.

    Args:
        config: the settings.
        folder: the run folder.
        step: number of finished steps.
        examples: the examples to learn and those held out; None if each update makes its own.

    Raises:
        ConfigError: the run goes on, and its data have changed.
    """

    def __init__(
        self,
        config: SettingsT,
        folder: RunFolder,
        step: int,
        examples: ExampleSet[ExampleT] | None = None,
    ) -> None:
        self.config, self.folder, self.step = config, folder, step
        self.steps = config.steps
        """The number of updates of the whole run."""
        self.examples: ExampleSet[ExampleT] = examples or ExampleSet([], [], "")
        if examples is not None:
            refuse_changed_data(folder.path, examples.digest, config.run)
            self.steps = examples.steps(config.batch_size, epochs=config.epochs, steps=config.steps)
        write_plan(folder.path, self.steps)
        self.failed_saves = 0
        """Number of checkpoints in a row that could not be written."""

    @abstractmethod
    def saved(self) -> SavedModel:
        """Return the model with its tokenizer, for a checkpoint."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds besides the model, such as the optimizer."""

    @abstractmethod
    async def learn(self) -> dict[str, float]:
        """Make the next update, and return its metrics; `step` updates are made already."""

    @property
    def learned(self) -> bool:
        """Whether the run has learned enough to end before its last step; by default not."""
        return False

    @property
    def spent(self) -> bool:
        """Whether the tokens of the run are used up."""
        return False

    def drawn(self) -> list[ExampleT]:
        """Return the examples of the next update."""
        return self.examples.batch(self.step, self.config.batch_size, seed=self.config.seed)

    async def measure(self) -> dict[str, float]:
        """Return metrics of the held-out examples, every `eval_every` updates and at the end; else
        an empty dict.
        """
        every, last = self.config.eval_every, self.step == self.steps
        if not self.examples.held_out or not (last or (every and self.step % every == 0)):
            return {}
        return await asyncio.to_thread(self.measured)

    @abstractmethod
    def measured(self) -> dict[str, float]:
        """Return metrics of the held-out examples, of which there is at least one."""

    async def update(self) -> dict[str, float]:
        """Make an update, and write its metrics."""
        started = time.perf_counter()
        metrics = await self.learn()
        self.step += 1
        metrics["time/step_s"] = time.perf_counter() - started
        metrics |= await self.measure()
        self.folder.log(self.step, metrics)
        return metrics

    async def to_end(self, progress: Progress | None) -> Path:
        """Make all updates, and return the last checkpoint.

        Cancellation writes a checkpoint first.
        """
        every, first_step = self.config.run.save_every, self.step
        if first_step and finished_note(first_step, self.steps):
            logger.warning("%s", finished_note(first_step, self.steps))
        try:
            while self.step < self.steps and not self.learned and not self.spent:
                metrics = await shielded(self.update())
                if progress is not None:
                    progress(self.step, self.steps, metrics)
                if every and self.step % every == 0:
                    self.try_save()
        finally:
            if self.step > first_step:  # Ctrl-C and failures leave the last whole step
                self.save()
        write_plan(self.folder.path, self.step)  # also where it had learned, or spent its tokens
        return newest_checkpoint(self.folder.checkpoints)

    def try_save(self) -> None:
        """Write a checkpoint; a failure is logged as a warning, and the run continues.

        Raises:
            SaveFailed: `run.max_failed_saves` checkpoints in a row could not be written.
        """
        try:
            self.save()
        except SaveFailed as error:
            self.failed_saves += 1
            if self.failed_saves >= self.config.run.max_failed_saves:
                raise
            logger.warning("%s", error)

    def save(self) -> Path:
        """Write all metrics so far and a checkpoint, and return the folder of the checkpoint.

        Raises:
            SaveFailed: the disk is full or failing; the older checkpoints stay.
        """
        self.folder.sync()
        saved = save_checkpoint(
            self.folder.checkpoints,
            self.step,
            self.saved(),
            self.state(),
            Retention(self.config.run.keep),
        )
        self.failed_saves = 0
        return saved


class PolicyRun(SupervisedRun[SettingsT, ExampleT]):
    """A supervised run that trains a policy.

    Args:
        config: the settings.
        opened: the folder and the model.
        examples: see `SupervisedRun`.
        most_tokens: trained tokens after which the run ends; 0 for no limit.
    """

    def __init__(
        self,
        config: SettingsT,
        opened: OpenedRun,
        examples: ExampleSet[ExampleT] | None = None,
        *,
        most_tokens: int = 0,
    ) -> None:
        super().__init__(config, opened.folder, opened.step, examples)
        self.most_tokens = most_tokens
        self.tokens = sum(tokens_of(row) for row in rows_of(opened.folder.path))
        """The number of tokens that were trained so far."""
        self.opened, self.learner = opened, opened.learner(self.steps)

    @property
    def spent(self) -> bool:
        """Whether as many tokens are trained as the settings allow."""
        return bool(self.most_tokens) and self.tokens >= self.most_tokens

    async def update(self) -> dict[str, float]:
        """Make an update, write its metrics, and count its tokens."""
        metrics = await super().update()
        self.tokens += tokens_of(metrics)
        return metrics

    def saved(self) -> SavedModel:
        """Return the policy with its present weights, and the tokenizer."""
        return SavedModel(self.learner.model, self.opened.tokenizer, images=self.learner.images)

    def state(self) -> dict[str, Any]:
        """Return the state of the learner."""
        return self.learner.state()
