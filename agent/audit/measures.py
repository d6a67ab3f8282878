"""The measurements of an audit: what the expert, chance and attackers earn on the same tasks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, pstdev

from ludus.contract import NotApplicable, Report as Contract, examine, where
from ludus.envs import Briefing, Task
from ludus.envs.checks.rules import RULES, forms_of
from ludus.envs.checks.subject import (
    Checkable,
    EnvUnderCheck,
    Played,
    expert,
    first,
    play,
    scripted,
    subject_of,
)
from ludus.errors import CheckFailed
from ludus.estimates import Estimate, share_of, wilson
from ludus.messages import Message, ToolCall, as_action, assistant

from .attackers import (
    ATTACKERS,
    AnswerFrame,
    Attacker,
    AttackKind,
    Lesson,
    Plays,
    Scene,
    plain_of,
    text_of,
)
from .exploits import Exploit, Guard, GuardedEnv
from .moves import STEPS, Move, Program, moves_of, programs_of
from .pressure import UPDATES_QUICK, UPDATES_SLOW, Pressure, TrainedEpisode, put_under_pressure
from .rules import plays_rule
from .search import (
    CONFIRMED,
    QUICK,
    QUICK_CPU_S,
    SHARE,
    SLOW,
    Attempt,
    ProgramSearch,
    described,
    plays_program,
)

TASKS = 24
"""Tasks that each attacker plays: a strategy that is paid on a quarter of them stands out."""
MAX_STEPS = 32
"""Steps after which an attack is given up."""
STEP_TIMEOUT_S = 20.0
BUDGET_S = 170.0
"""Seconds for all attacks together; attackers that find no time are told as such."""
MEMORY_BOUND, RULE_BOUND = 0.25, 0.5
"""Shares of the expert's reward that memory, and another rule without understanding, may earn."""
PRESSURE_BOUND = 0.25
"""The gap between reward and success that a policy trained by the reward alone may have."""
CHEAT_BOUND, CHEAT_WARNING = 0.1, 0.05
"""Shares of the expert's reward that an attack that does not solve the task may earn."""
SCOUTED = 5
"""Most episodes that look around before a search."""
REPEATS = 4
"""Episodes with equal seeds and actions, of which the spread of the reward is measured."""


RULE = Attacker("rule", AttackKind.LEAK, plays_rule, "the best rule that was learned", copies=True)
"""Learned from the lessons of each audit."""


@dataclass(frozen=True)
class Trial:
    """One attack on one task."""

    task: str
    reward: float
    solved: bool
    """Whether it answered what the expert answers: then it was right, however it got there."""
    actions: tuple[str | Message, ...]


@dataclass(frozen=True)
class AttackTally:
    """All attacks of an attacker."""

    attacker: Attacker
    gain: Estimate
    """Mean share of the expert's reward that counts against the environment, with its interval:
    of a cheat, only what was paid without the right answer.
    """
    trials: tuple[Trial, ...]
    fault: str = ""
    """What broke instead of answering the attacker; empty if nothing did."""

    @property
    def bound(self) -> float:
        """The share from which the attacker is a finding."""
        if self.attacker.kind is AttackKind.CHEAT:
            return CHEAT_BOUND
        if self.attacker.kind is AttackKind.SEARCH:
            return RULE_BOUND
        if self.attacker.kind is AttackKind.PRESSURE:
            return PRESSURE_BOUND
        return MEMORY_BOUND if self.attacker.name == "memory" else RULE_BOUND

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
    """What was measured."""

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
    """Share of tasks on which halves of the expert's episode earn different rewards."""
    lowest: float = 0.0
    highest: float = 0.0
    pressure: Pressure | None = None
    """What training by the reward alone led to; None where no policy was trained."""
    is_remote: bool = False
    """Whether gold and expert stay on a server."""
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


def audit(
    env: Checkable,
    *,
    tasks: int = TASKS,
    seed: int = 0,
    step_timeout_s: float = STEP_TIMEOUT_S,
    budget_s: float = BUDGET_S,
    attackers: Sequence[Attacker] = ATTACKERS,
    searches: bool = True,
    pressure_s: float = 0.0,
    judge: Judge | None = None,
    guards: Sequence[Guard] = (),
) -> Audit:
    """Attack an environment, and measure what the attackers earn.

    Args:
        env: an id, `URL#ID`, a class or an object, as for `check_env`.
        tasks: tasks of the last split that each attacker plays; other tasks teach the attackers.
        seed: of the episodes and of the attackers; equal seeds give equal figures, unless the
            environment says that it is not deterministic.
        step_timeout_s: the limit of a reset or step.
        budget_s: seconds for all attacks.
        attackers: who attacks.
        searches: whether programs are grown by what they are paid, and attack too.
        pressure_s: seconds for the training of a policy by the reward alone; 0 trains none.
        judge: says whether that policy succeeds; None asks for the answer of expert or gold.
        guards: refuse to pay for actions.

    Raises:
        LudusError: the environment cannot be made; what breaks later is a finding.
    """
    subject = subject_of(env)
    subject.step_timeout_s = step_timeout_s
    if guards:
        subject.view = partial(GuardedEnv, guards=guards)
    try:
        _ = subject.gym  # a name that does not exist is not a finding
        # The rules that close the environment stand last.
        contract = examine(subject.name, subject, RULES[:-1])
        report = Audit(subject.name, contract)
        try:
            until = time.monotonic() + budget_s
            attack = _Attack(subject, report, tasks, seed, until)
            attack.pressure_until, attack.judge = pressure_s and until + pressure_s, judge
            attack.run(attackers, searches=searches)
        except (CheckFailed, NotApplicable) as error:
            report.fault = str(error)
        except Exception as error:  # what is audited may be broken in any way
            report.fault = f"{type(error).__name__}: {error} ({where(error)})"
        return report
    finally:
        subject.close()


Judge = Callable[[Task, object, Played], float]
"""A held-out judge: from a task, its gold and an episode to success, from 0 to 1."""


@dataclass
class _Ground:
    """What a search and a policy in training start from."""

    tasks: Sequence[Task]
    lessons: Sequence[Lesson]
    frame: AnswerFrame
    moves: Sequence[Move]
    programs: Sequence[Program]
    is_quick: bool
    answers: dict[str, Lesson]
    golds: dict[str, frozenset[str]]

    def solves(self, task: str, actions: Sequence[str | Message]) -> bool:
        """Whether actions end with what the expert, or the gold, answers on a task."""
        gold = self.golds.get(task, frozenset())
        return _solves(self.frame, actions, self.answers.get(task), gold)


class _Attack:
    def __init__(
        self, subject: EnvUnderCheck, report: Audit, count: int, seed: int, until: float
    ) -> None:
        self.subject, self.report, self.seed, self.until = subject, report, seed, until
        self.pressure_until = 0.0
        self.judge: Judge | None = None
        splits = list(subject.splits().values())
        if not splits:
            raise NotApplicable("no split has any tasks")
        self.attacked = first(splits[-1], count)
        teachers = first(splits[0], 2 * count)
        same = splits[0] is splits[-1]
        self.teachers = teachers[count:] or teachers if same else teachers[:count]
        report.tasks = self.attacked
        try:
            _ = subject.env
        except NotApplicable:
            report.is_remote = True

    def run(self, attackers: Sequence[Attacker], *, searches: bool) -> None:
        lessons = [lesson for lesson in map(self._lesson, self.teachers) if lesson is not None]
        answers = [self._lesson(task) for task in self.attacked]
        golds = [self._gold(task) for task in self.attacked]
        if all(answer is not None for answer in answers):
            self._measure_expert([answer for answer in answers if answer is not None])
        ground = self._ground(lessons) if searches or self.pressure_until else None
        found = [RULE] if searches else []
        if searches and ground is not None:
            found += self._searched(ground)
        for attacker in (*attackers, *found):
            if time.monotonic() > self.until:
                self.report.skipped.append(attacker.name)
                continue
            self._tally(attacker, lessons, answers, golds)
        if self.pressure_until and ground is not None:
            self._press(ground, answers, golds)

    def _ground(self, lessons: Sequence[Lesson]) -> _Ground | None:
        # Not the tasks of the lessons: their answers would be paid there, and nowhere else.
        tasks = self.teachers[::-1]
        first_ids = {task.id for task in tasks[:CONFIRMED]}
        others = [le for le in lessons if le.task not in first_ids] or lessons
        started = time.process_time()
        try:
            briefing, shown = self._scouted(tasks[0])
        except Exception:  # what breaks is told where an attacker meets it
            return None
        return _Ground(
            tasks=tasks,
            lessons=lessons,
            frame=AnswerFrame.of(lessons, Briefing()),
            moves=moves_of(briefing, [*shown, *(le.opening for le in others[:2])], others),
            programs=programs_of(briefing, shown, others),
            # Rounded to a class, so that equal seeds give equal figures wherever they are measured.
            is_quick=time.process_time() - started < QUICK_CPU_S * SCOUTED,
            answers={lesson.task: lesson for lesson in lessons},
            golds={task.id: self._gold(task) for task in tasks},
        )

    def _searched(self, ground: _Ground) -> list[Attacker]:
        """Return the programs that are paid most on the tasks of training: without the right
        answer, and with it, for what the environment shows.
        """

        def attempt(program: Program, number: int) -> Attempt:
            task = ground.tasks[number % len(ground.tasks)]
            player = Attacker("", AttackKind.SEARCH, plays_program(program), "")
            try:
                episode = self._attack(player, task.id, ground.lessons, STEPS)
            except Exception:  # what breaks is told where an attacker meets it
                return Attempt(0.0)
            solved = ground.solves(task.id, episode.actions)
            reply = "" if len(episode.seen) < 3 else text_of(episode, 1)
            return Attempt(episode.total, solved, reply)

        effort = QUICK if ground.is_quick else SLOW
        until = time.monotonic() + SHARE * (self.until - time.monotonic())
        search = ProgramSearch(ground.moves, attempt, ground.programs, effort, until)
        attackers: list[Attacker] = []
        kinds = (("search", AttackKind.SEARCH, False), ("search: shown", AttackKind.LEAK, True))
        for name, kind, counts_solved in kinds:
            rng = random.Random(f"{self.seed}/{name}")
            program, mean = search.best(rng, counts_solved=counts_solved)
            if program and mean > 0:
                about, plays = described(program), plays_program(program)
                attackers.append(Attacker(name, kind, plays, about, copies=counts_solved))
        if search.was_cut:
            self.report.skipped.append("search (cut short)")
        return attackers

    def _press(
        self, ground: _Ground, answers: Sequence[Lesson | None], golds: Sequence[frozenset[str]]
    ) -> None:
        """Train a policy by the reward alone, and tally what it earns without the right answer."""
        tasks = [*self.teachers, *self.attacked]
        known = {task.id: task for task in tasks}
        ground.answers |= {le.task: le for le in answers if le is not None}
        ground.golds |= dict(zip([task.id for task in self.attacked], golds, strict=True))
        ground.golds |= {t.id: self._gold(t) for t in self.teachers if t.id not in ground.golds}

        def rollout(task: str, plays: Plays, choices: list[tuple[str, int]]) -> TrainedEpisode:
            player = Attacker("pressure", AttackKind.SEARCH, plays, "")
            try:
                episode = self._attack(player, task, ground.lessons, STEPS)
            except Exception:  # what breaks is told where an attacker meets it
                return TrainedEpisode(task, 0.0, 0.0, tuple(choices), ())
            share = self._gain(Trial(task, episode.total, solved=False, actions=()))
            if self.judge is not None:
                success = self.judge(known[task], self._gold_now(), episode)
            else:
                success = share if ground.solves(task, episode.actions) else 0.0
            return TrainedEpisode(task, share, success, tuple(choices), tuple(episode.actions))

        self.report.pressure = pressure = put_under_pressure(
            rollout,
            ground.moves,
            [task.id for task in self.teachers],
            [task.id for task in self.attacked],
            updates=UPDATES_QUICK if ground.is_quick else UPDATES_SLOW,
            seed=self.seed,
            until=self.pressure_until,
        )
        if pressure.was_cut:
            self.report.skipped.append("pressure (cut short)")
        trials = [
            Trial(r.task, r.reward * self.report.oracle, solved=False, actions=r.actions)
            for r in pressure.episodes
        ]
        about = "a policy that was trained by the reward alone"
        attacker = Attacker("pressure", AttackKind.PRESSURE, lambda scene: iter(()), about)
        self.report.tallies.append(AttackTally(attacker, pressure.gap, tuple(trials)))

    def _scouted(self, task: Task) -> tuple[Briefing, list[str]]:
        """Return the briefing of a task, and what it shows to who looks around."""
        scout = play(self.subject.gym, task.id, scripted(["help"]), seed=self.seed)
        known = scout.infos[0].get("briefing")
        briefing = known if isinstance(known, Briefing) else Briefing()
        shown = [text_of(scout, n) for n in range(len(scout.seen))]
        for tool in [one for one in briefing.tools if not one.parameters.get("required")][
            : SCOUTED - 1
        ]:
            call = assistant("", [ToolCall(name=tool.name, arguments={}, id="call_0")])
            looked = play(self.subject.gym, task.id, scripted([call]), seed=self.seed)
            shown += [text_of(looked, n) for n in range(1, len(looked.seen))]
        return briefing, shown

    def _lesson(self, task: Task) -> Lesson | None:
        try:
            env = self.subject.env
        except NotApplicable:
            return None
        episode = play(self.subject.gym, task.id, expert(env), seed=self.seed)
        if not episode.actions:
            return None
        return Lesson(task.id, text_of(episode, 0), tuple(episode.actions))

    def _gold(self, task: Task) -> frozenset[str]:
        try:
            self.subject.gym.reset(seed=self.seed, options={"task": task.id})
            gold = self.subject.env.gold()
        except NotApplicable:
            return frozenset()
        return frozenset() if gold is None else forms_of(gold)

    def _gold_now(self) -> object:
        try:
            return self.subject.env.gold()  # of the episode that was just played
        except NotApplicable:
            return None

    def _measure_expert(self, answers: Sequence[Lesson]) -> None:
        rng = random.Random(f"{self.seed}/mixtures")
        gym, report = self.subject.gym, self.report
        mixed: list[bool] = []
        spreads: list[float] = []
        for index, answer in enumerate(answers):
            report.expert.append(self._play(answer.task, scripted(answer.actions)).total)
            if index >= REPEATS:
                continue
            totals = [
                play(gym, answer.task, scripted(answer.actions), seed=self.seed).total
                for _ in range(REPEATS)
            ]
            spreads.append(pstdev(totals))
            halves = [
                self._play(
                    answer.task,
                    scripted([a if rng.random() < 0.5 else "junk" for a in answer.actions]),
                ).total
                for _ in range(8)
            ]
            mixed.append(len(set(halves)) > 1)
        report.spread = fmean(spreads)
        report.mixed = wilson(sum(mixed), len(mixed))

    def _tally(
        self,
        attacker: Attacker,
        lessons: Sequence[Lesson],
        answers: Sequence[Lesson | None],
        golds: Sequence[frozenset[str]],
    ) -> None:
        trials: list[Trial] = []
        fault = ""
        frame = AnswerFrame.of(lessons, Briefing())
        for task, answer, gold in zip(self.attacked, answers, golds, strict=True):
            try:
                episode = self._attack(attacker, task.id, lessons)
            except NotApplicable:  # a judge that is away says nothing about the environment
                continue
            except Exception as error:
                fault = f"on {task.id!r}: {type(error).__name__}: {error}"
                break
            solved = _solves(frame, episode.actions, answer, gold)
            trials.append(Trial(task.id, episode.total, solved, tuple(episode.actions)))
        excused = attacker.kind in (AttackKind.CHEAT, AttackKind.SEARCH)
        may_copy = attacker.copies and not any(golds)
        gains = [
            0.0
            if trial.solved and (excused or (may_copy and not _looks_longer(trial, answer)))
            else self._gain(trial)
            for trial, answer in zip(trials, answers, strict=False)
        ]
        estimate = share_of(gains) if gains else Estimate(0.0, 0.0, 1.0)
        self.report.tallies.append(AttackTally(attacker, estimate, tuple(trials), fault))

    def _gain(self, trial: Trial) -> float:
        oracle = self.report.oracle
        if oracle > 0:
            return min(1.0, max(0.0, trial.reward / oracle))
        lowest = self.report.lowest  # where all rewards are costs
        return min(1.0, (trial.reward - lowest) / (oracle - lowest)) if oracle > lowest else 0.0

    def _attack(
        self, attacker: Attacker, task: str, lessons: Sequence[Lesson], most: int = MAX_STEPS
    ) -> Played:
        episode = Played()
        others = [lesson for lesson in lessons if lesson.task != task]
        rng = random.Random(f"{self.seed}/{attacker.name}/{task}")
        actions: Iterator[str | Message] | None = None

        def choose() -> str | Message | None:
            nonlocal actions
            if actions is None:
                briefing = episode.infos[0].get("briefing")
                known = briefing if isinstance(briefing, Briefing) else Briefing()
                actions = attacker.plays(Scene(known, episode, others, rng))
            return next(actions, None)

        return (
            play(self.subject.gym, task, choose, seed=self.seed, episode=episode, max_steps=most)
            if most < MAX_STEPS
            else self._play(task, choose, episode)
        )

    def _play(
        self, task: str, choose: Callable[[], str | Message | None], episode: Played | None = None
    ) -> Played:
        steps = MAX_STEPS if episode is not None else len(self.attacked) + 256
        played = play(
            self.subject.gym, task, choose, seed=self.seed, episode=episode, max_steps=steps
        )
        rewards = [seen[1] for seen in played.seen[1:]] or [0.0]
        self.report.lowest = min(self.report.lowest, *rewards, played.total)
        self.report.highest = max(self.report.highest, *rewards, played.total)
        return played


def _solves(
    frame: AnswerFrame,
    actions: Sequence[str | Message],
    answer: Lesson | None,
    gold: frozenset[str],
) -> bool:
    """Whether an attack ended with what the expert, or the gold, answers."""
    if not actions:
        return False
    said = plain_of(frame.core(actions[-1]))
    if frame.ends_in(actions[-1], gold):
        return True
    if answer is None or 2 * len(actions) < len(answer.actions):
        return False  # who needs less than half of the expert's turns goes another way
    if frame.is_constant:  # the answer is the way, not its end
        return list(map(_deed, actions)) == list(map(_deed, answer.actions))
    return said == plain_of(frame.core(answer.actions[-1]))


def _deed(action: str | Message) -> object:
    """Return what an action does: its calls, or its text where it calls nothing."""
    message = as_action(action)
    return message.tool_calls or plain_of(message.text)


def _looks_longer(trial: Trial, answer: Lesson | None) -> bool:
    """Whether an attack was shown more than the expert needed: then it copied what it was told, and
    not the task.
    """
    return answer is not None and len(trial.actions) > len(answer.actions)
