r"""Simulates a design, and compares the outputs with the models outside of the simulation.

*What the simulation knows*: the design's tokens, and a bench that drives inputs and prints outputs.
No expected value, no pass line, nothing that compares. The design can print nothing
(`screening.py`), so the output is the bench's alone, and must equal the expected text.

*Two elaborations*: first the design alone, where a name from outside is an error; then the design
with the bench, whose names are drawn anew each time.

The compiler does not get the text that was written, but its tokens, written out again with a space
between any two. So the compiler cannot read anything that was not read here: there are no comments,
no strings, no macros (a backtick is refused, and so is every directive but the harmless ones that
are taken out), no escaped identifiers (`\$display `), and no word glued to a number (`1'bxforce`).

Refused are: every system task and function but those of `SYSTEM_FUNCTIONS`, which are pure;
hierarchical names; keywords that reach beyond the module they stand in, print, wait for others or
belong to test benches; whatever stands outside of modules.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ludus.errors import ConfigError, RewardUnavailable
from ludus.sandboxes import Execution, ExecutionStatus, execute_async
from ludus.verdict import Verdict

from .modules import NAME, Module
from .problems import Inputs

PACKAGE = "iverilog"
"""The package and program that must be installed where the simulation runs."""

_NO_TOOL, _NO_DESIGN, _NO_FIT, _NO_WIDTH = 90, 91, 92, 93

_SCRIPT = f"""bench=BENCH
command -v iverilog >/dev/null && command -v vvp >/dev/null || exit {_NO_TOOL}
iverilog -g2012 -t null -s {NAME} design.sv >&2 || exit {_NO_DESIGN}
iverilog -g2012 -Wportbind -s $bench -o program.vvp bench.sv design.sv >fit.log 2>&1
fits=$?
cat fit.log >&2
[ $fits = 0 ] || exit {_NO_FIT}
grep -q '^bench.sv:.* expects .* bits, got' fit.log && exit {_NO_WIDTH}
exec vvp -n program.vvp
"""

_WRONG = {
    _NO_DESIGN: "the design does not compile",
    _NO_FIT: "the design does not have the ports asked for",
    _NO_WIDTH: "a port does not have the width asked for",
}


class Ports(Protocol):
    """The ports of a module, which a bench drives and shows."""

    @property
    def inputs(self) -> dict[str, int]:
        """The width in bits of each input but the clock, by name."""
        ...

    @property
    def widths(self) -> dict[str, int]:
        """The width in bits of each output, by name."""
        ...

    @property
    def clocked(self) -> bool:
        """Whether the module has a clock, the input `clk`."""
        ...


@dataclass(frozen=True, slots=True)
class Testbench:
    """A test bench for a single simulation."""

    name: str
    """The name of the bench, drawn anew each time; every name in the bench begins with it."""
    source: str


async def graded(
    module: Module, stimuli: list[Inputs], design: str, *, partial: bool, timeout_s: float
) -> Verdict:
    """Grade a design: 1 if all outputs equal the models' for all inputs.

    Args:
        module: the module that was asked for.
        stimuli: the inputs of the simulation.
        design: the source of the policy's design.
        partial: reward the share of outputs that are right throughout.
        timeout_s: the limit of CPU time and of wall time in seconds, compilation included.
    """
    try:
        tokens = screened(design)
    except RefusedDesign as error:
        return Verdict.of(0.0, f"refused: {error}")
    return await simulated(module, stimuli, tokens, partial=partial, timeout_s=timeout_s)


async def simulated(
    module: Module, stimuli: list[Inputs], design: str, *, partial: bool, timeout_s: float
) -> Verdict:
    """Grade a design that has been screened."""
    try:
        execution = await executed(module, stimuli, design, timeout_s=timeout_s)
    except RewardUnavailable as error:
        return error.verdict
    return compared(expected_output(module, module.shows(stimuli)), execution, partial=partial)


async def executed(
    ports: Ports, stimuli: list[Inputs], design: str, *, timeout_s: float
) -> Execution:
    """Simulate a design that has been screened; the bench prints the outputs."""
    bench = bench_of(ports, stimuli)
    try:
        execution = await execute_async(
            _SCRIPT.replace("BENCH", bench.name),
            "bash",
            timeout_s=timeout_s,
            cpu_s=timeout_s,
            files={"design.sv": design, "bench.sv": bench.source},
        )
    except ConfigError as error:
        raise RewardUnavailable(
            Verdict.unavailable(f"nothing can be simulated here: {error}")
        ) from error
    # the message must not depend on the random name
    problem = execution.stderr.replace(bench.name, "bench")
    return msgspec.structs.replace(execution, stderr=problem)


def bench_of(module: Ports, stimuli: list[Inputs]) -> Testbench:
    """Make a bench that drives `stimuli` and prints the outputs for each, in binary.

    With a clock the bench prints before and after each rising edge, so that an output that changes
    at another time is noticed.
    """
    name = f"bench_{secrets.token_hex(8)}"
    inputs, outputs = module.inputs, module.widths
    changing = [*inputs, *(["clk"] if module.clocked else [])]
    wires = {port: f"{name}_{port}" for port in [*changing, *outputs]}
    regs = [f"reg [{inputs.get(port, 1) - 1}:0] {wires[port]};" for port in changing]
    nets = [f"wire [{width - 1}:0] {wires[port]};" for port, width in outputs.items()]
    ports = ", ".join(f".{port}({wire})" for port, wire in wires.items())
    printed = ", ".join(wires[port] for port in outputs)
    show = f'$display("{" ".join(["%b"] * len(outputs))}", {printed});'
    edge = f"{wires['clk']} = 1; #5 {show} {wires['clk']} = 0; #5;" if module.clocked else ""
    start = f"{wires['clk']} = 0;" if module.clocked else ""
    lines = [f"{_drive(wires, inputs, stimulus)} #5 {show} {edge}" for stimulus in stimuli]
    if module.clocked:
        lines[0] = f"{_drive(wires, inputs, stimuli[0])} #5; {edge}"
    source = "\n".join(
        [
            "`timescale 1ns/1ns",
            f"module {name};",
            *regs,
            *nets,
            f"{NAME} {name}_design({ports});",
            f"initial begin {start}",
            *lines,
            "$finish(0);",
            "end",
            "endmodule",
            "",
        ]
    )
    return Testbench(name, source)


def _drive(wires: dict[str, str], widths: dict[str, int], values: Inputs) -> str:
    return " ".join(f"{wires[name]} = {width}'d{values[name]};" for name, width in widths.items())


def expected_output(module: Module, rows: list[dict[str, int]]) -> str:
    """Return what the bench prints if the design is right."""
    widths = module.widths
    lines = (" ".join(f"{row[name]:0{widths[name]}b}" for name in widths) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def compared(expected: str, execution: Execution, *, partial: bool) -> Verdict:
    """Return the verdict on a simulation, which should have printed `expected`.

    Args:
        expected: the outputs in a line for each time at which the bench shows them.
        execution: the simulation of a design.
        partial: reward the share of outputs that are right throughout.
    """
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return Verdict.unavailable(f"the sandbox failed: {execution.detail}")
    if execution.exit_code == _NO_TOOL:
        return Verdict.unavailable(f"no iverilog in the sandbox: apt-get install {PACKAGE}")
    lines = expected.splitlines()
    if execution.ok and execution.stdout == expected:
        return Verdict.of(1.0, f"all {len(lines)} lines right", metrics=_count(lines, len(lines)))
    if not execution.ok:
        problem = _WRONG.get(
            execution.exit_code or 0, f"the simulation ended with {execution.status}"
        )
        return Verdict.of(0.0, f"{problem}: {execution.detail or execution.stderr[-300:]}".strip())
    return _wrong(lines, execution.stdout.splitlines(), partial=partial)


def _wrong(expected: list[str], printed: list[str], *, partial: bool) -> Verdict:
    """Return the verdict on a simulation that ran, but did not show the right outputs."""
    if len(printed) != len(expected):
        return Verdict.of(0.0, f"{len(printed)} lines of output, not {len(expected)}")
    right = sum(
        expected_line == printed_line
        for expected_line, printed_line in zip(expected, printed, strict=True)
    )
    expected_cells, printed_cells = (
        [line.split(" ") for line in lines] for lines in (expected, printed)
    )
    outputs = len(expected_cells[0])
    right_outputs = sum(
        all(
            expected_row[k : k + 1] == printed_row[k : k + 1]
            for expected_row, printed_row in zip(expected_cells, printed_cells, strict=True)
        )
        for k in range(outputs)
    )
    reward = right_outputs / outputs if partial else 0.0
    detail = f"{right} of {len(expected)} lines, {right_outputs} of {outputs} outputs right"
    return Verdict.of(reward, detail, metrics=_count(expected, right))


def _count(lines: list[str], right: int) -> dict[str, float]:
    return {"lines_right": float(right), "lines_total": float(len(lines))}


MAX_LETTERS = 64_000
"""The most characters of a design; what policies write has a few thousand."""

SYSTEM_FUNCTIONS = frozenset({"$signed", "$unsigned", "$clog2", "$bits", "$countones", "$onehot"})
"""The allowed system functions, all of them pure; other names with `$` are refused."""

REFUSED_WORDS = frozenset(
    """
    accept_on alias assert assume before bind bins binsof chandle checker class clocking config
    const constraint context cover covergroup coverpoint cross deassign defparam design
    dist endchecker endclass endclocking endconfig endgroup endinterface endpackage endprimitive
    endprogram endproperty endsequence endspecify event eventually expect export extends extern
    final first_match force fork forkjoin global iff ignore_bins illegal_bins implements
    implies import incdir include inout inside instance interconnect interface intersect join
    join_any join_none let liblist library local macromodule matches modport nettype new nexttime
    null package packed primitive program property protected pure rand randc randcase
    randsequence ref reject_on release restrict s_always s_eventually s_nexttime s_until
    s_until_with sequence shortreal showcancelled soft solve specify specparam string strong
    super sync_accept_on sync_reject_on table tagged this throughout timeprecision timeunit type
    union until until_with untyped use vectored virtual wait wait_order
    weak wildcard with within real realtime time chandle pulsestyle_ondetect pulsestyle_onevent
    noshowcancelled tran tranif0 tranif1 rtran rtranif0 rtranif1 cell endtable struct
    """.split()  # noqa: SIM905 - a list literal would take a line a word
)
"""Reserved words of IEEE 1800-2012 that a synthesizable module of this size does not need."""

_DROPPED_WORDS = frozenset({"unique", "unique0", "priority"})
"""Words that are removed, since Icarus Verilog does not know these promises about a `case`.

Where such a promise is kept, the word changes nothing.
"""

_HARMLESS_DIRECTIVE = re.compile(
    r"^[ \t]*`(?:timescale[ \t]+\d+[ \t]*[munpf]?s[ \t]*/[ \t]*\d+[ \t]*[munpf]?s"
    r"|default_nettype[ \t]+(?:none|wire)|resetall)[ \t]*$",
    re.M,
)
_ATTRIBUTE = re.compile(
    r"\(\*\s*[A-Za-z_]\w*(?:\s*=\s*\w+)?(?:\s*,\s*[A-Za-z_]\w*(?:\s*=\s*\w+)?)*\s*\*\)"
)
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\f]+)
  | (?P<line>\n)
  | (?P<number>
        (?:\d[\d_]*[ \t]*)? '[sS]?
        (?: [bB][ \t]*[01xXzZ?_]+ | [oO][ \t]*[0-7xXzZ?_]+
          | [dD][ \t]*(?:\d[\d_]*|[xXzZ?]_*) | [hH][ \t]*[0-9a-fA-FxXzZ?_]+ )
      | '[01xXzZ]
      | \d[\d_]*
    )
  | (?P<system>\$[A-Za-z0-9_$]*)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<operator>
        <<<= | >>>= | === | !== | ==\? | !=\? | <<< | >>> | <<= | >>=
      | <= | >= | == | != | && | \|\| | \*\* | << | >> | ~& | ~\| | ~\^ | \^~ | -> | \+: | -:
      | \+\+ | -- | \+= | -= | \*= | /= | %= | &= | \|= | \^= | '\( | '\{ | \.\*
      | [-+*/%&|^~!<>=?:;,.()\[\]{}@\#]
    )
    """,
    re.X,
)


class RefusedDesign(Exception):
    """The design has something that is not allowed; the message says what, and where."""


def screened(source: str) -> str:
    r"""Return the tokens of a design, to be compiled in place of the text.

    >>> screened("module m(input a); // $finish\nendmodule")
    'module m ( input a ) ;\nendmodule'

    Raises:
        RefusedDesign: the design is too long, cannot be read, or has something that is not allowed.
    """
    if len(source) > MAX_LETTERS:
        raise RefusedDesign(f"the design has {len(source)} letters; at most {MAX_LETTERS} are read")
    text = _HARMLESS_DIRECTIVE.sub("", _without_comments(source.replace("\r\n", "\n")))
    tokens = _tokens(_ATTRIBUTE.sub(" ", text))
    _check_dots(tokens)
    _check_modules(tokens)
    # The compiler gets these tokens and not the text, so that it reads nothing else than what was
    # checked here. Line ends stay, since its messages name lines.
    lines: list[list[str]] = [[]]
    for token in tokens:
        if token == "\n":
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(" ".join(line) for line in lines)


def _without_comments(text: str) -> str:
    """Replace each comment by a space.

    Strings are refused, so that whatever looks like a comment is a comment.
    """
    kept_parts: list[str] = []
    place = 0
    for mark in re.finditer(r"//|/\*|\"", text):
        if mark.start() < place:
            continue
        kept_parts.append(text[place : mark.start()])
        if mark[0] == '"':
            raise RefusedDesign(f"line {_line(text, mark.start())}: strings are not allowed")
        close = "\n" if mark[0] == "//" else "*/"
        end = text.find(close, mark.end())
        if end < 0 and close == "*/":
            raise RefusedDesign(f"line {_line(text, mark.start())}: the comment is never closed")
        kept_parts.append(" ")
        place = len(text) if end < 0 else end + (0 if close == "\n" else 2)
    return "".join([*kept_parts, text[place:]])


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _tokens(text: str) -> list[str]:
    """Split a design into tokens, with line ends as tokens.

    Raises:
        RefusedDesign: the design has a character, word or system function that is not allowed.
    """
    tokens: list[str] = []
    place, line = 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise RefusedDesign(f"line {line}: {text[place]!r} is not allowed")
        kind, token = str(match.lastgroup), match[0]
        if kind == "system" and token not in SYSTEM_FUNCTIONS:
            raise RefusedDesign(f"line {line}: {token} is not allowed")
        if kind == "word" and token in REFUSED_WORDS:
            raise RefusedDesign(f"line {line}: {token} is not allowed")
        # Verilog allows `$` inside a name, and the pattern of words ends there: the compiler would
        # read another word than this check.
        if kind == "word" and text[match.end() : match.end() + 1] == "$":
            raise RefusedDesign(f"line {line}: names with $ are not allowed")
        if kind != "space" and token not in _DROPPED_WORDS:
            tokens.append(token)
        line += kind == "line"
        place = match.end()
    return tokens


def _check_dots(tokens: list[str]) -> None:
    """Check that a dot only names a port of an instance, `( .a(x), .b )`: no hierarchical name.

    Raises:
        RefusedDesign: a dot is used otherwise.
    """
    before, line = "", 1
    for token in tokens:
        if token == "\n":
            line += 1
            continue
        if token in (".", ".*") and before not in ("(", ","):
            raise RefusedDesign(f"line {line}: hierarchical names are not allowed")
        before = token


def _check_modules(tokens: list[str]) -> None:
    """Check that everything but the label of an end, `endmodule : name`, is in a module, and no
    module is in another.

    Raises:
        RefusedDesign: something is outside of modules, or modules are nested.
    """
    inside, line = False, 1
    before = ("", "")
    for token in tokens:
        if token == "\n":
            line += 1
            continue
        if token == "module":
            if inside:
                raise RefusedDesign(f"line {line}: a module inside a module")
            inside = True
        elif inside:
            inside = token != "endmodule"
        elif (before[1], token) != ("endmodule", ":") and before != ("endmodule", ":"):
            raise RefusedDesign(f"line {line}: {token!r} stands outside of a module")
        before = (before[1], token)
    if inside:
        raise RefusedDesign("the last module is never closed")
