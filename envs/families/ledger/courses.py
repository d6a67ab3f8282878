"""Ledgers: a sequence of writes to registers, and a question about the final state.

**Lemma.** Draw everything about a ledger but one digit u, and call it rest; let u be uniform and
independent of rest. If the answer is a one-to-one function of u for every rest, and u stands only
in the write of a turn t <= T - gap, then what the writes after turn T - gap show is a function of
rest, and the answer is uniform given rest. That is all the proof in `ledger_env.py` needs, so its
bound of 1/10 holds. In each tier u is the digit written last to the register that holds the answer
(`Ledger.deciding` is its turn), and no choice of a name, a turn or a target looks at a digit:

- `copy`: the answer is u, written at the last write of the register asked for.
- `sum`: the answer is c + u modulo 10, c the sum of what was written there before. The last write
  is an addition, so the answer is never one of the digits shown, but by chance: any single digit
  written to that register is the answer with probability 1/10 as well.
- `pointer`: the answer is u, the digit of the register at the end of the chain. Every register of
  the chain was last written at turn `last_write` <= T - gap or before, so the chain that ends there
  is the one at the question.

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

import random
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

DIGITS = string.digits


@dataclass(frozen=True, slots=True)
class Ledger:
    """A sequence of writes, and the register that is asked for at the end."""

    writes: tuple[tuple[str, str], ...]
    """(register, value), for each turn. A value is a digit (`5`), a digit to add modulo 10 (`+5`),
    or the name of a register (`b`).
    """
    asked: str
    """The register of the question, which comes at turn `len(writes)`."""
    last_write: int
    """The turn of the last write to the register of the question."""

    @property
    def answer(self) -> str:
        """The digit of the register asked for, or of the register at the end of the chain."""
        return digit_of(self.state, self.asked)

    @property
    def deciding(self) -> int:
        """The turn of the last write to the register that holds the answer."""
        holder = chain_from(self.state, self.asked)[-1]
        return max(turn for turn, (name, _) in enumerate(self.writes) if name == holder)

    @property
    def state(self) -> dict[str, str]:
        """What every register holds when the question is asked."""
        return state_after(self.writes)


def state_after(writes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what the registers hold after `writes`; the register written last is at the end.

    >>> state_after([("a", "7"), ("b", "a"), ("a", "+5")])
    {'b': 'a', 'a': '2'}
    """
    state: dict[str, str] = {}
    for name, value in writes:
        write(state, name, value)
    return state


def write(state: dict[str, str], name: str, value: str) -> None:
    """Change a register, which becomes the last in the order of the dict."""
    # Popped even where the value is replaced, so that the register moves to the end of the dict.
    old_value = state.pop(name, "0")
    state[name] = str((int(old_value) + int(value[1:])) % 10) if value.startswith("+") else value


def chain_from(state: Mapping[str, str], name: str) -> list[str]:
    """Return the chain of registers from `name` on; each holds the name of the next.

    >>> chain_from({"a": "c", "b": "5", "c": "b"}, "a")
    ['a', 'c', 'b']
    """
    chain = [name]
    while (value := state.get(chain[-1], "")) in state and value not in chain:
        chain.append(value)
    return chain


def digit_of(state: Mapping[str, str], name: str) -> str:
    """Return the digit at the end of the chain from `name`; `0` where nothing is known."""
    # A chain that leads back into itself ends at a register that holds a name, and has no digit.
    value = state.get(chain_from(state, name)[-1], "0")
    return value if value in DIGITS else "0"


class Tier(StrEnum):
    """The tiers of difficulty: what has to be carried to the question, and how the writes are
    shown.
    """

    COPY = "copy"
    """Writes set registers to digits: the last write of each register has to be kept."""
    SUM = "sum"
    """Writes add to registers modulo 10: the state is computed, not copied."""
    POINTER = "pointer"
    """Registers hold digits or names of registers: the question is followed to its digit."""
    FETCH = "fetch"
    """Writes are as in `copy`, but each is shown only when asked for by number."""


def earliest_last_write(tier: Tier, registers: int) -> int:
    """Return the first turn that may hold the last write of the register asked for."""
    return registers if tier in (Tier.SUM, Tier.POINTER) else 0


def draw_ledger(
    rng: random.Random, *, registers: int, turns: int, gap: int, tier: Tier = Tier.COPY
) -> Ledger:
    """Draw a ledger of `turns` writes.

    The first `registers` turns write a digit to each register once, in random order. The last write
    of the register asked for is uniform over turns 0 .. turns - gap (in `sum` and `pointer`, over
    turns after the first `registers`); the other writes are uniform over the registers that may
    still be written. Digits are independent and uniform.
    """
    if tier is Tier.POINTER:
        return _draw_pointers(rng, registers, turns, gap)
    names = rng.sample(string.ascii_lowercase[:registers], registers)
    asked_name = names[0]
    other_names = names[1:]
    last = rng.randint(earliest_last_write(tier, registers), turns - gap)
    first = last if last < registers else rng.randrange(registers)
    opening = [*other_names[:first], asked_name, *other_names[first:]]
    entries = opening[:turns]
    for turn in range(registers, turns):
        # After its last write the register asked for is not written again.
        allowed = names if turn < last else other_names
        entries.append(asked_name if turn == last else rng.choice(allowed))
    signs = ["+" if tier is Tier.SUM and turn >= registers else "" for turn in range(turns)]
    values = [sign + rng.choice(DIGITS) for sign in signs]
    return Ledger(tuple(zip(entries, values, strict=True)), asked_name, last)


def _draw_pointers(rng: random.Random, registers: int, turns: int, gap: int) -> Ledger:
    names = list(string.ascii_lowercase[:registers])
    last = rng.randint(registers, turns - gap)
    writes = [(name, rng.choice(DIGITS)) for name in rng.sample(names, registers)]
    state, chain = dict(writes), list[str]()
    for turn in range(registers, turns):
        if turn == last:
            name, value = rng.choice(_questions(state))
            chain = [name, *chain_from(state, value)]
        else:
            name = rng.choice([name for name in names if name not in chain])
            # Draw a digit, or as likely a register whose chain does not come back to `name`.
            targets = [target for target in sorted(state) if name not in chain_from(state, target)]
            value = rng.choice(targets) if targets and rng.random() < 0.5 else rng.choice(DIGITS)
        write(state, name, value)
        writes.append((name, value))
    return Ledger(tuple(writes), chain[0], last)


def _questions(state: dict[str, str]) -> list[tuple[str, str]]:
    """Return each (register, target) whose chain ends and leaves out another register.

    With three registers such a pair exists: some register holds a digit, and another can name it.
    """
    chains = {target: chain_from(state, target) for target in sorted(state)}
    return [
        (name, target)
        for name in sorted(state)
        for target, chain in chains.items()
        if name not in chain and len(chain) <= len(state) - 2
    ]


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
