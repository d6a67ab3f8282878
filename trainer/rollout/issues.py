"""What a group of rollouts was issued with: its task, and what a sampling policy asks besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ludus.envs import Task


class Hint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first part of the expert's demonstration."""

    kind: Literal["shown", "played"]
    """Whether it is text in the prompt, or steps that are taken before the policy begins."""
    share: float
    plain: bool = False
    """Whether the tokens are trained at the prompt without the hint."""
    told: str = ""
    """The words before a hint that is shown."""


class ForkProbe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A measure of the policy's uncertainty at a place: beginnings of its answer, which are thrown
    away.
    """

    count: int
    """Beginnings that are sampled at a place."""
    tokens: int
    """Tokens of each."""
    meaning: bool
    """Whether the entropy is that of the different beginnings (semantic entropy), and not that of
    their tokens.
    """
    base: float
    slope: float
    threshold: float
    """A place forks where `base + slope * (entropy - that before the first turn)` is above."""


class Growth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Further branches from places of a tree that has been played to its end."""

    rounds: int
    nodes: int
    """Places that are chosen in each round."""
    search: bool
    """Whether the best places are chosen, until an end is right; otherwise any."""
    weights: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The weights of quality, entropy and depth in the score of a search."""


class BranchShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shape of the tree below a root."""

    branch: int
    """Children of a fork."""
    levels: int
    """The most forks on the way from a root to a leaf."""
    tokens: int
    """Tokens that may be sampled below a root; each fork shares what is left equally."""
    least: int = 1
    """Tokens that a child must have to be worth a fork."""
    spread: bool = False
    """Whether forks stand at the ends of segments 1, branch^2, branch^4, ..., and not of the
    first ones.
    """
    cut: int = 0
    """Tokens after which a segment ends within a turn; 0 ends segments with turns alone."""
    below: float = 1.0
    """Only tokens sampled with less probability count in `cut`."""
    continuations: int = 0
    """Ways from each fork that are played for their value, besides the one that is trained."""
    for_value: bool = False
    """Whether the root itself is played for its value."""
    probe: ForkProbe | None = None
    growth: Growth | None = None

    @property
    def leaves(self) -> int:
        """The most leaves below a root."""
        if self.growth is not None:
            return 1 + self.growth.rounds * self.growth.nodes * (self.branch - 1)
        if self.continuations:
            return 1 + self.levels * self.continuations
        return int(self.branch**self.levels)

    def forks(self, level: int, ends: int) -> bool:
        """Return whether a way forks at the end of a segment.

        Args:
            level: the forks on the way so far.
            ends: the segments that have ended, this one included.
        """
        return level < self.levels and (not self.spread or ends == self.branch ** (2 * level))


class RolloutTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a rollout besides its task."""

    max_tokens: int = 0
    """Tokens a turn; 0 is rollout.max_tokens."""
    temperature: float = 0.0
    """0 is rollout.temperature."""
    thoughts: float = 0.0
    """The share of a turn's tokens after which `phrase` ends what was begun."""
    phrase: str = ""
    """Empty interrupts nothing."""
    note: str = ""
    """A text at the end of the first observation."""
    hint: Hint | None = None
    options: dict[str, Any] = {}
    """Reset options of the environment."""
    role: str = ""
    """The role that the policy plays; empty where episodes have one."""
    about: str = ""
    """What the role was asked for; see `Trajectory.about`."""
    tree: BranchShape | None = None
    """How the rollout branches; None for a rollout of one line."""
    marks: dict[str, float] = {}
    """Numbers that shaping reads of the rollout, by the name of the field of `Inputs`."""


class Lot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rollouts of a group that are asked for the same."""

    rollouts: int
    asked: RolloutTerms = RolloutTerms()


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """The rollouts of one round of a group."""

    parts: tuple[Lot, ...]

    @property
    def rollouts(self) -> int:
        """The rollouts of all parts."""
        return sum(part.rollouts for part in self.parts)

    @property
    def each(self) -> list[RolloutTerms]:
        """The terms of each rollout, in the order of their indices."""
        return [part.asked for part in self.parts for _ in range(part.rollouts)]

    def asking(
        self,
        *,
        max_tokens: int = 0,
        note: str = "",
        options: Mapping[str, Any] | None = None,
        marks: Mapping[str, float] | None = None,
    ) -> Issue:
        """Return the issue with more asked of every rollout."""
        parts = tuple(
            msgspec.structs.replace(
                part,
                asked=msgspec.structs.replace(
                    part.asked,
                    max_tokens=max_tokens or part.asked.max_tokens,
                    note="\n".join(filter(None, [part.asked.note, note])),
                    options={**part.asked.options, **(options or {})},
                    marks={**part.asked.marks, **(marks or {})},
                ),
            )
            for part in self.parts
        )
        return Issue(parts=parts)


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of rollouts that was issued: everything that the group follows from, besides the
    settings and the weights.
    """

    ordinal: int
    """0, 1, 2, ... in the order in which groups are issued. The group's rollouts have the ordinals
    `ordinal * most + index`, with `most` the most rollouts that a group may have: `group_size`,
    unless a sampling policy gives a task more.
    """
    task: Task
    version: int = 0
    """The version of the weights when the group was issued; no token of the group is older."""
    issue: Issue | None = None
    """What the sampling policy gives the task; None without a policy."""
