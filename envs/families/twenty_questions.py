"""The twenty questions environment, with a scripted user who answers yes or no.

The user never guesses what was meant: a question with a negation, two questions in one, or words
that change the meaning of others are not answered, so that a `yes` or `no` is always true.

    user       thing | colour | material | ...        I am thinking of one of these 24 things ...
    assistant  Is it red or blue?
    user       No. 8 questions left.
    assistant  Is it larger than small?
    user       Yes. 7 questions left.
    ...
    assistant  Is it the drelk?
    user       Yes, it is the drelk!                                reward 1

The user answers with yes or no. A thing may be named once: the right name wins, a wrong one loses.
So names do not tell things apart, and the policy has to ask for properties that halve what is left.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message

from ..protocol import Info, TextEnv
from ..tasks import GeneratedTasks, Task, TaskSet

PROPERTIES: dict[str, tuple[str, ...]] = {
    "colour": ("red", "blue", "green", "yellow", "black", "white"),
    "material": ("wood", "glass", "iron", "stone", "wool", "clay"),
    "size": ("tiny", "small", "medium", "large", "huge"),
    "shape": ("round", "flat", "long", "square"),
    "place": ("kitchen", "garden", "workshop", "attic", "street"),
    "sound": ("silent", "humming", "ringing", "rattling"),
}
"""The possible values of each property; sizes are in order."""
ORDERED = "size"
MAX_THINGS = 96

_ONSETS = ("b", "br", "d", "dr", "f", "g", "k", "kl", "m", "n", "p", "pl", "sn", "t", "tr", "v",
           "z")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ee", "oo")
_CODAS = ("lk", "rp", "mb", "sk", "ft", "x", "zzle", "ndo", "lty", "rvin", "ggle", "nkum")


@dataclass(frozen=True, slots=True)
class Thing:
    """An invented thing with a name and a value for each property."""

    name: str
    values: dict[str, str]
    """The value of each property, by property name."""


def draw_things(rng: random.Random, count: int) -> list[Thing]:
    """Draw `count` things with different names and different values."""
    names: dict[str, None] = {}
    while len(names) < count:
        names[rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)] = None
    seen: set[tuple[str, ...]] = set()
    things: list[Thing] = []
    for name in names:
        values = _draw_values(rng)
        while tuple(values.values()) in seen:
            values = _draw_values(rng)
        seen.add(tuple(values.values()))
        things.append(Thing(name, values))
    return things


def questions_needed(count: int) -> int:
    """Return how many questions identify a thing among `count` at best, with the name at the end.

    >>> questions_needed(16)
    5
    """
    return math.ceil(math.log2(count)) + 1


def as_table(things: list[Thing]) -> str:
    """Format things as text: a line of properties, then a line per thing."""
    lines = [" | ".join(["thing", *PROPERTIES])]
    lines += [" | ".join([thing.name, *thing.values.values()]) for thing in things]
    return "\n".join(lines)


def _draw_values(rng: random.Random) -> dict[str, str]:
    return {name: rng.choice(values) for name, values in PROPERTIES.items()}


MAX_QUESTION_CHARS = 1_000
SYNONYMS = {
    "wooden": "wood", "woollen": "wool", "woolen": "wool", "metal": "iron", "middling": "medium",
    "hums": "humming", "hum": "humming", "rings": "ringing", "ring": "ringing",
    "rattles": "rattling", "rattle": "rattling", "quiet": "silent", "elongated": "long",
}  # fmt: skip
_VALUES = {value: name for name, values in PROPERTIES.items() for value in values}
_SIZES = PROPERTIES[ORDERED]
_TURNS = """
not no non never neither nor none nothing except without unless but than least most almost nearly
hardly barely rather instead other both either same different opposite unlike if isnt doesnt arent
hasnt cant wont aint wasnt dont didnt couldnt wouldnt shouldnt cannot false untrue wrong incorrect
lack lacks lacking free exclude excludes excluding excluded rule ruled apart besides outside
larger bigger greater smaller littler more fewer above below over under beyond
"""
_TURNING = frozenset(_TURNS.split())
"""Words that change the meaning of others: a question with such a word is not answered."""
_WITHOUT_APOSTROPHES = str.maketrans("", "", "'\u2019")
_WORD = re.compile(r"[a-z]+")
_LARGER = re.compile(r"\b(?:larger|bigger|greater) than (?:a |the )?(\w+)")
_SMALLER = re.compile(r"\b(?:smaller|littler) than (?:a |the )?(\w+)")

Test = Callable[[Thing], bool]


class NotUnderstood(ValueError):
    """The question cannot be answered; the message tells the policy why."""


@dataclass(frozen=True, slots=True)
class AskedProperty:
    """A question that was understood."""

    is_true: Test
    """Returns whether the answer would be yes if the given thing were the secret."""
    guess: str = ""
    """The thing that the question names; a question about properties names none."""


def understand(question: str, names: Iterable[str]) -> AskedProperty:
    """Read a question.

    Args:
        question: what the policy said.
        names: the names of all things.

    Raises:
        NotUnderstood: the question cannot be answered with yes or no.
    """
    if len(question) > MAX_QUESTION_CHARS:
        raise NotUnderstood("that is too long to follow")
    if question.count("?") > 1:
        raise NotUnderstood("one question at a time, please")
    text = question.lower().translate(_WITHOUT_APOSTROPHES)
    if (compared := _comparison(text)) is not None:
        return compared
    words: list[str] = [SYNONYMS.get(word, word) for word in _words(text)]
    names_used = list(dict.fromkeys(word for word in words if word in frozenset(names)))
    values = list(dict.fromkeys(word for word in words if word in _VALUES))
    if turning := sorted(_TURNING & set(words)):
        raise NotUnderstood(f"please ask without {turning[0]!r}")
    if names_used and values:
        raise NotUnderstood("ask about properties or about things, one of the two")
    if len(names_used) > 1:
        raise NotUnderstood("name one thing, and only when you know that it is the one")
    if names_used:
        return AskedProperty(lambda thing: thing.name == names_used[0], names_used[0])
    if values:
        # Combine the values that a question names into a test.
        # Values of the same property are alternatives; if several properties are named, all have to
        # hold, unless `or` joins them.
        wanted_values: dict[str, set[str]] = {}
        for value in values:
            wanted_values.setdefault(_VALUES[value], set()).add(value)
        if "and" in words and (
            "or" in words or any(len(names_wanted) > 1 for names_wanted in wanted_values.values())
        ):
            raise NotUnderstood("please use either 'and' or 'or', and 'and' between properties")
        combine = any if "or" in words and len(wanted_values) > 1 else all
        return AskedProperty(
            lambda thing: combine(
                thing.values[name] in names_wanted for name, names_wanted in wanted_values.items()
            )
        )
    raise NotUnderstood(
        "ask about a property, such as 'Is it red?', or name the one thing: 'Is it the ...?'"
    )


def _words(text: str) -> list[str]:
    return [match[0] for match in _WORD.finditer(text)]


def _comparison(text: str) -> AskedProperty | None:
    """Read a comparison of sizes, such as "larger than small"; None without a comparison."""
    larger, smaller = _LARGER.search(text), _SMALLER.search(text)
    comparison = larger or smaller
    if comparison is None or comparison[1] not in _SIZES:
        return None
    other_words = set(_words(text.replace(comparison[0], " ")))
    if (larger and smaller) or other_words & (set(_VALUES) | _TURNING | {"and", "or"}):
        raise NotUnderstood("compare with one size, and ask nothing else")
    limit = _SIZES.index(comparison[1])
    if larger:
        return AskedProperty(lambda thing: _SIZES.index(thing.values[ORDERED]) > limit)
    return AskedProperty(lambda thing: _SIZES.index(thing.values[ORDERED]) < limit)


def ask(candidates: Sequence[Thing], questions_left: int) -> str:
    """Return the expert's next question: the name of the thing if known or if this is the last
    question, else what splits the candidates most evenly.

    Args:
        candidates: the things that are still possible.
        questions_left: the number of remaining questions, this question included.
    """
    if len(candidates) <= 1 or questions_left <= 1:
        return f"Is it the {candidates[0].name}?"
    of_one_property = (
        values
        for all_values in PROPERTIES.values()
        for count in (1, 2, 3)
        for values in combinations(all_values, count)
    )
    larger, chosen = min(_splits(candidates, of_one_property))
    if larger > 2 ** (questions_left - 2):
        # Values of several properties split whatever one property leaves together.
        _, chosen = min(_splits(candidates, combinations(_VALUES, 3)))
    return f"Is it {' or '.join(chosen)}?"


def _splits(
    candidates: Sequence[Thing], choices: Iterable[tuple[str, ...]]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the size of the larger part for each choice of values, joined by `or`."""
    for values in choices:
        true = sum(not set(values).isdisjoint(thing.values.values()) for thing in candidates)
        yield max(true, len(candidates) - true), values


MAX_QUESTIONS = 20

Stepped = tuple[str, float, bool, bool, Info]


class ThingTasks(GeneratedTasks):
    """A task set with a table of things per seed; the difficulty is the number of things."""

    def __init__(self, split: str, counts: tuple[int, int]) -> None:
        super().__init__(split)
        self._counts = counts

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        count = float(random.Random(f"count/{task.seed}").randint(*self._counts))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=count)


class TwentyQuestions(TextEnv):
    """An environment in which yes-or-no questions to a scripted user find a secret thing.

    Args:
        min_things: the fewest things in the table.
        max_things: the most things in the table.
        slack: questions beyond those that a perfect player needs; never more than 20 in all.

    Raises:
        ConfigError: a setting is out of range.
    """

    forks = "copy"
    system_prompt = (
        "Find out which of the things is meant. Ask one question at a time, to be answered with "
        "yes or no, about properties ('Is it red?', 'Is it wood or glass?', 'Is it larger than "
        "small?'). You win by naming the one thing ('Is it the ...?') within the questions you "
        "have; naming is a question too, and a wrong name loses."
    )
    answer_format = "Say nothing but the question."

    def __init__(self, *, min_things: int = 20, max_things: int = 48, slack: int = 2) -> None:
        if not 2 <= min_things <= max_things <= MAX_THINGS:
            raise ConfigError(
                f"need 2 <= min_things <= max_things <= {MAX_THINGS}, got {min_things}, "
                f"{max_things}"
            )
        if not 0 <= slack <= MAX_QUESTIONS:
            raise ConfigError(f"slack must be from 0 to {MAX_QUESTIONS}, got {slack}")
        self.counts = (min_things, max_things)
        self.slack = slack
        self.things: list[Thing] = []
        self.secret = Thing("", {})
        self.left = 0
        self.candidates: list[Thing] = []
        """The things that are still possible, by the answers so far."""

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; each seed draws new things."""
        return ThingTasks(split, self.counts)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the things and the number of questions."""
        count = int(ThingTasks(self.task.split, self.counts).find(self.task.id).difficulty or 2)
        rng = random.Random(f"things/{self.task.seed}")
        self.things = draw_things(rng, count)
        self.secret = rng.choice(self.things)
        self.candidates = list(self.things)
        self.left = min(MAX_QUESTIONS, questions_needed(count) + self.slack)
        briefing = msgspec.structs.replace(self.briefing(), max_turns=self.left)
        opening = f"I am thinking of one of these {count} things. You have {self.left} questions."
        return f"{as_table(self.things)}\n\n{opening}", {"briefing": briefing}

    def step(self, action: str | Message) -> Stepped:
        """Answer a question; naming a thing ends the episode, with reward 1 for the secret."""
        question = action if isinstance(action, str) else action.text
        self.left -= 1
        try:
            asked = understand(question, [thing.name for thing in self.things])
        except NotUnderstood as error:
            return self._replied(f"I do not understand: {error}.")
        if asked.guess:
            right = asked.guess == self.secret.name
            verdict = f"{'Yes' if right else 'No'}, it is the {self.secret.name}!"
            return verdict, float(right), True, False, {"thing": self.secret.name}
        answer = asked.is_true(self.secret)
        self.candidates = [thing for thing in self.candidates if asked.is_true(thing) == answer]
        return self._replied("Yes." if answer else "No.")

    def _replied(self, answer: str) -> Stepped:
        """Return an answer with the questions left; at the end, `info` tells the secret.

        The environment has no `gold()`: the secret thing is always among the things shown.
        """
        if not self.left:
            last = f"{answer} There are no questions left."
            return last, 0.0, True, False, {"thing": self.secret.name}
        left_text = f"{self.left} question{'' if self.left == 1 else 's'} left"
        return f"{answer} {left_text}.", 0.0, False, False, {}

    def demonstrate(self) -> str:
        """Ask a question that leaves few enough things, whatever the answer."""
        return ask(self.candidates, self.left)
