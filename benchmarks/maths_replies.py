"""Laws of whole replies: a refusal around work with numbers, a later final answer, boxes of which
one is asked for, a check behind an answer tag, an option by its sign.

Each law draws questions with their golds and says of a response whether it is paid, in both
directions. `maths_laws.py` runs these laws beside its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from maths_words import Row

_REFUSES = (
    "I'm sorry, but I can't determine this reliably without further computation: {}",
    "I cannot solve this problem exactly without a computer. {}",
    "Unfortunately, I am unable to find the smallest value by hand. {}",
    "I do not know how to finish this one. {}", "I can't answer this with certainty. {}",
    "Sorry, I couldn't determine the exact value. {}",
)  # fmt: skip
_REFUSED_WORK = (
    "One has to count the factors 2 and 5 in n!. For n = {a} we get two fives, for n = {b} three.",
    "One would try values one by one. For n = {a} the condition fails, and for n = {b} it may hold.",
    "We have to compare {a} with {b}, and then all larger numbers.",
)
_REFERS = (
    " I would recommend using a computer algebra system to confirm the smallest n.",
    " Please ask a calculator.", " You may want to check it with a program.", "",
    " I hope that these hints help you to get further with the problem on your own.",
)  # fmt: skip


def refusals(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield work with numbers below an opening refusal, with and without a conclusion."""
    problem = "Find the smallest positive integer $n$ such that $n!$ is divisible by 1000."
    for _ in range(count):
        a, b = sorted(rng.sample(range(4, 60), 2))
        work = rng.choice(_REFUSED_WORK).format(a=a, b=b)
        said = rng.choice(_REFUSES).format(work)
        for gold in (a, b):
            yield Row("refusals", problem, str(gold), said + rng.choice(_REFERS), False)
        end = rng.choice((
            "\n\n\\boxed{#}", "\n\nThe answer is #.", " So the smallest n is #.", "\n\nFinal answer: **#**",
            " But then all of it holds for the first time, so n = #.", " Therefore n = #.",
        )).replace("#", str(b))  # fmt: skip
        yield Row("refusals that go on", problem, str(b), said + end, True)
        yield Row("refusals that go on", problem, str(a), said + end, False)
        said = f"{work} So the smallest n is {b}.{rng.choice(_REFERS)}"
        yield Row("no refusal", problem, str(b), said, True)


_TURNS = ("However", "But", "On the other hand", "That said", "Yet", "Still")
_FINALLY = (
    "{t}, a code should not begin with 0, so really it is {v}, and that's my final answer.",
    "{t}, a code should not begin with 0, so it is actually {v}.",
    "{t}, a code should not begin with 0, so in fact we get {v}. That is my final answer.",
    "{t}, we should not count those with 0 in front, so the number is really {v}.",
    "{t}, the first digit is not 0, so it is {v}, which is my answer.",
    "{t}, a code with 0 in front is not allowed. I go with {v} as my final answer.",
    "{t}, we should leave out those with 0 in front, which leaves {v}. That's the final answer.",
)
_MEANWHILE = (
    "{t}, if a code must not begin with 0, it would be {v}.",
    "{t}, with a first digit other than 0 there would be only {v}.",
    "{t}, for codes that do not begin with 0 the number is smaller, so really it is worth a second"
    " look at the question.",
    "{t}, note that codes with repeated digits are not counted here.",
    "In fact there are 10000 codes in all, and {v} is less than that.",
    "{t}, there are 10000 codes in all, so {v} of them repeat a digit.",
    "{t}, each code can be read from both ends, so the number of pairs is {v}.",
    "{t}, the first position has 10 options, so it is the freest of all {v}.",
    "{t}, some people say {v}, but that's not my answer.",
    "{t}, a code should not begin with 0 in some books, where one gets {v} instead.",
)
_WORKED = ("${}$", "$9\\cdot9\\cdot8\\cdot7={}$", "{}", "**{}**")


def changed_minds(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield a box and behind it another value, which is the final answer or a remark."""
    problem = "How many 4-digit codes can be formed if no digit repeats? (A leading 0 is allowed.)"
    for _ in range(count):
        first, other = rng.sample(range(1000, 9000), 2)
        said = f"$10\\cdot9\\cdot8\\cdot7={first}$, so $\\boxed{{{first}}}$.{rng.choice((' ', chr(10) * 2))}"
        turn, shape = rng.choice(_TURNS), rng.choice(_WORKED[::2] if first % 2 else _WORKED)
        value = shape.format(4536 if "9" in shape else other)
        other = 4536 if "9" in shape else other
        later = said + rng.choice(_FINALLY).format(t=turn, v=value)
        yield Row("changed minds", problem, str(first), later, False)
        yield Row("changed minds", problem, str(other), later, True)
        later = said + rng.choice(_MEANWHILE).format(t=turn, v=value)
        yield Row("minds that stay", problem, str(first), later, True)
        yield Row("minds that stay", problem, str(other), later, False)


_TWO = (
    ("Find the least common multiple of 84 and 120.", ("LCM", "lcm", "least common multiple"),
     ("GCD", "gcd", "greatest common divisor")),
    ("Find the area of the rectangle.", ("area",), ("perimeter", "diagonal")),
    ("What is the sum of the roots of the equation?", ("sum",), ("product", "difference")),
    ("Determine the median of the data.", ("median",), ("mean", "mode", "range")),
)  # fmt: skip
_TWO_BOXES = (
    "So the {} is $\\boxed{{{}}}$ (and the {} is $\\boxed{{{}}}$).",
    "So the {} is $\\boxed{{{}}}$ (the {} is $\\boxed{{{}}}$).",
    "The {} is \\boxed{{{}}}, and the {} is \\boxed{{{}}}.",
    "Hence the {} is $\\boxed{{{}}}$, while the {} is $\\boxed{{{}}}$.",
    "the {} is $\\boxed{{{}}}$ and the {} is $\\boxed{{{}}}$",
)


def boxes_in_one_sentence(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield two boxes of one sentence with their names, of which the question asks for one."""
    for _ in range(count):
        prompt, asked, others = rng.choice(_TWO)
        a, b = rng.sample(range(3, 900), 2)
        shape, name, other = rng.choice(_TWO_BOXES), rng.choice(asked), rng.choice(others)
        said = "We work both out.\n\n" + shape.format(name, a, other, b)
        yield Row("boxes in one sentence", prompt, str(a), said, True)
        yield Row("boxes in one sentence", prompt, str(b), said, False)
        said = "We work both out.\n\n" + rng.choice(_TWO_BOXES[2:]).format(other, b, name, a)
        yield Row("boxes in one sentence", prompt, str(a), said, True)
        yield Row("boxes in one sentence", prompt, str(b), said, False)
        both = prompt[:-1] + f" and the {other}."
        gold = f"\\text{{{name}}} = {a}, \\text{{{other}}} = {b}"
        yield Row("boxes of both", both, gold, said, True)
        wrong = gold.replace(str(b), str(b + 1))
        yield Row("boxes of both", both, wrong, said, False)


DRAWS = (refusals, changed_minds, boxes_in_one_sentence)
"""Every law of this file, as a function of a generator and the number of draws."""
