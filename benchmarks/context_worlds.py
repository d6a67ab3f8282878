"""What the scripted policy of `context.py` knows of each environment: how to read, note and act.

The policy is a function of the text in its window and nothing else. It reads without error, writes
down all that it has read where a manager lets it write, and acts rightly on what it sees: what is
measured is what each manager keeps.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from ludus.messages import Message, Role

NOTES = re.compile(r"NOTES ([^;]*);")
Facts = dict[str, str]
"""What was read, in the order of reading: a name and a value."""


def call(name: str, **arguments) -> str:
    """A call in the format of the tiny model."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class World(ABC):
    """An environment with the reader of its observations."""

    env: str
    window: int
    """W in tokens, which are bytes here."""
    arguments: dict[str, object]
    save_every: int = 4
    """New facts after which the policy leaves a branch."""

    def read_all(self, messages: Sequence[Message]) -> list[str]:
        """The names of all facts that messages show, as often as they show them."""
        return [name for message in messages for name in self.read([message])]

    @abstractmethod
    def read(self, messages: Sequence[Message]) -> Facts:
        """What the messages of a window show, without the notes of earlier windows."""

    @abstractmethod
    def act(self, messages: Sequence[Message], facts: Facts, session) -> str:
        """What to do, knowing `facts`. The session says what is asked, never what was shown."""

    def facts(self, messages: Sequence[Message]) -> Facts:
        """What the messages show. Notes are of earlier windows, so what is read replaces them."""
        return self.noted(messages) | self.read(messages)

    def noted(self, messages: Sequence[Message]) -> Facts:
        """What the notes say, the newest last."""
        facts: Facts = {}
        for notes in NOTES.findall("\n".join(message.text for message in messages)):
            facts |= dict(note.split("=", 1) for note in notes.split("|") if "=" in note)
        return facts

    def notes(self, facts: Facts, session=None) -> str:
        """Facts as a text that `facts` reads back."""
        return f"NOTES {'|'.join(f'{name}={value}' for name, value in facts.items())};"

    def missing(self, facts: Facts, session) -> str:
        """The text to look for in an index of records; empty where nothing is missing."""
        return ""


class LedgerWorld(World):
    """Registers, and the digit that each holds."""

    env, window = "ludus/ledger-v0", 640
    arguments = {"registers": 3, "turns": 64, "gap": 27}  # noqa: RUF012

    def read(self, messages: Sequence[Message]) -> Facts:
        """Lines such as `a5`, as messages and in an index of records."""
        lines = [line for message in messages for line in message.text.split("\n")]
        matches = [re.fullmatch(r"(?:\d+: n -> )?([a-z])(\d)", line) for line in lines]
        return {match[1]: match[2] for match in matches if match}

    def act(self, messages: Sequence[Message], facts: Facts, session) -> str:
        """`n`, or the digit asked for; `0` where it is not known."""
        heard = [message.text for message in messages if message.role is Role.USER]
        asked = re.fullmatch(r"\?([a-z])", heard[-1])
        return facts.get(asked[1], "0") if asked else "n"


class FunctionsWorld(World):
    """A hidden list: its length, and the items by position."""

    env, window = "ludus/functions-v0", 1200
    arguments = {  # noqa: RUF012
        "games": ["pair", "largest_run"], "min_calls": 20, "max_calls": 28, "slack": 3.0
    }  # fmt: skip

    def read(self, messages: Sequence[Message]) -> Facts:
        """Results of `length` and `item`, and lines of an index of records."""
        text = "\n".join(message.text for message in messages)
        sizes = re.findall(r"length\(\{\}\) -> (\d+)", text)
        facts = {"n": sizes[-1]} if sizes else {}
        return facts | dict(re.findall(r'item\(\{"index": ?(\d+)\}\) -> (-?\d+)', text))

    def act(self, messages: Sequence[Message], facts: Facts, session) -> str:
        """The next position that is not known, or the answer."""
        if "n" not in facts:
            return call("length")
        size = int(facts["n"])
        items = [facts.get(str(index)) for index in range(size)]
        target = re.search(r"add up to (\d+)", messages[1].text)
        if target:
            known = {int(item): index for index, item in enumerate(items) if item is not None}
            for item, index in known.items():
                other = known.get(int(target[1]) - item)
                if other is not None and other != index:
                    return call("done", first=index, second=other)
        if None in items:
            return call("item", index=items.index(None))
        first, last = best_run([int(item) for item in items if item is not None])
        return call("done", first=first, last=last)


class SearchWorld(World):
    """Pages that were found. The plan (which names to look up) is the environment's; a name is
    searched for only where the window shows it, and the answer is given only where the window
    shows or notes every page on the way: what supports an answer has to be kept.
    """

    env, window, save_every = "ludus/search-v0", 3000, 1
    arguments = {"min_hops": 4, "max_hops": 4, "shapes": ["chain"], "max_turns": 16}  # noqa: RUF012

    def read(self, messages: Sequence[Message]) -> Facts:
        """The pages of each result, by their titles."""
        text = "\n".join(message.text for message in messages)
        return dict(re.findall(r'Doc \d\(Title: "([^"]+)"\) ([^\n;|=]+)', text))

    def act(self, messages: Sequence[Message], facts: Facts, session) -> str:
        """Look up the next name of the plan that is in view, or answer."""
        question = session.env.question
        shown = "\n".join(facts.values()) + messages[1].text
        for name in question.searches:
            if name not in facts:
                return call("search", query=name if name in shown else question.searches[0])
        gold = question.golds[0]
        return f"<answer>{gold if gold in shown else 'unknown'}</answer>"

    def notes(self, facts: Facts, session=None) -> str:
        """Of each page the sentences that the plan needs, where the plan is known."""
        if session is not None:
            question = session.env.question
            wanted = (*question.searches, *question.golds)
            facts = {
                title: ".".join(
                    sentence
                    for sentence in page.split(".")
                    if any(name in sentence for name in wanted)
                )
                for title, page in facts.items()
                if title in question.searches
            }
        return super().notes(facts)

    def missing(self, facts: Facts, session) -> str:
        """A page that the index names and the window does not show."""
        return next((name for name in session.env.question.searches if name not in facts), "")


def best_run(items: Sequence[int]) -> tuple[int, int]:
    """The neighbouring items with the largest sum, as first and last position."""
    sums = {
        (first, last): sum(items[first : last + 1])
        for first in range(len(items))
        for last in range(first, len(items))
    }
    return max(sums, key=sums.__getitem__)


WORLDS = {"ledger": LedgerWorld(), "search": SearchWorld(), "functions": FunctionsWorld()}
