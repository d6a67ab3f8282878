"""What the lines of a plan are made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ludus.agent import ChatFormat, opening_of
from ludus.envs import make_async
from ludus.envs.protocol import Briefing
from ludus.errors import ConfigError
from ludus.metrics import read_metrics
from ludus.wire.address import parse_served

from ..config import TrainConfig
from ..recipes.algorithm import Algorithm
from ..recipes.resolution import UpdatePlan
from ..rollout.demonstrations import ExpertPolicy, demonstrate
from ..rollout.source import EnvSource
from ..setup import MAX_REFILLS
from .memory import MemoryEstimate, ModelSize

DEMONSTRATIONS = 8
"""Number of demonstrations from which the expected length of an answer is taken."""
PAST_STEPS = 10
"""Number of last steps from which a resumed run takes it."""
SPANS = 256
"""Turns of an episode that neither the environment nor the settings bound."""


@dataclass(frozen=True, slots=True)
class FirstPrompt:
    """The prompt of the first task."""

    tokens: int
    briefing: Briefing


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the lines of a plan are made from."""

    config: TrainConfig
    algorithm: Algorithm
    updates: UpdatePlan
    first_step: int
    window: int
    opening: FirstPrompt
    expected: tuple[float, str] | None
    """Sampled tokens of a rollout, and where the number is from."""
    tasks: int | None
    held_out: int | None
    size: ModelSize
    memory: MemoryEstimate

    @property
    def rollouts(self) -> int:
        """Number of rollouts that a step trains."""
        return self.config.rollout.tasks_per_step * self.config.rollout.group_size

    @property
    def most_rollouts(self) -> int:
        """The most rollouts that a step plays, where the recipe's filter drops and replaces."""
        refills = MAX_REFILLS if self.algorithm.recipe.sampling.refill else 0
        return self.rollouts * (1 + refills)

    @property
    def turns(self) -> int:
        """The most turns of an episode, by the environment and the settings; a context manager may
        add a summary to each turn of the environment.
        """
        own, bound = self.opening.briefing.max_turns, self.config.rollout.max_turns
        if not own:
            return bound or SPANS
        spans = own if self.config.context.manager == "none" else 2 * own
        return min(bound, spans) if bound else spans

    @property
    def most_tokens(self) -> int:
        """The most sampled tokens of a rollout: all turns at full length, within the window where
        no context manager opens another.
        """
        if self.config.context.manager == "none":
            return min(self.turns * self.config.rollout.max_tokens, self.window)
        longest = max(self.config.rollout.max_tokens, self.config.context.summary_tokens)
        return self.turns * longest


async def first_prompt(
    config: TrainConfig, source: EnvSource, chat_format: ChatFormat
) -> FirstPrompt:
    """Return the prompt of the first task."""
    task = (await source.tasks(config.split, [0]))[0]
    session = await source.open(task)
    try:
        observation, info = await session.reset(seed=0, options={"task": task.id})
    finally:
        await source.release(session)
    briefing = info["briefing"]
    opening = opening_of(briefing, observation)
    return FirstPrompt(len(chat_format.prompt(opening, briefing.tools)), briefing)


async def expected_tokens(
    config: TrainConfig, path: Path, chat_format: ChatFormat
) -> tuple[float, str] | None:
    """Return the expected number of sampled tokens of a rollout: of the run so far, or of the
    environment's expert; None where neither is known.
    """
    metrics = path / "metrics.jsonl"
    rows = read_metrics(metrics) if config.run.resume and metrics.exists() else []
    past = [row["episode/tokens"] for row in rows if "episode/tokens" in row][-PAST_STEPS:]
    if past:
        return fmean(past), f"mean of the last {len(past)} steps of this run"
    if config.env_url or config.environment:
        return None
    env_id, arguments = parse_served(config.env)
    session = make_async(env_id, **arguments)
    try:
        lengths = [
            (await demonstrate(ExpertPolicy(session, chat_format), split=config.split, seed=seed))
            .trajectories[0]
            .sampled_tokens
            for seed in range(DEMONSTRATIONS)
        ]
    except ConfigError:  # no expert
        return None
    finally:
        await session.close()
    return fmean(lengths), f"{DEMONSTRATIONS} demonstrations of the environment's expert"
