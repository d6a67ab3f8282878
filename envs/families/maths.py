r"""Final-answer mathematics: problems from a file, from a data hub, or from a generator.

Every kind of problem is a function of randomness that returns the question, the worked solution and
the exact answer. A digest of the question decides the split of a problem, so the same question is
never in two splits.

GSM8K       {"question", "answer": "... reasoning ... #### 42"}
MATH-500    {"problem", "solution", "answer", "level"}
MATH        {"problem", "solution": "... \boxed{42}", "level": "Level 3"}
AIME, AMC   {"problem" or "question", "answer" or "expected_answer"}
SVAMP       {"Body", "Question", "Answer"}
Olympiad    {"question", "final_answer": ["42"]}

    user       Solve for x: 3x + 4 = 19.
    assistant  3x = 15, so x = 5. \boxed{5}         reward 1

An episode is one turn. A verifier scores the answer, by default `maths`. Problems come from a
JSONL file, from a data hub, or, without a source, from a generator.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import random
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from ludus.messages import Message
from ludus.rewards import Sample
from ludus.rewards.score import shared_verifier
from ludus.verdict import Verdict

from ..problem_files import ProblemFiles, ProblemSet, UnusableRow, check_shares
from ..protocol import Info, TextEnv
from ..tasks import GeneratedTasks, Task, TaskSet

Drawn = tuple[str, str, Fraction, str]
"""A question, its worked solution, its answer, and a Python expression that works the answer out;
`Fraction` and `math` are imported where it runs.
"""

NAMES = ("Ada", "Bruno", "Chloe", "Dario", "Emi", "Farid", "Greta", "Hugo")
THINGS = ("pencils", "apples", "stamps", "marbles", "postcards", "lemons")


class GeneratedMathsProblems:
    """A generator of problems, with the interface of a `ProblemSet`."""

    def tasks(self, split: str) -> GeneratedTasks:
        """Return an endless task set with a problem per seed. Raises UnknownTask."""
        return _Tasks(split)

    def problem(self, task: Task) -> MathsProblem:
        """Return the problem of a task."""
        return draw(task)


class _Tasks(GeneratedTasks):
    """Tasks with the difficulty of the problems."""

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty and a digest of the question."""
        task = super().at(index)
        problem = draw(task)
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=problem.difficulty,
            problem=digest(problem.question),
        )


def draw(task: Task) -> MathsProblem:
    """Draw from the seed of `task` until the question belongs to the task's split."""
    rng = random.Random(f"maths/{task.seed}")
    while True:
        kind = rng.choice(list(KINDS))
        question, solution, answer, program = kind(rng)
        if split_of(question) == task.split:
            return MathsProblem(
                id=task.id,
                question=question,
                gold=tex(answer),
                difficulty=KINDS[kind],
                solution=solution,
                program=program,
            )


def split_of(question: str) -> str:
    """Return the split of a question: 10 % are test, 10 % validation, the rest train."""
    return {0: "test", 1: "validation"}.get(int(digest(question), 16) % 10, "train")


def tex(number: Fraction) -> str:
    r"""Write a number as LaTeX.

    >>> tex(Fraction(-3, 4))
    '-\\frac{3}{4}'
    """
    if number.denominator == 1:
        return str(number.numerator)
    sign = "-" if number < 0 else ""
    return f"{sign}\\frac{{{abs(number.numerator)}}}{{{number.denominator}}}"


def _signed(number: int) -> str:
    return f"+ {number}" if number >= 0 else f"- {-number}"


def _nonzero(rng: random.Random, largest: int) -> int:
    return rng.choice([-1, 1]) * rng.randint(1, largest)


def linear(rng: random.Random) -> Drawn:
    """Solve ax + b = c for x."""
    a, b, c = rng.randint(2, 12), _nonzero(rng, 30), _nonzero(rng, 60)
    x = Fraction(c - b, a)
    solution = f"{a}x = {c} {_signed(-b)} = {c - b}, so x = {tex(x)}."
    return f"Solve for x: {a}x {_signed(b)} = {c}.", solution, x, f"Fraction({c} - ({b}), {a})"


def two_sided(rng: random.Random) -> Drawn:
    """Solve ax + b = cx + d for x."""
    c = rng.randint(1, 9)
    a = c + rng.randint(1, 9)
    b, d = _nonzero(rng, 30), _nonzero(rng, 30)
    x = Fraction(d - b, a - c)
    solution = f"({a} - {c})x = {d} {_signed(-b)}, so {a - c}x = {d - b} and x = {tex(x)}."
    question = f"Solve for x: {a}x {_signed(b)} = {c}x {_signed(d)}."
    return question, solution, x, f"Fraction({d} - ({b}), {a} - {c})"


def sum_and_difference(rng: random.Random) -> Drawn:
    """Solve x + y = s and x - y = d for the product xy."""
    s, d = rng.randint(5, 80), _nonzero(rng, 40)
    x, y = Fraction(s + d, 2), Fraction(s - d, 2)
    question = f"Two numbers have the sum {s}; the first minus the second is {d}. "
    solution = f"The numbers are {tex(x)} and {tex(y)}; their product is {tex(x * y)}."
    program = f"Fraction({s} + ({d}), 2) * Fraction({s} - ({d}), 2)"
    return question + "What is their product?", solution, x * y, program


def larger_root(rng: random.Random) -> Drawn:
    """Find the larger root of a quadratic with integer roots."""
    r = _nonzero(rng, 12)
    s = rng.choice([n for n in range(-12, 13) if n and n != r and abs(n + r) > 1])
    question = f"What is the larger root of x^2 {_signed(-(r + s))}x {_signed(r * s)} = 0?"
    solution = f"It factors as (x {_signed(-r)})(x {_signed(-s)}) = 0, with roots {r} and {s}."
    program = f"max(x for x in range(-99, 100) if x * x + {-(r + s)} * x + {r * s} == 0)"
    return question, solution, Fraction(max(r, s)), program


def shopping(rng: random.Random) -> Drawn:
    """Work out the change after buying two kinds of things."""
    name, (first, second) = rng.choice(NAMES), rng.sample(THINGS, 2)
    n, m, p, q = (rng.randint(2, 9) for _ in range(4))
    cost = n * p + m * q
    paid = 10 * math.ceil((cost + 1) / 10)
    question = (
        f"{name} buys {n} {first} at {p} dollars each and {m} {second} at {q} dollars each, and "
        f"pays with {paid} dollars. How many dollars does {name} get back?"
    )
    solution = f"They cost {n} * {p} + {m} * {q} = {cost}, and {paid} - {cost} = {paid - cost}."
    return question, solution, Fraction(paid - cost), f"{paid} - ({n} * {p} + {m} * {q})"


def discount(rng: random.Random) -> Drawn:
    """Work out a price that is lowered by a share and then raised by another."""
    price, decrease, up = 20 * rng.randint(2, 30), 5 * rng.randint(1, 10), 5 * rng.randint(1, 10)
    lowered = Fraction(price * (100 - decrease), 100)
    final = lowered * Fraction(100 + up, 100)
    question = (
        f"A coat costs {price} dollars. Its price is lowered by {decrease}% and then raised by "
        f"{up}%. What does it cost in the end, in dollars? Give an exact number."
    )
    solution = f"First {tex(lowered)}, then {tex(lowered)} * {100 + up}/100 = {tex(final)}."
    program = f"{price} * Fraction({100 - decrease}, 100) * Fraction({100 + up}, 100)"
    return question, solution, final, program


def average_speed(rng: random.Random) -> Drawn:
    """Work out the average speed of a round trip with a different speed in each direction."""
    name, way_out, way_back = rng.choice(NAMES), 5 * rng.randint(1, 10), 5 * rng.randint(1, 10)
    speed = Fraction(2 * way_out * way_back, way_out + way_back)
    question = (
        f"{name} rides to a lake at {way_out} km/h and back the same way at {way_back} km/h. What "
        "is the average speed of the whole ride, in km/h? Give an exact number."
    )
    solution = f"It is 2 * {way_out} * {way_back} / ({way_out} + {way_back}) = {tex(speed)}."
    return question, solution, speed, f"2 / (Fraction(1, {way_out}) + Fraction(1, {way_back}))"


def two_pipes(rng: random.Random) -> Drawn:
    """Work out the time in which two pipes fill a tank together."""
    a, b = rng.sample(range(2, 25), 2)
    hours = Fraction(a * b, a + b)
    question = (
        f"One pipe fills a tank in {a} hours, another in {b} hours. How many hours do both take "
        "together? Give an exact number."
    )
    solution = f"Together they fill 1/{a} + 1/{b} of it an hour, so it takes {tex(hours)}."
    return question, solution, hours, f"1 / (Fraction(1, {a}) + Fraction(1, {b}))"


def two_red(rng: random.Random) -> Drawn:
    """Work out the probability that two draws without replacement are both red."""
    red, blue = rng.randint(2, 12), rng.randint(1, 12)
    total = red + blue
    chance = Fraction(red * (red - 1), total * (total - 1))
    question = (
        f"A bag holds {red} red and {blue} blue balls. Two are drawn without replacement. What is "
        "the probability that both are red? Give an exact fraction."
    )
    solution = f"It is {red}/{total} * {red - 1}/{total - 1} = {tex(chance)}."
    program = f"Fraction(math.comb({red}, 2), math.comb({total}, 2))"
    return question, solution, chance, program


def multiples(rng: random.Random) -> Drawn:
    """Count the multiples of a number in a range."""
    low = rng.randint(10, 200)
    high, step = low + rng.randint(50, 900), rng.randint(3, 17)
    count = high // step - (low - 1) // step
    question = f"How many multiples of {step} are there from {low} to {high}, both included?"
    solution = (
        f"There are {high // step} up to {high} and {(low - 1) // step} below {low}: {count}."
    )
    program = f"sum(n % {step} == 0 for n in range({low}, {high} + 1))"
    return question, solution, Fraction(count), program


def sequence_sum(rng: random.Random) -> Drawn:
    """Work out the sum of an arithmetic sequence."""
    first, step, n = _nonzero(rng, 20), _nonzero(rng, 9), rng.randint(6, 30)
    last = first + (n - 1) * step
    total = Fraction(n * (first + last), 2)
    question = (
        f"An arithmetic sequence begins {first}, {first + step}, {first + 2 * step}. What is the "
        f"sum of its first {n} terms?"
    )
    solution = f"Term {n} is {last}, so the sum is {n} * ({first} {_signed(last)}) / 2 = {total}."
    return question, solution, total, f"sum({first} + ({step}) * n for n in range({n}))"


def least_common_multiple(rng: random.Random) -> Drawn:
    """Find when two cycles meet again."""
    a, b = rng.sample(range(4, 40), 2)
    together = math.lcm(a, b)
    question = (
        f"One light blinks every {a} seconds, another every {b} seconds. They have just blinked "
        "together. After how many seconds do they blink together again?"
    )
    solution = f"After the least common multiple of {a} and {b}, {together}."
    program = f"next(t for t in range(1, {a * b + 1}) if t % {a} == 0 and t % {b} == 0)"
    return question, solution, Fraction(together), program


KINDS: dict[Callable[[random.Random], Drawn], float] = {
    linear: 1,
    shopping: 1,
    two_sided: 2,
    sum_and_difference: 2,
    larger_root: 2,
    discount: 2,
    least_common_multiple: 2,
    average_speed: 3,
    two_pipes: 3,
    two_red: 3,
    multiples: 3,
    sequence_sum: 3,
}
"""The difficulty of each kind of problem: about the number of steps to the answer."""


QUESTION_FIELDS = ("problem", "question", "Question")
ANSWER_FIELDS = ("answer", "expected_answer", "final_answer", "Answer")
SOLUTION_FIELDS = ("solution", "reference_solution")
GSM8K_MARK = "####"

Gold = str | list[str]
"""The final answer; of a list, each element counts as right."""


class MathsProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem with a final answer."""

    id: str
    """A digest of the question: the same in every file, order and split."""
    question: str
    gold: Gold
    difficulty: float | None = None
    solution: str = ""
    """A worked solution, where the data has one."""
    program: str = ""
    """A Python expression that works the answer out, of generated problems."""


def read_row(row: Mapping[str, Any], *, question: str = "", answer: str = "") -> MathsProblem:
    """Read a row in any of the known layouts.

    Args:
        row: a row of the file, as decoded from JSON.
        question: the field with the question; empty looks for the known fields.
        answer: the field with the answer; empty looks for the known fields.

    Raises:
        UnusableRow: there is no question or no final answer.
    """
    question_text = _question(row, question)
    gold, solution = _answer(row, answer)
    # MATH's level is a number from 1 to 5 or a text such as `Level 3`.
    level = re.fullmatch(r"(?:Level )?(\d+)", str(row.get("level")))
    return MathsProblem(
        id=digest(question_text),
        question=question_text,
        gold=gold,
        difficulty=float(level[1]) if level else None,
        solution=solution,
    )


class MathsRows(msgspec.Struct, frozen=True, kw_only=True):
    """Reads rows of mathematics; the fields are the arguments of `read_row`."""

    question: str = ""
    answer: str = ""

    def read(self, row: Mapping[str, Any]) -> MathsProblem:
        """Read a row. Raises UnusableRow."""
        return read_row(row, question=self.question, answer=self.answer)


def digest(question: str) -> str:
    """Return the id of a problem: equal where questions differ in spacing alone."""
    text = " ".join(question.split())
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _question(row: Mapping[str, Any], field: str) -> str:
    for name in [field] if field else QUESTION_FIELDS:
        text = row.get(name)
        if isinstance(text, str) and text.strip():
            body = row.get("Body") if name == "Question" else None
            return f"{body} {text}".strip() if isinstance(body, str) else text.strip()
    raise UnusableRow(f"no question among the fields {', '.join(row)}")


def _answer(row: Mapping[str, Any], field: str) -> tuple[Gold, str]:
    solution = next((row[name] for name in SOLUTION_FIELDS if isinstance(row.get(name), str)), "")
    for name in [field] if field else ANSWER_FIELDS:
        value = row.get(name)
        if isinstance(value, str) and GSM8K_MARK in value:
            reasoning, _, final = value.rpartition(GSM8K_MARK)
            # A number without the marks of GSM8K, which writes `$1,234`.
            # Remove GSM8K's calculator marks, such as `<<48/2=24>>` in `48/2 = <<48/2=24>>24`.
            return final.strip().lstrip("$").replace(",", ""), re.sub(
                r"<<[^<>]*>>", "", reasoning
            ).strip()
        gold = _gold(value)
        if gold:
            return gold, solution
    boxed = last_boxed(solution)
    if boxed:
        return boxed, solution
    raise UnusableRow(f"no final answer among the fields {', '.join(row)}")


def _gold(value: object) -> Gold:
    if isinstance(value, list):
        return [text for item in value if isinstance(text := _gold(item), str) and text]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else ""


def last_boxed(text: str) -> str:
    r"""Return the content of the last `\boxed{}`, with balanced braces, or an empty text.

    >>> last_boxed(r"so \boxed{1} or \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    begin, depth = start + len("\\boxed{"), 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position].strip()
    return ""


class Maths(TextEnv):
    r"""An environment that asks for a final answer in \boxed{}.

    Args:
        source: a .jsonl or .jsonl.gz path (the layouts of GSM8K, MATH, AIME and others are
            recognised), or a hub's `owner/name[/config][@split]`; empty draws generated problems.
        test_source: a source like `source`, for the test split alone.
        seed: seeds the shuffle and the split.
        validation: the share of `source` for validation.
        test: the share of `source` for test, where `test_source` is empty.
        question: the field with the question; empty recognises known layouts.
        answer: the field with the answer; empty recognises known layouts.
        verifier: the name of the verifier that scores the answer.
        verifier_options: the verifier's options.
    """

    system_prompt = "Solve the problem."
    answer_format = "Think step by step. Give the final answer in \\boxed{}."
    max_turns = 1

    def __init__(
        self,
        source: str = "",
        *,
        test_source: str = "",
        seed: int = 0,
        validation: float = 0.05,
        test: float = 0.1,
        question: str = "",
        answer: str = "",
        verifier: str = "maths",
        verifier_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_shares(validation, test)
        files = ProblemFiles(
            source=source, test_source=test_source, seed=seed, validation=validation, test=test
        )
        self.problems: ProblemSet[MathsProblem] | GeneratedMathsProblems = (
            files.load(MathsRows(question=question, answer=answer))
            if source
            else GeneratedMathsProblems()
        )
        self.verifier = shared_verifier(verifier, **(verifier_options or {}))
        self.problem = MathsProblem(id="", question="", gold="")

    def tasks(self, split: str) -> TaskSet:
        """Return the problems of a split, shuffled; generated problems never run out."""
        return self.problems.tasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the problem of the task."""
        self.problem = self.problems.problem(self.task)
        return self.problem.question, {}

    async def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Score the final answer; the episode ends."""
        response = action if isinstance(action, str) else action.text
        sample = Sample(response=response, gold=self.problem.gold, prompt=self.problem.question)
        scoring = self.verifier.score(sample)
        return "", await scoring if inspect.isawaitable(scoring) else scoring, True, False, {}

    def gold(self) -> Gold:
        """Return the final answer, or several that are all right."""
        return self.problem.gold

    def demonstrate(self) -> str | Message:
        """Answer with the final answer, after the worked solution where the data has that."""
        gold = self.problem.gold
        answer = gold if isinstance(gold, str) else gold[0]
        solution = self.problem.solution
        if last_boxed(solution) == answer:
            return solution
        return f"{solution}\n\\boxed{{{answer}}}".strip()
