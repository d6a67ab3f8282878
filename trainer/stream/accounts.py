"""The accounts of a run: what became of every rollout, and age and length of trained rollouts.

At any moment

    issued = trained + masked (by reason) + waiting + in flight

counted in rollouts. `Accounts.check` checks this law after every step. A rollout whose fate is
final is a line of `rollouts.jsonl` in the run folder, so that the law can be recomputed later:

    >>> from pathlib import Path
    >>> count_rollouts(Path("no/such/run")).issued
    0

A deadline drops long rollouts, and a run that trains on the others learns to answer shortly;
`LengthBias` measures that. It takes rollouts in the order of issue, up to the oldest that is not
final, so that long rollouts which are still being played do not distort the comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from ludus.agent import Episode
from ludus.agent.trajectory import FAILURES
from ludus.errors import LudusError
from ludus.metrics import LineFile, read_lines, replace_file

from ..learning.experience import CUT
from ..recipes.recipe import Recipe
from ..rollout.collect import Group

FILE = "rollouts.jsonl"
NAMED = 10
"""Number of ordinals that an error names."""

Fate = Literal["trained", "masked"]


class AccountsBroken(LudusError, RuntimeError):
    """A rollout was lost or counted twice; the message names the ordinals."""


class RolloutRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fate of a rollout, as a line of `rollouts.jsonl`."""

    ordinal: int
    """The ordinal of the rollout: `group * group_size + index`."""
    group: int
    """The ordinal of the group."""
    task: str
    fate: Fate
    reason: str = ""
    """Why the rollout was masked; empty where it was trained."""
    step: int
    """The step that trained the rollout, or during which it was masked."""
    issued: int = 0
    """The version of the weights when the rollout was issued."""
    oldest: int | None = None
    """The oldest version that sampled a token; None without tokens."""
    newest: int | None = None
    tokens: int | None = None
    """Number of sampled tokens; None where the rollout was cut off at its deadline."""
    seconds: float = 0.0
    """Seconds of play."""
    reward: float | None = None
    """The reward of the first role; None without one."""
    started: float = 0.0
    """Seconds since 1970, when the rollout was issued; 0 where not known."""
    spans: list[tuple[str, float]] = []
    """What it did in order, with the seconds of each: queue, generate, tool, verify."""
    of: tuple[int, int] | None = None
    """The rollouts of its group and the most that a group may have, where these differ; the
    ordinals between them belong to no rollout.
    """


@dataclass
class Accounts:
    """Keeps the fate of every rollout.

    Args:
        lines: the file `rollouts.jsonl`; None keeps no file.
        group_size: the most rollouts of a group: the distance of the ordinals of two groups.
    """

    lines: LineFile | None = None
    group_size: int = 1
    issued: int = 0
    """Number of rollouts that were issued."""
    trained: int = 0
    """Number of rollouts that were trained."""
    masked: Counter[str] = field(default_factory=Counter[str])
    """Number of rollouts that were masked, by reason."""
    varies: bool = False
    """Whether groups differ in size, as a sampling policy decides."""
    groups: int = 0
    """Number of groups that were issued."""
    _open: dict[int, int] = field(default_factory=dict[int, int])
    """The groups whose fate is not final, with the rollouts of each."""

    def issue(self, group: int, rollouts: int | None = None) -> None:
        """Count a group that is issued.

        Args:
            group: its ordinal.
            rollouts: the rollouts of its first round; by default `group_size`.

        Raises:
            AccountsBroken: it is not the next ordinal.
        """
        if group != self.groups:
            raise AccountsBroken(f"group {group} was issued, but the next ordinal is {self.groups}")
        self.groups += 1
        self._open[group] = self.group_size if rollouts is None else rollouts
        self.issued += self._open[group]

    def grow(self, group: int, rollouts: int) -> None:
        """Count the further rounds of an open group, which has `rollouts` rollouts by now."""
        self.issued += rollouts - self._open[group]
        self._open[group] = rollouts

    def close(self, group: int, records: Iterable[RolloutRecord]) -> None:
        """Make the fate of every rollout of a group final.

        Raises:
            AccountsBroken: the group was not issued or is final already, or the records are not
                those of its rollouts.
        """
        ordered = sorted(records, key=lambda record: record.ordinal)
        first = group * self.group_size
        expected = list(range(first, first + self._open.get(group, self.group_size)))
        if group not in self._open or [record.ordinal for record in ordered] != expected:
            raise AccountsBroken(
                f"group {group} was to be closed with rollouts "
                f"{[record.ordinal for record in ordered]}; "
                + (
                    f"its rollouts are {expected}"
                    if group in self._open
                    else "it was never issued, or its fate is final already"
                )
            )
        del self._open[group]
        for record in ordered:
            if record.fate == "trained":
                self.trained += 1
            else:
                self.masked[record.reason] += 1
        if self.lines is not None:
            self.lines.append(b"\n".join(msgspec.json.encode(record) for record in ordered))

    def check(self, *, waiting: Iterable[int], in_flight: Iterable[int]) -> dict[str, float]:
        """Check the accounting law, and return its terms in rollouts as `rollouts/*`.

        Args:
            waiting: the groups that have finished and are not used yet.
            in_flight: the groups that are being played.

        Raises:
            AccountsBroken: an ordinal is nowhere, or in two places.
        """
        playing = list(in_flight)
        here = Counter([*waiting, *playing])
        flying = sum(self._open.get(group, 0) for group in set(playing))
        twice = sorted(group for group, times in here.items() if times > 1)
        closed = sorted(set(here) - self._open.keys())
        lost = sorted(self._open.keys() - set(here))
        for what, groups in (
            ("are lost: issued, and neither trained, masked, waiting nor in flight", lost),
            ("are in two places at once", twice),
            ("are waiting or in flight after their end", closed),
        ):
            if groups:
                raise AccountsBroken(f"groups {_some(groups)} {what}")
        terms = {
            "issued": self.issued,
            "trained": self.trained,
            "masked": sum(self.masked.values()),
            "waiting": sum(self._open.get(group, 0) for group in here) - flying,
            "in_flight": flying,
        }
        # The law: what was issued is the sum of the other terms.
        if terms["issued"] != sum(terms.values()) - terms["issued"]:
            raise AccountsBroken(f"the accounts do not add up: {terms}")
        terms |= {f"masked/{reason}": count for reason, count in self.masked.items()}
        return {f"rollouts/{name}": float(count) for name, count in terms.items()}

    def restore(
        self, *, issued: int, trained: int, masked: dict[str, int], unfinished: Mapping[int, int]
    ) -> list[RolloutRecord]:
        """Continue from a checkpoint.

        Args:
            issued: number of groups that were issued.
            trained: number of rollouts that were trained.
            masked: number of rollouts that were masked, by reason.
            unfinished: the groups whose fate is not final, with the rollouts of each.

        Returns:
            The final rollouts by the file. Lines that the checkpoint does not know are removed,
            since their groups are played or used again.

        Raises:
            AccountsBroken: the checkpoint's own numbers do not add up.
        """
        self.groups, self.trained = issued, trained
        self.masked, self._open = Counter(masked), dict(unfinished)
        final = trained + sum(masked.values())
        self.issued = final + sum(self._open.values())
        # Every group that is closed has one rollout at least, and none has more than its share.
        closed = issued - len(self._open)
        exact = self.varies or final == closed * self.group_size
        if not exact or not closed <= final <= closed * self.group_size:
            raise AccountsBroken(
                f"the checkpoint's accounts do not add up: {issued} groups of {self.group_size} "
                f"rollouts were issued, {final} rollouts are final, and groups "
                f"{_some(sorted(self._open))} are open"
            )
        if self.lines is None or not self.lines.path.exists():
            return []
        path = self.lines.path
        known = [
            record
            for record in read_rollouts(path)
            if record.group < issued and record.group not in self._open
        ]
        replace_file(path, b"".join(msgspec.json.encode(record) + b"\n" for record in known))
        return known


@dataclass(frozen=True, slots=True)
class RolloutCount:
    """The accounting law, recomputed from the files of a run."""

    issued: int
    """Rollouts up to the newest ordinal of which anything is known."""
    trained: int
    masked: dict[str, int]
    missing: tuple[int, ...]
    """Ordinals below the newest without a fate: waiting or in flight while a run goes on, lost
    if the run is over.
    """
    doubled: tuple[int, ...]
    """Ordinals with more than one fate."""

    @property
    def holds(self) -> bool:
        """Whether every ordinal has exactly one fate."""
        return not self.missing and not self.doubled


def count_rollouts(folder: Path) -> RolloutCount:
    """Recompute the accounting law of a run from its folder."""
    records = read_rollouts(folder / FILE)
    times = Counter(record.ordinal for record in records)
    varied = next((record.of[1] for record in records if record.of is not None), 0)
    expected = list(range(max(times, default=-1) + 1))
    if varied:
        sizes = {record.group: record.of[0] if record.of else varied for record in records}
        groups = range(max(sizes) + 1)
        expected = [
            group * varied + index for group in groups for index in range(sizes.get(group, 1))
        ]
    return RolloutCount(
        issued=len(expected),
        trained=sum(record.fate == "trained" for record in records),
        masked=dict(Counter(record.reason for record in records if record.fate == "masked")),
        missing=tuple(ordinal for ordinal in expected if ordinal not in times),
        doubled=tuple(sorted(ordinal for ordinal, count in times.items() if count > 1)),
    )


def read_rollouts(path: Path) -> list[RolloutRecord]:
    """Read the lines of a `rollouts.jsonl`; none without the file, and no line that a crash cut."""
    return read_lines(path, RolloutRecord) if path.exists() else []


def _some(groups: list[int]) -> str:
    more = f" and {len(groups) - NAMED} more" if len(groups) > NAMED else ""
    return ", ".join(map(str, groups[:NAMED])) + more


class LengthBias:
    """The mean length of trained rollouts over the mean length of issued rollouts."""

    def __init__(self) -> None:
        self._ahead: dict[int, RolloutRecord] = {}
        """Final rollouts that were issued after a rollout that is not final, by ordinal."""
        self._next = 0
        """The ordinal of the next rollout to count."""
        # The rates are of all rollouts that ended; the lengths of those that did not fail.
        self._tokens, self._seconds = 0, 0.0
        self._known, self._known_tokens = 0, 0
        self._trained, self._trained_tokens = 0, 0
        self._cut, self._cut_seconds = 0, 0.0

    def add(self, records: Iterable[RolloutRecord]) -> None:
        """Add rollouts whose fate is final."""
        self._ahead |= {record.ordinal: record for record in records}
        while (record := self._ahead.pop(self._next, None)) is not None:
            self._next += 1
            if record.of is not None and self._next % record.of[1] == record.of[0] % record.of[1]:
                self._next += record.of[1] - record.of[0]  # the next group's first
            if record.tokens is None:
                self._cut += 1
                self._cut_seconds += record.seconds
                continue
            self._tokens += record.tokens
            self._seconds += record.seconds
            if record.reason.startswith(FAILED):  # how long it would have become is not known
                continue
            self._known += 1
            self._known_tokens += record.tokens
            if record.fate == "trained":
                self._trained += 1
                self._trained_tokens += record.tokens

    @property
    def ratio(self) -> float | None:
        """Mean tokens of trained rollouts over mean tokens of issued rollouts; None without any.

        A rollout that was cut off counts with as many tokens as the others sampled in the same
        time. It would have become longer than that: the true bias is at least as large.
        """
        rate = self._tokens / self._seconds if self._seconds else 0.0
        count = self._known + self._cut
        total = self._known_tokens + rate * self._cut_seconds
        if not self._trained or not total:
            return None
        return (self._trained_tokens / self._trained) / (total / count)


LATE = "late"
"""Cut off at the deadline, or in a group that was dropped for it."""
SMALL_GROUP = "small_group"
"""Finished in time, in a group too small to go on."""
FILTER = "filter"
"""In a group that the recipe's filter dropped."""
FAILED = "failed"
"""Without a reward; the stop or the verdict's status follows after a colon."""
UNCHOSEN = "unchosen"
"""Left out by a rule of the sampling policy, which plays more rollouts than it trains."""
EXCLUDED = "excluded"
"""Excluded from the loss by the environment or the scorer."""
OVERLONG = "overlong"
"""Left out by the recipe because the rollout is too long."""
EMPTY = "empty"
"""Without a sampled token."""
REFUSED = "refused"
"""In an update that was refused."""

FateOf = Callable[[Group, Episode], str]


def fates_of_step(recipe: Recipe, *, passing: Collection[int], refused: Collection[int]) -> FateOf:
    """Return the function that gives the reason for which a rollout of a step was masked, empty if
    the rollout was trained.

    Args:
        recipe: the recipe of the run.
        passing: the ordinals of the rollouts whose groups pass the recipe's filter.
        refused: the ordinals of the rollouts whose update was refused.
    """

    def fate_of(group: Group, episode: Episode) -> str:
        first = episode.trajectories[0]
        if not first.verdict.ok:
            return f"{FAILED}: {first.stop if first.stop in FAILURES else first.verdict.status}"
        if episode.ordinal not in passing:
            return FILTER
        if all(
            trajectory.exclude_from_loss or trajectory.exclude_from_baseline
            for trajectory in episode.trajectories
        ):
            return UNCHOSEN if first.asked.get(UNCHOSEN) else EXCLUDED
        if first.stop in CUT and not recipe.algorithm.overlong.in_loss:
            return OVERLONG
        turns = [turn for trajectory in episode.trajectories for turn in trajectory.turns]
        if not any(turn.out_ids for turn in turns):
            return EMPTY
        return REFUSED if episode.ordinal in refused else ""

    return fate_of


def records_of(group: Group, group_size: int, step: int, fate_of: FateOf) -> list[RolloutRecord]:
    """Return the records of a group's rollouts.

    Args:
        group: a group that has finished.
        group_size: the most rollouts of a group.
        step: the step that the records are for.
        fate_of: the reason for which a finished rollout was masked; empty if trained.
    """
    first, records = group.ordinal * group_size, list[RolloutRecord]()
    size = len(group.episodes) + len(group.late)
    of = None if size == group_size else (size, group_size)
    for episode in group.episodes:
        reason, versions = fate_of(group, episode), versions_of(episode)
        times = group.times.get(episode.index)
        records.append(
            RolloutRecord(
                ordinal=first + episode.index,
                group=group.ordinal,
                task=group.task.id,
                fate="masked" if reason else "trained",
                reason=reason,
                step=step,
                issued=group.version,
                oldest=min(versions, default=None),
                newest=max(versions, default=None),
                tokens=sum(trajectory.sampled_tokens for trajectory in episode.trajectories),
                seconds=episode.wall_s,
                reward=episode.trajectories[0].verdict.reward if episode.trajectories else None,
                started=times.started if times else 0.0,
                spans=times.spans if times else [],
                of=of,
            )
        )
    records += [
        RolloutRecord(
            ordinal=first + index,
            group=group.ordinal,
            task=group.task.id,
            fate="masked",
            reason=LATE,
            step=step,
            issued=group.version,
            seconds=seconds,
            of=of,
        )
        for index, seconds in group.late.items()
    ]
    return records


OLDEST_SHARE = 4
"""The age in versions from which on tokens are counted together."""


def staleness_numbers(groups: Sequence[Group], version: int) -> dict[str, float]:
    """Return the ages of the sampled tokens as `staleness/*`: the shares of the tokens of age 0, 1,
    2, 3 and at least 4 versions, the mean and the largest age, and the ages of the oldest and the
    newest token of a rollout on average.

    Args:
        groups: the groups of a step.
        version: the version of the weights that learn from the groups.
    """
    ages: Counter[int] = Counter()
    oldest: list[int] = []
    newest: list[int] = []
    for group in groups:
        for episode in group.episodes:
            versions = versions_of(episode)
            if versions:
                ages.update({version - sampled: count for sampled, count in versions.items()})
                oldest.append(version - min(versions))
                newest.append(version - max(versions))
    tokens = ages.total()
    if not tokens:
        return {}
    shares = {str(age): ages[age] / tokens for age in range(OLDEST_SHARE)}
    older = sum(count for age, count in ages.items() if age >= OLDEST_SHARE)
    shares[f"{OLDEST_SHARE}_or_more"] = older / tokens
    return {
        **{f"staleness/share_{age}": share for age, share in shares.items()},
        "staleness/mean": sum(age * count for age, count in ages.items()) / tokens,
        "staleness/max": float(max(ages)),
        "staleness/oldest": sum(oldest) / len(oldest),
        "staleness/newest": sum(newest) / len(newest),
    }


def versions_of(episode: Episode) -> Counter[int]:
    """Return how many tokens of an episode each version of the weights has sampled."""
    versions: Counter[int] = Counter()
    for trajectory in episode.trajectories:
        for turn in trajectory.turns:
            if not turn.shared:
                versions.update(turn.versions)
    return versions
