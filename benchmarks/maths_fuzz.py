"""Random answers against the maths verifier, for a given time: nothing may raise, crash or take
long.

    python benchmarks/maths_fuzz.py --seconds 600
    python benchmarks/maths_fuzz.py --rewritten 1000 --seed 3

Texts are mutated, spliced and generated from seeds that look like answers. Every one is scored in
the caller, and a share of those left open also in the pool. Checked: no exception, an ok verdict
(or `invalid` for the gold), `equivalent` agrees with itself turned round, an answer equals
itself.

With `--rewritten` the oracle is sympy, an independent algebra system: a random formula and the same
formula rewritten (expanded, factored, as one fraction ...) earn the reward as each other's answer,
and a formula to which something was added does not.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import sympy

from ludus.rewards.maths import MathsVerifier, extract
from ludus.rewards.maths.conventions import DEFAULT
from ludus.rewards.maths.decision import BadGold, decide
from ludus.rewards.maths.proving.judge import NeedsPool
from ludus.verdict import Status

SEEDS = [
    r"\frac{1}{2}",
    "x^2+2x+1",
    r"\sqrt{5}",
    "(1,2)",
    r"[0,1)\cup(2,\infty)",
    r"\{1,2,3\}",
    "x=3",
    r"25\%",
    "2:3",
    r"60^\circ",
    r"15\text{ cm}",
    r"1011_2",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
    r"x\equiv 3\pmod 7",
    r"\sin^2 x+\cos^2 x",
    r"\log_2 8",
    "3+4i",
    r"1\pm\sqrt{2}",
    "twenty-one",
    r"\text{(B)}",
    "4:30 p.m.",
    "1,234,567",
    r"f(x)=\begin{cases}x&x>0\\-x&x\le 0\end{cases}",
    r"\sum_{k=1}^n k",
    r"\binom{n}{2}",
    "7!",
    r"|x-1|",
    "-2<x<3",
    r"\{x \mid x>5\}",
    "Yes",
    r"0.1\overline{6}",
    "6.02e23",
    r"\$5.50",
    "2 1/3",
    r"e^{i\pi}",
    r"\lfloor 2.5\rfloor",
    r"k\pi, k\in\mathbb{Z}",
    r"x \ne 2",
    r"\mathbb{R}\setminus\{0\}",
    "½",
    "2√3",
    "∞",
    "10 m/s",
    "5 million",
]
PIECES = [
    *"{}()[]|,;:!^_+-*/=<>%$&\\ .'\"~#@0123456789xyzneiabfABCD",
    r"\frac",
    r"\sqrt",
    r"\left",
    r"\right",
    r"\text{",
    "}",
    r"\pm",
    r"\cup",
    r"\in",
    r"\infty",
    r"\pi",
    r"\circ",
    r"\boxed{",
    r"\begin{",
    r"\end{",
    r"\\",
    " and ",
    " or ",
    " for ",
    "</think>",
    "the answer is ",
    "\x00",
    "\ud800",
    "²",
    "½",
    "°",
    "，",
    "9" * 50,
    "^{9",
    "!",
    r"\overline",
    r"\log_",
]


def text(chance: random.Random) -> str:
    fuzzed = chance.choice(SEEDS)
    for _ in range(chance.randrange(6)):
        place = chance.randrange(len(fuzzed) + 1)
        match chance.randrange(5):
            case 0:
                fuzzed = fuzzed[:place] + chance.choice(PIECES) + fuzzed[place:]
            case 1:
                fuzzed = fuzzed[:place] + fuzzed[place + chance.randrange(1, 4) :]
            case 2:
                fuzzed = fuzzed[:place] + chance.choice(SEEDS) + fuzzed[place:]
            case 3:
                fuzzed = fuzzed * 2 if len(fuzzed) < 200 else fuzzed
            case _:
                fuzzed = (
                    "".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 12))) + fuzzed
                )
    return fuzzed


def attempt(first: str, second: str, verifier: MathsVerifier, pooled: bool) -> str:
    """Score one pair in every way; returns what happened."""
    extract(second)
    try:
        forward = decide(first, second, DEFAULT).equal
        with suppress(BadGold, NeedsPool):
            decide(second, first, DEFAULT)
    except BadGold:
        return "bad gold"
    except NeedsPool:
        if not pooled:
            return "open"
        verdict = verifier.verify(first, rf"\boxed{{{second}}}")
        assert verdict.status in {Status.OK, Status.INVALID}, verdict
        return f"pool {verdict.status}"
    try:
        own = (
            "boxed" in first or decide(first, first, DEFAULT).equal
        )  # a gold is taken out of its box
        assert own, "an answer is not itself"
    except (BadGold, NeedsPool):
        pass
    return "equal" if forward else "different"


X = sympy.Symbol("x", positive=True)
REWRITINGS = (
    sympy.simplify, sympy.expand, sympy.factor, sympy.radsimp, sympy.trigsimp, sympy.logcombine,
    sympy.together, sympy.cancel,
)  # fmt: skip
MAX_LATEX = 200
"""Formulas with more characters are not asked: their limits of work are another question."""


def formula(chance: random.Random, depth: int, *, constant: bool) -> sympy.Expr:
    """Return a random formula of x, or a constant one, with roots, angles and logarithms."""
    kind = chance.random()
    if depth and kind < 0.65:
        parts = [formula(chance, depth - 1, constant=constant) for _ in range(2)]
        return parts[0] + parts[1] if kind < 0.4 else parts[0] * parts[1]
    if depth and kind < 0.75:
        return formula(chance, depth - 1, constant=constant) ** chance.choice([2, 3])
    if depth and kind < 0.85:
        angle = sympy.pi * sympy.Rational(chance.randint(0, 12), chance.choice([2, 3, 4, 6]))
        return chance.choice([sympy.sin, sympy.cos])(angle)
    if not constant and kind < 0.93:
        functions = (sympy.sin, sympy.cos, sympy.exp, sympy.tanh, sympy.atan, sympy.sqrt)
        return chance.choice([X, X, chance.choice(functions)(X)])
    return chance.choice(
        [
            sympy.Rational(chance.choice([-7, -2, 1, 3, 5]), chance.choice([1, 2, 3, 6])),
            sympy.sqrt(chance.choice([2, 3, 5, 8, 12])),
            sympy.log(chance.choice([2, 3, 6, 8, 9])),
            sympy.pi,
            sympy.exp(chance.choice([-2, -1, 1, 2])),
        ]
    )


def rewritten(chance: random.Random, count: int) -> Iterator[tuple[str, str, bool]]:
    """Yield (gold, answer, whether it earns the reward)."""
    while count > 0:
        constant = chance.random() < 0.5
        with sympy.evaluate(chance.random() < 0.7):
            first = formula(chance, chance.randint(1, 3), constant=constant)
        second = chance.choice(REWRITINGS)(first)
        other = second + (sympy.Rational(1, 1000) if constant else X)
        texts = [sympy.latex(each, ln_notation=True) for each in (first, second, other)]
        # Products of bare numbers, such as (-3) 5, are not how anybody writes.
        if max(map(len, texts)) > MAX_LATEX or re.search(r"\\right\) \d", texts[0]):
            continue
        yield texts[0], texts[1], True
        yield texts[1], texts[0], True
        yield texts[1], texts[2], False
        count -= 1


def against_sympy(verifier: MathsVerifier, chance: random.Random, count: int) -> list[str]:
    """Return a line for every verdict that sympy contradicts."""
    wrong: list[str] = []
    for gold, answer, paid in rewritten(chance, count):
        verdict = verifier.verify(gold, f"\\boxed{{{answer}}}")
        if (verdict.reward == 1.0) != paid:
            wrong.append(f"{'not paid' if paid else 'paid'}: {gold} <- {answer}: {verdict.detail}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pool-share", type=float, default=0.3)
    parser.add_argument("--rewritten", type=int, metavar="N", help="N formulas against sympy")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    if arguments.rewritten:
        verifier = MathsVerifier(workers=1)
        wrong = against_sympy(verifier, chance, arguments.rewritten)
        verifier.close()
        print("\n".join([*wrong, f"{len(wrong)} of {3 * arguments.rewritten} verdicts are wrong"]))
        raise SystemExit(bool(wrong))
    verifier = MathsVerifier(timeout_s=0.5, workers=1)
    seen: Counter[str] = Counter()
    slowest = (0.0, "", "")
    ends = time.monotonic() + arguments.seconds
    while time.monotonic() < ends:
        first, second = text(chance), text(chance)
        if chance.random() < 0.2:
            second = first
        pooled = chance.random() < arguments.pool_share
        started = time.thread_time()
        try:
            seen[attempt(first, second, verifier, pooled)] += 1
        except Exception as error:
            raise SystemExit(f"{error!r}\n  first  {first!r}\n  second {second!r}") from error
        slowest = max(slowest, (time.thread_time() - started, first, second))
    verifier.close()
    print(
        f"{sum(seen.values())} pairs in {arguments.seconds:.0f} s without a failure: {dict(seen)}"
    )
    print(
        f"slowest in the caller: {1000 * slowest[0]:.1f} ms CPU for "
        f"{slowest[1][:100]!r} and {slowest[2][:100]!r}"
    )


if __name__ == "__main__":
    main()
