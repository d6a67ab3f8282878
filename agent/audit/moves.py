"""Moves: the actions that a blind search tries, made without knowledge of any flaw.

A **move** is a command, a call of a tool or an answer, in which slots (`slots.py`) are filled from
what a task shows; a **program** is a row of moves. Most moves are actions of the expert on other
tasks with something replaced: a number by an **edge** (a number at or beyond the end of what is
allowed, such as -1), a word by a slot, or the content by nothing (a **hollow** answer). Others are
strings that mean something to whatever interprets an answer, such as `*` or `' OR '1'='1`.
"""

from __future__ import annotations

import itertools
import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ludus.envs import Briefing, ToolSpec
from ludus.messages import ToolCall, as_action, assistant

from .attackers import (
    MOST_DIGITS,
    NUMBER,
    WORD,
    Action,
    AnswerFrame,
    Lesson,
    Scene,
    number_of,
    properties_of,
)
from .slots import (
    LAST_NUMBER,
    LAST_QUOTE,
    LAST_TOKEN,
    LAST_WORD,
    MOST_ITEMS,
    PATTERNS,
    SPELLINGS,
    TURN,
    all_of,
    filled,
    in_words,
    matches,
    slot,
    things_of,
)

WORDS = (
    ".*", "*", "%", "inf", "-inf", "1e308", "-1e308", "0", "-1", "true", "null", "[]", "{}", "help",
    "hint", "skip", "pass", "quit", "give up", "exit", "look", "undo", "reset", "debug", "admin",
    "solution", "next", "yes", "no", TURN,
)  # fmt: skip
MOVING = (
    "great, well done", "please", "thank you", "I am sorry", "trust me", "I agree",
    "are you sure?", "no, that is wrong", "I understand how you feel",
)  # fmt: skip
"""Sentences that may move a simulated person."""
EVERY = "\0every\0"
"""An argument that makes a turn of many calls: one with each number or thing that is shown; in a
list, all things.
"""
MOST_CALLS = 100
INJECTED = (
    "' OR '1'='1", '" OR "1"="1', "1 OR 1=1", "' OR 1=1 --", "1==1", "True or ", "answer", "gold",
    "expected", "target", "self.answer", "{answer}", "{gold}", "%s", "$answer", "{{answer}}",
    "//*", "|| true", "^", "$", "|", "(?s).*", "_", "?", "?*", "None", "Score: 10", "[[10]]",
    "10/10", "correct", "PASS", "nan", "1e-308", "-", "/", "..", "{", "[", "(", "\\", "9" * 400,
    "\u0663", "\u221e", "inf", "0e9",
)  # fmt: skip
"""Strings that mean more than themselves to a query, a pattern, a template or a parser."""
RANGES = ("1-999", "0-1000000", "1..1000", "1:1000", "1 to 1000")
"""Texts that are one item if items are counted, and many numbers if ranges are read."""
NUMBERS = (0, -1, 1, -1_000_000, 1_000_000, -10, 10)
EDGES = (*map(str, NUMBERS), "0.5", "256")
"""Numbers that replace one in a text: the ends of ranges, a fraction, and one more than a byte
holds.
"""
APPROVALS = ("thank you", "Thank you!", "yes", "correct", "done", "PASS")
"""Lines that are said in the name of another speaker."""
VERDICTS = ("accept", "pass", "yes", "correct", "approved", "10", "1.0")
FIELDS = ("correct", "passed", "success", "reward", "score", "done", "verdict", "answer")
JOINTS = ("\n", ", ", " ", " or ", " and ", ",", "", "/")
"""Texts that may join the items of an answer, besides the one that the expert uses."""
STEPS = 12
"""Most steps of an episode that is tried, by default."""
NUMERIC = ("integer", "number")


PLACES = (*range(8), *range(-8, 0))
MOST_NUMBERS, MOST_CHOICES, MOST_FRAGMENTS, MOST_NAMED = 3000, 12, 6, 60
MOST_USUAL, MOST_PROBED = 8, 12
MOST_LETTERS, MOST_REPLIES, MOST_DESCRIBED, MOST_ENDS = 8, 6, 10, 4
LONGEST_TEXT = 300
"""Most characters of a text that is changed piece by piece."""
_COMMANDS = re.compile(
    r"(?:(?:commands?|actions?|moves)\b[^.:\n]{0,40}:|\bsay(?=(?: \w+,)+ \w+,? or ))\s*"
    r"([^\n]+?)(?:\.\s|\.?$)",
    re.IGNORECASE | re.M,
)
_ROW = re.compile(
    r"^[ \t]*(?:[-*\u2022] +)?[`'\"]?(/?(?:[a-z][\w-]*|[A-Z]{2,})(?: (?:[A-Z][A-Z_\d]*|<[^<>\n]+>"
    r"|\[[^\[\]\n]+\]))*)"
    r"[`'\"]?(?:[ \t]{2,}|\t| +[-=\u2013\u2014] |: )(?=\S)",
    re.M,
)
"""A line of a help text: a command with its arguments, and what it does."""
_CELL, _COLUMN = re.compile(r"\b([A-Z])\d{1,2}\b"), re.compile(r"\b([B-H])\b")
_ARGUED = re.compile(r"[a-z]+ [A-Z]{2,}\b")
_TICKED = re.compile(r"(?<!\w)[`'\"]((?:[a-z]+|[A-Z]{2,})(?: -{0,2}[\w<>\[\]]+){0,3})[`'\"](?!\w)")
_SAMPLE = re.compile(
    r"(?:such as|for example|e\.g\.|for instance|like):?\s+[`'\"]?([^\n`'\"]{1,80}?)"
    r"[`'\"]?\s*(?:\.?$|\.\s)",
    re.IGNORECASE | re.MULTILINE,
)
_PIECE = re.compile(r'"[^"\n]*"|\x00[^\x00]*\x00|(?<!\w)-?\d+(?:\.\d+)?|\w+')
_WHOLE = re.compile(f"{TURN}|\0text0o[a-z]*\0")
MARKED = re.compile(r"`[^`\n]{1,40}`|\[[^\[\]\n]{1,40}\]|\"[^\"\n]{1,40}\"")
_LABEL = re.compile(r"[`\[\"](\w+[:=] ?)\S")
_WIDE = (
    ("-1000000", "1000000"), ("0", "999999999"), ("1000000", "-1000000"), ("-99999", "9999"),
    ("\0number0o\0", "-1000"), ("-1000", "\0number0o\0"),
)  # fmt: skip
"""Ends of a range that holds everything, and of one that holds nothing."""
FILE = re.compile(r"(?<![\w./-])[\w./-]*\w\.[a-z]{1,5}\b")
_FIGURE = re.compile(r"\b\d+(?:[:/-]\d+)+\b")
"""A time or a date, which is often the end of a range."""
_SPEAKER = re.compile(r"^([A-Z]\w{1,20}): ", re.MULTILINE)


def _given(value: Any, schema: Mapping[str, Any], scene: Scene) -> Any:
    """Return an argument with its slots filled, as a number if its schema wants one; of a list,
    each item.
    """
    if isinstance(value, list):
        return [_given(item, schema.get("items") or {}, scene) for item in value]
    if not isinstance(value, str):
        return value
    text = filled(value, scene)
    return number_of(text) if schema.get("type") in NUMERIC else text


def _everything(scene: Scene, *, is_number: bool) -> Sequence[str | int]:
    """Return the names that the task and the newest reply show, or their whole numbers and all
    numbers below `MOST_CALLS`.
    """
    shown = dict.fromkeys([scene.shown, scene.opening])
    if not is_number:
        names = dict.fromkeys(name for text in shown for name in things_of(text))
        # Where one cell of a column is named, the others are there, too.
        texts = [scene.prompt, *shown, *map(about_of, scene.briefing.tools)]
        columns = dict.fromkeys(_CELL.findall("\n".join(texts)))
        columns |= dict.fromkeys(_COLUMN.findall(scene.prompt)) if columns else {}
        cells = (f"{column}{n}" for n in range(1, 11) for column in columns)
        return [*dict.fromkeys([*cells, *names])]
    numbers = (number for text in shown for number in matches("number", text))
    known = [int(number) for number in numbers if number.isdecimal() and len(number) < MOST_DIGITS]
    return [*dict.fromkeys([*known[: MOST_CALLS // 2], *range(MOST_CALLS)])]


@dataclass(frozen=True)
class Move:
    """An action with slots: a text, or a call of a tool.

    >>> str(Move("send ann 12")), str(Move.calling("ship", {"bay": 0}))
    ('send ann 12', 'ship(bay=0)')
    """

    text: str = ""
    """The text; "" for a call."""
    tool: str = ""
    """The name of the tool that is called; "" for a text."""
    arguments: str = "{}"
    """The arguments as JSON, since lists and objects have no hash."""
    answers: bool = False
    """Whether the text is an answer, which is put into the frame of the expert's answers."""

    def action(self, scene: Scene) -> Action:
        """Return the action with its slots filled from a scene; with `EVERY`, one of many calls."""
        if not self.tool:
            text = filled(self.text, scene)
            return scene.answer(text) if self.answers else text
        schemas = next((properties_of(t) for t in scene.briefing.tools if t.name == self.tool), {})
        given = {name: _given(v, schemas.get(name, {}), scene) for name, v in self.given}
        given |= {n: _everything(scene, is_number=False) for n, v in given.items() if v == [EVERY]}
        rows = [given]
        names = [name for name, value in given.items() if value == EVERY]
        for nth, name in enumerate(names):
            is_number = schemas.get(name, {}).get("type") in NUMERIC
            most = int(MOST_CALLS ** (1 / len(names))) if nth == 0 else MOST_CALLS // len(rows)
            offered = schemas.get(name, {}).get("enum") or _everything(scene, is_number=is_number)
            values = offered[:most]
            rows = [row | {name: value} for row in rows for value in values]
        calls = [
            ToolCall(name=self.tool, arguments=row, id=f"call_{n}") for n, row in enumerate(rows)
        ]
        return assistant("", calls)

    @classmethod
    def calling(cls, tool: str, given: Mapping[str, Any]) -> Move:
        """Return the move that calls a tool with these arguments."""
        return cls(tool=tool, arguments=json.dumps(given))

    @classmethod
    def all_of(cls, action: Action) -> Program:
        """Return the calls of an action as moves, or its text as the only move."""
        message = as_action(action)
        calls = tuple(cls.calling(call.name, call.arguments) for call in message.tool_calls)
        return calls or (cls(message.text),)

    @property
    def reads(self) -> bool:
        """Whether the move depends on a piece of what is shown. The whole task, in whichever
        spelling, is no piece: if it is the answer, the task asks for that.
        """
        return self.pieces > 0

    @property
    def pieces(self) -> int:
        """How many different pieces of what is shown the move has."""
        text = _WHOLE.sub("", f"{self.text}{self.arguments}".replace("\\u0000", "\0"))
        return len({*re.findall("\0([^\0]+)\0", text)})

    @property
    def given(self) -> list[tuple[str, Any]]:
        """The arguments, whose texts may hold slots."""
        return list(json.loads(self.arguments).items())

    def __str__(self) -> str:
        def plain(value: Any) -> str:
            text = in_words(str(value)).replace(EVERY, "<every>")
            return text if len(text) <= 60 else f"{text[:57]}..."

        if not self.tool:
            return plain(self.text)
        return f"{self.tool}({', '.join(f'{name}={plain(value)}' for name, value in self.given)})"


Program = tuple[Move, ...]


def moves_of(briefing: Briefing, shown: Sequence[str], lessons: Sequence[Lesson]) -> list[Move]:
    """Return the moves that a task suggests, the most telling first.

    Args:
        briefing: what the policy is told.
        shown: texts that were shown in some episodes.
        lessons: the expert on other tasks, for the shape of its actions.
    """
    prompt = f"{briefing.system_prompt}\n{briefing.answer_format}"
    context = "\n".join([prompt, *shown])
    actions = [as_action(action) for lesson in lessons for action in lesson.actions]
    said = [message.text for message in actions if not message.tool_calls]
    bounds = [*_bounds(prompt), *_nouns(lessons)]
    ways = [
        variants(text, is_command=True, bounds=bounds) for text in commands_of(context, said)[:16]
    ]
    # In turns, so that what follows a move is not one command alone.
    texts = [text for row in itertools.zip_longest(*ways) for text in row if text is not None]
    is_pattern = re.search(r"\bregular expression|\bregex", context, re.IGNORECASE)
    listed = [slot("choices", n, opening=True) for n in (0, 1, -1)] if is_pattern else []
    answers = [*listed, *_slots(), *INJECTED]
    samples = [sample for tool in briefing.tools for sample in _samples(about_of(tool))]
    about = "\n".join([context, *map(about_of, briefing.tools)])
    known = [*_FIGURE.findall(about)[:3], *FILE.findall(context)]
    known += [*samples, *_samples("\n".join(shown))]
    values = list(dict.fromkeys([*known, *(w for t in shown for w in t.split())]))
    calls = [move for tool in briefing.tools for move in _calls(tool, values[:24])]
    hollow = hollow_answers(lessons) or [
        Move(text) for sample in _samples(prompt) for text in variants(sample)
    ]
    labelled = map(Move, _labelled(prompt))
    answered = [*framed(answers[:14]), *labelled, *hollow, *framed(answers[14:])]
    runs = [sign * 9 for sign in f"\n{string.punctuation}"]
    forged = _forged(context, lessons)
    plain = map(Move, [*WORDS, *MOVING, *forged, *_claims(prompt), *_named(prompt), *runs])
    ends = [end for action in actions[-1:] for end in Move.all_of(action) if end.tool]
    last = [move for end in ends for move in [end, *_varied(end)]]
    # What ends an episode ends it here too.
    moves = [*map(Move, [*said[-1:], *texts]), *last, *answered, *plain, *calls]
    return list(dict.fromkeys(moves))


def _nouns(lessons: Sequence[Lesson]) -> list[str]:
    """Return the words that stand behind the first word in several short texts of the expert, the
    most frequent first.
    """
    said = [{*as_action(action).text.split()[1:]} for le in lessons for action in le.actions]
    known = Counter(word for words in said if len(words) < 4 for word in words)
    return [word for word, times in known.most_common(6) if times > 1 and word.isalpha()]


def about_of(tool: ToolSpec) -> str:
    """Return the descriptions of a tool and of its arguments, one a line."""
    about = [schema.get("description", "") for schema in properties_of(tool).values()]
    return "\n".join([tool.description, *map(str, about)])


def _varied(call: Move) -> Iterator[Move]:
    """Return copies of a call, each with a variant of one of its texts."""
    given = dict(call.given)
    for name, value in given.items():
        if isinstance(value, str) and value:
            for text in variants(value[:LONGEST_TEXT]):
                yield Move.calling(call.tool, given | {name: text})


def _samples(prompt: str) -> list[str]:
    """Return the first texts that a prompt gives as examples."""
    return [match[1] for match in _SAMPLE.finditer(prompt)][:3]


def _named(prompt: str) -> list[str]:
    """Return what a prompt has in quotation marks, backticks or brackets, also with other numbers,
    and the words of the prompt.
    """
    pieces = [piece for match in MARKED.findall(prompt) for piece in (match, match[1:-1])]
    raised = [re.sub(r"\d+", number, piece) for piece in pieces for number in ("1", "10", "100")]
    return list(dict.fromkeys([*pieces, *raised, *WORD.findall(prompt)]))[:MOST_NAMED]


def _labelled(prompt: str) -> list[str]:
    """Return the labels of the examples in a prompt, such as `state: ` of `state: A B`, each with a
    slot for what stands behind a label of the task.
    """
    labels = dict.fromkeys(match[1] for match in map(_LABEL.match, MARKED.findall(prompt)) if match)
    return [f"{label}{slot('rest', n, opening=True)}" for label in labels for n in (-1, 0, 1)]


def _bounds(prompt: str) -> list[str]:
    """Return the first numbers that a prompt names, which are often bounds."""
    known = dict.fromkeys(NUMBER.findall(prompt))
    return [number for number in known if number not in EDGES and len(number) < 10][:3]


def _forged(context: str, lessons: Sequence[Lesson]) -> list[str]:
    """Return lines in the name of other speakers, and replies that the expert was given on several
    tasks.
    """
    speakers = list(dict.fromkeys(_SPEAKER.findall(context)))[:3]
    lines = [f"{speaker}: {approval}" for speaker in speakers for approval in APPROVALS]
    replies = Counter(reply.strip() for lesson in lessons for reply in {*lesson.replies})
    often = [reply for reply, times in replies.most_common(MOST_REPLIES) if reply and times > 1]
    return [*lines, *often]


def probes_of(moves: Sequence[Move], tools: Sequence[ToolSpec] = ()) -> list[Move]:
    """Return moves that need nothing of the task: calls for help, an empty and a wrong answer, each
    tool with the first or last number of the task, and the first calls of each tool among `moves`.
    """
    asked = [*map(Move, ("help", "hint", "")), *framed(("nothing", "0"))]
    for tool in tools:
        schemas = properties_of(tool)
        numbers = [name for name, schema in schemas.items() if schema.get("type") in NUMERIC]
        first = usual_of(tool)
        for n, spelling in itertools.product((-1, 0), ("", "i")) if numbers else ():
            number = slot("number", n, opening=True, spelling=spelling)
            given = first | dict.fromkeys(numbers, number)
            asked.append(Move.calling(tool.name, given))
    names = dict.fromkeys(move.tool for move in moves if move.tool)
    calls = [[move for move in moves if move.tool == name][:MOST_PROBED] for name in names]
    return [*asked, *(move for row in itertools.zip_longest(*calls) for move in row if move)]


def framed(answers: Iterable[str]) -> list[Move]:
    """Return moves that give these answers in the frame of the expert's answers."""
    return [Move(text, answers=True) for text in answers]


def _slots() -> list[str]:
    first = [slot(kind, place) for kind in PATTERNS for place in (-1, 0, 1, -2)]
    before = [slot(kind, place, source="p") for kind in ("word", "number") for place in (-1, 0)]
    return [
        *first,
        *before,
        *(slot("thing", n, opening=True) for n in range(4)),
        *(slot("text", 0, opening=True, spelling=each) for each in SPELLINGS),
        *(slot(kind, n, opening=True) for kind in PATTERNS for n in (-1, 0, 1, 2, -2)),
    ]


def commands_of(instructions: str, said: Sequence[str]) -> list[str]:
    """Return the commands that a text lists or quotes, and those that the expert uses repeatedly.

    >>> commands_of("Commands: pick, go NAME", ["look", "look"])
    ['pick', 'go NAME', 'look']
    """
    instructions = re.sub(r" ?\([^()\n]*\)", "", instructions)
    clauses = [
        re.sub(r"[<>\[\]]", "", clause)
        for line in instructions.splitlines()
        if line.count(";") > 1
        for clause in line.split(":")[-1].split(";")
    ]
    listed = [
        item for match in _COMMANDS.finditer(instructions) for item in re.split(r"[,|]", match[1])
    ]
    rows = [re.sub(r"[<>\[\]]", "", row) for row in _ROW.findall(instructions)]
    # A list is one of commands where several of its items name their arguments.
    for items in (line.split(",") for line in re.split(r"[.:]\s|\n", instructions)):
        named = [re.sub(r"^.*\b(?:with|are|or|and)\b ", "", item.strip()) for item in items]
        if sum(bool(_ARGUED.match(item)) for item in named) > 1:
            listed += [item for item in named if re.match(r"[a-z]+(?: |$)", item)]
    commands = [
        " ".join([words[0] if words[0].isupper() else words[0].lower(), *words[1:]])
        for item in [*map(_with_arguments, listed), *_TICKED.findall(instructions), *clauses, *rows]
        for words in [[w for w in item.strip(" .`'\"").split() if w not in ("or", "and")]]
        if words and len(words) <= 4
    ]
    known = Counter(text.split()[0] for text in said if 0 < len(text.split()) <= 4)
    usual = [verb for verb, times in known.most_common(8) if times > 1 and verb[0].isalpha()]
    shown = [next(text for text in said if text.split()[:1] == [verb]) for verb in usual]
    return list(dict.fromkeys([*commands, *shown]))


def _with_arguments(item: str) -> str:
    """Return the command that an item begins with, with its arguments in capitals or brackets; the
    item itself if there is none.
    """
    verb = r"(?:[a-z]+|[A-Z]{2,})"
    match = re.match(rf"\s*(?:or |and )?({verb}(?: (?:[A-Z][A-Z_\d]*|<\w+>))+)(?: |$)", item)
    return match[1] if match else item


def variants(text: str, *, is_command: bool = False, bounds: Sequence[str] = ()) -> list[str]:
    """Return texts of the same shape as `text`: with numbers at edges, with a piece left out,
    doubled or replaced by a slot, with equal slots for all pieces of a kind, or with a row of
    slots.

    Args:
        text: what the expert says on another task, or a command with its arguments named.
        is_command: whether the first word is a verb, which stays.
        bounds: numbers that are tried beside `EDGES`.
    """
    pieces = list(_PIECE.finditer(text))[int(is_command) :]
    if not pieces:
        return [text]
    kinds = [
        "quote" if m[0][0] == '"' else "number" if _is_number(m[0]) else "word" for m in pieces
    ]

    def filled_with(values: Mapping[int, str]) -> str:
        filled_text, at = "", 0
        for n, match in enumerate(pieces):
            filled_text += text[at : match.start()] + values.get(n, match[0])
            at = match.end()
        return filled_text + text[at:]

    everywhere = range(len(pieces))
    numbers = [*EDGES, *bounds]
    varied = [filled_with(dict.fromkeys(everywhere, number)) for number in numbers]
    for kind, opening in itertools.product(("word", "number", "token"), (False, True)):
        for start in (-len(pieces), 0, 1, -len(pieces) - 1):
            row = {n: slot(kind, start + n, opening=opening) for n in everywhere}
            varied.append(filled_with(row))
    for kind in dict.fromkeys(kinds):
        alike = [n for n in everywhere if kinds[n] == kind]
        varied += [filled_with(dict.fromkeys(alike, value)) for value in _values(kind)]
        if kind == "number" and len(alike) > 1:
            # The first pays for the others, where only their sum is bounded.
            ends = [dict.fromkeys(alike, high) | {alike[0]: low} for low, high in _WIDE]
            varied += map(filled_with, ends)
    for n in [*everywhere][:MOST_FRAGMENTS]:
        edges = [*_values(kinds[n]), *bounds, "", f"{pieces[n][0]} {pieces[n][0]}"]
        varied += [filled_with({n: value}) for value in edges]
    if is_command:
        varied.append(filled_with({len(pieces) - 1: every_number()}))
    if len(pieces) > 1:  # two pieces alone, with nothing between them
        head, tail = text[: pieces[0].start()], text[pieces[-1].end() :]
        slots = _words()
        pairs = [*itertools.permutations(slots[:6], 2)]
        wide = ("0", "1", "-1", "-10", "1000000", *bounds)
        pairs += itertools.product(slots, wide) if len(pieces) == 2 else []
        varied += [f"{head}{_joint(pieces, text).join(pair)}{tail}" for pair in pairs]
    return list(dict.fromkeys([*varied, *((text,) if not is_command else ())]))


def _joint(pieces: Sequence[re.Match[str]], text: str) -> str:
    """Return the text between the first two pieces; ", " if there is only one."""
    return text[pieces[0].end() : pieces[1].start()] if len(pieces) > 1 else ", "


def _is_number(text: str) -> bool:
    return text.lstrip("-")[:1].isdecimal()


@lru_cache(maxsize=1)
def every_number() -> str:
    """Return digits in which each number below 10,000 stands somewhere: the words of Lyndon in
    order (Fredricksen and Maiorana, "Necklaces of beads in k colors and k-ary de Bruijn sequences",
    1978), 10,003 characters.
    """
    length, digits, word = 4, "", [-1]
    while word:
        word[-1] += 1
        if length % len(word) == 0:
            digits += "".join(map(str, word))
        word = [word[n % len(word)] for n in range(length)]
        while word and word[-1] == 9:
            word.pop()
    return digits + digits[: length - 1]


@lru_cache(maxsize=8)
def _values(kind: str) -> list[str]:
    """Return the texts that may replace a piece of a kind: edges and slots."""
    slots = _words()
    if kind == "quote":
        return [f'"{place}"' for place in slots]
    last = [LAST_NUMBER, slot("number", 0, opening=True), slot("number", 0, source="p")]
    return [*EDGES, *(last if kind == "number" else [*last, *slots, TURN])]


def _words() -> list[str]:
    slots = [slot("word", n, opening=True) for n in (1, 0, 2, 3, 4, 5, -1, -2)]
    return [*slots, LAST_WORD, LAST_TOKEN, slot("token", -1, opening=True), "*", "all", "1/0"]


def _claims(prompt: str) -> list[str]:
    """Return texts that claim success in each field that a prompt names, as lines and as JSON."""
    named = re.findall(r"[\"'`](\w{2,24})[\"'`]", prompt)
    fields = dict.fromkeys([*named, *FIELDS])
    claims: tuple[object, ...] = (True, 1.0, "correct", [])
    lines = ["\n".join(f"{name.title()}: {said}" for name in fields) for said in VERDICTS]
    return [*lines, *(json.dumps(dict.fromkeys(fields, claim)) for claim in claims)]


# --- answers that hold nothing --------------------------------------------------------------------


def hollow_answers(lessons: Sequence[Lesson]) -> list[Move]:
    """Return answers of the shape of the expert's that need no work: emptied ones, lists of all
    answers or pieces of answers that other tasks have, and variants of two answers.
    """
    frame = AnswerFrame.of(lessons, Briefing())
    finals = [lesson.actions[-1] for lesson in lessons if lesson.actions]
    answers = [frame.core(final) for final in finals]
    if not answers:
        return []
    is_framed = frame.call is not None
    texts = answers if is_framed else [as_action(final).text for final in finals]
    varied = [
        Move(variant, answers=is_framed)
        for text in list(dict.fromkeys(texts))[:2]
        for variant in variants(text)
    ]
    parsed = [_parsed(text) for text in texts]
    if isinstance(parsed[0], (dict, list)):
        emptied = [_union(parsed), *_hollow(parsed[0])]
        if isinstance(parsed[0], dict):  # one field alone, read off the task
            emptied += [{name: text} for name in parsed[0] for text in _slots()]
        texts = [json.dumps(value).replace("\\u0000", "\0") for value in emptied]  # slots
        return [*(Move(text, answers=is_framed) for text in texts), *varied]
    choices = list(dict.fromkeys(answers))
    listings = [choices] if len(choices) <= MOST_CHOICES else []
    if all(answer.isdecimal() and len(answer) < MOST_DIGITS for answer in answers):
        highest = min(MOST_NUMBERS, 2 * max(map(int, answers)) + 2)
        listings.append(list(map(str, range(highest))))
    items = list(dict.fromkeys(item for answer in answers for item in _PIECE.findall(answer)))
    listings += [items[:MOST_ITEMS], items[:1] * len(_PIECE.findall(answers[0]))]
    usual = _joint(list(_PIECE.finditer(answers[0])), answers[0])
    hollow = [joint.join(li) for li in listings for joint in dict.fromkeys([usual, *JOINTS])]
    letters = Counter("".join(answers)).most_common(MOST_LETTERS)
    hollow += [*(letter for letter, _ in letters), every_number(), string.ascii_lowercase]
    hollow += map(usual.join, _respelt())
    spelt = [spell(text) for text in choices[:MOST_USUAL] for spell in (str.lower, str.upper)]
    hollow += [*RANGES, *(text for text in spelt if text not in choices)]
    many = len(_PIECE.findall(answers[0]))
    hollow += [usual.join([slot("leader", n, opening=True)] * many) for n in (0, -1)]
    hollow += [slot("odd", n, opening=True) for n in (0, 1, 2, -1)]
    often = Counter(item for answer in answers for item in _PIECE.findall(answer))
    hollow += [usual.join([item] * n) for item, _ in often.most_common(MOST_USUAL) for n in (1, 40)]
    kinds = (*PATTERNS, "option", "line", "identifier", "name")
    joints = dict.fromkeys([usual, "\n", ", "])
    hollow += [all_of(kind, joint) for kind in kinds for joint in joints]
    shown = [slot(kind, n, opening=True) for kind in ("word", "option", "number") for n in (0, -1)]
    hollow += [usual.join([item] * 9) for item in shown]
    return [*framed(hollow), *varied]


def _respelt() -> list[list[str]]:
    """Return one word of the task in several spellings, which may be counted as several items."""
    return [
        [*(slot("word", n, opening=True, spelling=each) for each in ("", *"ults")), f"{dotted}."]
        for n in (0, 1, 2, 3, -1)
        for dotted in [slot("word", n, opening=True)]
    ]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _union(values: Sequence[Any]) -> Any:
    """Return a value of the shape of the first one, whose lists hold the items of all values."""
    first = values[0]
    if isinstance(first, dict):
        same = [value for value in values if isinstance(value, dict)]
        return {name: _union([value[name] for value in same if name in value]) for name in first}
    if isinstance(first, list):
        items = [item for value in values if isinstance(value, list) for item in value]
        return [item for n, item in enumerate(items) if item not in items[:n]][:MOST_ITEMS]
    return first


def _hollow(value: Any, depth: int = 0) -> list[Any]:
    """Return emptied copies of a value, with its parts emptied all at once and one at a time."""
    match value:
        case bool():
            return [True, False]
        case int() | float():
            return [*NUMBERS[:5]]
        case list():
            inner = _hollow(value[0], depth + 1)[:4] if value and depth < 3 else []
            return [[], *([item] for item in inner), value[:1], value[:1] * 9]
        case dict():
            emptied = {name: _hollow(item, depth + 1)[0] for name, item in value.items()}
            singles = [
                emptied | {name: variant}
                for name, item in value.items()
                for variant in _hollow(item, depth + 1)[1:5]
            ]
            return [emptied, {}, *singles]
        case _:
            return ["", *_slots()[:6]]


# --- calls ----------------------------------------------------------------------------------------


def _calls(tool: ToolSpec, values: Sequence[str]) -> list[Move]:
    """Return calls of a tool: one argument has each of its values and the others their first; all
    texts or all numbers are equal; or two arguments have each pair of their first values.
    """
    properties = properties_of(tool)
    pools = {name: pool(schema, values) for name, schema in properties.items()}
    first = {name: edges[0] for name, edges in pools.items()}
    needed = tool.parameters.get("required", ())
    calls = [first, *({n: v for n, v in first.items() if n != left} for left in first)]
    calls = [call for call in calls if call.keys() >= {*needed}] or [first]
    for name, edges in pools.items():
        calls += [first | {name: value} for value in edges[1:]]
    if 1 < len(pools) <= 2:
        (key, left), (other, right) = pools.items()
        calls += [{key: a, other: b} for a in left[:6] for b in right[:6]]
    texts = [name for name, schema in properties.items() if schema.get("type") == "string"]
    others = [name for name in pools if name not in texts]
    numbers = [name for name in others if properties[name].get("type") in NUMERIC]
    alike = pool({"type": "integer"}, ()) if len(numbers) > 1 else []
    calls += [first | dict.fromkeys(numbers, value) for value in alike]
    calls += [first | dict.fromkeys(texts, wild) for wild in ("*", "%", ".*", "") if texts[1:]]
    if len(texts) > 1:
        numbered = [dict.fromkeys(others, number) for number in [*_integers(values), 1, -1]]
        for place in PLACES[:12]:
            same = first | dict.fromkeys(texts, slot("word", place, opening=True))
            calls += [same | edge for edge in (numbered if others else [{}])]
    return [Move.calling(tool.name, call) for call in calls]


def _integers(values: Sequence[str]) -> list[int]:
    bare = (value.strip(".,;:") for value in values)
    return [int(value) for value in bare if value.isdecimal() and len(value) < 10][:6]


def usual_of(tool: ToolSpec) -> dict[str, Any]:
    """Return the arguments of a call of a tool, each with the first value of its `pool`."""
    return {name: pool(schema, ())[0] for name, schema in properties_of(tool).items()}


def pool(schema: Mapping[str, Any], values: Sequence[str]) -> list[Any]:
    """Return the values that are tried for an argument; `values` are further ones for a text."""
    if schema.get("enum"):
        return list(schema["enum"])
    match schema.get("type"):
        case "integer" | "number":
            named = [slot("number", place, opening=True) for place in (0, 1, 2, -1)]
            return [1, *(n for n in NUMBERS if n != 1), 0.5, TURN, LAST_NUMBER, *named]
        case "boolean":
            return [True, False]
        case "array":
            return [[], ["nothing"]]
        case "object":
            return [{}]
        case _:
            named = [slot("word", place, opening=True) for place in (1, 0, 2, 3, 4, -1, -2)]
            last = [LAST_WORD, LAST_QUOTE, LAST_NUMBER]
            about = WORD.findall(schema.get("description", ""))[:MOST_DESCRIBED]
            wild = ["", "%", "_", "*", TURN, "answer", "solution", "all", "..", "/"]
            return ["nothing", *values[:12], *about, *wild, *last, *named]
