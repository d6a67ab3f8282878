"""Collects groups of rollouts, many episodes at the same time.

All rollouts of a group share task and environment seed and differ in sampling seed. An episode that
failed through no fault of the policy is played again; an episode that keeps failing stays in its
group, left out of loss and baseline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludus.agent import Episode, EpisodeLimits, Policy, Stop, play
from ludus.envs import Task

from .scoring import EpisodeScorer
from .source import EnvSource

RETRIED = frozenset({Stop.ENV_ERROR, Stop.TIMEOUT, Stop.REWARD_UNAVAILABLE, Stop.POLICY_ERROR})
BACKOFF_S = 0.25


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of a task, which are compared with each other."""

    task: Task
    episodes: list[Episode]
    retries: int


class Collector:
    """Plays episodes with bounded concurrency.

    Args:
        source: opens sessions of the environment.
        policy: the policy that plays.
        scorer: verifiers that score each episode besides the environment.
        limits: bounds on one episode.
        concurrency: number of episodes that are played at the same time.
        retries: number of times that a failed episode is played again.
    """

    def __init__(
        self,
        source: EnvSource,
        policy: Policy,
        *,
        scorer: EpisodeScorer | None = None,
        limits: EpisodeLimits | None = None,
        concurrency: int = 256,
        retries: int = 3,
    ) -> None:
        self.source = source
        self.policy = policy
        self.scorer = scorer or EpisodeScorer([])
        self.limits = limits or EpisodeLimits()
        self.retries = retries
        self._places = asyncio.Semaphore(concurrency)

    async def collect(
        self,
        tasks: Sequence[Task],
        *,
        group_size: int,
        seed: int,
        played: Sequence[str] = (),
        done: Callable[[Episode], None] | None = None,
    ) -> list[Group]:
        """Play `group_size` rollouts of each task.

        Args:
            tasks: the tasks; each becomes one group.
            group_size: rollouts of each task.
            seed: the same seed, tasks and weights give the same rollouts, as far as the environment
                is deterministic. A task that comes again gets other rollouts each time.
            played: ids of the tasks that were played with this seed before.
            done: called with each finished episode.
        """
        names = _names(seed, played, tasks)
        async with asyncio.TaskGroup() as workers:
            groups = [
                workers.create_task(self._group(task, group_size, name, done))
                for task, name in zip(tasks, names, strict=True)
            ]
        return [group.result() for group in groups]

    async def _group(
        self, task: Task, size: int, name: str, done: Callable[[Episode], None] | None
    ) -> Group:
        env_seed = task.rng(0).randrange(1 << 31)
        async with asyncio.TaskGroup() as workers:
            playing = [
                workers.create_task(self._rollout(task, env_seed, name, index, done))
                for index in range(size)
            ]
        rollouts = [one.result() for one in playing]
        episodes = [episode for episode, _ in rollouts]
        longest_s = max((episode.wall_s for episode in episodes), default=0.0)
        left_s = self.limits.episode_timeout_s - longest_s
        await self.scorer.score_group(episodes, left_s=left_s)
        return Group(task, episodes, sum(retries for _, retries in rollouts))

    async def _rollout(
        self,
        task: Task,
        env_seed: int,
        group: str,
        index: int,
        done: Callable[[Episode], None] | None,
    ) -> tuple[Episode, int]:
        """Play until the episode's end is of the policy's own making, or until the retries are used
        up.
        """
        attempt = 0
        while True:
            async with self._places:
                episode = await self._play(task, env_seed, f"{group}/{index}")
            failed = episode.trajectories[0].stop in RETRIED
            if not failed or attempt >= self.retries:
                break
            attempt += 1
            await asyncio.sleep(BACKOFF_S * 2**attempt)
        episode.group, episode.index, episode.split = group, index, task.split
        left_s = self.limits.episode_timeout_s - episode.wall_s
        await self.scorer.score(episode, left_s=left_s)
        if done is not None:
            done(episode)
        return episode, attempt

    async def _play(self, task: Task, env_seed: int, name: str) -> Episode:
        session = await self.source.open()
        try:
            return await play(
                session,
                self.policy,
                task=task.id,
                split=task.split,
                seed=env_seed,
                sampling_seed=_seed_of(name),
                limits=self.limits,
            )
        finally:
            await self.source.release(session)


def _names(seed: int, played: Sequence[str], tasks: Sequence[Task]) -> list[str]:
    """Return a unique name for each group, also where a task comes more than once.

    The sampling seeds of a group's rollouts are computed from its name.
    """
    times, names = Counter(played), list[str]()
    for task in tasks:
        times[task.id] += 1
        again = f"#{times[task.id]}" if times[task.id] > 1 else ""
        names.append(f"{seed}/{task.id}{again}")
    return names


def _seed_of(name: str) -> int:
    """Return the sampling seed of a rollout, computed from the name, so that a resumed run repeats
    the seed.
    """
    return Task(id=name, split="").rng().randrange(1 << 31)
