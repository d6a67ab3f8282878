"""The models that `ludus eval` measures: behind a server, or in this process."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from ludus.agent import ChatPolicy, Sampling, TokenPolicy
from ludus.agent.context import make_context
from ludus.errors import ConfigError, MissingExtra
from ludus.llm import TokenBudget

if TYPE_CHECKING:
    from .evaluate import EvalOptions


@asynccontextmanager
async def open_model(options: EvalOptions) -> AsyncGenerator[ChatPolicy | TokenPolicy | None]:
    """Yield the model once the server has answered, or once the folder is loaded; None where the
    policy is not a model.
    """
    if options.policy == "openai":
        policy = _chat_policy(options)
        try:
            await policy.client.ensure_served()
            yield policy
        finally:
            await policy.close()
    elif options.policy == "local":
        async with _local_policy(options) as loaded:
            yield loaded
    else:
        yield None


@asynccontextmanager
async def _local_policy(options: EvalOptions) -> AsyncGenerator[TokenPolicy]:
    if not options.model:
        raise ConfigError(
            "--policy local needs --model: a transformers folder, a checkpoint "
            "(runs/NAME/checkpoints/step-...), a .gguf file, or smollm2"
        )
    for name in ("base_url", "sampling", "cache", "budget"):  # these would change nothing here
        if value := getattr(options, name):
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} {value}: is for --policy openai, not for local")
    if not options.send_reasoning:
        raise ConfigError(
            "--no-send-reasoning: is for --policy openai; what a local model is shown of its "
            "thoughts is its chat template's (--template)"
        )
    try:
        from ludus.trainer.config import ModelConfig
        from ludus.trainer.engines.local_policy import local_policy
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="--policy local") from error
    context = make_context(options.context)
    try:
        async with local_policy(
            ModelConfig(
                path=options.model,
                tool_format=options.tool_format or "auto",
                template=options.template,
                device=options.device,
                dtype=options.dtype,
                max_image_pixels=options.max_image_pixels,
            ),
            Sampling(max_tokens=options.max_tokens, temperature=options.temperature),
            context=context,
            window=options.window or None,
            max_rows=options.concurrency,
        ) as policy:
            yield policy
    finally:
        await context.close()


def _chat_policy(options: EvalOptions) -> ChatPolicy:
    if not options.base_url or not options.model:
        raise ConfigError(
            "--policy openai needs --base-url and --model, such as "
            "--base-url http://127.0.0.1:8000/v1 --model MODEL"
        )
    # The fields of each request besides the conversation; a field that is null is not sent.
    sampling: dict[str, Any] = {
        "temperature": options.temperature, "max_tokens": options.max_tokens
    }  # fmt: skip
    try:
        sampling |= msgspec.json.decode(options.sampling or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"--sampling {options.sampling!r} is not a JSON object: {error}"
        ) from None
    if sampling.get("seed") is not None:
        raise ConfigError("--sampling cannot set seed: each episode has its own; use --seed")
    if options.max_image_pixels:
        raise ConfigError(
            f"--max-image-pixels {options.max_image_pixels}: is for --policy local; a server "
            "resizes images by its own settings"
        )
    return ChatPolicy(
        options.base_url,
        options.model,
        send_seed=sampling.pop("seed", True) is not None,
        sampling=sampling,
        tool_format=options.tool_format,
        window=options.window or None,
        context=make_context(options.context),
        api_key=os.environ.get(options.api_key_env, ""),
        concurrency=options.concurrency,
        send_reasoning=options.send_reasoning,
        cache=options.cache or None,
        budget=TokenBudget(options.budget) if options.budget else None,
    )
