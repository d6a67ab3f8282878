"""Simulates a design, and compares the outputs with the models outside of the simulation.

*What the simulation knows*: the design's tokens, and a bench that drives inputs and prints outputs.
No expected value, no pass line, nothing that compares. The design can print nothing
(`screening.py`), so the output is the bench's alone, and must equal the expected text.

*Two elaborations*: first the design alone, where a name from outside is an error; then the design
with the bench, whose names are drawn anew each time.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError
from ludus.sandboxes import Execution, ExecutionStatus, execute_async
from ludus.verdict import Verdict

from .clauses import Inputs
from .modules import NAME, Module
from .screening import RefusedDesign, screened

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
    bench = bench_of(module, stimuli)
    try:
        execution = await execute_async(
            _SCRIPT.replace("BENCH", bench.name),
            "bash",
            timeout_s=timeout_s,
            cpu_s=timeout_s,
            files={"design.sv": design, "bench.sv": bench.source},
        )
    except ConfigError as error:
        return Verdict.unavailable(f"nothing can be simulated here: {error}")
    # the message must not depend on the random name
    problem = execution.stderr.replace(bench.name, "bench")
    execution = msgspec.structs.replace(execution, stderr=problem)
    return _verdict(module, module.shows(stimuli), execution, partial=partial)


def bench_of(module: Module, stimuli: list[Inputs]) -> Testbench:
    """Make a bench that drives `stimuli` and prints the outputs for each, in binary.

    With a clock the bench prints before and after each rising edge, so that an output that changes
    at another time is noticed.
    """
    name = f"bench_{secrets.token_hex(8)}"
    inputs, outputs = module.inputs, module.outputs
    changing = [*inputs, *(["clk"] if module.clocked else [])]
    wires = {port: f"{name}_{port}" for port in [*changing, *outputs]}
    regs = [f"reg [{inputs.get(port, 1) - 1}:0] {wires[port]};" for port in changing]
    nets = [f"wire [{clause.width - 1}:0] {wires[port]};" for port, clause in outputs.items()]
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
    widths = {name: clause.width for name, clause in module.outputs.items()}
    lines = (" ".join(f"{row[name]:0{widths[name]}b}" for name in widths) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _verdict(
    module: Module, rows: list[dict[str, int]], execution: Execution, *, partial: bool
) -> Verdict:
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return Verdict.unavailable(f"the sandbox failed: {execution.detail}")
    if execution.exit_code == _NO_TOOL:
        return Verdict.unavailable(f"no iverilog in the sandbox: apt-get install {PACKAGE}")
    expected = expected_output(module, rows)
    if execution.ok and execution.stdout == expected:
        return Verdict.of(1.0, f"all {len(rows)} lines right", metrics=_count(rows, len(rows)))
    if not execution.ok:
        problem = _WRONG.get(
            execution.exit_code or 0, f"the simulation ended with {execution.status}"
        )
        return Verdict.of(0.0, f"{problem}: {execution.detail or execution.stderr[-300:]}".strip())
    return _wrong(module, expected.splitlines(), execution.stdout.splitlines(), partial=partial)


def _wrong(module: Module, expected: list[str], printed: list[str], *, partial: bool) -> Verdict:
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
    right_outputs = sum(
        all(
            expected_row[k : k + 1] == printed_row[k : k + 1]
            for expected_row, printed_row in zip(expected_cells, printed_cells, strict=True)
        )
        for k in range(len(module.outputs))
    )
    reward = right_outputs / len(module.outputs) if partial else 0.0
    detail = (
        f"{right} of {len(expected)} lines, {right_outputs} of {len(module.outputs)} outputs right"
    )
    return Verdict.of(reward, detail, metrics=_count(expected, right))


def _count(lines: list[str] | list[dict[str, int]], right: int) -> dict[str, float]:
    return {"lines_right": float(right), "lines_total": float(len(lines))}
