"""Random ledgers: writes to registers, and a question whose answer was written long before."""

from __future__ import annotations

import random
import string
from dataclasses import dataclass

DIGITS = string.digits


@dataclass(frozen=True, slots=True)
class Ledger:
    """A sequence of writes and the register that is asked for after them."""

    writes: tuple[tuple[str, str], ...]
    """(register, digit), one a turn."""
    asked: str
    """The register of the question, which comes at turn `len(writes)`."""
    last_write: int
    """The turn of the last write to it."""

    @property
    def answer(self) -> str:
        """The digit last written to the register that is asked for."""
        return self.writes[self.last_write][1]


def draw_ledger(rng: random.Random, *, registers: int, turns: int, gap: int) -> Ledger:
    """Draw a ledger of `turns` writes.

    The first `registers` turns write each register once, in random order. The last write of the
    register asked for is uniform over turns 0 .. turns - gap; the other writes are uniform over the
    registers that may still be written. Digits are independent and uniform.
    """
    names = rng.sample(string.ascii_lowercase[:registers], registers)
    asked = names[0]
    others = names[1:]
    last = rng.randint(0, turns - gap)
    first = last if last < registers else rng.randrange(registers)
    opening = [*others[:first], asked, *others[first:]]
    written = [
        opening[turn] if turn < registers else _later(rng, names, asked, turn, last)
        for turn in range(turns)
    ]
    return Ledger(tuple((name, rng.choice(DIGITS)) for name in written), asked, last)


def _later(rng: random.Random, names: list[str], asked: str, turn: int, last: int) -> str:
    if turn == last:
        return asked
    return rng.choice(names if turn < last else names[1:])
