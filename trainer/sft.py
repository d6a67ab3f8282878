"""`ludus sft`: supervised training on what an environment's expert does, on conversations of files
and hubs, or on recorded episodes.

The loss is the negative log-likelihood of the assistant's tokens, averaged over all of them;
prompts, observations and results of tools are not trained.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import msgspec
import torch
from torch import Tensor

from ludus.agent import ChatFormat, Episode
from ludus.agent.context import ContextManager, make_context
from ludus.agent.data.conversations import Conversation, ConversationReader
from ludus.agent.data.loading import load_items
from ludus.agent.images import refuse_unseen
from ludus.envs import EnvSession, make_async
from ludus.errors import ConfigError
from ludus.metrics import read_metrics
from ludus.wire.address import parse_served

from .config import SFTConfig
from .data.encoding import batch_of, rows_of_segments, segments_of
from .data.examples import Example, ExampleSet, encode_all, rows_of_examples
from .data.recorded import (
    SameTokenizer,
    example_of,
    holds_episodes,
    recorded_trajectories,
    without_repetitions,
)
from .data.supervised import OpenedRun, PolicyRun, Progress, open_run
from .learning.learner import Predicted
from .models.tiny import tiny_or_folder
from .rollout.batch import Batch
from .rollout.demonstrations import ExpertPolicy, demonstrate
from .run.claim import settled_resume
from .run.folder import RunFolder

SEEDS_APART = 1 << 24
"""Number of demonstrations between two seeds of an endless set; no run is that long."""

STOP_UPDATES = 20
"""Number of last updates whose mean loss decides whether to stop early."""


async def run_sft(config: SFTConfig, *, progress: Progress | None = None) -> Path:
    """Train on demonstrations or on data, and return the checkpoint folder.

    Cancellation (Ctrl-C) writes a checkpoint first; `run.resume` continues from the checkpoint.

    Args:
        config: the settings.
        progress: called after each update with its number and metrics.

    Raises:
        ConfigError: something the run needs is missing or cannot work.
    """
    config.require_complete()
    config = replace(config, run=settled_resume(config.run, folder_of(config)))
    async with AsyncExitStack() as stack:
        run = _open_data(config, stack) if config.data else _open_expert(config, stack)
        return await run.to_end(progress)


def folder_of(config: SFTConfig) -> Path:
    """Return the run folder."""
    return Path(config.run.folder or "runs/sft")


# --- demonstrations ------------------------------------------------------------------------------


def _open_expert(config: SFTConfig, stack: AsyncExitStack) -> DemonstrationRun:
    """Load and check everything that demonstrations need; `stack` closes what was opened."""
    env_id, arguments = parse_served(config.env)
    session: list[EnvSession] = []

    def located(folder: RunFolder) -> str:
        session.append(make_async(env_id, **arguments))
        return tiny_or_folder(
            config.model.path, folder.path, session[0].env.briefing, seed=config.seed
        )

    opened = open_run(config, folder_of(config), stack, located)
    played = session[0] if session else make_async(env_id, **arguments)
    stack.push_async_callback(played.close)
    declared = played.env.briefing().shows_images
    refuse_unseen(opened.images, played.id, declared=declared, opening=[])
    context = make_context(config.context)
    stack.push_async_callback(context.close)
    return DemonstrationRun(config, opened, played, context)


class DemonstrationRun(PolicyRun[SFTConfig, Example]):
    """A warm start on what an environment's expert does; no update sees a demonstration twice.

    Args:
        config: the settings.
        opened: the folder and the model.
        session: the environment, whose expert plays.
        context: the context manager of the expert's windows.
    """

    def __init__(
        self, config: SFTConfig, opened: OpenedRun, session: EnvSession, context: ContextManager
    ) -> None:
        super().__init__(config, opened, most_tokens=config.tokens)
        self.session, self.context = session, context
        self.losses: deque[float] = deque(maxlen=STOP_UPDATES)
        """Mean losses of the last updates, for the decision to stop early."""
        if opened.start is not None:
            rows = read_metrics(opened.folder.path / "metrics.jsonl")
            self.losses.extend(row["loss"] for row in rows)

    @property
    def learned(self) -> bool:
        """Whether the mean loss has fallen below the loss that was asked for."""
        full = len(self.losses) == STOP_UPDATES
        return full and fmean(self.losses) < self.config.stop_loss

    async def learn(self) -> dict[str, float]:
        """Make an update on demonstrations that no other update has seen."""
        size = self.config.batch_size
        first = self.config.seed * SEEDS_APART + self.step * size
        episodes = [await self.demonstrate(seed) for seed in range(first, first + size)]
        segments = [segment for episode in episodes for segment in episode.trajectories[0].segments]
        rows = rows_of_segments(segments)
        if not rows:
            raise ConfigError(f"{self.session.id}: its demonstrations hold no token to train on")
        metrics = await asyncio.to_thread(
            self.learner.update, batch_of(rows), torch.arange(len(rows)), negative_log_likelihood
        )
        self.losses.append(metrics["loss"])
        every, step = self.config.run.episodes_every, self.step + 1
        if every and step % every == 0:
            self.folder.keep_episodes(f"step-{step:06d}", step, episodes)
        return metrics

    def measured(self) -> dict[str, float]:
        """Return nothing, since no demonstration is held out."""
        return {}

    async def demonstrate(self, seed: int) -> Episode:
        """Let the expert play the task of `seed`."""
        expert = ExpertPolicy(
            self.session,
            self.opened.chat_format,
            context=self.context,
            window=self.config.window or None,
        )
        return await demonstrate(expert, split=self.config.split, seed=seed)


# --- data ----------------------------------------------------------------------------------------


def _open_data(config: SFTConfig, stack: AsyncExitStack) -> DataRun:
    opened = open_run(config, folder_of(config), stack)
    longest = config.window or opened.longest()
    return DataRun(config, opened, load_examples(config, opened.chat_format, longest))


def load_examples(
    config: SFTConfig, chat_format: ChatFormat, max_tokens: int
) -> ExampleSet[Example]:
    """Load and encode conversations or recorded episodes.

    Args:
        config: `data` names the source; `held_out` and `min_reward` choose.
        chat_format: the chat format of the model.
        max_tokens: the most tokens of a row; longer examples are left out.

    Raises:
        ConfigError: the data cannot be read, nothing of it can be used, or recorded ids are of
            another tokenizer.
        MissingExtra: a package that reads the data is not installed.
    """
    if holds_episodes(config.data):
        recorded = recorded_trajectories(config.data, min_reward=config.min_reward)
        trajectories, digest = without_repetitions(
            (trajectory for _, trajectory in recorded), SameTokenizer(chat_format, config.data)
        )
        return encode_all(
            trajectories,
            lambda trajectory: example_of(trajectory).fitting(max_tokens),
            config,
            digest=digest,
        )
    if config.min_reward is not None:
        raise ConfigError(
            f"min_reward is {config.min_reward:g}, and {config.data!r} holds conversations, which "
            "have no reward"
        )
    loaded = load_items(
        config.data, ConversationReader(Path(config.data).parent).read, fields=config.fields
    )

    def encode(conversation: Conversation) -> Example:
        rows = rows_of_segments(segments_of(conversation, chat_format, max_tokens))
        prompt = msgspec.msgpack.encode(conversation.prompt)
        return Example((rows,), prompt).fitting(max_tokens)

    return encode_all(loaded.items, encode, config, digest=loaded.digest)


class DataRun(PolicyRun[SFTConfig, Example]):
    """A run on conversations or recorded episodes.

    Args:
        config: the settings.
        opened: the folder and the model.
        examples: what is trained on, and what is held out.
    """

    def __init__(self, config: SFTConfig, opened: OpenedRun, examples: ExampleSet[Example]) -> None:
        super().__init__(config, opened, examples, most_tokens=config.tokens)
        self.held_out = float("inf")
        """The loss on what is held out, when it was last measured."""

    @property
    def learned(self) -> bool:
        """Whether the held-out loss has fallen below the loss that was asked for."""
        return self.held_out < self.config.stop_loss

    async def learn(self) -> dict[str, float]:
        """Make an update on the next examples."""
        rows = rows_of_examples(self.drawn())
        return await asyncio.to_thread(
            self.learner.update, batch_of(rows), torch.arange(len(rows)), negative_log_likelihood
        )

    def measured(self) -> dict[str, float]:
        """Measure the loss on what is held out."""
        held_out, size = self.examples.held_out, self.config.batch_size
        total = weight = 0.0
        for start in range(0, len(held_out), size):
            batch = batch_of(rows_of_examples(held_out[start : start + size]))
            total -= float((self.learner.score(batch) * batch.mask).sum())
            weight += float(batch.mask.sum())
        self.held_out = total / weight
        return {"held_out/loss": self.held_out}


def negative_log_likelihood(batch: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """Return `-sum(logp * mask)` and `sum(mask)`, as `Learner.update` asks for."""
    return -(predicted.logp * batch.mask).sum(), batch.mask.sum()
