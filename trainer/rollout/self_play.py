"""The rule of a sampling policy whose episodes have two roles; see `rules`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ludus.agent import Episode
from ludus.verdict import Verdict

from .issues import Issue, Lot, RolloutTerms
from .rules import Rule, RuleView, reward_of, scored


class SelfPlay(Rule, frozen=True):
    """One policy in two roles: the rollouts of a group ask questions, and each valid question is
    answered `answers` times. The environment takes the reset options `role` and `question`, and the
    gold of an asking episode is its question, where it is valid.

    The asking role earns the share of answers that fail, and nothing for a question that is not
    valid. Each role is compared with itself: questions about one task with each other, answers to
    one question with each other (Search Self-Play, arXiv 2510.18821).
    """

    asks: str = "proposer"
    """The role that asks."""
    solves: str = "solver"
    """The role that answers."""
    answers: int = 4

    def check(self, group_size: int) -> str:
        """Refuse games without a second role."""
        if self.answers < 1 or not self.asks or self.asks == self.solves or not self.solves:
            return (
                f"need two roles and answers >= 1, got {self.asks!r}, {self.solves!r} and "
                f"{self.answers}"
            )
        return ""

    def roles(self) -> tuple[str, ...]:
        """Return both roles."""
        return (self.asks, self.solves)

    def most(self, group_size: int) -> int:
        """Return the rollouts of a group whose every question is valid."""
        return group_size * (1 + self.answers)

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Let the first round ask."""
        asking = issue.asking(options={"role": self.asks})
        return Issue(
            parts=tuple(
                msgspec.structs.replace(
                    lot, asked=msgspec.structs.replace(lot.asked, role=self.asks)
                )
                for lot in asking.parts
            )
        )

    def more(self, rounds: Sequence[Sequence[Episode]], view: RuleView) -> Sequence[Lot]:
        """Ask for the answers to each valid question."""
        if len(rounds) > 1:
            return ()
        return tuple(
            Lot(
                rollouts=self.answers,
                asked=RolloutTerms(
                    role=self.solves,
                    about=_about(episode),
                    options={"role": self.solves, "question": question_of(episode)},
                ),
            )
            for episode in rounds[0]
            if scored(episode) and question_of(episode)
        )

    def finish(self, episodes: Sequence[Episode], view: RuleView, state: Mapping[str, Any]) -> None:
        """Reward each question by its answers. A question whose answers were all lost has no
        reward, since nothing is known of it.
        """
        earned: dict[str, list[float]] = {}
        for episode in episodes:
            if episode.trajectories[0].role == self.solves and scored(episode):
                earned.setdefault(episode.trajectories[0].about, []).append(reward_of(episode))
        for episode in episodes:
            (trajectory, *_) = episode.trajectories
            if trajectory.role != self.asks or not scored(episode):
                continue
            valid, known = bool(question_of(episode)), earned.get(_about(episode), [])
            if valid and not known:
                trajectory.verdict = Verdict.unavailable("every answer to the question was lost")
                trajectory.exclude_from_loss = trajectory.exclude_from_baseline = True
                continue
            failed = 1 - sum(known) / len(known) if valid else 0.0
            parts = {"valid": (float(valid), 0.0), "unsolved": (failed, 1.0)}
            why = "" if valid else "the question is not valid"
            trajectory.verdict = Verdict.of(failed, why, parts=parts)


def question_of(episode: Episode) -> str:
    """Return the question of an asking episode; empty for an invalid question."""
    return str(episode.trajectories[0].gold or "")


def _about(episode: Episode) -> str:
    return f"{episode.index}: {question_of(episode)}"
