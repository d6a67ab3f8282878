"""Every compiled pattern of a package against texts that repeat what it repeats itself.

    python benchmarks/patterns.py ludus.rewards --count 300 --seed 5

A pattern that can match one text in many ways tries all of them where the end does not fit, and a
text of 60 characters keeps it busy for ever. Each pattern is parsed, pieces are drawn from the
parts that it repeats, and a search among them has to end. The oracle is a limit of CPU time that
honest patterns stay far below.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

parser: Any = importlib.import_module("re._parser")
codes: Any = importlib.import_module("re._constants")

LIMIT_S = 0.5
"""CPU seconds of three searches in at most 240 characters; the slowest sound pattern takes 0.1."""
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_OTHERS = "aA1 =,;.()$x-\n[]{}\\*é"
_CATEGORIES = {
    codes.CATEGORY_DIGIT: "17", codes.CATEGORY_SPACE: " \n", codes.CATEGORY_WORD: "ax_",
    codes.CATEGORY_NOT_DIGIT: "a.", codes.CATEGORY_NOT_SPACE: "a.", codes.CATEGORY_NOT_WORD: " .",
}  # fmt: skip


class Slow(BaseException):
    """A search used up its CPU time. Not an `Exception`, so that no handler swallows it."""


@contextmanager
def limited(cpu_s: float) -> Iterator[None]:
    """Raise `Slow` in the block once this process has used `cpu_s` of CPU time."""

    def stop(*_: object) -> None:
        raise Slow

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def patterns(package: str) -> dict[re.Pattern[str], str]:
    """Every compiled pattern of text that a module of `package` holds, with the name of one that
    holds it. Modules whose extra is not installed are left out.
    """
    root = importlib.import_module(package)
    names: dict[re.Pattern[str], str] = {}
    for module in pkgutil.walk_packages(root.__path__, package + ".", onerror=lambda _: None):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except Exception:  # an extra is not installed; its patterns are short of nothing here
            continue
        for name, value in list(vars(loaded).items()):
            for pattern in _held(value):
                names.setdefault(pattern, f"{module.name}.{name}")
    return names


def _held(value: object, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        for member in value:
            yield from _held(member, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        yield from _held([*value, *value.values()], depth + 1)
    elif depth < 4 and type(value).__module__.startswith("ludus"):
        names = getattr(type(value), "__slots__", ())
        yield from _held([getattr(value, name, None) for name in names], depth + 1)


class Pump:
    """Texts that repeat what a pattern repeats.

    Args:
        pattern: what the pieces are drawn from.
        rng: the source of every choice.
    """

    def __init__(self, pattern: re.Pattern[str], rng: random.Random) -> None:
        self.rng = rng
        self.tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self.repeated = list(_repeated(self.tree))

    def text(self, sizes: tuple[int, ...] = (60, 200, 200)) -> str:
        """A text of one of `sizes` characters, with something in front and behind."""
        rng = self.rng
        drawn = (self.piece(rng.choice(self.repeated)) for _ in range(rng.choice((1, 1, 2, 3))))
        unit = "".join(drawn)[:300] or "a"
        before = self.piece(self.tree)[:40] if rng.random() < 0.6 else ""
        size = rng.choice(sizes)
        repeats = (unit * (size // len(unit) + 1))[:size]
        return before + repeats + rng.choice(("", "!", "\n", "x", "1", "=", "$", "~", "¡", "}"))

    def piece(self, tree: Any) -> str:
        """A short text that the parsed pattern `tree` may match, were it not for what its
        conditions say of its neighbours.
        """
        return "".join(self._written(code, value) for code, value in tree)

    def _written(self, code: Any, value: Any) -> str:
        if code is codes.LITERAL:
            return chr(value)
        if code is codes.NOT_LITERAL:
            return "y" if value == ord("x") else "x"
        if code is codes.ANY:
            return self.rng.choice("a1 ")
        if code is codes.IN:
            return self._member(value)
        if code is codes.BRANCH:
            return self.piece(self.rng.choice(value[1]))
        if code is codes.SUBPATTERN:
            return self.piece(value[3])
        if code is codes.ATOMIC_GROUP:
            return self.piece(value)
        if code in _REPEATS:
            low, high, tree = value
            count = min(int(high), low + self.rng.choice((0, 1, 2)))
            return "".join(self.piece(tree) for _ in range(count))
        return ""

    def _member(self, members: list[tuple[Any, Any]]) -> str:
        if members[0][0] is codes.NEGATE:
            outside = [char for char in _OTHERS if not any(_holds(m, char) for m in members[1:])]
            return self.rng.choice(outside or ["é"])
        code, value = self.rng.choice(members)
        if code is codes.LITERAL:
            return chr(value)
        if code is codes.RANGE:
            return chr(self.rng.randint(*value))
        return self.rng.choice(_CATEGORIES[value])


def _holds(member: tuple[Any, Any], char: str) -> bool:
    code, value = member
    if code is codes.LITERAL:
        return bool(ord(char) == value)
    if code is codes.RANGE:
        return bool(value[0] <= ord(char) <= value[1])
    holds = {
        codes.CATEGORY_DIGIT: char.isdigit(), codes.CATEGORY_SPACE: char.isspace(),
        codes.CATEGORY_WORD: char.isalnum() or char == "_",
    }  # fmt: skip
    return holds[value] if value in holds else not holds[_OPPOSITES[value]]


_OPPOSITES = {
    codes.CATEGORY_NOT_DIGIT: codes.CATEGORY_DIGIT, codes.CATEGORY_NOT_SPACE: codes.CATEGORY_SPACE,
    codes.CATEGORY_NOT_WORD: codes.CATEGORY_WORD,
}  # fmt: skip


def _repeated(tree: Any) -> Iterator[Any]:
    """What the parsed pattern repeats more than three times, at any depth."""
    for code, value in tree:
        if code in _REPEATS:
            if value[1] > 3:
                yield value[2]
            yield from _repeated(value[2])
        elif code is codes.SUBPATTERN:
            yield from _repeated(value[3])
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from _repeated(branch)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _repeated(value[1])
        elif code is codes.ATOMIC_GROUP:
            yield from _repeated(value)


def slow_text(pattern: re.Pattern[str], rng: random.Random, count: int) -> tuple[str | None, float]:
    """The first of `count` texts on which `pattern` does not end within `LIMIT_S`, or None; and
    the most CPU seconds that one text took.
    """
    pump = Pump(pattern, rng)
    most = 0.0
    for _ in range(count if pump.repeated else 0):
        text = pump.text()
        started = time.thread_time()
        try:
            with limited(LIMIT_S):
                pattern.search(text)
                pattern.match(text)
                pattern.fullmatch(text)
        except Slow:
            return text, LIMIT_S
        most = max(most, time.thread_time() - started)
    return None, most


def main() -> None:
    """Print each pattern that does not end, and the slowest of the others."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("package", nargs="?", default="ludus")
    options.add_argument("--count", type=int, default=100, help="texts for each pattern (100)")
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    rng = random.Random(asked.seed)
    slowest: list[tuple[float, str]] = []
    failed = 0
    for pattern, name in patterns(asked.package).items():
        text, seconds = slow_text(pattern, rng, asked.count)
        if text is not None:
            failed += 1
            print(f"does not end: {name} on {text!r}", flush=True)
        slowest.append((seconds, name))
    print(f"{len(slowest)} patterns, {failed} do not end within {LIMIT_S} s of CPU time")
    for seconds, name in sorted(slowest, reverse=True)[:8]:
        print(f"{seconds:8.4f} s  {name}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
