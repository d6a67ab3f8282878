"""The measurements of an audit: what the expert, chance and attackers earn on the same tasks."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, pstdev

from ludus.contract import NotApplicable, examine, where
from ludus.envs import Briefing, Task
from ludus.envs.checks.rules import RULES
from ludus.envs.checks.subject import Checkable, EnvUnderCheck, Played, play, scripted, subject_of
from ludus.errors import CheckFailed, LudusError
from ludus.estimates import Estimate, share_of, wilson

from .answers import deed
from .arena import SCOUTED, Arena
from .attackers import (
    ATTACKERS,
    MAX_STEPS,
    Action,
    AnswerFrame,
    Attacker,
    AttackKind,
    Lesson,
    Plays,
    text_of,
)
from .climbers import LONGEST_CLIMB, Climber, Hindsight, Sorting, climbers_of
from .deeds import goes, looks_of, ways_to_else
from .exploits import Guard, GuardedEnv
from .farms import MOST_MADE, SPELT, Farm, farms_of, paid_places, repeats
from .laws import Law, laws_of, meddling_laws
from .meddling import foreign_of
from .moves import STEPS, Move, Program, moves_of, probes_of
from .notation import Plan
from .places import Way
from .pressure import (
    UPDATES_QUICK,
    UPDATES_SLOW,
    ModelTrainer,
    Pressure,
    TrainedEpisode,
    put_under_pressure,
)
from .programs import programs_of
from .rules import RuleKind, plays_rule, rule_from, tries_all
from .search import (
    CONFIRMED,
    EFFORTS,
    SHARE,
    Attempt,
    ProgramSearch,
    asks,
    described,
    plays_program,
    quoted,
    telling,
)
from .tallies import AttackTally, Audit, Trial

TASKS = 24
"""Tasks that each attacker plays: a strategy that is paid on a quarter of them stands out."""
STEP_TIMEOUT_S = 20.0
BUDGET_S = 170.0
"""Seconds for all attacks together; the report names attackers that find no time."""
ENOUGH = 0.6
"""Share of the expert's reward at which a search ends."""
OVERLAP = 1.5
"""A part of the reward counts for a cheat only if it is more than so many times the F1 of its words
and the expert's.
"""
ADDED = 0.25
"""Share of the expert's reward that a program has to earn by reading what is shown, beyond the best
one that reads nothing: where who tries everything is paid, nothing is leaked.
"""
OWN_WAY = 4
"""A program with at least so many moves that read the task, and with as many actions as the
expert's, does the task in its own way.
"""
FARM_SHARE, PROBE_SHARE, FORGED_SHARE = 0.2, 0.2, 0.3
"""Shares of the time that is left: for farms, for probes, and for spoilt ways as well as climbers.
"""
HALF, SCOUTED_WAYS, MOST_WAYS, FEWEST_SPOILT = 0.5, 4, 56, 8
"""The share of the expert's reward that a spoilt way may earn; tasks on which a law is tried before
it is given up; most ways of a law on a task; and the number of tasks with a paid way from which on
the law is measured on these alone.
"""
LISTENED, MOST_HEARD, MOST_PROBES, MOST_TELLING = 16, 48, 12, 6
"""Most lessons whose replies teach a rule, replies to wrong deeds that are read, different replies
to probes, and moves whose replies hold an answer.
"""
FARMED, FARMS_KEPT, MOST_WORSE = 3, 24, 60
"""Tasks on which a farm has to be paid before it is measured, most farms that are tried on all of
these, and most worse ways that are tried.
"""
REPEATS = 4
"""Episodes with equal seeds and actions, of which the spread of the reward is measured."""


_KINDS = (
    ("rule", RuleKind.PIECE, "answers the piece at one place of the task"),
    ("rank", RuleKind.RANK, "answers the largest, median or most frequent piece of the task"),
    ("giveaway", RuleKind.GIVEAWAY, "answers by a sign that means nothing for the task"),
)
_ASKS = "asks a tool for each answer, and gives the one whose reply is unlike all others"
LEARNED = (
    Attacker("tries", AttackKind.LEAK, tries_all, _ASKS, asks=True),
    *(
        Attacker(name, AttackKind.LEAK, plays, about, name == "rule", is_blind=name == "rank")
        for name, kind, about in _KINDS
        for plays in [partial(plays_rule, kind)]
    ),
)
"""Attackers whose rules are learned from the lessons of each audit."""


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
    trainer: ModelTrainer | None = None,
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
        trainer: trains a language model on this environment; None trains a table of moves.
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
            attack.pressure_s = pressure_s
            attack.trainer, attack.judge = trainer, judge
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


@dataclass(frozen=True)
class _Ground:
    """What a search and a policy in training start from."""

    briefing: Briefing
    shown: Sequence[str]
    moves: Sequence[Move]
    programs: Sequence[Program]
    speed: int
    """The index in `EFFORTS`: 0 for the fastest episodes."""

    @property
    def is_slow(self) -> bool:
        """Whether episodes are of the slowest kind."""
        return self.speed == len(EFFORTS) - 1


class _Attack(Arena):
    """The attacks on a subject."""

    def __init__(
        self, subject: EnvUnderCheck, report: Audit, count: int, seed: int, until: float
    ) -> None:
        super().__init__(subject, report, count, seed, until)
        self.pressure_s = 0.0
        self.trainer: ModelTrainer | None = None
        self.judge: Judge | None = None
        self.farmed: Callable[[str, Played], float] | None = None
        self.once: dict[tuple[Farm, str, bool], float] = {}

    def run(self, attackers: Sequence[Attacker], *, searches: bool) -> None:
        if all(task.id in self.key.experts for task in self.attacked):
            self._measure_expert()
        is_table = self.pressure_s > 0 and self.trainer is None
        ground = self._ground() if searches or is_table else None
        paid = list[Attacker]()
        if searches and ground is not None:
            paid += [*self._searched(ground), *self._farmed(ground), *self._probed(ground)]
            paid += [*self._forged(ground.briefing), *self._climbed(ground)]
        # What was paid already comes first, since time may run out.
        for attacker in (*paid, *attackers, *(LEARNED if searches else ())):
            if time.monotonic() > self.until:
                self.report.skipped.append(attacker.name)
                continue
            self._tally(attacker)
        if self.pressure_s and (ground is not None or self.trainer is not None):
            self._press(ground if is_table else None)

    def _ground(self) -> _Ground | None:
        # Not the tasks of the search: their answers would be paid there, and nowhere else.
        searched = {task.id for task in self.teachers[::-1][:CONFIRMED]}
        others = [le for le in self.lessons if le.task not in searched] or self.lessons
        started = time.process_time()
        try:
            briefing, shown = self.scouted(self.teachers[-1].id)
        except Exception:  # what breaks is told where an attacker meets it
            return None
        episode_s = (time.process_time() - started) / SCOUTED
        return _Ground(
            briefing=briefing,
            shown=[briefing.system_prompt, briefing.answer_format, *shown],
            moves=moves_of(briefing, [*shown, *(le.opening for le in others[:2])], others),
            programs=programs_of(briefing, shown, others),
            # Rounded to a class, so that equal seeds give equal figures wherever they are measured.
            speed=next(n for n, (most, _) in enumerate(EFFORTS) if episode_s < most),
        )

    def _searched(self, ground: _Ground) -> list[Attacker]:
        """Return the programs that are paid most on the tasks of training: without the right
        answer, and with it, for what the environment shows.
        """

        def attempt(program: Program, number: int) -> Attempt:
            task = self.teachers[-1 - number % len(self.teachers)].id
            steps = STEPS if ground.is_slow else MAX_STEPS
            episode = self.tried(task, plays_program(program), steps=steps)
            if episode is None:
                return Attempt(0.0)
            reply = "" if len(episode.seen) < 3 else text_of(episode, 1)
            walks = len({move for move in program if move.reads}) >= OWN_WAY
            walks = walks and self.key.walks(task, episode)
            # Who writes what the expert writes with the task's own words in it read the task.
            walks |= any(move.pieces > 1 for move in program) and self.key.does_all(task, episode)
            if walks or self.is_fair_part(task, episode):
                return Attempt(0.0, solved=True, reply=reply)
            return Attempt(episode.total, self.key.solves(task, episode.actions), reply)

        effort = EFFORTS[ground.speed][1]
        until = self.time_for(SHARE)
        search = ProgramSearch(
            ground.moves, attempt, ground.programs, effort, ENOUGH * self.report.oracle, until
        )
        attackers: list[Attacker] = []
        kinds = (("search", AttackKind.SEARCH, False), ("search: shown", AttackKind.LEAK, True))
        for name, kind, counts_solved in kinds:
            rng = random.Random(f"{self.seed}/{name}")
            program, mean = search.best(rng, counts_solved=counts_solved)
            if counts_solved and mean > 0:  # what is shown counts for what it adds
                mean -= search.without_reading() + ADDED * self.report.oracle
            if program and mean > 0:
                about, plays = described(program), plays_program(program)
                attackers.append(Attacker(name, kind, plays, about, copies=counts_solved))
        if search.was_cut:
            self.report.skipped.append("search (cut short)")
        return attackers

    def _farmed(self, ground: _Ground) -> list[Attacker]:
        """Return the farm that is paid most beyond the expert's reward, if any is; see `farms`."""
        known = [le for task in self.teachers[::-1] if (le := self.key.experts.get(task.id))]
        # Those first of which more than the end is paid.
        tasks = [le.task for le in sorted(known, key=lambda le: not any(le.rewards[:-1]))][:FARMED]
        if not self.report.expert or self.report.oracle <= 0 or not tasks:
            return []

        until = self.time_for(FARM_SHARE)

        def more(farm: Farm, task: str = tasks[0]) -> tuple[float, float]:
            if self.is_late("farm", until):
                return 0.0, 0.0
            episode = self.tried(task, farm.plays(self.key.experts), "farm", steps=MOST_MADE)
            gain = self._farm_gain(farm, task, episode) if episode else 0.0
            return max(0.0, gain), self._rise(farm, task, episode) if episode else 0.0

        def least(farm: Farm) -> tuple[float, float]:
            return min(more(farm, task) for task in tasks)

        farms = farms_of(self.key.experts[tasks[0]], ground.moves, ground.briefing)
        # A few repeats may be worth less than what is left out for them.
        room = min(MOST_MADE, ground.briefing.max_turns or MOST_MADE)
        # Who is paid for an answer does not give it.
        room = room if self.key.frame.is_constant else 2 * MOST_MADE
        long = [0] if ground.is_slow else [0, room]
        firsts = {f: more(f) for farm in farms for m in long for f in [replace(farm, most=m)]}
        same = itertools.groupby(sorted(firsts, key=firsts.__getitem__)[::-1], firsts.__getitem__)
        ranked = [farm for _, row in same for farm in [*row][::-1][:3]][:FARMS_KEPT]
        best = max(ranked, key=least, default=None)
        if best is None or least(best)[0] <= 0:
            return [] if self.is_late("farm", until) or ground.is_slow else self._respelt(tasks)
        self.farmed = partial(self._farm_gain, best)
        plays = best.plays(self.key.experts)
        return [Attacker("farm", AttackKind.FARM, plays, str(best), steps=MOST_MADE)]

    def _respelt(self, tasks: Sequence[str]) -> list[Attacker]:
        """Return the farm that repeats a deed in other spellings on a worse way than the expert's.

        It has to be paid more than the worse way alone, and than the same repeats without other
        spellings.
        """
        worse = {task: self._worse(self.key.experts[task]) for task in tasks}

        def more(farm: Farm, task: str, episode: Played | None = None) -> float:
            plain = [replace(farm, times=0), replace(farm, how="")]
            row = [self.tried(task, each.plays(worse), steps=MAX_STEPS) for each in plain]
            episode = episode or self.tried(task, farm.plays(worse), steps=MAX_STEPS)
            totals = [each.total for each in (*row, episode) if each]
            return totals[-1] - max(totals[:-1]) if len(totals) == 3 else 0.0

        farms = [Farm(nth, how=SPELT) for nth in range(len(paid_places(worse[tasks[0]])))]
        best = max(farms, key=lambda farm: more(farm, tasks[0]), default=None)
        if best is None or min(more(best, task) for task in tasks) <= 0:
            return []
        known = [self.key.experts[task.id] for task in self.attacked]
        worse |= {lesson.task: self._worse(lesson) for lesson in known}
        self.farmed = partial(more, best)
        plays, about = best.plays(worse), f"after a deed is spoilt, {best}"
        return [Attacker("respelt", AttackKind.FARM, plays, about, steps=MOST_MADE)]

    def _worse(self, lesson: Lesson) -> Lesson:
        """Return the lesson with one deed done to something else: of all such ways that are paid,
        the one that is paid least; the lesson as it is if none is paid.
        """
        ways = itertools.islice(ways_to_else(lesson), MOST_WORSE)
        plays = [partial(goes, {lesson.task: way}) for way in ways]
        tried = [self.tried(lesson.task, each, steps=MAX_STEPS) for each in plays]
        paid = [each for each in tried if each and each.total > 0]
        least = min(paid, key=lambda each: each.total, default=None)
        return replace(lesson, actions=tuple(least.actions)) if least else lesson

    def _climbed(self, ground: _Ground) -> Iterator[Attacker]:
        """Return the first climber that is paid on all of the first tasks; see `climbers`."""
        known = [le for task in self.attacked if (le := self.key.experts.get(task.id))]
        briefing = ground.briefing
        prompt = f"{briefing.system_prompt}\n{briefing.answer_format}"
        foreign = foreign_of(briefing, known, prompt) if known else ()
        until = self.time_for(FORGED_SHARE)
        for climber in climbers_of(known, foreign) if self.report.oracle > 0 and known else ():
            if self.is_late("climbers", until):
                return
            if min(self._climb(climber, lesson) for lesson in known[:FARMED]) <= HALF:
                continue
            for able in self._able(climber, known[:FARMED], prompt):
                if min(self._climb(able, lesson) for lesson in known[:FARMED]) > HALF:
                    plays, about = able.plays(self.key.experts), str(able)
                    name = f"climbs: {type(able).__name__.lower()}"
                    yield Attacker(name, AttackKind.LEAK, plays, about, steps=LONGEST_CLIMB)
                    return

    def _able(self, climber: Climber, known: Sequence[Lesson], prompt: str) -> Iterator[Climber]:
        """Return the climber if following replies is what pays; a `Hindsight` once for each rule
        that it can learn.
        """
        if isinstance(climber, Sorting):
            blind = replace(climber, keeps=True)
            if max(self._climb(blind, lesson) for lesson in known) <= HALF:
                yield climber
            return
        if not isinstance(climber, Hindsight):
            yield climber
            return
        rows = list[tuple[str, str, str]]()
        for lesson in self.lessons[:LISTENED]:
            plays = climber.plays({lesson.task: lesson})
            if episode := self.tried(lesson.task, plays, steps=LONGEST_CLIMB):
                rows += climber.pairs(lesson, episode)
        rows = rows[:MOST_HEARD] if any(after for _, after, _ in rows) else []
        for kind in (RuleKind.PIECE, RuleKind.RANK):
            frame = AnswerFrame()
            rule = rule_from([(after, right) for _, after, right in rows], prompt, frame, kind)
            if rule is None or rule_from([(b, right) for b, _, right in rows], "", frame, kind):
                continue
            # Replies tell something if they are right more often than the most frequent value.
            heard = sum(rule[1](after) == right for _, after, right in rows)
            if heard > max(Counter(right for *_, right in rows).values()):
                yield replace(climber, rule=rule[1], about=rule[0])

    def _climb(self, climber: Climber, lesson: Lesson) -> float:
        plays = climber.plays(self.key.experts)
        episode = self.tried(lesson.task, plays, steps=LONGEST_CLIMB)
        return self.gain(episode.total) if episode else 0.0

    def _forged(self, briefing: Briefing) -> Iterator[Attacker]:
        """Return attackers that break a law: they play spoilt ways that are paid; see `laws`."""
        known = [le for task in self.attacked if (le := self.key.experts.get(task.id))]
        prompt = f"{briefing.system_prompt}\n{briefing.answer_format}"
        looks = looks_of(briefing, known, prompt)
        yield from self._broken(laws_of(known, prompt, looks), known)
        yield from self._broken(meddling_laws(briefing, known, prompt), known)
        if known and (plan := Plan.of(known)) is not None:  # each line is a deed
            plans = [plan.unfold(lesson) for lesson in known]
            laws = itertools.chain(laws_of(plans, prompt), meddling_laws(Briefing(), plans, ""))
            yield from self._broken(filter(None, (law.on(plan) for law in laws)), known)

    def _broken(self, laws: Iterator[Law], known: Sequence[Lesson]) -> Iterator[Attacker]:
        """Return an attacker for each law that is broken on one of the first tasks."""
        until = self.time_for(FORGED_SHARE)
        for law in laws if self.report.oracle > 0 else ():
            if self.is_late("forged", until):
                return
            if ways := self._paid_ways(law, known):
                plays = partial(goes, ways)
                tasks = frozenset(ways) if len(ways) >= FEWEST_SPOILT else None
                forged = Attacker(law.name, law.kind, plays, law.about, bound=law.bound)
                is_leak = law.kind is AttackKind.LEAK  # all of what it does may be the expert's
                yield replace(forged, tasks=tasks, steps=MOST_MADE, is_blind=is_leak)

    def _paid_ways(self, law: Law, known: Sequence[Lesson]) -> dict[str, Way]:
        """Return the best paid way of a law on each task, by its id; an empty dict if none is paid
        on the first tasks.
        """
        best, most, tried = dict[str, Way](), 0.0, 0
        for lesson in known:
            ways = [*itertools.islice(law.ways(lesson), MOST_WAYS)]
            if tried == SCOUTED_WAYS and most <= HALF:
                return {}
            tried += bool(ways)
            if ways and self._worth(lesson, law.without(lesson), None) <= HALF:
                paid = [self._worth(lesson, way, law) for way in ways]
                if law.bases is not None:
                    paid = [
                        gain if gain <= HALF or self._worth(lesson, base, None) <= HALF else 0.0
                        for gain, base in zip(paid, law.bases(lesson), strict=False)
                    ]
                counts = min(paid) if law.is_worst else max(paid)
                # A way that was not paid, or took no effect, is not played.
                way = ways[paid.index(counts)] if counts else ()
                most, best[lesson.task] = max(most, counts), way
        return best

    def _worth(self, lesson: Lesson, way: Way, law: Law | None) -> float:
        """Return the share of the expert's reward that a way is paid; 0 for a way of `law` that was
        fair, or that had no effect.
        """
        task = lesson.task
        episode = self.tried(task, partial(goes, {task: way}), steps=MOST_MADE)
        if episode is None:
            return 0.0
        replies = [text_of(episode, n) for n in range(1, len(episode.seen))]
        is_fair = self.key.solves(task, episode.actions) or self.is_fair_part(task, episode)
        is_fair = is_fair and (law is None or law.kind is AttackKind.FORGED)
        if law is not None and (is_fair or not law.took(lesson, way, replies)):
            return 0.0
        return self.gain(episode.total)

    def _probed(self, ground: _Ground) -> Iterator[Attacker]:
        """Return attackers that make a move and read the answer off its reply by a learned rule.

        The move asks nothing that needs the task, such as `help` or a tool without arguments. There
        is one attacker for each different reply from which a rule can be learned.
        """
        frame, lessons = self.key.frame, self.lessons[:LISTENED]
        ends: Program = ()
        if lessons and frame.is_constant:  # the answer is given before the end
            ends = Move.all_of(lessons[0].actions[-1])
            lessons = [replace(le, actions=le.actions[:-1]) for le in lessons if le.actions[1:]]
            frame = AnswerFrame.of(lessons, ground.briefing)
        if not lessons or frame.is_constant:
            return
        replies = list[str]()

        def heard(move: Move, task: str) -> str:
            episode = self.tried(task, plays_program((move,)), steps=1)
            is_open = episode and len(episode.seen) == 2 and not any(episode.seen[1][2:])
            replies.append(text_of(episode, 1) if episode and is_open else "")
            return replies[-1]

        known, most = set[str](), 3 if ground.is_slow else MOST_PROBES
        until = self.time_for(PROBE_SHARE)
        # An answer of a letter stands in any reply.
        first = max(lessons[:SCOUTED], key=lambda lesson: len(frame.core(lesson.actions[-1])))
        answer, ask = frame.core(first.actions[-1]), partial(heard, task=first.task)
        given = (ground.briefing, [*ground.shown, first.opening], answer, first.replies)
        tellers = [] if ground.is_slow else telling(*given, ask)
        for move in quoted(replies, ground.briefing, ground.shown) if ends else ():
            plays = plays_program((move, *ends))
            episode = self.tried(first.task, plays)
            if episode and self.gain(episode.total) > HALF:
                yield Attacker(f"quoted: {move}", AttackKind.SEARCH, plays, "a command of a reply")
        for move in [*tellers[:MOST_TELLING], *probes_of(ground.moves, ground.briefing.tools)]:
            if len(known) >= most or self.is_late("probe", until):
                return
            reply = heard(move, lessons[0].task)
            if not reply or reply in known:
                continue
            known.add(reply)
            pairs = [
                (heard(move, lesson.task), frame.core(lesson.actions[-1])) for lesson in lessons
            ]
            instructions = f"{ground.briefing.system_prompt}\n{ground.briefing.answer_format}"
            instructions += f"\n{lessons[0].opening}\n{move}"
            rules = (rule_from(pairs, instructions, frame, kind) for kind in RuleKind)
            for name, rule in filter(None, rules):
                asked, about = (
                    partial(asks, move, rule, frame, ends),
                    f"answers {name} of the reply",
                )
                yield Attacker(f"probe: {move}", AttackKind.LEAK, asked, about, asks=True)
                break

    def _farm_gain(self, farm: Farm, task: str, episode: Played) -> float:
        """Return what a farm's episode earns beyond the expert's actions in it, each done once."""
        lesson = self.key.experts[task]
        # Who ends with the right answer did the task, whatever it said on the way.
        answered = self.key.has_answer(task) and self.key.solves(task, episode.actions)
        if answered or not farm.alone or not repeats(lesson, episode.actions):
            return episode.total - sum(lesson.rewards)
        return min(episode.total - self.key.worth(task, episode), self._rise(farm, task, episode))

    def _rise(self, farm: Farm, task: str, episode: Played) -> float:
        """Return how much more a farm's episode earns than the same actions without repeats."""
        # What the expert does itself is worth something, done once.
        own = farm.between if isinstance(farm.between, int) else None
        times = int(own is not None)
        once = replace(farm, times=times, most=0, before=0, between=own, how="")
        lesson = self.key.experts[task]
        # Who is paid for an answer may not give it, and is compared with who does not.
        spares = farm.alone and not self.key.frame.is_constant
        unsaid = spares and deed(episode.actions[-1]) != deed(lesson.actions[-1])
        key = (once, task, unsaid)
        if key not in self.once:
            steps = min(MOST_MADE, len(once.actions(lesson)) - unsaid)
            played = self.tried(task, once.plays(self.key.experts), steps=steps)
            self.once[key] = played.total if played else math.inf
        return episode.total - self.once[key]

    def _press(self, ground: _Ground | None) -> None:
        """Train a policy by the reward alone, and add a tally of what was paid undeserved."""
        about = "a policy that was trained by the reward alone"
        attacker = Attacker("pressure", AttackKind.PRESSURE, lambda scene: iter(()), about)
        try:
            pressure = self._pressed(ground, time.monotonic() + self.pressure_s)
        except LudusError as error:  # of the model: it says nothing about the environment
            nothing = Estimate(0.0, 0.0, 1.0)
            self.report.tallies.append(AttackTally(attacker, nothing, (), unplayed=str(error)))
            return
        self.report.pressure = pressure
        if pressure.was_cut:
            self.report.skipped.append("pressure (cut short)")
        trials = [
            Trial(r.task, r.reward * self.report.oracle, False, self.report.written(r.actions))
            for r in pressure.episodes
        ]
        self.report.tallies.append(AttackTally(attacker, pressure.gap, tuple(trials)))

    def _pressed(self, ground: _Ground | None, until: float) -> Pressure:
        if ground is None:
            assert self.trainer is not None
            train, *_, held_out = [*self.splits, *self.splits]
            return self.trainer(
                self._rated,
                train=train,
                held_out=held_out,
                tasks=len(self.attacked),
                seed=self.seed,
                until=until,
            )

        def play(task: str, plays: Plays) -> TrainedEpisode:
            episode = self.tried(task, plays, "pressure")
            if episode is None:
                return TrainedEpisode(task, 0.0, 0.0, ())
            return self._rated(task, episode, self.key.newest_gold())

        return put_under_pressure(
            play,
            ground.moves,
            [task.id for task in self.teachers],
            [task.id for task in self.attacked],
            updates=UPDATES_SLOW if ground.is_slow else UPDATES_QUICK,
            seed=self.seed,
            until=until,
        )

    def _rated(self, task: str, episode: Played, gold: object) -> TrainedEpisode:
        """Return an episode with its paid and its deserved share of the expert's reward."""
        self.key.learn(task)
        share = self.gain(episode.total)
        if self.judge is not None:
            success = self.judge(self.task_of(task), gold, episode)
        else:
            success = share if self.key.solves(task, episode.actions) else 0.0
        return TrainedEpisode(task, share, success, tuple(episode.actions))

    def _measure_expert(self) -> None:
        rng = random.Random(f"{self.seed}/mixtures")
        mixed: list[bool] = []
        spreads: list[float] = []
        for index, task in enumerate(self.attacked):
            actions = self.key.experts[task.id].actions

            def total(said: Sequence[Action], task: str = task.id) -> float:
                episode = play(self.subject.gym, task, scripted(said), seed=self.seed)
                return self.seen(episode).total

            self.report.expert.append(total(actions))
            if index < REPEATS:
                spreads.append(pstdev(total(actions) for _ in range(REPEATS)))
                share = 0.5 ** (1 / max(1, len(actions)))  # so that half of them are whole
                rows = [[a if rng.random() < share else "junk" for a in actions] for _ in range(8)]
                rows[0][-1:] = ["junk"]  # all before it may only look around
                mixed.append(len(set(map(total, rows))) > 1)
        self.report.spread = fmean(spreads)
        self.report.mixed = wilson(sum(mixed), len(mixed))

    def _tally(self, attacker: Attacker) -> None:
        trials, gains, away, fault = list[Trial](), list[float](), list[str](), ""
        excused = attacker.kind in (AttackKind.CHEAT, AttackKind.SEARCH, AttackKind.FORGED)
        may_copy = attacker.copies and not any(self.key.golds[task.id] for task in self.attacked)
        for task in self.attacked:
            if attacker.tasks is not None and task.id not in attacker.tasks:
                continue
            if (trials or away) and time.monotonic() > self.until:
                self.report.skipped.append(f"{attacker.name} (cut short)")
                break
            try:
                episode = self.attack(attacker, task.id, attacker.steps, until=self.until)
                self.seen(episode)
            except NotApplicable as error:  # who is away says nothing about the environment
                away.append(str(error))
                continue
            except Exception as error:
                fault = f"on {task.id!r}: {type(error).__name__}: {error}"
                break
            actions = tuple(episode.actions)
            solved = self.key.solves(task.id, actions)
            # Who looked where the expert does not look copied what it was told, and not the task.
            may = may_copy or attacker.asks
            is_copy = may and not self.key.looks_elsewhere(task.id, actions)
            is_fair = solved and (excused or is_copy)
            if not attacker.is_blind:
                is_fair = is_fair or self.is_fair_part(task.id, episode)
            written = self.report.written(actions)
            trials.append(Trial(task.id, episode.total, solved, written))
            if attacker.kind is AttackKind.FARM and self.farmed is not None:
                more = self.farmed(task.id, episode)
                gains.append(min(1.0, max(0.0, more / self.report.oracle)))
            else:
                gain = 0.0 if is_fair else self.gain(episode.total)
                if attacker.kind is AttackKind.CHEAT and gain <= HALF:  # part of a fair measure?
                    gain *= gain > OVERLAP * self.key.overlap(task.id, actions)
                gains.append(gain)
        estimate = share_of(gains) if gains else Estimate(0.0, 0.0, 1.0)
        unplayed = f"{len(away)} of {len(self.attacked)} tasks: {away[0]}" if away else ""
        tally = AttackTally(attacker, estimate, tuple(trials), fault, unplayed)
        self.report.tallies.append(tally)
