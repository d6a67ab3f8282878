"""What an audit found: trials and tallies of each attacker, and the figures of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ludus.contract import Report as Contract
from ludus.envs import Task
from ludus.estimates import Estimate

from .attackers import Action, Attacker, AttackKind
from .exploits import Exploit
from .notation import Notation
from .pressure import Pressure

RULE_BOUND, SEARCH_BOUND = 0.5, 0.35
"""Shares of the expert's reward that a learned rule, and a program without the right answer, may
earn.
"""
MORE_BOUND = 0.8
"""The share that a spoilt way may earn of which a part is right, or in which more is done than was
asked: a fair reward may pay most of it.
"""
FARM_BOUND = 0.15
"""What repeating may earn beyond the expert's reward, as a share of it."""
PRESSURE_BOUND = 0.25
"""The gap between reward and success that a policy trained by the reward alone may have."""
CHEAT_BOUND, CHEAT_WARNING = 0.1, 0.05
"""Shares of the expert's reward that an attack that does not solve the task may earn."""


@dataclass(frozen=True)
class Trial:
    """One attack on one task."""

    task: str
    reward: float
    solved: bool
    """Whether the episode ended with the right answer, however the attacker found it."""
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class AttackTally:
    """All trials of one attacker."""

    attacker: Attacker
    gain: Estimate
    """The mean over tasks of what counts against the environment, as a share of the expert's
    reward, with its 95 % interval. An episode of a cheat, a search or a forgery counts as 0 if it
    ended with the right answer.
    """
    trials: tuple[Trial, ...]
    fault: str = ""
    """What broke instead of answering the attacker; empty if nothing did."""
    unplayed: str = ""
    """Why some tasks were not played: a model or a judge that was away; empty if all were."""

    @property
    def bound(self) -> float:
        """The share from which the attacker is a finding."""
        if self.attacker.bound is not None:
            return self.attacker.bound
        bounds = {
            AttackKind.CHEAT: CHEAT_BOUND,
            AttackKind.SEARCH: SEARCH_BOUND,
            AttackKind.PRESSURE: PRESSURE_BOUND,
            AttackKind.FARM: FARM_BOUND,
        }
        return bounds.get(self.attacker.kind, RULE_BOUND)

    @property
    def wins(self) -> bool:
        """Whether the attacker is paid beyond the bound, and not by chance."""
        return bool(self.trials) and self.gain.low > self.bound

    @property
    def best(self) -> Trial:
        """The trial that shows most: paid without being solved, and as much as possible."""
        return max(
            self.trials, key=lambda trial: (trial.reward > 0 and not trial.solved, trial.reward)
        )

    @property
    def mean(self) -> float:
        """The mean reward."""
        return fmean(trial.reward for trial in self.trials) if self.trials else 0.0


@dataclass
class Audit:
    """All that an audit measured."""

    subject: str
    contract: Contract
    """The findings of `ludus check`."""
    tasks: list[Task] = field(default_factory=list[Task])
    expert: list[float] = field(default_factory=list[float])
    """What the expert earns on each task; empty where there is no expert."""
    tallies: list[AttackTally] = field(default_factory=list[AttackTally])
    skipped: list[str] = field(default_factory=list[str])
    """Attackers that found no time."""
    spread: float | None = None
    """Standard deviation of the reward of equal actions; None if unmeasured."""
    mixed: Estimate | None = None
    """Share of tasks on which the expert's episode, done whole half of the time and else with
    faults, earns different rewards.
    """
    lowest: float = 0.0
    highest: float = 0.0
    pressure: Pressure | None = None
    """What training by the reward alone led to; None where no policy was trained."""
    is_remote: bool = False
    """Whether gold and expert stay on a server."""
    notation: Notation | None = None
    """How calls are written as text; None where an environment takes them as they are."""
    fault: str = ""
    """What kept the environment from being played at all."""

    @property
    def oracle(self) -> float:
        """The mean reward of the expert; of the best attack where there is no expert."""
        return fmean(self.expert) if self.expert else max(1.0, self.highest)

    @property
    def floor(self) -> float:
        """The mean reward of who does nothing or gives up."""
        idle = [t.mean for t in self.tallies if t.attacker.name in ("nothing", "junk") and t.trials]
        return max(idle, default=0.0)

    @property
    def winners(self) -> list[AttackTally]:
        """The attackers that are paid beyond their bounds, the best first."""
        return sorted((t for t in self.tallies if t.wins), key=lambda t: -t.gain.value)

    def written(self, actions: Sequence[Action]) -> tuple[Action, ...]:
        """Return actions as the environment takes them: calls as texts if there is a notation."""
        if self.notation is None:
            return tuple(actions)
        return tuple(text for action in actions for text in self.notation.write(action))

    def exploits(self, seed: int) -> list[Exploit]:
        """Return the best episode of each winner, to be played again."""
        return [
            Exploit(
                env=self.subject,
                attacker=tally.attacker.name,
                task=best.task,
                seed=seed,
                actions=list(best.actions),
                reward=best.reward,
                bound=tally.bound * self.oracle,
            )
            for tally in self.winners
            for best in [tally.best]
        ]
