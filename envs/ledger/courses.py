"""How a ledger is told: a write a turn, or item by item to whoever asks for it.

Fetching, of one write:

    user       #3            there is an item 3
    assistant  g3
    user       a7            this is it
    assistant  n             the next, please

What was shown can be asked for again until the next line comes: `g3` shows item 3 once more, and
`n` a line that has not been acted on (an announcement, the question). That is what makes up for an
observation that the context manager dropped. It also is a free choice, and a policy that repeats a
step, or does not, writes itself a note that later windows show. So no bound is claimed for
fetching, unless there is nothing to choose: with `requeries` = 0 the only action that does not end
the episode is `n` after `go` and after an item, and `g` with the number shown after an
announcement. The actions are then a function of the numbers, which are drawn apart from the ledger,
and the proof in `env.py` holds as it stands. The deciding item is followed by the announcements and
items of at least gap - 1 turns and by the question: by 2 gap - 1 observations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .entries import Ledger

PASS = "n"
FETCH = "g"


class Reply(NamedTuple):
    """What comes after an action."""

    observation: str
    reward: float
    over: bool


OVER = Reply("", 0.0, over=True)


class Course(Protocol):
    """One telling of a ledger."""

    turn: int
    """Of the write that is being told; -1 before the first, at the question the number of writes.
    """

    @property
    def shows_write(self) -> bool:
        """Whether the newest observation is the write of `turn`."""
        ...

    def act(self, action: str) -> Reply:
        """Answer an action."""
        ...

    def expected(self, *, lost: bool) -> str:
        """The right action before the question is answered, the newest observation seen or lost."""
        ...

    def pending(self, *, newest: bool) -> str:
        """What else a summary has to keep, when it shows the newest observation or does not."""
        ...


@dataclass
class Told:
    """A write a turn; before the question the one legal action is `n`."""

    ledger: Ledger
    turn: int = -1

    @property
    def shows_write(self) -> bool:
        """Whether a write is shown: from the first action to the question."""
        return 0 <= self.turn < len(self.ledger.writes)

    def act(self, action: str) -> Reply:
        """The next write, or the question; its answer is scored and ends the episode."""
        if _asking(self):
            return _scored(self.ledger, action)
        if action != PASS:
            return OVER
        self.turn += 1
        return Reply(_line(self), 0.0, over=False)

    def expected(self, *, lost: bool) -> str:
        """`n`: nothing is told twice."""
        return PASS

    def pending(self, *, newest: bool) -> str:
        """The question, if it has been seen."""
        return f"?{self.ledger.asked}" if newest and _asking(self) else ""


@dataclass
class Fetched:
    """An announcement and, when it is asked for, an item.

    Args:
        numbers: of the items, a digit each.
        requeries: repeated steps that are left; one more ends the episode.
    """

    ledger: Ledger
    numbers: str
    requeries: int
    turn: int = -1
    done: bool = True
    """Whether the item of this turn has been shown."""

    @property
    def shows_write(self) -> bool:
        """Whether the newest observation is an item."""
        return self.done and 0 <= self.turn < len(self.ledger.writes)

    def act(self, action: str) -> Reply:
        """The item asked for, the next announcement or the question, or the last line again."""
        if action == PASS:
            return self._passed()
        if _asking(self):
            return _scored(self.ledger, action)
        if self.turn < 0 or action != self._fetch:
            return OVER
        again, self.done = self.done, True
        return self._reply(again=again)

    def expected(self, *, lost: bool) -> str:
        """Fetch what was announced, go on after it; what was lost is asked for again."""
        if lost and self.requeries:
            return self._fetch if self.shows_write else PASS
        return PASS if self.done else self._fetch

    def pending(self, *, newest: bool) -> str:
        """The question, if seen, or the number of an item that is announced and not known."""
        if _asking(self):
            return f"?{self.ledger.asked}" if newest else ""
        unknown = not self.done if newest else self.shows_write and self.requeries > 0
        return f"#{self.numbers[self.turn]}" if unknown else ""

    @property
    def _fetch(self) -> str:
        return FETCH + self.numbers[self.turn]

    def _passed(self) -> Reply:
        again = not self.done or _asking(self)
        if not again:
            self.turn += 1
            self.done = False
        return self._reply(again=again)

    def _reply(self, *, again: bool) -> Reply:
        self.requeries -= again
        if self.requeries < 0:
            return OVER
        shown = self.done or _asking(self)
        return Reply(_line(self) if shown else f"#{self.numbers[self.turn]}", 0.0, over=False)


def _asking(course: Told | Fetched) -> bool:
    return course.turn == len(course.ledger.writes)


def _line(course: Told | Fetched) -> str:
    ledger = course.ledger
    return f"?{ledger.asked}" if _asking(course) else "".join(ledger.writes[course.turn])


def _scored(ledger: Ledger, action: str) -> Reply:
    return Reply("", float(action == ledger.answer), over=True)
