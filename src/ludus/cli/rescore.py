"""`ludus rescore`: score recorded episodes with another reward, and compare the advantages."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from ludus.agent import Episode, Trajectory
from ludus.agent.episodes import INDEX, read_episodes, write_episodes
from ludus.agent.trajectory import FAILURES
from ludus.errors import ConfigError
from ludus.rewards.compose import composed, load_composition
from ludus.rewards.protocol import GroupVerifier, Sample
from ludus.rewards.score import awaited_verdict
from ludus.trainer.rollout.scoring import as_sample
from ludus.verdict import Verdict

from .arguments import Flag, VerbHelp, parse
from .runs import run_place
from .view import refuse_unwritable

CONCURRENCY = 64
TIMEOUT_S = 600.0
"""Seconds for one verdict, or those of one group."""
RUN_FILES = ("metrics.jsonl", "rollouts.jsonl", "notices.jsonl", "findings.jsonl")
"""Files of lines in a run folder that hold no episodes."""
ENV, ENV_RETURN = "env", "env_return"
"""The name of the part that stands for the environment's return, and the key of that return in a
sample's `info`.
"""


@dataclass(frozen=True, kw_only=True)
class RescoreOptions:
    """The options of `ludus rescore`: the episodes, and the reward to score with."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run's folder, whose newest episodes are taken, or a file of episodes."""
    reward: Path
    """The composition of rewards, a TOML file (docs/judges.md); a part named `env` is the return
    that the environment gave then.
    """
    out: Path | None = None
    """A file to write the episodes to, with the new verdicts; ludus view shows them."""
    show: int = 10
    """How many episodes to list, beginning with those whose advantage changed most."""
    json: Flag = False
    """Print the comparison as JSON."""


def episodes_file(path: Path) -> Path:
    """Return `path` itself or, for a folder, the newest file of whole steps or evaluations.

    Raises:
        ConfigError: there is no file of episodes in the folder or in its subfolder `episodes`.
    """
    if not path.is_dir():
        return path
    files = [file for file in path.glob("episodes/*.jsonl") if file.name != INDEX]
    # A step's chosen episodes are no groups to compare; a short run may have nothing else.
    files = [file for file in files if not file.name.startswith("kept-")] or files
    files = files or [file for file in path.glob("*.jsonl") if file.name not in RUN_FILES]
    if not files:
        raise ConfigError(f"no episodes in {str(path)!r}; name a .jsonl of ludus eval --out")
    return max(files, key=lambda file: (file.stat().st_mtime, file.name))


@dataclass(frozen=True, slots=True)
class Rescored:
    """A rollout under both rewards; an advantage is a reward less the mean of the group."""

    task: str
    group: str
    index: int
    old: float | None
    new: float | None
    old_advantage: float | None
    new_advantage: float | None

    @property
    def flipped(self) -> bool:
        """Whether the advantage changes sign, so that training would have pushed the other way."""
        if self.old_advantage is None or self.new_advantage is None:
            return False
        return self.old_advantage * self.new_advantage < 0

    @property
    def change(self) -> float:
        """The distance between the two advantages.

        Infinite where only one of the rewards is missing, so that such rollouts are listed first; 0
        where both are.
        """
        if self.old_advantage is None or self.new_advantage is None:
            return math.inf if (self.old is None) is not (self.new is None) else 0.0
        return abs(self.new_advantage - self.old_advantage)


def main(arguments: Sequence[str]) -> int:
    """Score the episodes again, print the comparison and write the file; returns 0."""
    options = parse(
        RescoreOptions,
        arguments,
        VerbHelp(
            verb="rescore",
            about="Score recorded episodes with another reward: which advantages change sign?",
            example="ludus rescore runs/grpo --reward new.toml --out rescored.jsonl",
        ),
    )
    source = episodes_file(run_place(options.path))
    episodes = read_episodes(source)
    if options.out is not None:
        if options.out.resolve() == source.resolve():
            raise ConfigError(
                f"--out {str(options.out)!r} holds the recorded verdicts, which would be replaced; "
                "name another file"
            )
        refuse_unwritable(options.out, "--out")  # before judges are asked
    if not episodes:
        raise ConfigError(f"{str(source)!r} holds no episodes")
    old = [trajectory.verdict for trajectory in _trajectories(episodes)]
    new = asyncio.run(_score(episodes, str(options.reward)))
    compared = compare(episodes, old, new)
    for trajectory, verdict in zip(_trajectories(episodes), new, strict=True):
        trajectory.verdict = verdict
    if options.out is not None:
        write_episodes(options.out, episodes)
    if options.json:
        print(json.dumps(summary(compared)))
    else:
        _print(compared, new, options.show)
    return 0


def compare(
    episodes: Sequence[Episode], old: Sequence[Verdict], new: Sequence[Verdict]
) -> list[Rescored]:
    """Pair both verdicts of each rollout, with the advantages within the group.

    Args:
        episodes: the recorded episodes.
        old: the recorded verdict of each rollout, in the order of the episodes.
        new: the verdict of the other reward, in the same order.
    """
    owners = [episode for episode in episodes for _ in episode.trajectories]
    groups = [episode.group or episode.task for episode in owners]
    before, after = _advantages(groups, old), _advantages(groups, new)
    return [
        Rescored(episode.task, group, episode.index, was.reward, now.reward, first, second)
        for episode, group, was, now, first, second in zip(
            owners, groups, old, new, before, after, strict=True
        )
    ]


def summary(compared: Sequence[Rescored]) -> dict[str, float | int | None]:
    """Count the rollouts, the missing rewards and the sign changes, and average both rewards.

    The means are over the rollouts that have both rewards; None if no rollout has.
    """
    scored = [
        comparison
        for comparison in compared
        if comparison.old is not None and comparison.new is not None
    ]
    return {
        "episodes": len(compared),
        "without_old_reward": sum(comparison.old is None for comparison in compared),
        "without_new_reward": sum(comparison.new is None for comparison in compared),
        "old_mean": statistics.fmean(comparison.old or 0.0 for comparison in scored)
        if scored
        else None,
        "new_mean": statistics.fmean(comparison.new or 0.0 for comparison in scored)
        if scored
        else None,
        "sign_changes": sum(comparison.flipped for comparison in scored),
        "compared": len(scored),
    }


def _trajectories(episodes: Sequence[Episode]) -> list[Trajectory]:
    return [trajectory for episode in episodes for trajectory in episode.trajectories]


class RecordedReturn:
    """The verifier behind a part `env` of a composition: repeats the recorded return of the
    environment.
    """

    never_blocks = True

    def score(self, sample: Sample) -> Verdict:
        """Return the sum of the rewards of the recorded turns; invalid for an episode that was
        broken off.
        """
        env_return = sample.info.get(ENV_RETURN)
        if env_return is None:
            return Verdict.invalid("the recorded episode was broken off and has no return")
        return Verdict.of(float(env_return), "as the environment said")


def _sample(trajectory: Trajectory) -> Sample:
    """Convert a rollout to a sample that also carries the environment's own return."""
    env_return = None if trajectory.stop in FAILURES else trajectory.ret
    return msgspec.structs.replace(as_sample(trajectory), info={ENV_RETURN: env_return})


async def _of_group(verifier: GroupVerifier, samples: Sequence[Sample]) -> Sequence[Verdict]:
    scoring = verifier.score_group(samples)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await scoring if inspect.isawaitable(scoring) else scoring
    except TimeoutError:
        return [Verdict.unavailable(f"no verdict within {TIMEOUT_S:g} s")] * len(samples)


async def _score(episodes: Sequence[Episode], file: str) -> list[Verdict]:
    composition = load_composition(file)
    own_verifiers = {part.label: RecordedReturn() for part in composition.parts if part.name == ENV}
    verifier = composed(composition=composition, verifiers=own_verifiers)
    trajectories, slots = _trajectories(episodes), asyncio.Semaphore(CONCURRENCY)

    async def score(trajectory: Trajectory) -> Verdict:
        async with slots:
            return await awaited_verdict(verifier.score(_sample(trajectory)), timeout_s=TIMEOUT_S)

    try:
        if not isinstance(verifier, GroupVerifier):
            return await asyncio.gather(*map(score, trajectories))
        places: dict[str, list[int]] = defaultdict(list)
        owners = [episode for episode in episodes for _ in episode.trajectories]
        for place, episode in enumerate(owners):
            places[episode.group or episode.task].append(place)
        verdicts: dict[int, Verdict] = {}
        for members in places.values():
            samples = [_sample(trajectories[place]) for place in members]
            verdicts |= zip(members, await _of_group(verifier, samples), strict=True)
        return [verdicts[place] for place in range(len(trajectories))]
    finally:
        await verifier.close()


def _advantages(groups: Sequence[str], verdicts: Sequence[Verdict]) -> list[float | None]:
    rewards: dict[str, list[float]] = defaultdict(list)
    for group, verdict in zip(groups, verdicts, strict=True):
        if verdict.reward is not None:
            rewards[group].append(verdict.reward)
    return [
        None if verdict.reward is None else verdict.reward - statistics.fmean(rewards[group])
        for group, verdict in zip(groups, verdicts, strict=True)
    ]


def _print(compared: Sequence[Rescored], verdicts: Sequence[Verdict], show: int) -> None:
    figures = summary(compared)
    print(
        f"{figures['episodes']} rollouts; mean reward {_number_text(figures['old_mean'])} -> "
        f"{_number_text(figures['new_mean'])}; {figures['sign_changes']} of {figures['compared']} "
        f"advantages change sign; {figures['without_new_reward']} without a reward now, "
        f"{figures['without_old_reward']} before"
    )
    table = Table("task", "rollout", "reward", "advantage", "sign", "what the new reward says")
    order = sorted(range(len(compared)), key=lambda place: -compared[place].change)
    for place in order[:show]:
        comparison = compared[place]
        table.add_row(
            comparison.task,
            str(comparison.index),
            f"{_number_text(comparison.old)} -> {_number_text(comparison.new)}",
            f"{_number_text(comparison.old_advantage)} -> {_number_text(comparison.new_advantage)}",
            "changes" if comparison.flipped else "",
            verdicts[place].detail[:80],
        )
    Console().print(table)


def _number_text(number: float | None) -> str:
    return "none" if number is None else f"{number:.3f}"
