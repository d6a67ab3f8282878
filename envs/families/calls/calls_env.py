"""Reads function-calling problems from files in the Berkeley Function Calling Leaderboard's layout.

    problems   {"id", "question": [[{"role", "content"}, ...]], "function": [{"name", ...}]}
    answers    {"id", "ground_truth": [{"name": {"argument": [values that will do]}}]}

Answers are in `possible_answer/` beside the problems, in a file of the same name, or in the rows
themselves. A problem whose id begins with `irrelevance` needs no answer: no call is right there.

    user       Set the light in the hall to 40 per cent, in amber. Also: Track KX204418.
    assistant  set_light(room="hall", brightness=40, colour="amber")
               track_parcel(number="KX204418")              reward 1

An episode is one turn; nothing is executed. The calls are compared with the expected ones by name
and argument, in any order, by the rules of the Berkeley Function Calling Leaderboard, whose files
load as they are. Without a file, requests are generated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role, ToolCall, assistant, user
from ludus.verdict import Verdict

from ...problem_files import ProblemSet, rows_of, split_of
from ...protocol import Briefing, Info, TextEnv
from ...tasks import GeneratedTasks, Task, TaskSet, digest_of
from ...tools import ToolSpec
from .catalogue import FUNCTIONS, CatalogueFunction
from .matching import OMITTED, Expected, as_tool, example_of, fault_of_calls

ANSWERS_FOLDER = "possible_answer"
UNANSWERED = "irrelevance"


class CallProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A request, the offered functions, and the expected calls."""

    id: str
    messages: list[Message]
    """The request, as the messages of one turn."""
    functions: list[ToolSpec]
    """The functions on offer, as tools."""
    expected: list[Expected]
    """The expected calls; empty where no call is right."""

    @property
    def difficulty(self) -> float:
        """The number of expected calls."""
        return float(len(self.expected))


def load_problems(sources: Sequence[str], answers: str = "") -> list[CallProblem]:
    """Load the problems of some files.

    Args:
        sources: the files of problems, as `rows_of` reads them.
        answers: the file of their answers; empty looks in `possible_answer/` beside each file.

    Raises:
        ConfigError: a file cannot be read, or a row is not such a problem; the message names it.
    """
    problems: list[CallProblem] = []
    for source in sources:
        beside = Path(source).parent / ANSWERS_FOLDER / Path(source).name
        path = Path(answers) if answers else beside
        # A file of answers that was named must exist; the one beside the problems need not, since
        # the rows of problems may have the answers.
        answer_rows = rows_of(str(path)) if answers or path.is_file() else []
        answers_by_id = {str(row.get("id")): row.get("ground_truth") for row in answer_rows}
        problems += [_problem(row, answers_by_id, source) for row in rows_of(source)]
    if not problems:
        raise ConfigError(f"no problems in {', '.join(map(repr, sources))}")
    return problems


def _problem(row: Mapping[str, Any], answers: Mapping[str, Any], source: str) -> CallProblem:
    """Convert a row of the file `source`, with the ground truth of each problem by id."""
    identity = str(row.get("id", ""))
    place = f"{source}, problem {identity!r}"
    functions = row.get("function", [])
    function_rows = functions if isinstance(functions, list) else [functions]
    try:
        # Of a conversation only the first turn is asked. A text becomes a user message.
        question = row.get("question")
        if isinstance(question, str):
            messages = [Message(role=Role.USER, content=question)]
        else:
            if not isinstance(question, list) or not question:
                raise ConfigError(f"there is no question: {str(question)[:80]!r}")
            turn = question[0] if isinstance(question[0], list) else question
            messages = [_message(message) for message in turn]
        truth = row.get("ground_truth", answers.get(identity))
        if truth is None and not identity.startswith((UNANSWERED, f"live_{UNANSWERED}")):
            raise ConfigError(
                f"it has no answer; name the file of answers, or put it in {ANSWERS_FOLDER}/"
            )
        return CallProblem(
            id=identity,
            messages=messages,
            functions=[as_tool(function) for function in function_rows],
            expected=[
                Expected(
                    name,
                    {
                        key: value if isinstance(value, list) else [value]
                        for key, value in arguments.items()
                    },
                )
                for call in truth or []
                for name, arguments in call.items()
            ],
        )
    except (ConfigError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{place}: {error}") from None


def _message(row: Mapping[str, Any]) -> Message:
    text = row.get("content")
    if not isinstance(text, str):
        raise ConfigError(f"a message needs a role and a text, got {str(row)[:80]!r}")
    return Message(role=Role(str(row.get("role"))), content=text)


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


NO_CALL = "None of these functions can do that."


class Calls(TextEnv):
    """An environment that asks for function calls; problems come from BFCL files or are generated.

    Args:
        source: a .jsonl file of problems, or several; empty generates problems.
        answers: the file of their answers; empty looks in `possible_answer/` beside the problems.
        seed: seeds the shuffle and the split of the files.
        validation: the share of the files' problems for validation.
        test: the share of the files' problems for test.
        min_calls: the fewest calls a generated request asks for.
        max_calls: the most calls a generated request asks for.
        functions: how many functions a generated problem offers.
        irrelevant: the share of generated requests that no offered function can meet; then the
            right answer is text without a call, and any such text earns the reward.

    Raises:
        ConfigError: a file cannot be used, or a setting is out of range.
    """

    system_prompt = (
        "Call the functions that do what is asked for, each with the arguments the request gives. "
        "If none can, say so."
    )
    max_turns = 1

    def __init__(
        self,
        source: str | Sequence[str] = "",
        *,
        answers: str = "",
        seed: int = 0,
        validation: float = 0.05,
        test: float = 0.1,
        min_calls: int = 1,
        max_calls: int = 3,
        functions: int = 5,
        irrelevant: float = 0.0,
    ) -> None:
        sources = [source] if isinstance(source, str) else list(source)
        self.problems: ProblemSet[CallProblem] | GeneratedCallProblems = (
            ProblemSet(load_problems(sources, answers), seed=seed, validation=validation, test=test)
            if any(sources)
            else GeneratedCallProblems((min_calls, max_calls), functions, irrelevant)
        )
        # An empty problem until the first reset.
        self.problem = CallProblem(id="", messages=[], functions=[], expected=[])

    def tasks(self, split: str) -> TaskSet:
        """Return the problems of a split; generated problems never run out."""
        return self.problems.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], Info]:
        """Show the request, whose functions are the tools of this episode."""
        self.problem = self.problems.problem(self.task)
        briefing = Briefing(
            system_prompt=self.system_prompt, tools=self.problem.functions, max_turns=1
        )
        return list(self.problem.messages), {"briefing": briefing}

    def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Compare the calls with the expected calls; the episode ends."""
        calls = [] if isinstance(action, str) else action.tool_calls
        text = action if isinstance(action, str) else action.text
        schemas = {function.name: function.parameters for function in self.problem.functions}
        fault = fault_of_calls(calls, self.problem.expected, schemas)
        if not fault and not calls and not text.strip():
            fault = "nothing is said"
        verdict = Verdict.of(float(not fault), fault, metrics={"calls": float(len(calls))})
        return "", verdict, True, False, {}

    def gold(self) -> object | None:
        """Return each expected call as text, `(name, arguments)`; None where no call is right."""
        return [str((call.name, call.arguments)) for call in self.problem.expected] or None

    def demonstrate(self) -> str | Message:
        """Make the expected calls, without optional arguments."""
        required = {
            function.name: function.parameters.get("required", [])
            for function in self.problem.functions
        }
        calls = [
            ToolCall(
                name=call.name,
                arguments=example_of(call, required.get(call.name, [])),
                id=f"call_{index}",
            )
            for index, call in enumerate(self.problem.expected)
        ]
        return assistant("", calls) if calls else NO_CALL
