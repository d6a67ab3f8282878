"""The two ways to tell a ledger: a write per turn, or item by item when asked.

Fetching, for a single write:

    user       #3            there is an item 3
    assistant  g3
    user       a7            this is it
    assistant  n             the next, please

What was shown can be asked for again until the next line comes: `g3` shows item 3 once more, and
`n` a line that has not been acted on (an announcement, the question). That makes up for an
observation that the context manager dropped. But it is also a free choice: a policy that repeats a
step, or does not, writes itself a note that later windows show. So no bound is claimed for
fetching, unless there is nothing to choose: with `requeries` = 0 the only action that does not end
the episode is `n` after `go` and after an item, and `g` with the number shown after an
announcement. The actions are then a function of the numbers, which are drawn apart from the ledger,
and the proof in `ledger_env.py` holds as it stands. The deciding item is followed by the
announcements and items of at least gap - 1 turns and by the question: by 2 gap - 1 observations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .entries import Ledger

PASS = "n"
FETCH = "g"


class Reply(NamedTuple):
    """The environment's answer to an action."""

    observation: str
    reward: float
    over: bool


OVER = Reply("", 0.0, over=True)


class Course(Protocol):
    """A way of telling a ledger, with the state of the telling."""

    turn: int
    """The turn of the write that is being told.

    Before the first write the turn is -1, at the question it is the number of writes.
    """

    @property
    def shows_write(self) -> bool:
        """Whether the newest observation is the write of `turn`."""
        ...

    def act(self, action: str) -> Reply:
        """Answer an action of the policy."""
        ...

    def expected(self, *, lost: bool) -> str:
        """Return the right action before the question is answered.

        Args:
            lost: whether the context manager dropped the newest observation unseen.
        """
        ...

    def pending(self, *, newest: bool) -> str:
        """Return what a summary has to keep besides the registers.

        Args:
            newest: whether the window being summed up shows the newest observation.
        """
        ...


@dataclass
class ToldCourse:
    """A telling with a write per turn; before the question the only legal action is `n`."""

    ledger: Ledger
    turn: int = -1

    @property
    def shows_write(self) -> bool:
        """Whether a write is shown: from the first action to the question."""
        return 0 <= self.turn < len(self.ledger.writes)

    def act(self, action: str) -> Reply:
        """Show the next write or the question, or score the answer, which ends the episode."""
        if _asking(self):
            return _scored(self.ledger, action)
        if action != PASS:
            return OVER
        self.turn += 1
        return Reply(_line(self), 0.0, over=False)

    def expected(self, *, lost: bool) -> str:
        """Return `n`: in this telling, nothing is shown twice."""
        return PASS

    def pending(self, *, newest: bool) -> str:
        """Return the question if the window shows the question, and an empty text otherwise."""
        return f"?{self.ledger.asked}" if newest and _asking(self) else ""


@dataclass
class Fetched:
    """A telling that announces an item, and shows the item on request.

    Args:
        ledger: the ledger to tell.
        numbers: the number of each item, a digit.
        requeries: how many repeated steps are left; a further repetition ends the episode.
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
        """Show the item asked for, the next announcement, the question, or the last line again."""
        if action == PASS:
            is_repeat = not self.done or _asking(self)
            if not is_repeat:
                self.turn += 1
                self.done = False
            return self._reply(is_repeat=is_repeat)
        if _asking(self):
            return _scored(self.ledger, action)
        if self.turn < 0 or action != self._fetch:
            return OVER
        is_repeat, self.done = self.done, True
        return self._reply(is_repeat=is_repeat)

    def expected(self, *, lost: bool) -> str:
        """Fetch the announced item, then go on; ask again for a lost line."""
        if lost and self.requeries:
            return self._fetch if self.shows_write else PASS
        return PASS if self.done else self._fetch

    def pending(self, *, newest: bool) -> str:
        """Return the question, if seen, or the number of an announced item not seen so far."""
        if _asking(self):
            return f"?{self.ledger.asked}" if newest else ""
        unknown = not self.done if newest else self.shows_write and self.requeries > 0
        return f"#{self.numbers[self.turn]}" if unknown else ""

    @property
    def _fetch(self) -> str:
        return FETCH + self.numbers[self.turn]

    def _reply(self, *, is_repeat: bool) -> Reply:
        self.requeries -= is_repeat
        if self.requeries < 0:
            return OVER
        is_shown = self.done or _asking(self)
        return Reply(_line(self) if is_shown else f"#{self.numbers[self.turn]}", 0.0, over=False)


def _asking(course: ToldCourse | Fetched) -> bool:
    return course.turn == len(course.ledger.writes)


def _line(course: ToldCourse | Fetched) -> str:
    ledger = course.ledger
    return f"?{ledger.asked}" if _asking(course) else "".join(ledger.writes[course.turn])


def _scored(ledger: Ledger, action: str) -> Reply:
    return Reply("", float(action == ledger.answer), over=True)
