"""What the rollouts of a step amount to: all failed, or tasks solved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ludus.agent import Episode
from ludus.errors import TrainingFailed

from .collect import Group


def refuse_failure(episodes: Sequence[Episode]) -> None:
    """Stop if no episode has a reward, rather than train on nothing.

    Raises:
        TrainingFailed: with the commonest reason.
    """
    verdicts = [episode.trajectories[0].verdict for episode in episodes]
    if any(verdict.ok for verdict in verdicts):
        return
    reasons = Counter(f"{verdict.status}: {verdict.detail}" for verdict in verdicts)
    why = reasons.most_common(1)[0][0] if reasons else "there were none"
    raise TrainingFailed(f"all {len(verdicts)} episodes failed; most often: {why}")


def solved(groups: Sequence[Group], rate: float) -> list[str]:
    """Return the tasks whose share of rewarded rollouts reached `rate`; failed rollouts do not
    count.
    """
    found: list[str] = []
    for group in groups:
        verdicts = [episode.trajectories[0].verdict for episode in group.episodes]
        rewards = [verdict.reward for verdict in verdicts if verdict.reward is not None]
        if rewards and sum(reward > 0 for reward in rewards) >= rate * len(rewards):
            found.append(group.task.id)
    return found
