"""Assembles the system-call filter as classic BPF; `policy` decides which calls are allowed."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_ARGUMENTS = 0, 4, 16
_ARCHITECTURE_X86_64 = 0xC000_003E
_X32_BIT = 0x4000_0000

ALLOW = 0x7FFF_0000
KILL = 0x8000_0000


def refuse(error: int) -> int:
    """Return the action that makes a call fail with `error`."""
    return 0x0005_0000 | error


class ArgumentRule:
    """Decides a call by the lower half of an argument: `value & mask` must be in `expected`."""

    def __init__(
        self, number: int, argument: int, mask: int, expected: tuple[int, ...], error: int
    ) -> None:
        self.number, self.argument, self.mask, self.expected, self.error = (
            number,
            argument,
            mask,
            expected,
            error,
        )

    def code(self) -> list[tuple[int, int, int, int]]:
        """Return the instructions that decide, to be entered only when the call number matched."""
        last = len(self.expected) - 1
        return [
            (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * self.argument),
            (0x54, 0, 0, self.mask),  # A &= mask
            *(
                (_JUMP_EQUAL, last - position + 1, 0, value)
                for position, value in enumerate(self.expected)
            ),
            (_RETURN, 0, 0, refuse(self.error)),
            (_RETURN, 0, 0, ALLOW),
        ]


def assemble(
    allowed: Iterable[int], rules: Iterable[ArgumentRule], newest: int, absent: Iterable[int]
) -> bytes:
    """Return the filter: calls in `allowed` pass, `rules` look at an argument, the rest is refused.

    A foreign architecture or the x32 entry kills the process, since the numbers mean other calls
    there. Calls in `absent` and those above `newest` fail with ENOSYS, which makes a C library fall
    back; the rest fail with EPERM.
    """
    code = [
        (_LOAD, 0, 0, _OFFSET_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _ARCHITECTURE_X86_64),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        # x32 calls have the same architecture value, but a bit in the number and other meanings.
        (_JUMP_BITS, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, KILL),
    ]
    for rule in rules:
        body = rule.code()
        code += [(_JUMP_EQUAL, 0, len(body), rule.number), *body]
    for number in absent:
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse(errno.ENOSYS))]
    for first, last in _ranges(allowed):
        code += [
            (_JUMP_GREATER_EQUAL, 0, 2, first),
            (_JUMP_GREATER_EQUAL, 1, 0, last + 1),
            (_RETURN, 0, 0, ALLOW),
        ]
    code += [
        (_JUMP_GREATER_EQUAL, 0, 1, newest + 1),
        (_RETURN, 0, 0, refuse(errno.ENOSYS)),
        (_RETURN, 0, 0, refuse(errno.EPERM)),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Merge numbers into closed ranges.

    >>> _ranges([1, 2, 3, 7])
    [(1, 3), (7, 7)]
    """
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
