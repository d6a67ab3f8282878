"""Generates programming problems, so that the environment needs no data.

A problem is a few steps on a list of numbers or words, told in sentences, and a result; the policy
writes a function, or a program that reads standard input. The difficulty is the number of steps. A
digest of the sentences decides the split, so that the same steps are never in two splits, whatever
examples go with them.

After "Reasoning or Memorization?" (arXiv 2507.10532): a freshly generated problem cannot be in
anyone's training data.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ludus.errors import ConfigError

from ...splits import split_of
from ...tasks import GeneratedTasks, Task
from .problems import CodingProblem
from .steps import LIST, NUMBERS, RESULTS, STEPS, WORDS, Edit

FUNCTION, PROGRAM = "function", "program"
FORMS = (FUNCTION, PROGRAM)
NAME = "solve"
MAX_STEPS = 12

_SHOWN, _TESTS = 2, 10
_FEWEST_RESULTS = 5
"""How many different results the tests must have, so that no constant answer passes."""
_MAX_DRAWS = 10_000
_SYLLABLES = (
    "a",
    "ba",
    "cel",
    "do",
    "e",
    "fin",
    "gro",
    "ha",
    "ira",
    "lo",
    "mas",
    "no",
    "ot",
    "pre",
)


class GeneratedCodingProblems:
    """A generator of problems, with the interface of a `ProblemSet`.

    Args:
        min_steps: the fewest steps of a problem.
        max_steps: the most steps of a problem.
        forms: which of `function` and `program` are asked for, separated by commas.

    Raises:
        ConfigError: a setting is out of range.
    """

    def __init__(
        self, *, min_steps: int = 1, max_steps: int = 3, forms: str = "function,program"
    ) -> None:
        if not 1 <= min_steps <= max_steps <= MAX_STEPS:
            raise ConfigError(
                f"need 1 <= min_steps <= max_steps <= {MAX_STEPS}, got {min_steps}, {max_steps}"
            )
        chosen_forms = [form.strip() for form in forms.split(",")]
        if not set(chosen_forms) <= set(FORMS):
            raise ConfigError(f"forms are some of {','.join(FORMS)}, got {forms!r}")
        self.steps = (min_steps, max_steps)
        self.forms = chosen_forms

    def tasks(self, split: str) -> GeneratedTasks:
        """Return an endless task set with a problem per seed. Raises UnknownTask."""
        return _Tasks(split, self.steps)

    def problem(self, task: Task) -> CodingProblem:
        """Return the first problem drawn from the task's seed that is of the task's split."""
        rng = random.Random(f"coding/{task.seed}")
        count = _steps_of(task, self.steps)
        for _ in range(_MAX_DRAWS):
            problem = draw(rng, task, count, rng.choice(self.forms))
            if problem is not None:
                return problem
        raise ConfigError(f"no problem of {count} steps was found for {task.id!r}")


class _Tasks(GeneratedTasks):
    """Tasks whose difficulty is the number of steps."""

    def __init__(self, split: str, steps: tuple[int, int]) -> None:
        super().__init__(split)
        self.steps = steps

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        count = float(_steps_of(task, self.steps))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=count)


def _steps_of(task: Task, steps: tuple[int, int]) -> int:
    return random.Random(f"coding/steps/{task.seed}").randint(*steps)


def draw(rng: random.Random, task: Task, count: int, form: str) -> CodingProblem | None:
    """Draw a problem of `count` steps.

    Returns None if the problem belongs to another split, or if nearly all inputs lead to the same
    result.
    """
    kind = rng.choice((NUMBERS, WORDS))
    steps = [step.filled(rng) for step in rng.sample(STEPS[kind], count)]
    result_type, result = rng.choice(RESULTS[kind])
    descriptions = [*(step.says for step in steps), f"{{verb}} {result.says}"]
    if split_of("\n".join([kind, *descriptions])) != task.split:
        return None
    source = function_source(steps, result)
    # Compile the right function; the source is made of our own lines and needs no sandbox.
    names: dict[str, Any] = {}
    exec(source, names)
    solve: Callable[[list[Any]], Any] = names[NAME]
    inputs = _inputs(rng, kind)
    results = [solve(list(sample_input)) for sample_input in inputs]
    if len({repr(value) for value in results}) < _FEWEST_RESULTS:
        return None
    write = _as_function if form == FUNCTION else _as_program
    problem = _Drawn(kind, result_type, descriptions, source, inputs, results)
    question, gold, solution = write(problem)
    return CodingProblem(
        id=task.id, question=question, gold=gold, solution=solution, difficulty=float(count)
    )


def function_source(steps: list[Edit], result: Edit) -> str:
    """Return the source of the right function."""
    lines = [*(step.does for step in steps), result.does]
    return f"def {NAME}(items):\n" + "".join(f"    {line}\n" for line in lines)


def _inputs(rng: random.Random, kind: str) -> list[list[Any]]:
    """Draw the lists to test with; the empty list and a list of a single item are never shown."""
    draw_item = _number if kind == NUMBERS else _word
    lists = [[draw_item(rng) for _ in range(rng.randint(5, 9))] for _ in range(_TESTS)]
    for items in lists[::2]:  # make a value occur twice
        items.insert(rng.randrange(len(items)), rng.choice(items))
    return [*lists, [], [draw_item(rng)]]


def _number(rng: random.Random) -> int:
    return rng.randint(-20, 40)


def _word(rng: random.Random) -> str:
    if rng.random() < 0.2:
        half = "".join(rng.choices("aeotmnl", k=2))
        return half + half[::-1]
    return "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3)))


def _numbered(descriptions: list[str], verb: str) -> str:
    return "\n".join(f"{n}. {line.format(verb=verb)}" for n, line in enumerate(descriptions, 1))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A right function, with what is told about it and what it gives for some inputs."""

    kind: str
    result_type: str
    told: list[str]
    source: str
    inputs: list[list[Any]]
    results: list[Any]


def _as_function(
    problem: _Drawn,
) -> tuple[str, dict[str, Any], str]:
    """Return the question, gold and solution of a problem that asks for a function."""
    item = "int" if problem.kind == NUMBERS else "str"
    type_name = "list" if problem.result_type == LIST else problem.result_type
    examples = "\n".join(
        f"{NAME}({value!r}) == {expected!r}"
        for value, expected in zip(problem.inputs[:_SHOWN], problem.results, strict=False)
    )
    question = (
        f"Write a Python function `{NAME}(items: list[{item}]) -> {type_name}` that does the "
        f"following with a list of {problem.kind}, one after the other:\n\n"
        f"{_numbered(problem.told, 'return')}\n\n"
        f"Examples:\n\n```python\n{examples}\n```"
    )
    tests = [
        f"assert {NAME}({value!r}) == {expected!r}"
        for value, expected in zip(problem.inputs, problem.results, strict=True)
    ]
    return question, {"tests": tests, "entry_point": NAME}, problem.source


def _as_program(
    problem: _Drawn,
) -> tuple[str, dict[str, Any], str]:
    """Return the question, gold and solution of a problem that asks for a program."""
    cases = [
        {"input": _line(value) + "\n", "output": _line(result) + "\n"}
        for value, result in zip(problem.inputs, problem.results, strict=True)
    ]
    examples = "\n\n".join(
        f"Input:\n{case['input']}Output:\n{case['output']}".strip() for case in cases[:_SHOWN]
    )
    separator = ", separated by spaces" if problem.result_type == LIST else ""
    question = (
        f"Write a Python program that reads one line of {problem.kind} separated by spaces, which "
        f"may be empty, and does the following with the list, one after the other:\n\n"
        f"{_numbered(problem.told, 'print')}{separator}\n\n{examples}"
    )
    read = "input().split()" if problem.kind == WORDS else "[int(word) for word in input().split()]"
    print_line = (
        f"print(*{NAME}({read}))" if problem.result_type == LIST else f"print({NAME}({read}))"
    )
    return question, {"tests": cases, "kind": "stdin"}, f"{problem.source}\n\n{print_line}\n"


def _line(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
