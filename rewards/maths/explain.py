"""An explanation of a reward: every step of the decision, written for a person at a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from .decision import BadGold, read_gold
from .extracting.extraction import survey, thoughts_end
from .extracting.golds import parts
from .reading.nodes import Node, TooBig, Unreadable
from .reading.reader import read
from .scoring import MathsVerifier

MAX_SHOWN = 300
MAX_CANDIDATES = 12
MAX_QUOTED = 60


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """A step of the decision with a title and a text.

    The text may contain anything a model wrote, including terminal control codes: print steps
    with `render`, which escapes those.
    """

    title: str
    text: str
    mood: Literal["plain", "good", "bad", "note"] = "plain"


def explain(
    gold: str, response: str, *, prompt: str = "", truncated: bool = False, **options: Any
) -> list[DecisionStep]:
    """Return the steps of the decision on a response to a prompt; `options` are the arguments of
    `MathsVerifier`.
    """
    verifier = MathsVerifier(**options)
    try:
        return list(_steps(verifier, gold, response, prompt=prompt, truncated=truncated))
    finally:
        verifier.close()


def _steps(
    verifier: MathsVerifier, gold: str, response: str, *, prompt: str, truncated: bool
) -> Iterator[DecisionStep]:
    yield DecisionStep("response", f"{len(response)} characters: {shortened(response)}")
    if offset := thoughts_end(response, verifier.thinking):
        yield DecisionStep(
            "reasoning", f"the first {offset} characters are reasoning and do not count"
        )
    has_parts = parts(gold) > 1
    yield from _candidates(verifier, response, prompt=prompt, truncated=truncated)
    extraction = verifier.extract(response, truncated=truncated, several=has_parts, prompt=prompt)
    if extraction.text is None:
        yield DecisionStep("extracted", f"nothing ({extraction.rule}): {extraction.reason}", "bad")
    else:
        source = (
            f"{_KINDS.get(extraction.rule, extraction.rule)}, characters {extraction.start} to"
            f" {extraction.end}"
        )
        yield DecisionStep("extracted", f"{shortened(extraction.text)} ({source})", "note")
        for rival in extraction.rivals:
            yield DecisionStep(
                "also claimed",
                f"{shortened(rival)}, stated together with the answer: has to be equal as well",
                "bad",
            )
        answer = extraction.text
        try:
            text, meaning = read_gold(gold)
            seen = "too big to evaluate, compared as text" if meaning is None else spelled(meaning)
            yield DecisionStep("gold", f"{shortened(text)} read as {seen}", "note")
        except BadGold as error:
            yield DecisionStep("gold", str(error), "bad")
        try:
            yield DecisionStep(
                "answer", f"{shortened(answer)} read as {spelled(read(answer))}", "note"
            )
        except (TooBig, Unreadable) as error:
            yield DecisionStep("answer", f"cannot be read: {error}", "bad")
        for rule, finding in verifier.trace(gold, extraction.text):
            yield DecisionStep("compared", f"{_RULES.get(rule, rule)}: {finding}")
    verdict = verifier.verify(gold, response, prompt=prompt, truncated=truncated)
    worth = f"reward {verdict.reward:g}" if verdict.reward is not None else "no reward"
    mood: Literal["good", "bad"] = "good" if verdict.reward == 1.0 else "bad"
    status = "" if verdict.ok else f" ({verdict.status})"
    yield DecisionStep("verdict", f"{worth}{status}: {verdict.detail}", mood)


_RULES = {
    "identical": "written alike", "text": "as text", "exact": "as exact numbers",
    "numeric": "tried with numbers", "normal form": "worked out exactly",
    "many digits": "computed to many digits", "set of reals": "as sets of numbers",
    "set": "value by value, in any order", "structure": "by form", "relation": "as equations",
    "named value": "by the name of the value", "bare value": "with and without a name",
    "limit": "within the limits of cost", "pool": "in a worker", "restated": "with the question",
    "form": "with what the question asks for",
}  # fmt: skip
"""The rules of the comparison in plain words; a rule that is not listed is plain already."""
_KINDS = {
    "box": "in a box", "answer tag": "in an answer tag", "#### line": "on a #### line",
    "announced": "announced as the answer", "correction": "as a correction",
    "result": "announced as a result", "choice": "as the choice",
    "whole response": "the whole response", "word": "as a word", "emphasis": "in bold",
    "last formula": "the last formula", "last number": "the last number",
}  # fmt: skip
"""Where a candidate stands, in plain words."""


def _candidates(
    verifier: MathsVerifier, response: str, *, prompt: str, truncated: bool
) -> Iterator[DecisionStep]:
    """Yield a step for every candidate answer, in text order: rank, kind, place and why the
    candidate won or lost.
    """
    if verifier.pipeline:  # A pipeline of another project has no candidates of ours to show.
        return
    candidates = survey(response, thinking=verifier.thinking, truncated=truncated, prompt=prompt)
    for _, candidate, fate in candidates[-MAX_CANDIDATES:]:
        mood: Literal["note", "plain"] = "note" if fate.startswith("wins") else "plain"
        place = f"{_KINDS[candidate.kind]}, from character {candidate.start}"
        text = " ".join(candidate.text.split())
        quoted = f"'{text}'" if len(text) <= MAX_QUOTED else f"'{text[:MAX_QUOTED]}...'"
        yield DecisionStep("candidate", f"{quoted}, {place}: {fate}", mood)
    if len(candidates) > MAX_CANDIDATES:
        yield DecisionStep("candidate", f"and {len(candidates) - MAX_CANDIDATES} before these")


def shortened(text: str) -> str:
    """Return the text; a text of more than MAX_SHOWN characters loses the middle."""
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]} ... {text[-half:]}"


def spelled(node: Node) -> str:
    r"""Return a parsed answer written out unambiguously, at most MAX_SHOWN characters long.

    >>> spelled(read(r"2\\frac{1}{3}")), spelled(read("(0, 1]"))
    ('7/3', '(0, 1]')
    """
    spelling = _spelled(node, 0)
    return spelling if len(spelling) <= MAX_SHOWN else spelling[: MAX_SHOWN - 3] + "..."


def _spelled(node: Node, depth: int) -> str:
    if depth > 12:
        return "..."
    parts = [_spelled(arg, depth + 1) for arg in node.args]
    match node.op:
        case "num":
            # A number of 2000 bits has 600 digits, which is more than is shown anyway. Python
            # refuses to write numbers of several thousand digits.
            value = node.value
            bits = max(value.numerator.bit_length(), value.denominator.bit_length())
            return str(value) if bits < 2000 else "a number of many digits"
        case "dec" | "sym" | "const":
            return node.note
        case "add":
            return "(" + " + ".join(parts) + ")"
        case "mul":
            return " * ".join(parts)
        case "pow":
            return f"{parts[0]}^({parts[1]})"
        case "func" | "call":
            return f"{node.note}({', '.join(parts)})"
        case "text":
            return f"the words '{node.note}'"
        case "rel":
            signs = [*node.note.split(), ""]
            return " ".join(f"{p} {s}" for p, s in zip(parts, signs, strict=False)).strip()
        case "list":
            return f" {node.note} ".replace(" ,", ",").join(parts)
        case "set":
            return f"{{{', '.join(parts)}}}"
        case "bracket":
            return f"{node.note[:1]}{', '.join(parts)}{node.note[1:]}"
        case "quantity":
            return f"{parts[0]} {node.note}"
        case "percent" | "degree":
            return f"{parts[0]} {node.op}"
        case "mod":
            return f"{parts[0]} modulo {parts[1]}"
        case "union" | "inter" | "given" | "such":
            joint = {"inter": "intersection", "given": "if", "such": "such that"}
            return f" {joint.get(node.op, node.op)} ".join(parts)
        case "based":
            return f"{node.note or ' '.join(parts)} in base {node.value}"
        case "opaque":
            return f"not understood: {node.note}"
        case _:
            note = f" {node.note}" if node.note else ""
            return f"{node.op}{note} of {', '.join(parts)}"


_MOODS = {"plain": "", "good": "bold green", "bad": "bold red", "note": "cyan"}


def render(steps: Iterable[DecisionStep]) -> RenderableType:
    """Return the steps as lines for a rich console, with control characters made visible."""
    lines: list[Text] = []
    for step in steps:
        line = Text(f"{step.title:>12}  ", style="dim")
        line.append(escaped(step.text), style=_MOODS[step.mood])
        lines.append(line)
    return Group(*lines)


def escaped(text: str) -> str:
    r"""Return text that cannot steer a terminal: control, format and surrogate characters become \x
    escapes.

    >>> escaped("a\x1b[31mb\u202e")
    'a\\x1b[31mb\\u202e'
    """
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isprintable() and unicodedata.category(character) not in {"Cf", "Cs", "Co", "Cn"}:
        return character
    code = ord(character)
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    if code < 256:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
