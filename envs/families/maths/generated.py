"""Generates problems with exact answers, so that the environment needs no data.

Every kind of problem is a function of randomness that returns the question, the worked solution and
the exact answer. A digest of the question decides the split of a problem, so the same question is
never in two splits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

from ...tasks import GeneratedTasks, Task
from .problems import MathsProblem, digest

Drawn = tuple[str, str, Fraction]
"""A question, its worked solution, and its answer."""

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
        question, solution, answer = kind(rng)
        if split_of(question) == task.split:
            return MathsProblem(
                id=task.id,
                question=question,
                gold=tex(answer),
                difficulty=KINDS[kind],
                solution=solution,
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
    return f"Solve for x: {a}x {_signed(b)} = {c}.", solution, x


def two_sided(rng: random.Random) -> Drawn:
    """Solve ax + b = cx + d for x."""
    c = rng.randint(1, 9)
    a = c + rng.randint(1, 9)
    b, d = _nonzero(rng, 30), _nonzero(rng, 30)
    x = Fraction(d - b, a - c)
    solution = f"({a} - {c})x = {d} {_signed(-b)}, so {a - c}x = {d - b} and x = {tex(x)}."
    return f"Solve for x: {a}x {_signed(b)} = {c}x {_signed(d)}.", solution, x


def sum_and_difference(rng: random.Random) -> Drawn:
    """Solve x + y = s and x - y = d for the product xy."""
    s, d = rng.randint(5, 80), _nonzero(rng, 40)
    x, y = Fraction(s + d, 2), Fraction(s - d, 2)
    question = f"Two numbers have the sum {s}; the first minus the second is {d}. "
    solution = f"The numbers are {tex(x)} and {tex(y)}; their product is {tex(x * y)}."
    return question + "What is their product?", solution, x * y


def larger_root(rng: random.Random) -> Drawn:
    """Find the larger root of a quadratic with integer roots."""
    r = _nonzero(rng, 12)
    s = rng.choice([n for n in range(-12, 13) if n and n != r and abs(n + r) > 1])
    question = f"What is the larger root of x^2 {_signed(-(r + s))}x {_signed(r * s)} = 0?"
    solution = f"It factors as (x {_signed(-r)})(x {_signed(-s)}) = 0, with roots {r} and {s}."
    return question, solution, Fraction(max(r, s))


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
    return question, solution, Fraction(paid - cost)


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
    return question, solution, final


def average_speed(rng: random.Random) -> Drawn:
    """Work out the average speed of a round trip with a different speed in each direction."""
    name, way_out, way_back = rng.choice(NAMES), 5 * rng.randint(1, 10), 5 * rng.randint(1, 10)
    speed = Fraction(2 * way_out * way_back, way_out + way_back)
    question = (
        f"{name} rides to a lake at {way_out} km/h and back the same way at {way_back} km/h. What "
        "is the average speed of the whole ride, in km/h? Give an exact number."
    )
    solution = f"It is 2 * {way_out} * {way_back} / ({way_out} + {way_back}) = {tex(speed)}."
    return question, solution, speed


def two_pipes(rng: random.Random) -> Drawn:
    """Work out the time in which two pipes fill a tank together."""
    a, b = rng.sample(range(2, 25), 2)
    hours = Fraction(a * b, a + b)
    question = (
        f"One pipe fills a tank in {a} hours, another in {b} hours. How many hours do both take "
        "together? Give an exact number."
    )
    solution = f"Together they fill 1/{a} + 1/{b} of it an hour, so it takes {tex(hours)}."
    return question, solution, hours


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
    return question, solution, chance


def multiples(rng: random.Random) -> Drawn:
    """Count the multiples of a number in a range."""
    low = rng.randint(10, 200)
    high, step = low + rng.randint(50, 900), rng.randint(3, 17)
    count = high // step - (low - 1) // step
    question = f"How many multiples of {step} are there from {low} to {high}, both included?"
    solution = (
        f"There are {high // step} up to {high} and {(low - 1) // step} below {low}: {count}."
    )
    return question, solution, Fraction(count)


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
    return question, solution, total


def least_common_multiple(rng: random.Random) -> Drawn:
    """Find when two cycles meet again."""
    a, b = rng.sample(range(4, 40), 2)
    together = math.lcm(a, b)
    question = (
        f"One light blinks every {a} seconds, another every {b} seconds. They have just blinked "
        "together. After how many seconds do they blink together again?"
    )
    solution = f"After the least common multiple of {a} and {b}, {together}."
    return question, solution, Fraction(together)


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
