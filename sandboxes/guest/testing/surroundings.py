"""Carries parts of the tests' process over to the solution's: output, randomness, stdin, patches.

`idioms.examine` says which of these the tests use.
"""

from __future__ import annotations

import importlib
import io
import random
import sys
from collections.abc import Callable
from typing import Any

from .idioms import SHARED

MAX_LETTERS = 1 << 20
"""The most characters that the solution may print between two answers; the rest is dropped."""

# --- the tests' side ------------------------------------------------------------

Ask = Callable[..., object]


class Surroundings:
    """The state that the two processes share; set up once, before the solution is asked for
    anything.
    """

    def __init__(self, ask: Ask, needs: frozenset[tuple[str, str]]) -> None:
        self._ask = ask
        self.output = bool(needs & {("sys", "stdout"), ("sys", "stderr")})
        if self.output:
            ask("capture")
        for module, name in sorted(needs - SHARED):
            ask("lend", module, name, _current(module, name))
        if ("sys", "stdin") in needs:
            # Whatever `sys.stdin` is at the time of a call is read.
            ask("lend_stdin", lambda: sys.stdin.readline(), lambda: sys.stdin.read())
        if not needs & {("random", "seed"), ("random", "setstate")}:
            return

        def shared(function: Callable[..., None]) -> Callable[..., None]:
            def act(*arguments: object, **keywords: object) -> None:
                function(*arguments, **keywords)
                ask("set_chance", random.getstate())

            return act

        # The solution's generator is set again whenever the tests set theirs.
        random.seed, random.setstate = shared(random.seed), shared(random.setstate)

    def show_output(self) -> None:
        """Print here what the solution has printed."""
        printed = self._ask("printed")
        if type(printed) is tuple and len(printed) == 2:
            for text, stream in zip(printed, (sys.stdout, sys.stderr), strict=True):
                if type(text) is str and text:
                    stream.write(text)


def _current(module: str, name: str) -> Callable[..., object]:
    """Return a function that calls whatever has that name at the time of the call."""
    place = importlib.import_module(module)
    return lambda *arguments, **keywords: getattr(place, name)(*arguments, **keywords)


# --- the solution's side --------------------------------------------------------

_streams = io.StringIO(), io.StringIO()


def _capture() -> None:
    """Keep what is printed from now on, for the tests."""
    sys.stdout, sys.stderr = _streams


def _printed() -> tuple[str, ...]:
    """Return what was printed to both streams since the last time."""
    texts = tuple(stream.getvalue()[:MAX_LETTERS] for stream in _streams)
    for stream in _streams:
        stream.seek(0)
        stream.truncate()
    return texts


class LentInput(io.TextIOBase):
    """Standard input that is read on the tests' side."""

    def __init__(self, line: Callable[[], str], text: Callable[[], str]) -> None:
        super().__init__()
        self._line, self._text = line, text

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        return self._line()

    def read(self, size: int | None = -1, /) -> str:
        return self._text()


def _lend(module: str, name: str, function: Callable[..., Any]) -> None:
    """Replace a function of a module by the tests' function."""
    setattr(importlib.import_module(module), name, function)


VERBS: dict[str, Callable[..., object]] = {
    "capture": _capture,
    "printed": _printed,
    "lend": _lend,
    "lend_stdin": lambda line, text: setattr(sys, "stdin", LentInput(line, text)),
    "set_chance": random.setstate,
}
"""What the tests' side may ask of this module in the solution's process."""
