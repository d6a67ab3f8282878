"""Laws of what a response says behind its value, where no mark holds the value.

    LUDUS_DATA_DIR=... python benchmarks/maths_remarks.py --half held-out --misses offer --seed 5

An offer, a check, a hypothesis or another side remark leaves the verdict as it was, whatever value
it names: a right value stays paid and a wrong one unpaid, even if the remark has the gold. Behind a
correction the corrected value counts, and behind a hedge none. The sentences stand in
`maths_remarks.toml`; the lines of a language belong to the half to look at and to the held out one
by turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from maths_words import Row

from ludus.rewards.maths import MathsVerifier

FOLDER = Path(__file__).parent
SAID = tomllib.loads((FOLDER / "maths_remarks.toml").read_text("utf-8"))
HALVES = ("look", "held-out")


def near(gold: str, rng: random.Random) -> str:
    """Return another value that looks like the gold."""
    if not re.fullmatch(r"\d{1,12}", gold):
        return str(rng.randrange(101, 999))
    number = int(gold)
    return str(rng.choice([number + 1, number + 2, 2 * number + 1, number + 10, 10 * number + 3]))


def _said(pattern: str, claimed: str, other: str, rng: random.Random) -> str:
    """Return a sentence with its values, as formulas where these are no numerals."""
    plain = (claimed + other).isdigit() and rng.random() < 0.7
    form = "{}" if plain else "${}$"
    return pattern.replace("#", form.format(claimed)).replace("@", form.format(other))


def _behind(response: str, remark: str, rng: random.Random) -> str:
    if remark.startswith((",", ";")):
        return response.rstrip(".。 ") + remark
    return response + rng.choice([" ", "\n\n"]) + remark


def _drawn(
    kinds: dict[str, dict[str, list[str]]], half: str, count: int
) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, language, sentence) for each kind and language, `count` times the sentences."""
    turn = HALVES.index(half)
    for kind, languages in kinds.items():
        for language, sentences in languages.items():
            for sentence in sentences[turn::2]:
                for _ in range(count):
                    yield kind, language, sentence


def remarks(
    items: list[tuple[str, str, str]], half: str, rng: random.Random, count: int = 1
) -> Iterator[tuple[Row, Row]]:
    """Yield pairs of a case without a remark and the same with one.

    Args:
        items: problems as (question, work without the value, gold).
        half: the sentences that are used.
        rng: draws problems, values and closing sentences.
        count: how often each sentence is used.
    """
    kinds = {**SAID["remarks"], "correction": SAID["corrections"], "hedge": SAID["hedges"]}
    for kind, language, sentence in _drawn(kinds, half, count):
        problem, work, gold = rng.choice(items)
        wrong = near(gold, rng)
        closing = rng.choice(SAID["closings"][language])
        plain = random.Random(rng.random())
        for claimed, other in ((gold, wrong), (wrong, gold)):
            base = f"{work}\n\n{_said(closing, claimed, other, plain)}"
            right = claimed == gold
            paid = {"correction": not right, "hedge": False}.get(kind, right)
            response = _behind(base, _said(sentence, claimed, other, plain), rng)
            law = f"{kind}, {'right' if right else 'wrong'} value"
            yield (Row(law, problem, gold, base, right), Row(law, problem, gold, response, paid))


def units(rng: random.Random, count: int) -> Iterator[Row]:
    """Yield values that are said again in another unit or rounded, and such that contradict."""
    for _ in range(count):
        many, few, size = rng.choice(
            [("cm", "m", 100), ("minutes", "h", 60), ("g", "kg", 1000), ("cm²", "m²", 10000)]
        )
        value = rng.randrange(2, 9)
        both = (f"{value * size} {many}", f"{value} {few}")
        gold = rng.choice(both)
        first, second = rng.sample(both, 2)
        number, unit = second.split()
        apart = f"{int(number) // value * (value + 1)} {unit}"
        for joint in ("{} = {}.", "{}, i.e. {}.", "{} (that is {}).", "{}, or {}."):
            start = rng.choice(["In the end we have ", "So it comes to ", "The total is "])
            problem = f"How large is it, in {gold.split()[1]}?"
            yield Row("units", problem, gold, start + joint.format(first, second), True)
            yield Row(
                "units, other value", problem, gold, start + joint.format(first, apart), False
            )


def quantities(half: str, rng: random.Random, count: int) -> Iterator[tuple[Row, Row]]:
    """Yield conclusions without a mark, each without and with another quantity said behind it.

    The value of the other quantity is the gold where the conclusion is wrong, so that a search for
    the gold would pay it.
    """
    turn = HALVES.index(half)
    for kind, joint in itertools.product(SAID["conclusions"], SAID["behind"]):
        if (kind, joint) in {("chain", "clause"), ("labelled", "clause")}:
            continue  # what a comma joins to a bare value may belong to it
        templates = itertools.product(
            SAID["conclusions"][kind][turn::2], SAID["behind"][joint][turn::2]
        )
        for conclusion, behind in templates:
            for _ in range(count):
                a, b = rng.sample(range(3, 40), 2)
                names = rng.choice(
                    [
                        ("perimeter", "area", "P", f"2·({a} + {b})", f"2·{a} + 2·{b}", 2 * (a + b)),
                        ("area", "perimeter", "A", f"{a}·{b}", f"{b}·{a}", a * b),
                        ("sum", "product", "s", f"{a} + {b}", f"{b} + {a}", a + b),
                        ("difference", "mean", "d", f"{2 * a + b} - {a}", f"{b} + {a}", a + b),
                    ]
                )
                asked, other, letter, work, total, value = names
                problem = f"Two sides measure {a} and {b}. What is the {asked}?"
                for right in (True, False):
                    said, beside = (value, value + 7) if right else (value + 7, value)
                    fields = {
                        "asked": asked, "other": other, "letter": letter, "work": work,
                        "sum": total,
                    }  # fmt: skip
                    base = conclusion.format(**fields).replace("#", str(said))
                    remark = behind.format(**fields).replace("@", str(beside))
                    gap = "" if joint == "clause" else rng.choice([".\n\n", ". "])
                    if kind != "named" and gap:
                        gap = "\n\n"
                    law = f"{kind} + {joint}, {'right' if right else 'wrong'} value"
                    texts = (f"We put in the sides.\n\n{base}{end}" for end in (".", gap + remark))
                    bare, full = (Row(law, problem, str(value), text, right) for text in texts)
                    yield bare, full


def notations(half: str, rng: random.Random, count: int) -> Iterator[Row]:
    """Yield right and wrong values in notations of running text, without a mark."""
    turn = HALVES.index(half)
    for _ in range(count):
        n, k = rng.randrange(2, 30), rng.randrange(31, 60)
        values = [
            ("interval", "Solve the inequality.", f"({n}, {k})", f"]{n}; {k}[", f"]{n}; {k + 1}["),
            ("mixed", "Find x.", f"{2 * n + 1}/2", f"{n}½", f"{n + 1}½"),
            ("fraction", "Find x.", f"\\frac{{1}}{{4}} \\ln {n}", f"¼ ln {n}", f"¾ ln {n}"),
            ("factor", "Find f(y).", f"{n}y^3 - {k}y", f"y ({n}y² − {k})", f"y ({n}y² + {k})"),
            ("signed", "Solve for x.", f"{n} \\pm \\sqrt{{3}}",
             f"x₁ = {n} + √3 ≈ {n + 1.732}\nx₂ = {n} − √3 ≈ {n - 1.732}",
             f"x₁ = {n} + √5 ≈ {n + 2.236}\nx₂ = {n} − √5 ≈ {n - 2.236}"),
            ("order", "List these in increasing order.", f"{n}, {k}, {k + n}",
             f"{n}, {k}, {k + n}", f"{k}, {n}, {k + n}"),
        ]  # fmt: skip
        for law, problem, gold, right, wrong in values:
            lead = rng.choice(
                [["We work it out.\n\n", "In the end: "], ["Then\n\n", "Finally: "]][turn]
            )
            for said, paid in ((right, True), (wrong, False)):
                yield Row(f"notation: {law}", problem, gold, lead + said, paid)


def problems() -> Iterator[tuple[str, str, str]]:
    """Yield the problems of MATH-500 and GSM8K with a whole number or a formula as answer."""
    from maths_laws import is_formula, problems as solved

    for item in solved(Path(os.environ.get("LUDUS_DATA_DIR", "data")) / "math"):
        if is_formula(item.gold):
            yield item.problem, item.work, item.gold


def recorded(half: str, rng: random.Random, count: int) -> Iterator[tuple[Row, Row]]:
    """Yield right answers of the recorded cases without a mark, and these with a side remark."""
    path = FOLDER.parent / "tests/unit/rewards/maths_held_out/core.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    marks = re.compile(r"box|####|<answer|\banswer\b", re.IGNORECASE)
    plain = [
        row
        for row in rows
        if row["response"].isascii()
        and row["response"].rstrip().endswith(".")
        and not marks.search(row["response"])
        and len(row["response"].split()) > 8
    ]
    for row in rng.sample(plain, min(count, len(plain))):
        kind = rng.choice([kind for kind in SAID["remarks"] if kind != "consequence"])
        sentence = rng.choice(SAID["remarks"][kind]["English"][HALVES.index(half) :: 2])
        numeral = re.sub(r"\D", "", row["gold"])[:6] or "7"
        remark = _said(sentence, "0", near(numeral, rng), rng)
        fields = (row.get("prompt", ""), row["gold"])
        law = f"recorded, {'right' if row['label'] else 'wrong'} value"
        yield (
            Row(law, *fields, row["response"], row["label"]),
            Row(law, *fields, _behind(row["response"], remark, rng), row["label"]),
        )


def broken(
    verifier: MathsVerifier,
    pairs: Iterable[tuple[Row | None, Row]],
    counts: Counter[tuple[str, bool]],
) -> Iterator[Row]:
    """Yield the cases whose remark is judged wrong though the case without it is judged right."""
    for bare, row in pairs:
        if bare is None or _right(verifier, bare):
            kept = _right(verifier, row)
            counts[row.law, kept] += 1
            if not kept:
                yield row


def _right(verifier: MathsVerifier, row: Row) -> bool:
    return (verifier.verify(row.gold, row.response, prompt=row.problem).reward == 1.0) is bool(
        row.paid
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", default=HALVES[0], choices=HALVES)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--count", type=int, default=12, help="cases for each sentence (12)")
    parser.add_argument("--misses", help="show failing cases of the laws with this in their name")
    arguments = parser.parse_args()
    rng, counts = random.Random(arguments.seed), Counter[tuple[str, bool]]()
    verifier = MathsVerifier(workers=1)
    pairs = [
        *remarks(list(problems()), arguments.half, rng, arguments.count),
        *recorded(arguments.half, rng, 1500),
        *quantities(arguments.half, rng, arguments.count),
        *((None, row) for row in units(rng, 100)),
        *((None, row) for row in notations(arguments.half, rng, 40)),
    ]
    for row in broken(verifier, pairs, counts):
        if arguments.misses is not None and arguments.misses in row.law:
            print(
                f"[{row.law}] {row.gold!r}, paid should be {row.paid}: ...{row.response[-240:]!r}"
            )
    verifier.close()
    print("| law | cases | kept |\n|---|---|---|")
    for law in dict.fromkeys(law for law, _ in counts):
        kept, lost = counts[law, True], counts[law, False]
        print(f"| {law} | {kept + lost} | {kept / max(1, kept + lost):.3f} |")
    kept, total = sum(n for (_, right), n in counts.items() if right), sum(counts.values())
    print(f"| all | {total} | {kept / total:.3f} |")


if __name__ == "__main__":
    main()
