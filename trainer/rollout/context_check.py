"""Checks of a run's context windows: how long rows may get, and whether the context manager can
work.
"""

from __future__ import annotations

from ludus.agent import TokenPolicy, opening_of
from ludus.agent.context import make_context

from ..config import TrainConfig
from . import Collector


def row_length(config: TrainConfig) -> int | None:
    """Return the largest number of tokens in a row, or None for whatever the model takes.

    The length is the window; where summaries are written, there is room for a summary beyond the
    window.
    """
    window = config.rollout.window
    return window + make_context(config.context).overrun() if window else None


async def check_context(config: TrainConfig, collector: Collector) -> None:
    """Refuse a context manager that could not get past the first task's prompt.

    Raises:
        ConfigError: with the lengths, and what to change.
    """
    if config.context.manager == "none":
        return  # a prompt that does not fit ends its episode at once
    source, policy = collector.source, collector.policy
    assert isinstance(policy, TokenPolicy)
    task = (await source.tasks(config.split, [0]))[0]
    session = await source.open()
    try:
        observation, info = await session.reset(seed=0, options={"task": task.id})
    finally:
        await source.release(session)
    policy.check(opening_of(info["briefing"], observation), info["briefing"].tools)
