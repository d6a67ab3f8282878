"""Checks of golds before training starts (`--check-golds`): which golds are unreadable or
ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from .conventions import Conventions
from .decision import BadGold, NeedsPool, decide, read_gold
from .extracting.golds import parts, unboxed
from .proving.canonical import normal
from .proving.judge import infinity
from .proving.probe import approximate
from .proving.sums import Meter
from .reading.nodes import EXACT, Node, TooBig, is_scalar, symbols, walk
from .reading.vocabulary import pairs, words

Problem = Literal["invalid", "boxes", "approximate", "equation", "evaluate", "costly"]
_OPERATIONS = words("int sum prod lim det derivative integral limit gcd lcm perm")
_COUNTS = words("binom factorial")
_IN_WORDS = pairs("int=integral lim=limit prod=product det=determinant")
_ROUGHLY = re.compile(
    r"(?i)\\approx|\\sim(?:eq)?(?![a-z])|≈|\b(?:about|approximately|approx|roughly|around|nearly)\b"
)
_PLACEHOLDER = re.compile(
    r"(?i)\W*(?:n/?a|nan|null|todo|tbd|see .{0,60}|as (?:above|shown|required|desired)|proof"
    r"|omitted|not (?:given|available|provided))\W*$"
)


@dataclass(frozen=True, slots=True)
class GoldProblem:
    """A gold that cannot be used, or whose meaning may differ from the author's intention."""

    line: int
    """The position of the gold in the input, counted from 1."""
    gold: str
    kind: Problem
    reason: str
    """A description of what is wrong with the gold, and what to do about it."""


def check_golds(golds: Iterable[str | list[str]]) -> Iterator[GoldProblem]:
    """Yield every problem found in the golds, with the line; each member of a list of golds is
    checked.

    * `invalid`: unreadable; every verdict with such a gold is `invalid` and carries no reward.
    * `boxes`: several boxes with different contents, all of which an answer must then give.
    * `approximate`: words or signs say that the value is only approximate.
    * `equation`: an equation whose left side is not a name of a value, like `2x+3y=6`.
    * `evaluate`: a task (an integral, a sum, digits in a base) is stated instead of its value.
    * `costly`: beyond the limits of evaluation; compared by text and structure alone.
    """
    for line, given_gold in enumerate(golds, start=1):
        for gold in given_gold if isinstance(given_gold, list) else [given_gold]:
            for kind, reason in _problems(gold):
                yield GoldProblem(line, gold, kind, reason)


def examples(gold: str) -> tuple[list[str], list[str]]:
    r"""Return generated answers that a gold pays and answers that it does not pay, for a person to
    approve.

    >>> examples("1/2")[0][:3]
    ['1/2', 'x = 1/2', '\\frac{2}{4}']
    """
    try:
        source, meaning = read_gold(gold)
    except BadGold:
        return [], []
    paid: dict[bool, list[str]] = {True: [], False: []}
    for answer in dict.fromkeys(_variants(source, meaning)):
        with suppress(BadGold, NeedsPool):
            paid[decide(gold, answer, Conventions()).equal].append(answer)
    return paid[True], paid[False]


def _variants(source: str, meaning: Node | None) -> Iterator[str]:
    """Yield the gold and its usual rewritings, right and wrong alike."""
    yield source
    if meaning is None or meaning.op == "text":
        yield f"not {source}"
        return
    if meaning.op in EXACT:
        value = Fraction(meaning.value)
        top, bottom = value.numerator, value.denominator
        other = f"{top + 1}" if bottom == 1 else f"\\frac{{{bottom}}}{{{top or 1}}}"
        yield from (f"x = {source}", f"\\frac{{{2 * top}}}{{{2 * bottom}}}", f"{float(value):.3g}")
        yield from (f"{float(value):.12g}", f"{float(100 * value):.6g}\\%")
        yield from (f"{source}\\text{{ cm}}", other, f"-{source}")
    elif meaning.op in {"list", "set", "bracket"}:
        items = source.strip("$ \\{}()[]").split(",")
        turned = ",".join(reversed(items))
        yield from (turned, f"({turned})", f"\\{{{','.join(items)}\\}}", items[0])
        yield from (f"({','.join(items)})", f"[{','.join(items)}]", f"{','.join(items)}, 0")
    elif meaning.op == "rel":
        yield from re.split(r"(?<![<>!])=", source)
        yield source.replace("x", "t")
    else:
        yield from (f"x = {source}", f"-({source})", f"2({source})", f"{source} + 1")
        if (rounded := approximate(meaning)) is not None:
            yield from (f"{rounded:.3g}", f"{rounded:.12g}")


def _problems(gold: str) -> Iterator[tuple[Problem, str]]:
    if _PLACEHOLDER.match(gold):
        yield "invalid", f"{gold[:80]!r} is not an answer: leave the row out"
        return
    try:
        _, meaning = read_gold(gold)
        if meaning is not None and meaning.op == "opaque":
            decide(gold, "0", Conventions())
    except BadGold as error:
        yield "invalid", f"{error}: correct it, or leave the row out"
        return
    except NeedsPool:
        pass
    if (count := parts(gold)) > 1:
        yield (
            "boxes",
            f"{count} boxes with different contents are read as one answer, {unboxed(gold)[:80]!r}:"
            " give only the final answer if not all are wanted, a list of golds if one is enough",
        )
    if _ROUGHLY.search(gold):
        yield (
            "approximate",
            "only approximate: give the exact value if one exists, else the rounded number alone",
        )
    if meaning is None:
        yield "costly", "too big to read: compared by its text alone"
        return
    if reason := _unnamed(meaning):
        yield "equation", reason
    if reason := _task(meaning):
        yield "evaluate", reason
    if reason := too_costly(meaning):
        yield "costly", reason


def _unnamed(meaning: Node) -> str:
    """Return why an equation may be meant as something else, or ""."""
    if meaning.op != "rel" or "=" not in meaning.note.split():
        return ""
    left, right = meaning.args[0], meaning.args[-1]
    if left.op not in {"add", "mul", "pow"} or not symbols(left):
        return ""
    value = "" if symbols(right) else "; a bare right side is not an answer to it"
    return (
        f"an equation whose left side names no value, compared as an equation{value}:"
        " give the value alone if that is wanted"
    )


def _task(meaning: Node) -> str:
    """Return why a gold is a task rather than a value, or ""."""
    for part in walk(meaning):
        name = part.note if part.op in {"func", "call"} else ""
        numeric = not symbols(part)
        if part.op == "matrix" and part.note == "||":
            name = "determinant"
        elif part.op == "based":
            name = f"number in base {part.value}"
        elif name in _OPERATIONS or (name in _COUNTS and numeric and part is meaning):
            name = _IN_WORDS.get(name, name)
        else:
            continue
        return f"has to be evaluated ({name}): give the value, or a list of golds with both forms"
    return ""


def too_costly(meaning: Node) -> str:
    """Return why a gold cannot be evaluated within the limits, or "".

    A value is too costly if neither doubles nor the exact normal form can hold the number
    (9^9^9^9).
    """
    if not is_scalar(meaning) or symbols(meaning) or infinity(meaning):
        return ""
    if any(part.op == "call" for part in walk(meaning)) or approximate(meaning) is not None:
        return ""
    try:
        normal(meaning, Meter())
    except ZeroDivisionError:
        return "a division by zero: only the same text counts as equal"
    except (TooBig, OverflowError) as error:
        return f"too costly to evaluate ({error}): compared by text and structure alone"
    return ""
