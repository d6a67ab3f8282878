"""Checks of a run before anything is spent: how long rows may get, whether the context manager can
work, and whether the model can read what the environment shows.
"""

from __future__ import annotations

from ludus.agent import TokenPolicy, opening_of
from ludus.agent.context import make_context
from ludus.agent.images import refuse_unseen
from ludus.errors import ConfigError

from ..config import TrainConfig
from .collect import Collector


def row_length(config: TrainConfig) -> int | None:
    """Return the largest number of tokens in a row, or None for whatever the model takes.

    The length is the window; where summaries are written, there is room for a summary beyond the
    window.
    """
    window = config.rollout.window
    return window + make_context(config.context).overrun() if window else None


async def check_context(config: TrainConfig, collector: Collector) -> None:
    """Refuse a window that is longer than the model's, images that the model would not see, and a
    context manager that could not get past the first task's prompt.

    Raises:
        ConfigError: with what cannot be shown, or with the lengths, and what to change.
    """
    source, policy = collector.source, collector.policy
    assert isinstance(policy, TokenPolicy)
    longest = policy.engine.max_length
    if config.rollout.window > longest:
        bound = ", by vllm.max_model_len or" if config.engine == "vllm" else ", by"
        raise ConfigError(
            f"rollout.window is {config.rollout.window}, but the engine takes {longest} tokens"
            f"{bound} the positions of the model: lower it, or leave it at 0 for the engine's own"
        )
    task = (await source.tasks(config.split, [0]))[0]
    session = await source.open()
    try:
        observation, info = await session.reset(seed=0, options={"task": task.id})
    finally:
        await source.release(session)
    briefing, opening = info["briefing"], opening_of(info["briefing"], observation)
    refuse_unseen(
        policy.chat_format.images, source.id, declared=briefing.shows_images, opening=opening
    )
    if config.context.manager != "none":  # there a prompt that does not fit ends its episode
        policy.check(opening, briefing.tools)
