"""Carries parts of the tests' process over to the solution's: output, randomness, stdin, patches.

`idioms.Needs` says which of these the tests use.
"""

from __future__ import annotations

import builtins
import importlib
import io
import random
import sys
from collections.abc import Callable
from typing import Any

from .idioms import Needs

MAX_LETTERS = 1 << 20
"""The most characters that the solution may print between two answers; the rest is dropped."""

# --- the tests' side ------------------------------------------------------------

Ask = Callable[..., object]


class Surroundings:
    """The state that the two processes share; set up once, before the solution is asked for
    anything.
    """

    def __init__(self, ask: Ask, needs: Needs) -> None:
        self._ask = ask
        self.output = needs.output
        if needs.output:
            ask("capture")
        for module, name in sorted(needs.lent):
            ask("lend", module, name, _current(module, name))
        if needs.stdin:
            # Whatever `sys.stdin` is at the time of a call is read.
            ask("lend_stdin", lambda: sys.stdin.readline(), lambda: sys.stdin.read())
        if not needs.chance:
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

    def call(*arguments: object, **keywords: object) -> object:
        function: Callable[..., object] = getattr(place, name)
        return function(*arguments, **keywords)

    return call


# --- the solution's side --------------------------------------------------------


class Printed:
    """Keeps what the solution has printed since the last request."""

    def __init__(self) -> None:
        self.streams = io.StringIO(), io.StringIO()
        sys.stdout, sys.stderr = self.streams

    def take(self) -> tuple[str, ...]:
        """Return the text of both streams, which are empty afterwards."""
        texts = tuple(stream.getvalue()[:MAX_LETTERS] for stream in self.streams)
        for stream in self.streams:
            stream.seek(0)
            stream.truncate()
        return texts


class LentInput(io.TextIOBase):
    """Standard input that is read on the tests' side."""

    def __init__(self, line: Callable[[], str], rest: Callable[[], str]) -> None:
        super().__init__()
        self._line, self._rest = line, rest

    def readable(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        return self._line()

    def read(self, size: int | None = -1, /) -> str:
        return self._rest()


def lend(module: str, name: str, function: Callable[..., Any]) -> None:
    """Replace a function of a module on the solution's side by the tests' function."""
    place: Any = builtins if module == "builtins" else importlib.import_module(module)
    setattr(place, name, function)
