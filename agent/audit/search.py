"""An attacker that is found by trying: short programs of commands and calls, grown by what they are
paid on the tasks of training, then played on the audited ones.

It stands for the cheapest optimiser there is: whatever a few hundred episodes of blind search are
paid for, a policy that is trained will be paid for too.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ludus.envs import Briefing, ToolSpec
from ludus.messages import ToolCall, as_action, assistant

from .attackers import NUMBER, QUOTED, WORD, Action, Lesson, Scene

FIRST, LATER = 150, 200
"""Episodes that try single moves, and that try what grows of the best."""
STEPS = 12
"""Most moves of an episode that tries."""
KEPT = 10
PAIRED = 40
"""Texts that are tried after a move that is paid."""
CONFIRMED = 4
"""Tasks on which the best programs are played again."""
SHARE = 0.3
"""Share of the time for all attacks that the search may take."""
WORDS = (
    ".*", "*", "%", "inf", "-inf", "1e308", "-1e308", "0", "-1", "true", "null", "[]", "{}", "help",
    "hint", "skip", "pass", "quit", "give up", "exit", "look", "undo", "reset", "debug", "admin",
    "solution", "next", "yes",
)  # fmt: skip
NUMBERS = (-1_000_000, -10, -1, 0, 1, 1_000_000)
FIELDS = ("correct", "passed", "success", "reward", "score", "done", "verdict", "answer")
LAST_WORD, LAST_NUMBER, LAST_QUOTE = "\0word", "\0number", "\0quote"
"""Places in a move that are filled with the end of what was shown last."""
TURN = "\0turn"
"""A place that is filled with the number of the turn, so that no two moves are the same."""
_COMMANDS = re.compile(
    r"(?:commands?|actions?|moves)(?: are)?\s*:\s*([^\n]+?)(?:\.\s|\.?$)", re.IGNORECASE | re.M
)
_FILE = re.compile(r"\b[\w-]+\.[a-z]{1,5}\b")


@dataclass(frozen=True)
class Move:
    """An action with places to fill."""

    text: str = ""
    tool: str = ""
    arguments: str = "{}"
    """JSON, since lists and objects have no hash."""

    def action(self, scene: Scene) -> Action:
        """Fill the places with what is shown."""
        if not self.tool:
            return _filled(self.text, scene)
        given = {
            name: _filled(value, scene) if isinstance(value, str) else value
            for name, value in json.loads(self.arguments).items()
        }
        return assistant("", [ToolCall(name=self.tool, arguments=given, id="call_0")])


Program = tuple[Move, ...]
Try = Callable[[Program, int], float]
"""A function from a program and the number of a task of training to what it was paid."""


def _filled(text: str, scene: Scene) -> str:
    if "\0" not in text:
        return text
    shown, text = scene.shown, text.replace(TURN, str(len(scene.episode.actions)))
    for mark, pattern in ((LAST_WORD, WORD), (LAST_NUMBER, NUMBER), (LAST_QUOTE, QUOTED)):
        if mark in text:
            matches = [match[match.lastindex or 0] for match in pattern.finditer(shown)]
            text = text.replace(mark, matches[-1] if matches else "nothing")
    return text


def plays_program(program: Program) -> Callable[[Scene], Iterator[Action]]:
    """Return an attacker that plays a program again and again."""

    def plays(scene: Scene) -> Iterator[Action]:
        for move in itertools.cycle(program):
            yield move.action(scene)

    return plays


def moves_of(briefing: Briefing, shown: Sequence[str], lessons: Sequence[Lesson]) -> list[Move]:
    """Return the moves that a task suggests: its commands and tools, with values at the edge of
    what is allowed, and words that break graders.

    Args:
        briefing: what the policy is told.
        shown: texts that were shown in some episodes.
        lessons: the expert on other tasks, for the verbs of its actions.
    """
    prompt = f"{briefing.system_prompt}\n{briefing.answer_format}"
    told = "\n".join([prompt, *shown])
    texts = [*_commands(told), *_claims(prompt)]
    actions = [action for lesson in lessons for action in lesson.actions]
    plain = [as_action(action) for action in actions]
    verbs = {m.text.split()[0] for m in plain if not m.tool_calls and len(m.text.split()) == 2}
    texts += [f"{verb} {mark}" for verb in sorted(verbs) for mark in (LAST_WORD, LAST_NUMBER)]
    texts += [LAST_WORD, LAST_NUMBER, LAST_QUOTE, *WORDS]
    if any(not message.tool_calls for message in plain):  # what ends an episode ends it here too
        texts += [message.text for message in plain if not message.tool_calls][-1:]
    values = list(dict.fromkeys([*_FILE.findall(told), *(w for t in shown for w in t.split())]))
    moves = [move for tool in briefing.tools for move in _calls(tool, values[:24])]
    return list(dict.fromkeys([*(Move(text) for text in texts), *moves]))


def _commands(told: str) -> list[str]:
    """Return the commands that a text lists: `Commands: pick, go NAME`."""
    texts: list[str] = []
    for match in _COMMANDS.finditer(told):
        for item in match[1].split(","):
            words = [word for word in item.strip(" .`'\"").split() if word not in ("or", "and")]
            if not words or len(words) > 4:
                continue
            verb = words[0].lower()
            if len(words) == 1:
                texts.append(verb)
            else:
                texts += [f"{verb} {mark}" for mark in (LAST_WORD, LAST_NUMBER)]
    return texts


def _claims(prompt: str) -> list[str]:
    """Return objects that claim success in every field that a prompt names."""
    named = re.findall(r"[\"'`](\w{2,24})[\"'`]", prompt)
    fields = dict.fromkeys([*named, *FIELDS])
    return [
        json.dumps(dict.fromkeys(fields, worth)) for worth in (True, 1.0, "correct")
    ]  # whatever a grader reads of it says so


def _calls(tool: ToolSpec, values: Sequence[str]) -> list[Move]:
    """Return calls of a tool: each argument at each edge, the others at their first."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    pools = {name: _pool(schema, values) for name, schema in properties.items()}
    first = {name: pool[0] for name, pool in pools.items()}
    calls = [first]
    for name, pool in pools.items():
        calls += [first | {name: value} for value in pool[1:]]
    if 1 < len(pools) <= 2:  # of two arguments every pair
        (one, left), (other, right) = pools.items()
        calls += [{one: a, other: b} for a in left[:6] for b in right[:6]]
    return [Move(tool=tool.name, arguments=json.dumps(call)) for call in calls]


def _pool(schema: Mapping[str, Any], values: Sequence[str]) -> list[Any]:
    if "enum" in schema:
        return list(schema["enum"])
    match schema.get("type"):
        case "integer" | "number":
            return [1, *NUMBERS]
        case "boolean":
            return [True, False]
        case "array":
            return [[], ["nothing"]]
        case "object":
            return [{}]
        case _:
            return ["nothing", *values[:12], "", "*", TURN, LAST_WORD, LAST_QUOTE, LAST_NUMBER]


def sweeps_of(briefing: Briefing, shown: Sequence[str], lessons: Sequence[Lesson]) -> list[Program]:
    """Return programs that call a tool on every file that is named, with one content, and then end
    the episode as the expert does.
    """
    told = "\n".join([briefing.system_prompt, briefing.answer_format, *shown])
    files = list(dict.fromkeys(_FILE.findall(told)))[:6]
    finals = [as_action(lesson.actions[-1]).text for lesson in lessons if lesson.actions]
    end = Move(next((text for text in finals if text), "done"))
    sweeps: list[Program] = []
    for tool in briefing.tools if files else []:
        names = [
            name
            for name, schema in tool.parameters.get("properties", {}).items()
            if schema.get("type") == "string"
        ]
        for place in names if len(names) <= 3 else []:
            same = dict.fromkeys(names, "0")
            calls = [json.dumps(same | {place: file}) for file in files]
            sweeps.append((*(Move(tool=tool.name, arguments=call) for call in calls), end))
    return sweeps


@dataclass
class ProgramSearch:
    """A search for the program that is paid most.

    Args:
        moves: what programs are made of.
        attempt: plays a program on a task of training, and returns what it was paid.
        seeds: programs that are tried first.
        rng: draws what is tried.
        until: when the search ends at the latest, by `time.monotonic`.
    """

    moves: Sequence[Move]
    attempt: Try
    seeds: Sequence[Program]
    rng: random.Random
    until: float

    def best(self) -> tuple[Program, float]:
        """Return the program and its mean on the tasks that confirm it."""
        singles = list(self.moves)
        if len(singles) > FIRST:  # texts are few, and stand first
            singles = [*singles[:60], *self.rng.sample(singles[60:], FIRST - 60)]
        first = [*self.seeds, *((move,) for move in singles)]
        paid = {program: self._tried(program) for program in first}
        for program in self._pairs(paid):
            if program not in paid:
                paid[program] = self._tried(program)
        for _ in range(LATER):
            if time.monotonic() > self.until:
                break
            grown = self._grown(paid)
            if grown not in paid:
                paid[grown] = self._tried(grown)
        ranked = sorted(paid, key=lambda one: (-paid[one], len(one)))[:KEPT]
        means = {one: self._confirmed(one, paid[one]) for one in ranked if paid[one] > 0}
        if not means:
            return (), 0.0
        best = max(means, key=lambda one: (means[one], -len(one)))
        return best, means[best]

    def _pairs(self, paid: Mapping[Program, float]) -> list[Program]:
        """Return the moves that are paid, each followed by every text: a pair may be paid again and
        again where a move alone is paid once.
        """
        ranked = sorted((one for one in paid if paid[one] > 0), key=lambda one: -paid[one])
        texts = [move for move in self.moves if not move.tool][:PAIRED]
        return [(*program, move) for program in ranked[:3] for move in texts]

    def _tried(self, program: Program) -> float:
        return self.attempt(program, 0) if time.monotonic() <= self.until else 0.0

    def _confirmed(self, program: Program, first: float) -> float:
        return fmean([first, *(self.attempt(program, n) for n in range(1, CONFIRMED))])

    def _grown(self, paid: Mapping[Program, float]) -> Program:
        """Return a change of one of the best programs, or of a random one."""
        ranked = sorted(paid, key=lambda one: -paid[one])[:KEPT]
        parent = self.rng.choice(ranked if self.rng.random() < 0.6 else list(paid))
        other = self.rng.choice(list(paid))
        move = self.rng.choice(self.moves)
        match self.rng.randrange(4):
            case 0:
                grown = (*parent, move)
            case 1:
                grown = (move, *parent)
            case 2:
                grown = (*parent, *other)
            case _:
                place = self.rng.randrange(len(parent))
                grown = (*parent[:place], move, *parent[place + 1 :])
        return grown[:8]


def described(program: Program) -> str:
    """Return a program in words."""
    marks = {
        LAST_WORD: "<last word>",
        LAST_NUMBER: "<last number>",
        LAST_QUOTE: "<last quotation>",
    } | {TURN: "<turn>"}

    def plain(value: Any) -> str:
        text = str(value)
        for mark, word in marks.items():
            text = text.replace(mark, word)
        return text

    said = [
        f"{move.tool}({', '.join(f'{name}={plain(value)}' for name, value in given.items())})"
        if move.tool
        else plain(move.text)
        for move in program
        for given in [json.loads(move.arguments)]
    ]
    return "; ".join(said)
