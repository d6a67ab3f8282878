"""Random answers against the maths verifier, for a given time: nothing may raise, crash or take
long.

    python benchmarks/maths_fuzz.py --seconds 600

Texts are mutated, spliced and generated from seeds that look like answers. Every one is scored in
the caller, and a share of those left open also in the pool. Checked: no exception, an ok verdict
(or `invalid` for the gold), `equivalent` agrees with itself turned round, an answer equals
itself.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from contextlib import suppress

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
    made = chance.choice(SEEDS)
    for _ in range(chance.randrange(6)):
        place = chance.randrange(len(made) + 1)
        match chance.randrange(5):
            case 0:
                made = made[:place] + chance.choice(PIECES) + made[place:]
            case 1:
                made = made[:place] + made[place + chance.randrange(1, 4) :]
            case 2:
                made = made[:place] + chance.choice(SEEDS) + made[place:]
            case 3:
                made = made * 2 if len(made) < 200 else made
            case _:
                made = "".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 12))) + made
    return made


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pool-share", type=float, default=0.3)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
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
