"""The answer key of an audit: what the expert does on each task, the golds, and whether an episode
did the task.

A **deed** is what an action does: its calls with their arguments, or its text without regard to
case and spaces. `Send  ann 12` and `send ann 12` are two actions and one deed. The **name** of a
deed (`verb`) is the tool that it calls, or the first word of its text: `send`.

A **place** is where an argument of a deed stands. The place of an argument of a call is (tool,
argument); the place of a word of a command is (command, number of the word behind it). In
`send ann 12`, the value `ann` stands at the place `("send", 0)`, and `12` at `("send", 1)`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ludus.envs import Briefing
from ludus.envs.checks.rules import forms_of
from ludus.envs.checks.subject import EnvUnderCheck, Played, expert, play
from ludus.messages import Message, as_action, assistant

from .attackers import ANSWERED, WORD, Action, AnswerFrame, Lesson, plain_of, text_of
from .notation import Notation, SpokenEnv, object_of

MOST_LINES = 3
"""Most lines of a text of which one may be the answer."""
LONGEST_COMMAND = 5
"""Words of a command; a longer text is an answer."""
_PIECE = re.compile(r"[^\s()\[\],;=<>\"']+")
"""A word of a command, or of what stands in its brackets."""
Place = tuple[str, str | int]
"""A tool and its argument, or a command and the number of a word behind it, from 0."""


@dataclass
class AnswerKey:
    """The expert's episode and the gold of each task; each task is played once to learn both."""

    subject: EnvUnderCheck
    seed: int
    is_remote: bool
    """Whether the expert and the golds stay on a server, so that the key has neither."""
    experts: dict[str, Lesson] = field(default_factory=dict[str, Lesson])
    """Task -> the expert's episode; the task is absent if there is no expert."""
    golds: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Task -> the forms in which its gold may be written; empty if the environment has no gold."""
    frame: AnswerFrame = field(default_factory=AnswerFrame)
    """What all final answers have in common, such as a box or the tool that takes the answer."""
    answers: frozenset[str] = frozenset()
    """All final answers of the expert on the tasks of the lessons."""
    notation: Notation | None = None
    """How calls are written as text; None if actions are played as they are."""

    def learn(self, task: str) -> None:
        """Play the expert on a task, and keep its episode and the gold; once for each task."""
        if task in self.golds:
            return
        if not self.is_remote:
            episode = play(self.subject.gym, task, expert(self.subject.env), seed=self.seed)
            if episode.actions:
                replies = tuple(text_of(episode, n) for n in range(1, len(episode.seen)))
                rewards = tuple(seen[1] for seen in episode.seen[1:])
                opening, actions = text_of(episode, 0), tuple(episode.actions)
                lesson = Lesson(task, opening, actions, replies, rewards)
                self.experts[task] = self.notation.lesson(lesson) if self.notation else lesson
            self.subject.gym.reset(seed=self.seed, options={"task": task})
        gold = self.newest_gold()
        self.golds[task] = frozenset() if gold is None else forms_of(gold)

    def learn_notation(self, task: str) -> Notation | None:
        """Find out whether the expert writes calls as text, such as `{"do": "open", "door": 2}`.

        If it does, the lessons have calls in place of texts from now on, and each call that an
        attacker makes is written as such a text before the environment gets it.

        Returns:
            How calls are written; None if the expert writes none.
        """
        info = self.subject.gym.reset(seed=self.seed, options={"task": task})[1]
        given = info.get("briefing")
        briefing = given if isinstance(given, Briefing) else Briefing()
        self.notation = Notation.of(briefing, self.experts.values())
        if self.notation is not None:
            self.experts = {t: self.notation.lesson(each) for t, each in self.experts.items()}
            self.subject.made[0] = SpokenEnv(self.subject.gym, self.notation)
        return self.notation

    def lessons(self, tasks: Sequence[str]) -> list[Lesson]:
        """Return the expert's episodes on tasks, and set `frame` and `answers` by their ends."""
        lessons = [self.experts[task] for task in tasks if task in self.experts]
        self.frame = AnswerFrame.of(lessons, Briefing())
        ends = [self.frame.core(lesson.actions[-1]) for lesson in lessons if lesson.actions]
        self.answers = frozenset(map(plain_of, ends))
        return lessons

    def newest_gold(self) -> object:
        """Return the gold of the newest episode; None on a server."""
        return None if self.is_remote else self.subject.env.gold()

    def solves(self, task: str, actions: Sequence[Action]) -> bool:
        """Whether the last action gives the answer of the gold or of the expert on this task.

        If all episodes of the expert end alike (`done`), the actions have to be its whole way, or
        another way to the gold. An episode with fewer than half of the expert's actions, and one
        that lists answers of other tasks beside the right one, does not solve the task.
        """
        if not actions:
            return False
        if self.frame.ends_in(actions[-1], self.golds[task]):
            return True
        lesson = self.experts.get(task)
        if lesson is None or 2 * len(actions) < len(lesson.actions):
            return False  # who needs less than half of the expert's turns goes another way
        if self.frame.is_constant:  # the answer is the way, not its end
            return list(map(deed, actions)) == list(map(deed, lesson.actions))
        if self.frame.amounts(actions[-1]) != self.frame.amounts(lesson.actions[-1]):
            return False
        said, wanted = (self.frame.core(action) for action in (actions[-1], lesson.actions[-1]))
        if plain_of(said) == plain_of(wanted):
            return True
        # Who looked where the expert looks, and says its answer, did the task.
        if len(actions) < 2 or self.looks_elsewhere(task, actions):
            return False
        pieces = {*map(plain_of, said.splitlines()), *plain_of(said).split()}
        if len(said.splitlines()) > MOST_LINES or plain_of(wanted) not in pieces:
            return False
        # Who says what is right elsewhere as well answers nothing.
        return pieces.isdisjoint(self.answers - {plain_of(wanted)})

    def has_answer(self, task: str) -> bool:
        """Whether the expert's last action is an answer.

        The last action is no answer if all tasks end alike, or if an earlier deed of the same name
        was paid as much: then it is one of several deeds.
        """
        lesson = self.experts[task]
        *before, last = zip(lesson.actions, lesson.rewards, strict=True)
        alike = [paid for action, paid in before if verb(action) == verb(last[0])]
        return not self.frame.is_constant and not 0 < last[1] <= max(alike, default=0.0)

    def overlap(self, task: str, actions: Sequence[Action]) -> float:
        """Return the F1, from 0 to 1, between the words of the last action's answer and of the
        expert's. In lines such as `city: Rome` a word counts for its key alone.
        """
        lesson = self.experts.get(task)
        if lesson is None or not actions or self.frame.is_constant:
            return 0.0
        core = self.frame.core if self.frame.call else lambda each: as_action(each).text
        said, wanted = (_items(core(each)) for each in (actions[-1], lesson.actions[-1]))
        return 2 * len(said & wanted) / (len(said) + len(wanted)) if said and wanted else 0.0

    def part_done(self, task: str, episode: Played) -> float:
        """Return which share of the expert's actions an episode has done; 0 if any of its actions
        is none of the expert's, or if the expert needs one action only.
        """
        lesson = self.experts.get(task)
        if lesson is None or len(lesson.actions) < 2 or not episode.actions:
            return 0.0
        is_other = self.beyond(task, episode.actions)
        return 0.0 if is_other else len(episode.actions) / len(lesson.actions)

    def walks(self, task: str, episode: Played) -> bool:
        """Whether an episode has as many actions as the expert's, of the same commands or tools."""
        known = self.experts[task].actions if task in self.experts else ()
        is_as_long = len(episode.actions) == len(known)
        return is_as_long and {*map(verb, episode.actions)} <= {*map(verb, known)}

    def does_all(self, task: str, episode: Played) -> bool:
        """Whether an episode does all deeds of the expert in the same order. Deeds may be repeated,
        and actions of other names may come between.
        """
        names = {*map(verb, self.experts[task].actions)} if task in self.experts else ()
        done = [deed(action) for action in episode.actions if verb(action) in names]
        return bool(done) and [*dict.fromkeys(done)] == [*dict.fromkeys(self._deeds(task))]

    def worth(self, task: str, episode: Played) -> float:
        """Return what the expert is paid for those of an episode's actions that are its own.

        Each such action counts with the expert's reward for it, or with an equal share of the whole
        if only the last action is rewarded. An action that is repeated and gets the same reply
        counts once, unless the expert repeats it, too.
        """
        lesson, left, worth = self.experts[task], Counter[Hashable](), 0.0
        known = Counter(zip(map(deed, lesson.actions), lesson.replies, strict=False))
        replies = [text_of(episode, n) for n in range(1, len(episode.seen))]
        events = Counter(zip(map(deed, episode.actions), replies, strict=False))
        for event, times in events.items():
            left[event[0]] += min(times, max(1, known[event]))
        equal = sum(lesson.rewards) / len(lesson.rewards)
        for action, reward in zip(lesson.actions, lesson.rewards, strict=True):
            if left[deed(action)] > 0:
                left[deed(action)] -= 1
                worth += reward if any(lesson.rewards[:-1]) else equal
        return worth

    def beyond(self, task: str, actions: Sequence[Action]) -> Counter[Hashable]:
        """Return the deeds that are not the expert's on this task, with how often each is done
        beyond what the expert does.
        """
        return Counter(map(deed, actions)) - Counter(self._deeds(task))

    def looks_elsewhere(self, task: str, actions: Sequence[Action]) -> bool:
        """Whether an action before the last is none of the expert's on this task."""
        return not {*map(deed, actions[:-1])} <= {*self._deeds(task)}

    def _deeds(self, task: str) -> list[Hashable]:
        lesson = self.experts.get(task)
        return [deed(action) for action in lesson.actions] if lesson else []


def _items(answer: str) -> set[tuple[str, str]]:
    """Return the words of an answer as pairs (key of the line, word); the key may be empty."""
    items = set[tuple[str, str]]()
    for line in answer.casefold().splitlines():
        row = ANSWERED.fullmatch(line.strip())
        key, text = (row[1], row[3]) if row else ("", line)
        items.update((key, word) for word in WORD.findall(text))
    return items


def verb(action: Action) -> str:
    """Return the name of a deed: the first tool that an action calls, else the first word of its
    text. If the text is a JSON object, the name is its first value that is a text.

    >>> verb("send ann 12"), verb('{"do": "open", "door": 2}')
    ('send', 'open')
    """
    message = as_action(action)
    if message.tool_calls:
        return message.tool_calls[0].name
    given = object_of(message.text)
    if given:
        return next((value for value in given.values() if isinstance(value, str)), "")
    return next((match[0] for match in _PIECE.finditer(message.text)), "")


def deed(action: Action) -> Hashable:
    """Return what an action does, so that equal deeds are equal: its calls with their arguments, or
    without calls its text as `plain_of` writes it.

    >>> deed("Send  ann 12") == deed("send ann 12")
    True
    """
    message = as_action(action)
    calls = [(call.name, repr(sorted(call.arguments.items()))) for call in message.tool_calls]
    return tuple(calls) or plain_of(message.text)


def called(message: Message, given: Sequence[Mapping[str, Any]]) -> Message:
    """Return a message with other arguments for its calls, one mapping for each call."""
    calls = [
        msgspec.structs.replace(call, arguments=dict(row))
        for call, row in zip(message.tool_calls, given, strict=True)
    ]
    return assistant(message.text, calls)


def changed(action: Action, change: Callable[[Place, Any], Any]) -> Action:
    """Return an action with `change(place, value)` in place of each argument of its calls, or of
    each word of its command; a sentence or an answer is returned as it is.

    >>> changed("send ann 12", lambda place, value: "20" if place == ("send", 1) else value)
    'send ann 20'
    """
    message = as_action(action)
    if message.tool_calls:
        rows = [
            {name: change((call.name, name), value) for name, value in call.arguments.items()}
            for call in message.tool_calls
        ]
        return called(message, rows)
    name, given = verb(action), object_of(message.text)
    if given and name:
        key = next(key for key, value in given.items() if value == name)
        row = {k: v if k == key else change((name, k), v) for k, v in given.items()}
        return json.dumps(row, ensure_ascii=False)
    if not _is_command(message.text):
        return action
    places = itertools.count(-1)

    def other(match: re.Match[str]) -> str:
        place = next(places)
        return match[0] if place < 0 else str(change((name, place), match[0]))

    return _PIECE.sub(other, message.text)


def _is_command(text: str) -> bool:
    """Whether a text is a command: one short line in small letters without a full stop."""
    words = text.split()
    is_plain = bool(words) and words[0] != words[0].capitalize() and text[-1] not in ".?!"
    return is_plain and len(words) <= LONGEST_COMMAND and "\n" not in text
