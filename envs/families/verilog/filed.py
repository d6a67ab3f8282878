"""Modules of files: a question and a right design, with which designs are compared in simulation.

Read are designs of one module whose ports are declared in its head, with widths as numbers, and
with at most one clock, of which the rising edge counts.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ludus.errors import RewardUnavailable
from ludus.verdict import Verdict

from ...problem_files import UnusableRow
from ..maths import digest
from .modules import NAME
from .problems import Inputs, mask
from .simulation import RefusedDesign, compared, executed, screened

MAX_PORT_BITS = 64
EDGES = 256
"""Values of the inputs in a simulation."""
_HOLD, _RESET = 0.3, 0.05
"""Chances that an input keeps its value, and that a reset comes."""
_RESETS = re.compile(r"a?(?:rst|reset|clr|clear)(?P<low>_?n)?|n_?(?:rst|reset)(?P<low_too>)")
_KINDS = frozenset({"wire", "reg", "logic", "signed", "unsigned", "var"})
DESIGN_FIELDS = ("answer", "verilog", "code", "solution", "reference")


@dataclass(frozen=True, slots=True)
class FiledModule:
    """A module with ports, as tokens."""

    source: str
    """The screened design, whose module is `top_module` and whose clock is `clk`."""
    inputs: dict[str, int]
    """The width in bits of each input but the clock, by name."""
    widths: dict[str, int]
    """The width in bits of each output, by name."""
    clocked: bool

    @property
    def heading(self) -> str:
        """The first sentence of a question: which ports the module has."""
        ports = ["input clk"] if self.clocked else []
        ports += [f"input {_range(width)}{name}" for name, width in self.inputs.items()]
        ports += [f"output {_range(width)}{name}" for name, width in self.widths.items()]
        lines = "\n".join(f"    {port}" for port in ports)
        return f"Write a Verilog module `{NAME}` with these ports:\n\n{lines}\n"

    def stimuli(self, rng: random.Random) -> list[Inputs]:
        """Draw the inputs of a simulation; a clocked module is reset at its first two edges."""
        active = {name: level for name in self.inputs if (level := reset_level(name)) is not None}
        rows: list[Inputs] = []
        for number in range(EDGES):
            row: Inputs = {}
            for name, width in self.inputs.items():
                if self.clocked and name in active:
                    resets = number < 2 or rng.random() < _RESET
                    row[name] = active[name] if resets else 1 - active[name]
                elif rows and rng.random() < _HOLD:
                    row[name] = rows[-1][name]
                else:
                    top = mask(width)
                    row[name] = rng.choice((0, 1, top, rng.randint(0, top), rng.randint(0, top)))
            rows.append(row)
        return rows


class VerilogProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A module of a file that is asked for."""

    id: str
    """A digest of the question."""
    question: str
    design: str
    """The source of a right design."""
    difficulty: float | None = None


class VerilogRows(msgspec.Struct, frozen=True):
    """Reads rows of {question, answer}, where the answer is a design."""

    def read(self, row: Mapping[str, Any]) -> VerilogProblem:
        """Read a row. Raises UnusableRow."""
        question = row.get("question", row.get("prompt"))
        if not isinstance(question, str) or not question.strip():
            raise UnusableRow(f"no question among the fields {', '.join(row)}")
        source = design_of(row)
        read_module(source)
        return VerilogProblem(id=digest(question), question=question.strip(), design=source)


def design_of(row: Mapping[str, Any]) -> str:
    """Return the design of a row. Raises UnusableRow for a row without a design."""
    for name in DESIGN_FIELDS:
        if isinstance(row.get(name), str) and "module" in row[name]:
            return str(row[name])
    raise UnusableRow(f"no design among the fields {', '.join(row)}")


def read_module(source: str) -> FiledModule:
    """Read a design.

    Raises:
        UnusableRow: the design is refused by `screened`, or is not of the kind that is read.
    """
    try:
        tokens = screened(source).split()
    except RefusedDesign as error:
        raise UnusableRow(f"a design that is refused: {error}") from None
    if tokens.count("module") != 1:
        raise UnusableRow(f"a design of {tokens.count('module')} modules; one is read")
    inputs, widths, end = _ports(tokens)
    clock = _clock(tokens[end:], inputs)
    names = {tokens[1]: NAME, **({clock: "clk"} if clock else {})}
    if clock and clock != "clk" and "clk" in tokens:
        raise UnusableRow(f"a clock {clock!r} beside another name 'clk'")
    renamed = [names.get(token, token) for token in tokens]
    inputs.pop(clock, None)
    if not inputs and not clock:
        raise UnusableRow("a module without an input")
    return FiledModule(" ".join(renamed), inputs, widths, bool(clock))


def reset_level(name: str) -> int | None:
    """Return the level at which an input resets; None if the name is not that of a reset.

    >>> reset_level("rst"), reset_level("reset_n"), reset_level("arstn"), reset_level("first")
    (1, 0, 0, None)
    """
    match = _RESETS.fullmatch(name.lower())
    if match is None:
        return None
    return 1 if match["low"] is None and match["low_too"] is None else 0


async def expected_of(module: FiledModule, stimuli: list[Inputs], *, timeout_s: float) -> str:
    """Return what a right design prints for the inputs.

    Raises:
        UnusableRow: the design does not run, an output is unknown, or one never changes.
        RewardUnavailable: nothing can be simulated here.
    """
    execution = await executed(module, stimuli, module.source, timeout_s=timeout_s)
    verdict = compared(execution.stdout, execution, partial=False)
    if not verdict.ok:
        raise RewardUnavailable(verdict)
    if verdict.reward != 1.0:
        raise UnusableRow(f"a design that cannot be simulated: {verdict.detail}")
    rows = [line.split(" ") for line in execution.stdout.splitlines()]
    for name, column in zip(module.widths, zip(*rows, strict=True), strict=True):
        if any(set(cell) - {"0", "1"} for cell in column):
            raise UnusableRow(f"an output {name!r} that is unknown or undriven")
        if len(set(column)) == 1:
            raise UnusableRow(f"an output {name!r} that never changes")
    return execution.stdout


async def equals(
    module: FiledModule, stimuli: list[Inputs], design: str, *, partial: bool, timeout_s: float
) -> Verdict:
    """Grade a design: 1 if all outputs equal the right design's outputs for all inputs."""
    try:
        tokens = screened(design)
    except RefusedDesign as error:
        return Verdict.of(0.0, f"refused: {error}")
    try:
        expected = await expected_of(module, stimuli, timeout_s=timeout_s)
        execution = await executed(module, stimuli, tokens, timeout_s=timeout_s)
    except RewardUnavailable as error:
        return error.verdict
    except UnusableRow as error:
        return Verdict.invalid(str(error))
    return compared(expected, execution, partial=partial)


def _ports(tokens: Sequence[str]) -> tuple[dict[str, int], dict[str, int], int]:
    """Return the widths of inputs and outputs, and the place behind the head."""
    if tokens[2] == "#":
        raise UnusableRow("a module with parameters")
    if tokens[2] != "(" or ")" not in tokens:
        raise UnusableRow("a module without a list of ports")
    end = tokens.index(")")
    groups: dict[str, dict[str, int]] = {"input": {}, "output": {}}
    direction, width = "", 1
    for declared in _split(tokens[3:end]):
        if declared[0] in groups:
            direction, width = declared[0], 1
            declared = declared[1:]
        while declared and declared[0] in _KINDS:
            declared = declared[1:]
        if declared[:1] == ["["]:
            high, colon, low, close = [*declared[1:5], "", "", "", ""][:4]
            if colon != ":" or close != "]" or not (high.isdigit() and low.isdigit()):
                raise UnusableRow("a port whose width is no number")
            width, declared = abs(int(high) - int(low)) + 1, declared[5:]
        if not direction or len(declared) != 1 or not declared[0].isidentifier():
            raise UnusableRow("ports that are not declared in the head of the module")
        if width > MAX_PORT_BITS:
            raise UnusableRow(f"a port of {width} bits; at most {MAX_PORT_BITS}")
        groups[direction][declared[0]] = width
    if not groups["output"]:
        raise UnusableRow("a module without an output")
    return groups["input"], groups["output"], end


def _split(tokens: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for token in [*tokens, ","]:
        if token != ",":
            part.append(token)
            continue
        if not part:
            raise UnusableRow("an empty port")
        yield part
        part = []


def _clock(body: Sequence[str], inputs: Mapping[str, int]) -> str:
    """Return the input whose rising edge clocks the module; empty where nothing does."""
    edges = {
        (kind, name)
        for kind, name in itertools.pairwise(body)
        if kind in ("posedge", "negedge") and reset_level(name) is None
    }
    if not edges:
        return ""
    if len(edges) > 1 or next(iter(edges))[0] == "negedge":
        raise UnusableRow("several clocks, or a falling edge")
    ((_, name),) = edges
    if inputs.get(name) != 1:
        raise UnusableRow(f"a clock {name!r} that is no input of one bit")
    return name


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""
