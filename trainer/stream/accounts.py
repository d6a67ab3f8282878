"""The accounts of a run's rollouts: what became of every ordinal.

At any moment

    issued = trained + masked (by reason) + waiting + in flight

counted in rollouts. `Accounts.check` holds the law after every step. A rollout whose fate is final
is a line of `rollouts.jsonl` in the run folder, so that the law can be recomputed from outside:

    >>> from pathlib import Path
    >>> count_rollouts(Path("no/such/run")).issued
    0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from ludus.errors import LudusError
from ludus.metrics import LineFile

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


@dataclass
class Accounts:
    """Keeps the fate of every rollout.

    Args:
        lines: the file `rollouts.jsonl`; None keeps no file.
        group_size: number of rollouts in a group.
    """

    lines: LineFile | None = None
    group_size: int = 1
    issued: int = 0
    """Number of rollouts that were issued."""
    trained: int = 0
    masked: Counter[str] = field(default_factory=Counter[str])
    _open: set[int] = field(default_factory=set[int])
    """The groups whose fate is not final."""

    def issue(self, group: int) -> None:
        """Count a group that is issued.

        Raises:
            AccountsBroken: it is not the next ordinal.
        """
        if group * self.group_size != self.issued:
            due = self.issued // self.group_size
            raise AccountsBroken(f"group {group} was issued, but the next ordinal is {due}")
        self.issued += self.group_size
        self._open.add(group)

    def close(self, group: int, records: Iterable[RolloutRecord]) -> None:
        """Make the fate of every rollout of a group final.

        Raises:
            AccountsBroken: the group was not issued or is final already, or the records are not
                those of its rollouts.
        """
        ordered = sorted(records, key=lambda record: record.ordinal)
        first = group * self.group_size
        expected = list(range(first, first + self.group_size))
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
        self._open.remove(group)
        for record in ordered:
            if record.fate == "trained":
                self.trained += 1
            else:
                self.masked[record.reason] += 1
        if self.lines is not None:
            self.lines.append(b"\n".join(msgspec.json.encode(record) for record in ordered))

    def check(self, *, waiting: Iterable[int], in_flight: Iterable[int]) -> dict[str, float]:
        """Hold the law, and return its terms in rollouts as `rollouts/*`.

        Args:
            waiting: the groups that have finished and are not used yet.
            in_flight: the groups that are being played.

        Raises:
            AccountsBroken: an ordinal is nowhere, or in two places.
        """
        playing = list(in_flight)
        here = Counter([*waiting, *playing])
        flying = len(set(playing))
        twice = sorted(group for group, times in here.items() if times > 1)
        closed = sorted(set(here) - self._open)
        lost = sorted(self._open - set(here))
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
            "waiting": (len(here) - flying) * self.group_size,
            "in_flight": flying * self.group_size,
        }
        # The law: what was issued is the sum of the other terms.
        if terms["issued"] != sum(terms.values()) - terms["issued"]:
            raise AccountsBroken(f"the accounts do not add up: {terms}")
        terms |= {f"masked/{reason}": count for reason, count in self.masked.items()}
        return {f"rollouts/{name}": float(count) for name, count in terms.items()}

    def restore(
        self, *, issued: int, trained: int, masked: dict[str, int], unfinished: Iterable[int]
    ) -> list[RolloutRecord]:
        """Continue from a checkpoint.

        Args:
            issued: number of groups that were issued.
            trained: number of rollouts that were trained.
            masked: number of rollouts that were masked, by reason.
            unfinished: the groups whose fate is not final.

        Returns:
            The final rollouts by the file. Lines that the checkpoint does not know are removed,
            since their groups are played or used again.

        Raises:
            AccountsBroken: the checkpoint's own numbers do not add up.
        """
        self.issued, self.trained = issued * self.group_size, trained
        self.masked, self._open = Counter(masked), set(unfinished)
        final = trained + sum(masked.values())
        if self.issued != final + len(self._open) * self.group_size:
            raise AccountsBroken(
                f"the checkpoint's accounts do not add up: {self.issued} rollouts were issued, "
                f"{final} are final, and groups {_some(sorted(self._open))} are open"
            )
        if self.lines is None or not self.lines.path.exists():
            return []
        path = self.lines.path
        known = [
            record
            for record in read_rollouts(path)
            if record.group < issued and record.group not in self._open
        ]
        partial = path.with_suffix(".partial")
        # Written beside and renamed: a crash leaves either the old file or the new one.
        partial.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in known))
        partial.replace(path)
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
    times = Counter(one.ordinal for one in records)
    issued = max(times, default=-1) + 1
    return RolloutCount(
        issued=issued,
        trained=sum(one.fate == "trained" for one in records),
        masked=dict(Counter(one.reason for one in records if one.fate == "masked")),
        missing=tuple(ordinal for ordinal in range(issued) if ordinal not in times),
        doubled=tuple(sorted(ordinal for ordinal, count in times.items() if count > 1)),
    )


def read_rollouts(path: Path) -> list[RolloutRecord]:
    """Read the lines of a `rollouts.jsonl`; a line that a crash cut short is left out."""
    found: list[RolloutRecord] = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(msgspec.json.decode(line, type=RolloutRecord))
        except msgspec.DecodeError:
            continue
    return found


def _some(groups: list[int]) -> str:
    more = f" and {len(groups) - NAMED} more" if len(groups) > NAMED else ""
    return ", ".join(map(str, groups[:NAMED])) + more
