"""Draws what is to be repaired: a few functions in files, some of them broken."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from ..splits import split_of
from ..tasks import Task
from .cases import Function, library
from .kills import KILLS
from .mutations import mutants
from .survey import ENDLESS

_FEWEST_FAILING = 2
"""Cases a mistake fails at least: where one is shown, another still decides."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A function with a mistake that its tests notice."""

    function: Function
    source: str
    failing: tuple[int, ...]
    """Which of its cases fail."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One task."""

    files: dict[str, str]
    """As the agent finds them."""
    right: dict[str, str]
    """As they were before something was broken."""
    tests: dict[str, list[str]]
    """file -> the tests of all its functions."""
    faults: tuple[Fault, ...]

    @property
    def failing(self) -> int:
        """How many tests fail before anything is repaired."""
        return sum(len(fault.failing) for fault in self.faults)


@cache
def faults_of(split: str) -> dict[str, tuple[Fault, ...]]:
    """function -> its faults that belong to a split. No fault belongs to two."""
    found = {name: _faults(function, split) for name, function in library().items()}
    return {name: faults for name, faults in found.items() if faults}


def _faults(function: Function, split: str) -> tuple[Fault, ...]:
    masks = KILLS[function.name].split()
    made = mutants(function.source)
    return tuple(
        Fault(function, mutant.source, failing)
        for number, (mutant, mask) in enumerate(zip(made, masks, strict=True))
        if split_of(f"{function.name}/{number}") == split
        and len(failing := _failing(mask)) >= _FEWEST_FAILING
    )


def _failing(mask: str) -> tuple[int, ...]:
    bits = 0 if mask == ENDLESS else int(mask, 16)
    return tuple(place for place in range(bits.bit_length()) if bits >> place & 1)


def draw(task: Task, functions: int, faults: int) -> Repair:
    """The files of a task: `functions` of them in all, `faults` of them broken."""
    rng = random.Random(f"repair/{task.seed}")
    possible = faults_of(task.split)
    broken = [rng.choice(possible[name]) for name in rng.sample(sorted(possible), faults)]
    names = {fault.function.name for fault in broken}
    others = rng.sample(sorted(set(library()) - names), functions - faults)
    chosen = [library()[name] for name in rng.sample(sorted([*names, *others]), functions)]
    changed = {fault.function.name: fault.source for fault in broken}
    stems = sorted({function.file for function in chosen})
    held = {file: [one for one in chosen if one.file == file] for file in stems}
    return Repair(
        files={file: _file([changed.get(f.name, f.source) for f in held[file]]) for file in stems},
        right={file: _file([f.source for f in held[file]]) for file in stems},
        tests={file: [test for f in held[file] for test in f.tests] for file in stems},
        faults=tuple(broken),
    )


def _file(sources: list[str]) -> str:
    return "\n\n\n".join(sources) + "\n"
