"""A model folder as a policy to measure: the same engine and chat format as in training."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ludus.agent import Sampling, TokenPolicy
from ludus.agent.context import ContextManager

from .chat_template import open_chat
from .config import ModelConfig
from .engines import EngineLimits, LocalEngine, load_images, load_model, load_tokenizer
from .engines.model_paths import locate_model
from .learning.devices import pick_device
from .learning.precision import DTYPES, slow_precision

logger = logging.getLogger(__name__)


@asynccontextmanager
async def local_policy(
    path: str,
    sampling: Sampling,
    *,
    context: ContextManager | None = None,
    window: int | None = None,
    tools_as: str = "auto",
    template: str = "auto",
    device: str = "auto",
    dtype: str = "float32",
    max_rows: int = 256,
    max_image_pixels: int = 0,
) -> AsyncGenerator[TokenPolicy]:
    """Load a model, yield a policy that samples from the model, and end the engine afterwards.

    Args:
        path: the path of the model, as `locate_model` takes it; a checkpoint of a run will do.
        sampling: the sampling of every turn; its seed is replaced.
        context: what happens when the window is full.
        window: the working context in tokens; None is the model's own.
        tools_as: the format of tool calls; auto reads it off the chat template.
        template: the chat template, as `model.template` of a run.
        device: the model's device; auto takes CUDA where there is a CUDA device.
        dtype: the type that the model computes in.
        max_rows: the most turns that are sampled at once.
        max_image_pixels: the largest number of pixels of an image as the model sees it; 0 leaves
            the bound of the model's processor.

    Raises:
        ConfigError: the model cannot be loaded, or its chat template cannot play an episode.
    """
    folder = locate_model(path)
    for note in slow_precision(dtype, pick_device(device)):
        logger.warning(note)
    tokenizer = load_tokenizer(folder)
    images = load_images(folder, tokenizer, max_pixels=max_image_pixels)
    chat = open_chat(
        ModelConfig(tool_format=tools_as, template=template), folder, tokenizer, images=images
    )
    if notice := chat.report.notice():
        logger.warning("%s", notice)
    engine = LocalEngine(
        load_model(folder, dtype=DTYPES[dtype], device=pick_device(device)),
        EngineLimits(max_rows=max_rows),
        images=images,
    )
    try:
        yield TokenPolicy(engine, chat.chat_format, sampling, window=window, context=context)
    finally:
        await engine.close()
