"""Ledgers: a sequence of writes to registers, and a question about the final state."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
