"""`ludus sft`: a supervised warm start on what an environment's expert does.

The loss is the negative log-likelihood of the expert's tokens, averaged over all of them;
observations are not trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ludus.agent import ChatFormat
from ludus.agent.context import make_context
from ludus.agent.parsing import tool_format
from ludus.envs import EnvSession, make_async
from ludus.errors import ConfigError
from ludus.wire.arguments import parse_served

from .batch import Batch, Row, as_row, pad
from .checkpoint import save_checkpoint
from .config import SFTConfig
from .demonstrations import demonstrate
from .devices import pick_device
from .engines import load_model, load_tokenizer
from .learner import Learner, Predicted
from .run_folder import RunFolder
from .tiny import tiny_or_folder

Progress = Callable[[int, dict[str, float]], None]


async def run_sft(config: SFTConfig, *, progress: Progress | None = None) -> Path:
    """Warm a model up and return the checkpoint folder.

    Args:
        config: what to do.
        progress: called after each update with its number and metrics.

    Raises:
        ConfigError: something the run needs is missing or cannot work.
    """
    config.require_complete()
    folder = RunFolder(
        Path(config.run.folder or "runs/sft"),
        config,
        resume=False,
        tensorboard=config.run.tensorboard,
    )
    session = _demonstrator(config.env)
    path = tiny_or_folder(config.model.path, folder.path, session.env.briefing, seed=config.seed)
    tokenizer = load_tokenizer(path)
    chat_format = ChatFormat(tokenizer, tool_format(config.model.tool_format))
    learner = Learner(load_model(path, device=pick_device(config.model.device)), config.trainer)
    for step in range(1, config.steps + 1):
        started = time.perf_counter()
        first = (config.seed * config.steps + step - 1) * config.batch_size
        rows = await _rows(session, chat_format, config, range(first, first + config.batch_size))
        batch = pad(rows)
        metrics = learner.update(batch, torch.arange(len(rows)), negative_log_likelihood)
        metrics["time/step_s"] = time.perf_counter() - started
        folder.log(step, metrics)
        if progress is not None:
            progress(step, metrics)
    folder.close()
    return save_checkpoint(
        folder.checkpoints, config.steps, learner.model, tokenizer, learner.state(), keep=1
    )


def negative_log_likelihood(batch: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """`-sum logp m` and `sum m`, for `Learner.update`."""
    return -(predicted.logp * batch.mask).sum(), batch.mask.sum()


def _demonstrator(env: str) -> EnvSession:
    env_id, arguments = parse_served(env)
    return make_async(env_id, **arguments)


async def _rows(
    session: EnvSession, chat_format: ChatFormat, config: SFTConfig, seeds: range
) -> list[Row]:
    rows: list[Row] = []
    for seed in seeds:
        episode = await demonstrate(
            session,
            chat_format,
            split=config.split,
            seed=seed,
            context=make_context(config.context),
            window=config.window or None,
        )
        segments = episode.trajectories[0].segments
        rows += [row for segment in segments if (row := as_row(segment)) is not None]
    if not rows:
        raise ConfigError(f"{session.id}: its demonstrations hold no token to train on")
    return rows
