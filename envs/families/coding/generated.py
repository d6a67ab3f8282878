"""The building blocks of generated problems: steps that change a list, and the final result.

Each is a sentence and the Python line that does the same to `items`, with a number or two to be
filled in. An empty list is never a special case of a sentence: the lines are written so that they
work on it.

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

from ...problem_files import split_of
from ...tasks import GeneratedTasks, Task
from .problems import CodingProblem

NUMBERS, WORDS = "numbers", "words"


@dataclass(frozen=True, slots=True)
class Edit:
    """A sentence, and the line of Python that does what the sentence says.

    `{k}` and `{m}` are drawn from the given ranges; `{nth}` is k as an ordinal, `{below}` is k - 1.
    """

    says: str
    does: str
    k: tuple[int, int] = (2, 9)
    m: tuple[int, int] = (2, 9)

    def filled(self, rng: random.Random) -> Edit:
        """Return the step with the numbers drawn."""
        k, m = rng.randint(*self.k), rng.randint(*self.m)
        values = {"k": k, "m": m, "nth": _ORDINALS.get(k, ""), "below": k - 1}
        return Edit(self.says.format(**values), self.does.format(**values))


_ORDINALS = {2: "second", 3: "third", 4: "fourth"}


STEPS: dict[str, tuple[Edit, ...]] = {
    NUMBERS: (
        Edit("keep only the numbers that are divisible by {k}",
             "items = [x for x in items if x % {k} == 0]", k=(2, 4)),
        Edit("remove the numbers that are divisible by {k}",
             "items = [x for x in items if x % {k} != 0]", k=(2, 5)),
        Edit("keep only the numbers greater than {k}",
             "items = [x for x in items if x > {k}]", k=(-10, 10)),
        Edit("keep only the numbers from -{k} to {m}, both included",
             "items = [x for x in items if -{k} <= x <= {m}]", k=(3, 20), m=(3, 20)),
        Edit("multiply each number by {k} and add {m}",
             "items = [{k} * x + {m} for x in items]"),
        Edit("subtract each number from {k}",
             "items = [{k} - x for x in items]", k=(1, 30)),
        Edit("replace each number by its square",
             "items = [x * x for x in items]"),
        Edit("replace each number by its absolute value",
             "items = [abs(x) for x in items]"),
        Edit("replace each number by the sum of the decimal digits of its absolute value",
             "items = [sum(int(d) for d in str(abs(x))) for x in items]"),
        Edit("replace each number x by the remainder of x divided by {k}, from 0 to {below}",
             "items = [x % {k} for x in items]", k=(3, 12)),
        Edit("replace each number below -{k} by -{k}, and each above {m} by {m}",
             "items = [min(max(x, -{k}), {m}) for x in items]", k=(2, 12), m=(2, 12)),
        Edit("reverse the list",
             "items = items[::-1]"),
        Edit("move the first {k} numbers to the end, in their order; leave a shorter list as it is",
             "items = items[{k}:] + items[:{k}]", k=(2, 4)),
        Edit("remove repeated numbers, keeping the first of each",
             "items = list(dict.fromkeys(items))"),
        Edit("sort the numbers in ascending order",
             "items = sorted(items)"),
        Edit("sort the numbers by their absolute value, the negative one first among equals",
             "items = sorted(items, key=lambda x: (abs(x), x))"),
        Edit("replace the list by the differences of neighbours, the later minus the earlier",
             "items = [b - a for a, b in zip(items, items[1:])]"),
        Edit("replace each number by the sum of all numbers up to it, itself included",
             "items = [sum(items[: i + 1]) for i in range(len(items))]"),
        Edit("keep only every {nth} number, beginning with the first",
             "items = items[::{k}]", k=(2, 3)),
        Edit("remove each number that is smaller than the one before it, both as the list is now",
             "items = [x for i, x in enumerate(items) if i == 0 or x >= items[i - 1]]"),
        Edit("add {k} to each number at an odd position, positions counted from 0",
             "items = [x + {k} * (i % 2) for i, x in enumerate(items)]"),
        Edit("remove the smallest number, the first of them if there are several",
             "items = [x for i, x in enumerate(items) if i != items.index(min(items))]"),
    ),
    WORDS: (
        Edit("keep only the words of at least {k} letters",
             "items = [w for w in items if len(w) >= {k}]", k=(3, 5)),
        Edit("remove the words that begin and end with the same letter",
             "items = [w for w in items if w[:1] != w[-1:]]"),
        Edit("write each word backwards",
             "items = [w[::-1] for w in items]"),
        Edit("cut each word after its first {k} letters",
             "items = [w[:{k}] for w in items]", k=(2, 4)),
        Edit("remove the vowels a, e, i, o, u from each word; words may become empty",
             "items = [''.join(c for c in w if c not in 'aeiou') for w in items]"),
        Edit("move the first letter of each word to its end",
             "items = [w[1:] + w[:1] for w in items]"),
        Edit("replace each letter by the one {k} places later in the alphabet, a following z",
             "items = [''.join(chr((ord(c) - 97 + {k}) % 26 + 97) for c in w) for w in items]",
             k=(1, 25)),
        Edit("write each letter that stands at an even position of its word twice, positions "
             "counted from 0",
             "items = [''.join(c * (2 - i % 2) for i, c in enumerate(w)) for w in items]"),
        Edit("sort the letters within each word",
             "items = [''.join(sorted(w)) for w in items]"),
        Edit("in each word keep only the first of each letter",
             "items = [''.join(dict.fromkeys(w)) for w in items]"),
        Edit("remove repeated words, keeping the first of each",
             "items = list(dict.fromkeys(items))"),
        Edit("sort the words by length, those of equal length alphabetically",
             "items = sorted(items, key=lambda w: (len(w), w))"),
        Edit("sort the words alphabetically",
             "items = sorted(items)"),
        Edit("reverse the order of the words",
             "items = items[::-1]"),
        Edit("remove the first {k} words, or all if there are fewer",
             "items = items[{k}:]", k=(2, 3)),
        Edit("put the {nth} letter of each word, if it has so many, at its front as well",
             "items = [w[{below}:{k}] + w for w in items]", k=(2, 4)),
    ),
}  # fmt: skip
"""The steps that can be applied to each kind of list."""

NUMBER, TEXT, LIST = "int", "str", "list"

RESULTS: dict[str, tuple[tuple[str, Edit], ...]] = {
    NUMBERS: (
        (NUMBER, Edit("the sum of the numbers", "return sum(items)")),
        (NUMBER, Edit("the largest number, or 0 if there is none", "return max(items, default=0)")),
        (NUMBER, Edit("how many different numbers there are", "return len(set(items))")),
        (NUMBER, Edit("the numbers added and subtracted in turn, the first one added",
                      "return sum(items[::2]) - sum(items[1::2])")),
        (NUMBER, Edit("the sum of each number times its position, positions counted from 1",
                      "return sum(i * x for i, x in enumerate(items, 1))")),
        (NUMBER, Edit("how many neighbouring pairs have an even sum",
                      "return sum((a + b) % 2 == 0 for a, b in zip(items, items[1:]))")),
        (NUMBER, Edit("the number that occurs most often, the smallest of them if several do, "
                      "or 0 if there is none",
                      "return min(items, key=lambda x: (-items.count(x), x), default=0)")),
        (LIST, Edit("the list", "return items")),
        (LIST, Edit("the list of the smallest and the largest number, or an empty list",
                    "return [min(items), max(items)] if items else []")),
    ),
    WORDS: (
        (NUMBER, Edit("the number of letters in all words together", "return len(''.join(items))")),
        (NUMBER, Edit("how many words read the same backwards",
                      "return sum(w == w[::-1] for w in items)")),
        (TEXT, Edit("the words joined by hyphens", "return '-'.join(items)")),
        (TEXT, Edit("the longest word, the first of them if there are several, or an empty text",
                    "return max(items, key=len, default='')")),
        (TEXT, Edit("the first letters of all words that are not empty, joined",
                    "return ''.join(w[:1] for w in items)")),
        (LIST, Edit("the list of words", "return items")),
        (LIST, Edit("the list of the lengths of the words", "return [len(w) for w in items]")),
    ),
}  # fmt: skip
"""The possible results for each kind of list, each with a type."""


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

    Returns None if the problem belongs to another split, if nearly all inputs lead to the same
    result, or if a program that leaves out one of the steps passes all tests.
    """
    kind = rng.choice((NUMBERS, WORDS))
    steps = [step.filled(rng) for step in rng.sample(STEPS[kind], count)]
    result_type, result = rng.choice(RESULTS[kind])
    descriptions = [*(step.says for step in steps), f"{{verb}} {result.says}"]
    if split_of("\n".join([kind, *descriptions])) != task.split:
        return None
    source = function_source(steps, result)
    solve = _compiled(source)
    draw_item = _number if kind == NUMBERS else _word
    lists = [[draw_item(rng) for _ in range(rng.randint(5, 9))] for _ in range(_TESTS)]
    for items in lists[::2]:  # make a value occur twice
        items.insert(rng.randrange(len(items)), rng.choice(items))
    inputs = [*lists, [], [draw_item(rng)]]  # the last two are never shown
    results = [solve(list(sample_input)) for sample_input in inputs]
    if len({repr(value) for value in results}) < _FEWEST_RESULTS:
        return None
    for step in steps:
        without_step = _compiled(function_source([kept for kept in steps if kept != step], result))
        if [without_step(list(sample_input)) for sample_input in inputs] == results:
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


def _compiled(source: str) -> Callable[[list[Any]], Any]:
    """Compile a function whose source is made of our own lines, and so needs no sandbox."""
    names: dict[str, Any] = {}
    exec(source, names)
    solve: Callable[[list[Any]], Any] = names[NAME]
    return solve


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
    """A drawn problem: a right function, a description, and the results for some inputs."""

    kind: str
    result_type: str
    told: list[str]
    source: str
    inputs: list[list[Any]]
    results: list[Any]


def _as_function(problem: _Drawn) -> tuple[str, dict[str, Any], str]:
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


def _as_program(problem: _Drawn) -> tuple[str, dict[str, Any], str]:
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
