"""`ludus sft`: a supervised warm start on what an environment's expert does.

The loss is the negative log-likelihood of the expert's tokens, averaged over all expert tokens;
observations are not trained.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from ludus.agent import ChatFormat, Episode
from ludus.agent.context import ContextManager, make_context
from ludus.agent.images import refuse_unseen
from ludus.envs import EnvSession, make_async
from ludus.errors import ConfigError, SaveFailed
from ludus.metrics import read_metrics
from ludus.wire.address import parse_served

from .config import SFTConfig
from .learning.learner import Learner, Predicted
from .learning.policy_model import load_policy
from .learning.reader import ReadingOptions
from .models.checkpoint import Retention, SavedModel, load_state, newest_checkpoint, save_checkpoint
from .models.devices import (
    DTYPES,
    autocast_of,
    pick_device,
    refuse_unsupported,
    settled_dtype,
    slow_precision,
)
from .models.loading import load_images, load_tokenizer, open_chat
from .models.tiny import tiny_or_folder
from .rollout.batch import Batch, as_row, pad
from .rollout.demonstrations import ExpertPolicy, demonstrate
from .run.changes import refuse_changes
from .run.claim import RunClaim
from .run.folder import RunFolder
from .run.saver import shielded

logger = logging.getLogger(__name__)

SEEDS_APART = 1 << 24
"""Number of demonstrations between two seeds of an endless set; no run is that long."""

STOP_UPDATES = 20
"""Number of last updates whose mean loss decides whether to stop early."""

Progress = Callable[[int, dict[str, float]], None]


async def run_sft(config: SFTConfig, *, progress: Progress | None = None) -> Path:
    """Warm a model up and return the checkpoint folder.

    Cancellation (Ctrl-C) writes a checkpoint first; `run.resume` continues from the checkpoint.

    Args:
        config: the settings.
        progress: called after each update with its number and metrics.

    Raises:
        ConfigError: something the run needs is missing or cannot work.
    """
    config.require_complete()
    async with AsyncExitStack() as stack:
        run = _assemble(config, stack)
        first_step = run.step
        try:
            while run.step < config.steps and not run.learned:
                metrics = await shielded(run.update())
                if progress is not None:
                    progress(run.step, metrics)
                if config.run.save_every and run.step % config.run.save_every == 0:
                    run.try_save()
        finally:
            if run.step > first_step:  # Ctrl-C and failures leave the last whole step
                run.save()
    return newest_checkpoint(run.folder.checkpoints)


def folder_of(config: SFTConfig) -> Path:
    """Return the run folder of a warm start."""
    return Path(config.run.folder or "runs/sft")


def _assemble(config: SFTConfig, stack: AsyncExitStack) -> _WarmUp:
    """Load and check everything a warm start needs; `stack` closes what was opened."""
    claim = RunClaim(folder_of(config), resume=config.run.resume)
    stack.callback(claim.release)
    start, first_step = claim.start, claim.first_step
    for note in [claim.note, *(refuse_changes(claim.path, config) if config.run.resume else [])]:
        if note:
            logger.warning("%s", note)
    folder = RunFolder(claim.path, config, claim=claim, settings=config.run)
    stack.callback(folder.close)
    env_id, arguments = parse_served(config.env)
    session = make_async(env_id, **arguments)
    stack.push_async_callback(session.close)
    model_path = (
        str(start)
        if start
        else tiny_or_folder(config.model.path, folder.path, session.env.briefing, seed=config.seed)
    )
    tokenizer = load_tokenizer(model_path)
    images = load_images(model_path, tokenizer, max_pixels=config.model.max_image_pixels)
    briefing = session.env.briefing()
    refuse_unseen(images, session.id, declared=briefing.shows_images, opening=[])
    chat = open_chat(config.model, model_path, tokenizer, folder.path, images=images)
    if chat.report.notice():
        logger.warning("%s", chat.report.notice())
    dtype = settled_dtype(config.model.dtype, pick_device(config.model.device))
    for note in slow_precision(dtype, pick_device(config.model.device)):
        logger.warning(note)
    refuse_unsupported(dtype, pick_device(config.model.device))
    learner = Learner(
        load_policy(
            model_path,
            config.trainer.lora,
            dtype=DTYPES[config.model.weights],
            device=pick_device(config.model.device),
            resumed=start is not None,
        ),
        config.trainer,
        ReadingOptions(
            images=images, autocast=autocast_of(dtype), float32_head=config.model.float32_head
        ),
        planned_updates=config.steps,
    )
    losses: deque[float] = deque(maxlen=STOP_UPDATES)
    if start is not None:
        state = load_state(start)
        if "optimizer" not in state:
            raise ConfigError(
                f"{str(start)!r} was not written by ludus sft; start from it with --model.path "
                "instead"
            )
        learner.restore(state)
        losses.extend(row["loss"] for row in read_metrics(folder.path / "metrics.jsonl"))
    context = make_context(config.context)
    stack.push_async_callback(context.close)
    return _WarmUp(
        config, folder, session, learner, tokenizer, chat.chat_format, context, first_step, losses
    )


@dataclass
class _WarmUp:
    config: SFTConfig
    folder: RunFolder
    session: EnvSession
    learner: Learner
    tokenizer: Any
    chat_format: ChatFormat
    context: ContextManager
    step: int
    losses: deque[float]
    """Mean losses of the last updates, for the decision to stop early."""
    failed_saves: int = 0
    """Number of checkpoints in a row that could not be written."""

    @property
    def learned(self) -> bool:
        """Whether the mean loss has fallen below the loss that was asked for."""
        full = len(self.losses) == STOP_UPDATES
        return full and fmean(self.losses) < self.config.stop_loss

    async def update(self) -> dict[str, float]:
        """Make an update on demonstrations that no other update has seen."""
        started = time.perf_counter()
        size = self.config.batch_size
        first = self.config.seed * SEEDS_APART + self.step * size
        episodes = [await self.demonstrate(seed) for seed in range(first, first + size)]
        segments = [segment for episode in episodes for segment in episode.trajectories[0].segments]
        rows = [row for segment in segments if (row := as_row(segment)) is not None]
        if not rows:
            raise ConfigError(f"{self.session.id}: its demonstrations hold no token to train on")
        metrics = await asyncio.to_thread(
            self.learner.update, pad(rows), torch.arange(len(rows)), negative_log_likelihood
        )
        metrics["time/step_s"] = time.perf_counter() - started
        self.step += 1
        self.losses.append(metrics["loss"])
        self.folder.log(self.step, metrics)
        every = self.config.run.episodes_every
        if every and self.step % every == 0:
            self.folder.keep_episodes(f"step-{self.step:06d}", self.step, episodes)
        return metrics

    async def demonstrate(self, seed: int) -> Episode:
        """Let the expert play the task of `seed`."""
        expert = ExpertPolicy(
            self.session, self.chat_format, context=self.context, window=self.config.window or None
        )
        return await demonstrate(expert, split=self.config.split, seed=seed)

    def try_save(self) -> None:
        """Write a checkpoint; one that cannot be written is told, and the run goes on.

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
        """Write a checkpoint, with every line of metrics before it, and return the folder.

        Raises:
            SaveFailed: the disk is full or failing; the older checkpoints stay.
        """
        self.folder.sync()
        saved = save_checkpoint(
            self.folder.checkpoints,
            self.step,
            SavedModel(self.learner.model, self.tokenizer, images=self.learner.images),
            self.learner.state(),
            Retention(self.config.run.keep),
        )
        self.failed_saves = 0
        return saved


def negative_log_likelihood(batch: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """Return `-sum(logp * mask)` and `sum(mask)`, as `Learner.update` asks for."""
    return -(predicted.logp * batch.mask).sum(), batch.mask.sum()
