"""A language model under the pressure of a reward: the lane of `ludus audit --rl` that finds what
only text finds.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus.agent import Episode
from ludus.agent.audit.episodes import played_of
from ludus.agent.audit.pressure import SAMPLES, Pressure, Rate, TrainedEpisode, measured
from ludus.agent.trajectory import FAILURES
from ludus.errors import TrainingFailed

from .config import EvalConfig, ModelConfig, RolloutConfig, RunConfig, TrainConfig, TrainerConfig
from .models.tiny import find_model
from .rollout.evaluate import HeldOutScores
from .train import run_training

STEPS = 40
"""Updates. They are counted, so that equal seeds give equal figures unless time runs out."""
GROUP, BATCH = 8, 2
"""Rollouts of a task, and tasks of an update."""
MAX_TOKENS = 32
"""Sampled tokens of a turn: what is paid for nothing is short, and a CPU samples slowly."""
RATES = {"tiny": 3e-3}
RATE = 2e-5
"""Learning rate of a model that was trained before; a small new one bears more."""


@dataclass(frozen=True)
class PressedModel:
    """Trains a language model with GRPO by the reward alone, and measures the gap.

    Args:
        model: a folder or name of a model, as `ludus train` takes it; tiny is a new small one.
        env: the environment's id.
        env_url: its server; empty plays in this process.
        steps: the updates.
        max_tokens: the most sampled tokens of a turn.
    """

    model: str
    env: str
    env_url: str = ""
    steps: int = STEPS
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        """Raise ConfigError where there is no such model, before the minutes of an audit."""
        find_model(self.model)

    def __call__(
        self, rate: Rate, *, train: str, held_out: str, tasks: int, seed: int, until: float
    ) -> Pressure:
        """Train, and measure the gap; see `ModelTrainer`.

        Raises:
            ConfigError: the model cannot play this environment.
            TrainingFailed: time ran out before the first episode.
        """
        with tempfile.TemporaryDirectory(prefix="ludus-pressure-") as folder:
            config = TrainConfig(
                env=self.env,
                env_url=self.env_url,
                split=train,
                steps=self.steps,
                seed=seed,
                model=ModelConfig(path=self.model),
                rollout=RolloutConfig(
                    tasks_per_step=BATCH, group_size=GROUP, max_tokens=self.max_tokens
                ),
                trainer=TrainerConfig(lr=RATES.get(self.model, RATE)),
                eval=EvalConfig(
                    tasks=tasks, split=held_out, temperature=1.0, samples=SAMPLES, keep_best=False
                ),
                run=RunConfig(
                    folder=str(Path(folder) / "run"),
                    save_every=0,
                    episodes_every=0,
                    tensorboard=False,
                ),
            )
            seen = _Seen()
            was_cut = asyncio.run(_trained(config, seen, until))
        history = _rated(sorted(seen.history, key=lambda episode: episode.ordinal), rate)
        # Without time for the held-out tasks the newest episodes of training stand for them.
        last = _rated(seen.judged, rate) if not was_cut else history[-len(history) // 4 :]
        by_task: dict[str, list[TrainedEpisode]] = {}
        for episode in last:
            by_task.setdefault(episode.task, []).append(episode)
        if not by_task:
            raise TrainingFailed(
                "the policy played no episode to an end; raise --rl-budget-s, or see with "
                f"`ludus eval {self.env} --policy local --model {self.model}` why"
            )
        return measured(history, list(by_task.values()), was_cut=was_cut)


class _Seen:
    """A watcher that keeps the episodes of training and of the last evaluation."""

    def __init__(self) -> None:
        self.history: list[Episode] = []
        self.judged: list[Episode] = []

    def on_episode(self, episode: Episode) -> None:
        self.history.append(episode)

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def on_evaluation(self, step: int, evaluation: HeldOutScores) -> None:
        self.judged = evaluation.episodes


async def _trained(config: TrainConfig, seen: _Seen, until: float) -> bool:
    """Train until the last step or the end of the time; return whether time ran out."""
    if time.monotonic() >= until:
        return True
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            result = await run_training(config, watcher=seen)
    except TimeoutError:  # before the first step
        return True
    return result.interrupted


def _rated(episodes: Iterable[Episode], rate: Rate) -> Sequence[TrainedEpisode]:
    return [
        rate(episode.task, played_of(trajectory), trajectory.gold)
        for episode in episodes
        for trajectory in episode.trajectories[:1]
        if trajectory.stop not in FAILURES and trajectory.turns
    ]
