"""A model folder as a policy to measure: the same engine and chat format as in training."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ludus.agent import Sampling, TokenPolicy
from ludus.agent.context import ContextManager

from ..config import ModelConfig
from ..models.devices import DTYPES, pick_device, settled_dtype, slow_precision
from ..models.loading import load_images, load_model, load_tokenizer, open_chat
from ..models.tiny import find_model
from .local import EngineLimits, LocalEngine

logger = logging.getLogger(__name__)


@asynccontextmanager
async def local_policy(
    model: ModelConfig,
    sampling: Sampling,
    *,
    context: ContextManager | None = None,
    window: int | None = None,
    max_rows: int = 256,
) -> AsyncGenerator[TokenPolicy]:
    """Load a model, yield a policy that samples from the model, and end the engine afterwards.

    Args:
        model: the settings of the model; its path may be a checkpoint of a run.
        sampling: the sampling of every turn; its seed is replaced.
        context: what happens when the window is full.
        window: the working context in tokens; None is the model's own.
        max_rows: the most turns that are sampled at once.

    Raises:
        ConfigError: the model cannot be loaded, or its chat template cannot play an episode.
    """
    folder = find_model(model.path)
    device = pick_device(model.device)
    dtype = settled_dtype(model.dtype, device)
    for note in slow_precision(dtype, device):
        logger.warning(note)
    tokenizer = load_tokenizer(folder)
    images = load_images(folder, tokenizer, max_pixels=model.max_image_pixels)
    chat = open_chat(model, folder, tokenizer, images=images)
    if notice := chat.report.notice():
        logger.warning("%s", notice)
    engine = LocalEngine(
        load_model(folder, dtype=DTYPES[dtype], device=device),
        EngineLimits(max_rows=max_rows),
        images=images,
        float32_head=model.float32_head,
    )
    try:
        yield TokenPolicy(engine, chat.chat_format, sampling, window=window, context=context)
    finally:
        await engine.close()
