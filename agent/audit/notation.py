"""Notations: how an environment without tools has calls written as text.

If the expert writes `{"do": "open", "door": 2}` or `<search>sea</search>`, the audit reads such
texts as calls of tools. All attacks on tools are then tried, and their calls are written in the
same form. A **plan** is a single answer whose lines are commands; the audit reads each line as a
deed.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from ludus.envs import Briefing, ToolSpec
from ludus.envs.checks.subject import PatientEnv
from ludus.envs.session import Stepped
from ludus.messages import ToolCall, as_action, as_messages, assistant

from .attackers import Action, Lesson

FEWEST_READ = 0.8
"""The least share of the expert's actions that a form has to read."""
MOST_VERBS = 16
"""Most names of actions; a key with more values is an argument."""
MOST_WRITTEN = 24
"""Most calls of an action that are written; each takes a turn."""
_TAGGED = re.compile(r"<([A-Za-z_]\w*)>(.*?)</\1>|<([A-Za-z_]\w*) ?/>", re.DOTALL)
_OBJECT = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_BARE = re.compile(r":\s*(?!true\b|false\b|null\b)<?([A-Za-z_][\w ]*)>?\s*([,}])")
"""A value in the example of a prompt that is named and not written: `{"open": ID}`."""


class Syntax(Protocol):
    """How a call is written."""

    def read(self, text: str) -> ToolCall | None:
        """Return the call that a text means; None for any other text."""
        ...

    def write(self, call: ToolCall) -> str:
        """Return the text of a call."""
        ...

    def examples(self, prompt: str) -> Iterator[ToolCall]:
        """Return the calls that a prompt shows."""
        ...


@dataclass(frozen=True)
class Tags:
    """Calls as elements: the tag is the name of a tool, its content the only argument.

    >>> Tags().write(ToolCall(name="search", arguments={"text": "sea"}))
    '<search>sea</search>'
    """

    def read(self, text: str) -> ToolCall | None:
        """Return the call of a text that is one element; None for any other text."""
        match = _TAGGED.fullmatch(text.strip())
        return self._call(match) if match else None

    def write(self, call: ToolCall) -> str:
        """Return the element of a call."""
        held = str(next(iter(call.arguments.values()), ""))
        return f"<{call.name}>{held}</{call.name}>" if call.arguments else f"<{call.name}/>"

    def examples(self, prompt: str) -> Iterator[ToolCall]:
        """Return the elements that a prompt shows."""
        yield from map(self._call, _TAGGED.finditer(prompt))

    @staticmethod
    def _call(match: re.Match[str]) -> ToolCall:
        return ToolCall(name=match[1] or match[3], arguments={"text": match[2]} if match[1] else {})


@dataclass(frozen=True)
class Objects:
    """Calls as JSON objects: the value of one key is the name of the tool, or else the first key
    is.

    >>> Objects(key="do").write(ToolCall(name="open", arguments={"door": 2}))
    '{"do": "open", "door": 2}'
    """

    key: str = ""
    """The key of the name; "" if the first key is the name."""
    nested: str = ""
    """The key that holds the arguments; "" if they stand beside the name."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Objects:
        """Return the form of objects, by the key that each of them has and whose values are few
        words.
        """
        shared = [key for key in rows[0] if all(key in row for row in rows)]
        for key in shared:
            names = Counter(row[key] for row in rows if isinstance(row[key], str))
            is_word = all(re.fullmatch(r"[A-Za-z_][\w-]*", name) for name in names)
            if is_word and names.total() == len(rows) and 1 < len(names) <= MOST_VERBS:
                nested = [k for k in shared if k != key and isinstance(rows[0][k], dict)]
                is_nested = len(nested) == 1 and all(row.keys() == {key, *nested} for row in rows)
                return cls(key, nested[0] if is_nested else "")
        return cls()

    def read(self, text: str) -> ToolCall | None:
        """Return the call of a text that is one object; None for any other text."""
        row = object_of(text)
        return self._call(row) if row else None

    def write(self, call: ToolCall) -> str:
        """Return the object of a call."""
        given = {self.nested: call.arguments} if self.nested else call.arguments
        row = {self.key: call.name, **given} if self.key else given
        return json.dumps(row, ensure_ascii=False)

    def examples(self, prompt: str) -> Iterator[ToolCall]:
        """Return the objects that a prompt shows."""
        rows = map(object_of, (_BARE.sub(r': "\1"\2', text) for text in _OBJECT.findall(prompt)))
        yield from filter(None, map(self._call, filter(None, rows)))

    def _call(self, row: dict[str, Any]) -> ToolCall | None:
        if not self.key:
            return ToolCall(name=next(iter(row)), arguments=row)
        name, fields = row.get(self.key), {k: v for k, v in row.items() if k != self.key}
        given = fields.get(self.nested) if self.nested else fields
        is_call = isinstance(name, str) and isinstance(given, dict)
        return ToolCall(name=str(name), arguments=given or {}) if is_call else None


def object_of(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is; an empty object for any other text."""
    try:
        data = json.loads(text) if text.lstrip()[:1] == "{" else None
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


@dataclass(frozen=True)
class Notation:
    """The form of an environment's actions, and the tools that the actions mean."""

    form: Syntax
    tools: tuple[ToolSpec, ...]

    @classmethod
    def of(cls, briefing: Briefing, lessons: Iterable[Lesson]) -> Notation | None:
        """Return the notation of what an expert writes.

        None if the environment has tools, or if the expert calls tools, writes texts that are no
        calls, or makes one action on each task.
        """
        taught = [lesson for lesson in lessons if lesson.actions]
        said = [as_action(action) for lesson in taught for action in lesson.actions]
        if briefing.tools or len(said) <= len(taught) or any(each.tool_calls for each in said):
            return None
        rows = [row for each in said if (row := object_of(each.text))]
        is_objects = len(rows) >= FEWEST_READ * len(said)
        form: Syntax = Objects.of(rows) if is_objects else Tags()
        calls = [call for each in said if (call := form.read(each.text))]
        names = {call.name for call in calls}
        if len(calls) < FEWEST_READ * len(said) or not 1 <= len(names) <= MOST_VERBS:
            return None
        shown = [call for call in form.examples(briefing.system_prompt) if call.name not in names]
        rows_of = dict[str, list[ToolCall]]()
        for call in (*calls, *shown):
            rows_of.setdefault(call.name, []).append(call)
        return cls(form, tuple(map(_tool, rows_of.values())))

    def read(self, action: Action) -> Action:
        """Return the call that an action means; the action as it is if it means none, or if the
        notation writes this call otherwise.
        """
        text = as_action(action).text.strip()
        call = self.form.read(text)
        if call is None or call.name not in {tool.name for tool in self.tools}:
            return action
        written = self.form.write(call)
        is_same = written == text or (object_of(written) == object_of(text) != {})
        return assistant("", [msgspec.structs.replace(call, id="call_0")]) if is_same else action

    def named(self, briefing: Briefing) -> Briefing:
        """Return a briefing with the tools of the notation added."""
        return msgspec.structs.replace(briefing, tools=[*briefing.tools, *self.tools])

    def lesson(self, lesson: Lesson) -> Lesson:
        """Return a lesson with calls in place of the texts that mean calls."""
        return replace(lesson, actions=tuple(map(self.read, lesson.actions)))

    def write(self, action: Action) -> list[Action]:
        """Return an action as texts, one for each of its calls; an action without calls stays."""
        calls = as_action(action).tool_calls
        return [self.form.write(call) for call in calls[:MOST_WRITTEN]] or [action]


@dataclass(frozen=True)
class Plan:
    """The form of plans: answers whose lines are commands, each of which is read as a deed."""

    verbs: frozenset[str]
    joints: Mapping[tuple[str, int], tuple[str, ...]]
    """The texts between the words of a line, by its command and the number of its words."""

    @classmethod
    def of(cls, lessons: Sequence[Lesson]) -> Plan | None:
        """Return the form of the expert's answers; None if the answers are no plans, or if the
        expert makes several actions on a task.
        """
        texts = [as_action(lesson.actions[0]).text for lesson in lessons]
        rows = [line for text in texts for line in text.splitlines() if line.strip()]
        if any(len(lesson.actions) > 1 for lesson in lessons) or len(rows) < 2 * len(lessons):
            return None
        firsts = Counter(match[0] for line in rows if (match := _WORD.search(line)))
        usual = {word for word, times in firsts.items() if 4 * times >= len(lessons)}
        is_verb = len(usual) <= MOST_VERBS and sum(firsts[w] for w in usual) == len(rows)
        verbs = frozenset(usual if is_verb and all(map(str.isalpha, usual)) else ())
        form = cls(verbs, joints := dict[tuple[str, int], tuple[str, ...]]())
        for line in rows:
            call = form._call(line)
            joints.setdefault((call.name, len(call.arguments)), tuple(_WORD.split(line)))
        is_same = all(form.fold(form.unfold(le).actions) == [*le.actions] for le in lessons)
        return form if is_same else None

    def unfold(self, lesson: Lesson) -> Lesson:
        """Return a lesson with a deed for each line."""
        lines = as_action(lesson.actions[0]).text.splitlines()
        calls = tuple(assistant("", [self._call(line)]) for line in lines if line.strip())
        nothing = ("",) * len(calls)
        return replace(lesson, actions=calls, replies=nothing, rewards=lesson.rewards * len(calls))

    def fold(self, way: Sequence[Action]) -> list[Action]:
        """Return the answer whose lines are the deeds of a way; an empty list without a deed."""
        calls = [call for action in way for call in as_action(action).tool_calls]
        return ["\n".join(map(self._line, calls))] if calls else []

    def _call(self, line: str) -> ToolCall:
        words = _WORD.findall(line)
        name = words.pop(0) if words and words[0] in self.verbs else "row"
        given = {str(n): word for n, word in enumerate(words)}
        return ToolCall(name=name, arguments=given, id="call_0")

    def _line(self, call: ToolCall) -> str:
        words = [*([call.name] if call.name in self.verbs else []), *call.arguments.values()]
        joints = self.joints[call.name, len(call.arguments)]
        pairs = itertools.zip_longest(joints, map(str, words), fillvalue="")
        return "".join(part for pair in pairs for part in pair)


_WORD = re.compile(r"[\w.-]*\w")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}


def _tool(calls: Sequence[ToolCall]) -> ToolSpec:
    """Return the tool that calls of one name mean, with the arguments that these calls have."""
    values = dict[str, Any]()
    for call in calls:
        values |= {name: value for name, value in call.arguments.items() if name not in values}
    schemas = {name: _schema(value) for name, value in values.items()}
    needed = [name for name in values if all(name in call.arguments for call in calls)]
    parameters = {"type": "object", "properties": schemas, "required": needed}
    return ToolSpec(name=calls[0].name, description="", parameters=parameters)


def _schema(value: Any) -> dict[str, Any]:
    kind = {"type": _TYPES.get(type(value), "object")}
    return kind | {"items": _schema(value[0])} if isinstance(value, list) and value else kind


class SpokenEnv(PatientEnv):
    """A view of an environment in which calls are written in its notation, one a turn."""

    def __init__(self, gym: PatientEnv, notation: Notation) -> None:
        self.__dict__.update(gym.__dict__)
        self._gym, self._notation = gym, notation

    def step(self, action: Action) -> Stepped:
        """Write the calls of an action in turn, until the episode ends.

        The result has all that was shown, as lines, and the sum of the rewards.
        """
        steps = list[Stepped]()
        for written in self._notation.write(action):
            steps.append(self._gym.step(written))
            if any(steps[-1][2:4]):
                break
        if len(steps) == 1:
            return steps[0]
        texts = [message.text for step in steps for message in as_messages(step[0])]
        return "\n".join(texts), sum(step[1] for step in steps), *steps[-1][2:]
