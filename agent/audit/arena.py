"""Where attackers play: the tasks of a subject, what is known of them, and single episodes."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from contextlib import suppress

from ludus.contract import NotApplicable
from ludus.envs import Briefing, Task
from ludus.envs.checks.subject import EnvUnderCheck, Played, first, play, scripted
from ludus.errors import UnknownTask
from ludus.messages import ToolCall, assistant

from .answers import AnswerKey
from .attackers import Action, Attacker, AttackKind, Plays, Scene, free_tools, text_of
from .moves import STEPS
from .tallies import Audit

LOOKS = ("help", "?", "commands", "look")
"""Texts that are sent first, since a reply may list the commands."""
SCOUTED = 5
"""Most episodes that look around before a search."""
PART_SLACK = 0.1
"""What a part of the expert's actions may earn beyond its share of them."""


class Arena:
    """A subject, and what is known of its tasks: what the expert does on them, and their golds."""

    def __init__(
        self, subject: EnvUnderCheck, report: Audit, count: int, seed: int, until: float
    ) -> None:
        self.subject, self.report, self.seed, self.until = subject, report, seed, until
        self.splits = subject.splits()
        splits = list(self.splits.values())
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
        self.key = AnswerKey(subject, seed, report.is_remote)
        for task in (*self.teachers, *self.attacked):
            self.key.learn(task.id)
        report.notation = self.key.learn_notation(self.attacked[0].id)
        self.lessons = self.key.lessons([task.id for task in self.teachers])

    def tried(
        self, task: str, plays: Plays, name: str = "", *, steps: int = STEPS
    ) -> Played | None:
        """Return an episode that is tried for a search or in training; None if it broke, which is
        told where an attacker meets it.
        """
        try:
            return self.attack(Attacker(name, AttackKind.SEARCH, plays, ""), task, steps)
        except Exception:
            return None

    def time_for(self, share: float) -> float:
        """Return when a share of the time that is left will be over."""
        return time.monotonic() + share * (self.until - time.monotonic())

    def is_late(self, name: str, until: float) -> bool:
        """Whether the time of an attacker is over, which the report then says."""
        late, cut = time.monotonic() > until, f"{name} (cut short)"
        if late and cut not in self.report.skipped:
            self.report.skipped.append(cut)
        return late

    def gain(self, reward: float) -> float:
        """Return a reward as a share of the expert's."""
        if (oracle := self.report.oracle) > 0:
            return min(1.0, max(0.0, reward / oracle))
        lowest = self.report.lowest  # where all rewards are costs
        return min(1.0, (reward - lowest) / (oracle - lowest)) if oracle > lowest else 0.0

    def is_fair_part(self, task: str, episode: Played) -> bool:
        """Whether an episode does a part of what the expert does and nothing else, and is paid no
        more than that part: then the task gives credit for what is done of it.
        """
        part = self.key.part_done(task, episode)
        return part > 0 and self.gain(episode.total) <= part + PART_SLACK

    def attack(
        self, attacker: Attacker, task: str, most: int, *, until: float = math.inf
    ) -> Played:
        """Play an attacker for at most so many steps, and until then, by `time.monotonic`."""
        episode = Played()
        others = [lesson for lesson in self.lessons if lesson.task != task]
        rng = random.Random(f"{self.seed}/{attacker.name}/{task}")
        actions: Iterator[Action] | None = None
        notation = self.report.notation

        def choose() -> Action | None:
            nonlocal actions
            if episode.actions and time.monotonic() > until:
                return None
            if actions is None:
                briefing = self.briefing(episode, speaks=attacker.speaks)
                actions = attacker.plays(Scene(briefing, episode, others, rng, task))
            action = next(actions, None)
            # What is written is compared with what the expert does as the calls that it means.
            return action if action is None or not notation else notation.read(action)

        gym, seed = self.subject.gym, self.seed
        return play(gym, task, choose, seed=seed, episode=episode, max_steps=most)

    def briefing(self, episode: Played, *, speaks: bool = False) -> Briefing:
        """Return what is told before an episode, with the tools that written actions mean."""
        known = episode.infos[0].get("briefing")
        briefing = known if isinstance(known, Briefing) else Briefing()
        notation = None if speaks else self.report.notation
        return notation.named(briefing) if notation else briefing

    def seen(self, episode: Played) -> Played:
        """Return an episode once its rewards are among the seen rewards."""
        rewards = [episode.total, *(seen[1] for seen in episode.seen[1:])]
        self.report.lowest = min(self.report.lowest, *rewards)
        self.report.highest = max(self.report.highest, *rewards)
        return episode

    def scouted(self, task: str) -> tuple[Briefing, list[str]]:
        """Return the briefing of a task, and what the task shows to who looks around."""
        scout = play(self.subject.gym, task, scripted(LOOKS), seed=self.seed)
        briefing = self.briefing(scout)
        shown = [text_of(scout, n) for n in range(len(scout.seen))]
        for tool in free_tools(briefing)[: SCOUTED - 1]:
            call = assistant("", [ToolCall(name=tool.name, arguments={}, id="call_0")])
            looked = play(self.subject.gym, task, scripted([call]), seed=self.seed)
            shown += [text_of(looked, n) for n in range(1, len(looked.seen))]
        return briefing, shown

    def task_of(self, task: str) -> Task:
        """Return the task with an id, in whichever split."""
        for tasks in self.splits.values():
            with suppress(UnknownTask):
                return tasks.find(task)
        raise UnknownTask(f"no split has the task {task!r}")
