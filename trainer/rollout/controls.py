"""Control runs with a replaced reward: a gain in a control run is not owed to the reward.

A run with random rewards can raise a held-out score (Shao et al., arXiv 2506.10947), so that a gain
counts only beside the gain of its controls. Held-out tasks keep their true reward.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from ludus.agent import Episode, Trajectory
from ludus.errors import ConfigError
from ludus.verdict import Verdict

from .scoring import EpisodeScorer, WeightedVerifier

KINDS = ("random", "inverted", "format", "noise=P")


def read_control(text: str) -> tuple[str, float]:
    """Return the kind of a control and the probability of a flip.

    >>> read_control("noise=0.2")
    ('noise', 0.2)

    Raises:
        ConfigError: there is no such control.
    """
    kind, equals, share = text.partition("=")
    if kind == "noise" and equals:
        try:
            chance = float(share)
        except ValueError:
            chance = -1.0
        if 0 <= chance <= 1:
            return kind, chance
    elif not equals and kind in ("random", "inverted", "format"):
        return kind, 0.0
    raise ConfigError(
        f"control is {text!r}; take {', '.join(KINDS)}, with a probability P from 0 to 1"
    )


class ControlScorer(EpisodeScorer):
    """Replaces the reward of a group's rollouts, after all verifiers; the metric `true_reward`
    keeps the reward that was earned.

    Args:
        verifiers: the verifiers of the recipe.
        control: the kind: random draws 0 or 1; inverted gives 1 - reward; format gives 1 for an
            episode that came to its own end without a call that cannot be read; noise=P gives
            1 - reward with probability P.
        seed: the seed of the run; draws follow from it and the rollout's ordinal.
    """

    def __init__(self, verifiers: Sequence[WeightedVerifier], control: str, seed: int) -> None:
        super().__init__(verifiers)
        self._kind, self._chance = read_control(control)
        self._seed = seed

    async def score_group(self, episodes: Sequence[Episode], *, left_s: float = math.inf) -> None:
        """Add the verdicts of verifiers that compare answers, and replace every reward."""
        await super().score_group(episodes, left_s=left_s)
        for episode in episodes:
            draw = random.Random(f"control/{self._seed}/{episode.ordinal}").random()
            for trajectory in episode.trajectories:
                if trajectory.verdict.ok:
                    reward = self._reward(trajectory, draw)
                    verdict = trajectory.verdict
                    for turn in [*trajectory.turns, *trajectory.discarded]:
                        turn.reward = 0.0
                    if trajectory.turns:
                        trajectory.turns[-1].reward = reward
                    trajectory.verdict = Verdict.of(
                        reward,
                        verdict.detail,
                        parts={"control": (reward, 1.0)},
                        metrics={**verdict.metrics, "true_reward": verdict.unwrap()},
                    )

    def _reward(self, trajectory: Trajectory, draw: float) -> float:
        earned = trajectory.verdict.unwrap()
        match self._kind:
            case "random":
                return float(draw < 0.5)
            case "inverted":
                return 1.0 - earned
            case "format":
                return float(trajectory.terminated and not trajectory.metrics.get("parse_errors"))
            case _:
                return 1.0 - earned if draw < self._chance else earned
