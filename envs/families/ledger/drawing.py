"""Draws random ledgers, tier by tier, each such that truncating the context provably fails.

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
"""

from __future__ import annotations

import random
import string
from enum import StrEnum

from .entries import DIGITS, Ledger, chain_from, write


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
