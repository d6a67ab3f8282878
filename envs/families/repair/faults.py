"""Draws the files of a task: a few functions, some of which are broken."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from ...problem_files import split_of
from ...tasks import Task
from .cases import LibraryFunction, library
from .mutations import KILLS, mutants
from .survey import ENDLESS

_FEWEST_FAILING = 2
"""The fewest cases a mistake must fail: if the report shows one case, another still decides."""


@dataclass(frozen=True, slots=True)
class MistakenFunction:
    """A function with a mistake that the tests reveal."""

    function: LibraryFunction
    source: str
    failing: tuple[int, ...]
    """The indices of the failing cases."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The files of a task, before and after the right repair, with the tests."""

    files: dict[str, str]
    """The source of each file as the policy finds it, by file name."""
    right: dict[str, str]
    """The source of each file without the mistakes, by file name."""
    tests: dict[str, list[str]]
    """The tests of all functions in each file, by file name."""
    faults: tuple[MistakenFunction, ...]

    @property
    def failing(self) -> int:
        """The number of tests that fail before anything is repaired."""
        return sum(len(fault.failing) for fault in self.faults)


@cache
def faults_of(split: str) -> dict[str, tuple[MistakenFunction, ...]]:
    """Return the faults of a split by function name. No fault belongs to two splits."""
    faults_found = {name: _faults(function, split) for name, function in library().items()}
    return {name: faults for name, faults in faults_found.items() if faults}


def _faults(function: LibraryFunction, split: str) -> tuple[MistakenFunction, ...]:
    masks = KILLS[function.name].split()
    candidates = mutants(function.source)
    return tuple(
        MistakenFunction(function, mutant.source, failing)
        for number, (mutant, mask) in enumerate(zip(candidates, masks, strict=True))
        if split_of(f"{function.name}/{number}") == split
        and len(failing := _failing(mask)) >= _FEWEST_FAILING
    )


def _failing(mask: str) -> tuple[int, ...]:
    bits = 0 if mask == ENDLESS else int(mask, 16)
    return tuple(place for place in range(bits.bit_length()) if bits >> place & 1)


def draw(task: Task, functions: int, faults: int) -> Repair:
    """Draw the files of a task: `functions` functions in all, `faults` of which are broken."""
    rng = random.Random(f"repair/{task.seed}")
    possible = faults_of(task.split)
    broken = [rng.choice(possible[name]) for name in rng.sample(sorted(possible), faults)]
    names = {fault.function.name for fault in broken}
    other_names = rng.sample(sorted(set(library()) - names), functions - faults)
    chosen_functions = [
        library()[name] for name in rng.sample(sorted([*names, *other_names]), functions)
    ]
    changed = {fault.function.name: fault.source for fault in broken}
    stems = sorted({function.file for function in chosen_functions})
    functions_of = {
        file: [function for function in chosen_functions if function.file == file] for file in stems
    }
    return Repair(
        files={
            file: _file([changed.get(f.name, f.source) for f in functions_of[file]])
            for file in stems
        },
        right={file: _file([f.source for f in functions_of[file]]) for file in stems},
        tests={file: [test for f in functions_of[file] for test in f.tests] for file in stems},
        faults=tuple(broken),
    )


def _file(sources: list[str]) -> str:
    return "\n\n\n".join(sources) + "\n"
