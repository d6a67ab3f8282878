"""Generated function-calling problems: a request, and functions to choose from."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import user

from ...splits import split_of
from ...tasks import GeneratedTasks, Task, digest_of
from ...tools import ToolSpec
from .catalogue import FUNCTIONS, CatalogueFunction
from .matching import OMITTED, Expected
from .rows import CallProblem

MAX_DRAWS = 5_000
OPTION_RATE = 0.4
"""The probability that a request asks for an optional argument."""
_JOINED = ("Then: ", "Also: ", "And: ", "Besides: ")


class GeneratedCallProblems:
    """An endless supply of problems drawn from the catalogue.

    Args:
        calls: the fewest and the most calls a request asks for.
        functions: how many functions a problem offers, the needed ones included.
        irrelevant: the share of requests that no offered function can meet.
    """

    def __init__(self, calls: tuple[int, int], functions: int, irrelevant: float) -> None:
        if not 1 <= calls[0] <= calls[1] <= 8:
            raise ConfigError(f"need 1 <= min_calls <= max_calls <= 8, got {calls[0]}, {calls[1]}")
        if not calls[1] <= functions <= len(FUNCTIONS) - calls[1]:
            raise ConfigError(
                f"functions must be from max_calls ({calls[1]}) to {len(FUNCTIONS) - calls[1]}, "
                f"got {functions}"
            )
        if not 0 <= irrelevant <= 1:
            raise ConfigError(f"irrelevant is a share, got {irrelevant}")
        self._calls, self._functions, self._irrelevant = calls, functions, irrelevant

    def tasks(self, split: str) -> GeneratedTasks:
        """Return an endless task set; the difficulty of a task is the number of expected calls."""
        return _Tasks(split, self)

    def problem(self, task: Task) -> CallProblem:
        """Return the first problem drawn from the task's seed that is of the task's split."""
        rng = random.Random(f"calls/{task.seed}")
        for _ in range(MAX_DRAWS):
            count = rng.randint(*self._calls)
            kinds = rng.sample(FUNCTIONS, self._functions + count)
            requests = [_ask(kind, rng) for kind in rng.choices(kinds[:count], k=count)]
            texts = [text for text, _ in requests]
            question = texts[0] + "".join(f" {rng.choice(_JOINED)}{text}" for text in texts[1:])
            is_irrelevant = rng.random() < self._irrelevant
            offered_kinds = kinds[count:] if is_irrelevant else kinds[: self._functions]
            rng.shuffle(offered_kinds)
            # The split depends on the text alone, so the same request never occurs in two splits.
            if split_of(question) != task.split:
                continue
            return CallProblem(
                id=task.id,
                messages=[user(question)],
                functions=[_tool(kind) for kind in offered_kinds],
                expected=[] if is_irrelevant else [expected for _, expected in requests],
            )
        raise AssertionError("one request in ten falls into the smallest split")


class _Tasks(GeneratedTasks):
    def __init__(self, split: str, problems: GeneratedCallProblems) -> None:
        super().__init__(split)
        self._problems = problems

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty and a digest of the problem."""
        task = super().at(index)
        problem = self._problems.problem(task)
        function_names = sorted(function.name for function in problem.functions)
        return msgspec.structs.replace(
            task,
            difficulty=problem.difficulty,
            problem=digest_of(problem.messages[0].text, *function_names),
        )


def _ask(function: CatalogueFunction, rng: random.Random) -> tuple[str, Expected]:
    """Draw the sentence that requests a call of `function`, and the expected call."""
    arguments: dict[str, list[Any]] = {}
    texts: dict[str, str] = {}
    added = ""
    for slot in function.slots:
        value, words = slot.draw(rng)
        if not slot.optional:
            arguments[slot.name], texts[slot.name] = [value], words
        elif rng.random() < OPTION_RATE:
            arguments[slot.name] = [value]
            added += slot.phrase.format(words)
        else:
            arguments[slot.name] = [slot.default, OMITTED]
    # The phrases of optional arguments stand before the closing mark.
    request = rng.choice(function.requests).format(**texts)
    text, mark = (request[:-1], "?") if request.endswith("?") else (request, ".")
    return f"{text}{added}{mark}", Expected(function.name, arguments)


def _tool(function: CatalogueFunction) -> ToolSpec:
    properties = {
        slot.name: {**slot.schema, "default": slot.default} if slot.optional else slot.schema
        for slot in function.slots
    }
    required = [slot.name for slot in function.slots if not slot.optional]
    parameters = {"type": "object", "properties": properties, "required": required}
    return ToolSpec(name=function.name, description=function.description, parameters=parameters)
