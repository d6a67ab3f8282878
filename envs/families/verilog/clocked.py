"""Clocked outputs: registers that change at the rising edge of `clk`.

The Verilog text of a clause is a template for `str.format`, in which `{y}` is the output and a
brace of Verilog is written twice. In f-strings all of these braces are doubled once more: `{{y}}`
is the output, and `{{{{` is one brace of Verilog. In the lambdas, `n` is the state and `i` the
inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .clauses import Clause, Inputs, Model, mask

Step = Callable[[int, Inputs], int]
"""Returns the next state, from the state and the inputs, where `rst` is 0."""


def _remembering(
    start: int, step: Step, to_output: Callable[[int], int] = int
) -> Callable[[], Model]:
    """Return a factory of models with state: `start` at first and after a reset, then by `step`.

    `to_output` extracts the output from the state.
    """

    def make() -> Model:
        state = start

        def edge(inputs: Inputs) -> int:
            nonlocal state
            state = start if inputs["rst"] else step(state, inputs)
            return to_output(state)

        return edge

    return make


def _process(start: str, update: str) -> str:
    """Return a process that resets the output, or else does what `update` says."""
    return f"always @(posedge clk)\n  if (rst) {{y}} <= {start};\n  else {update}"


def counter(rng: random.Random, w: int) -> Clause:
    """Count up to a number and begin again."""
    end = rng.randint(5, min(40, mask(w)))
    bits = (end - 1).bit_length()
    return Clause(
        f"a counter, {bits} bits: while en is 1 it counts 0, 1, ... {end - 1} and from there to 0 "
        "again; while en is 0 it stands still; reset to 0", bits,
        _process("0", f"if (en) {{y}} <= {{y}} == {end - 1} ? 0 : {{y}} + 1;"),
        _remembering(0, lambda n, i: (n + i["en"]) % end), "en", True,
    )  # fmt: skip


def up_and_down(rng: random.Random, w: int) -> Clause:
    """Count in both directions, and stop at the ends."""
    top = rng.randint(3, 7)
    start = rng.randint(1, top - 1)
    return Clause(
        f"a counter, 3 bits: up by one if s is 1, down by one if s is 0, but never above {top} nor "
        f"below 0; reset to {start}", 3,
        _process(str(start), f"if (s) begin\n    if ({{y}} < {top}) {{y}} <= {{y}} + 1;\n"
                 "  end else if ({y} > 0) {y} <= {y} - 1;"),
        _remembering(start, lambda n, i: min(n + 1, top) if i["s"] else max(n - 1, 0)), "s", True,
    )  # fmt: skip


def accumulated(rng: random.Random, w: int) -> Clause:
    """Add up the values of a."""
    return Clause(
        f"the lowest {w} bits of the sum of all a so far, at edges where en is 1; reset to 0", w,
        _process("0", "if (en) {y} <= {y} + a;"),
        _remembering(0, lambda n, i: n + i["a"] * i["en"] & mask(w)), "a en", True,
    )  # fmt: skip


def shift_register(rng: random.Random, w: int) -> Clause:
    """Hold the last values of s."""
    return Clause(
        f"the last {w} values of s, the newest in bit 0; reset to 0", w,
        _process("0", f"{{y}} <= {{{{{{y}}[{w - 2}:0], s}}}};"),
        _remembering(0, lambda n, i: (n << 1 | i["s"]) & mask(w)), "s", True,
    )  # fmt: skip


def delayed(rng: random.Random, w: int) -> Clause:
    """Delay a by some edges."""
    late = rng.randint(2, 4)
    # The register of the output is one of the `late` stages, so that one less is to be named.
    count = ("one edge", "two edges", "three edges")[late - 2]
    register_names = [f"{{y}}_{k}" for k in range(1, late)]
    moves = "\n".join(
        f"    {new} <= {old};"
        for new, old in zip([*register_names, "{y}"], ["a", *register_names], strict=True)
    )
    clears = " ".join(f"{name} <= 0;" for name in [*register_names, "{y}"])
    verilog = (
        f"reg [{w - 1}:0] {', '.join(register_names)};\nalways @(posedge clk)\n"
        f"  if (rst) begin {clears} end\n  else begin\n{moves}\n  end"
    )
    top = mask(w * late)
    return Clause(
        f"a register that holds the value a had {count} earlier: what a is at an edge is shown "
        f"after {count} more; all stages are reset to 0", w, verilog,
        _remembering(0, lambda n, i: (n << w | i["a"]) & top, lambda n: n >> w * (late - 1)),
        "a", True,
    )  # fmt: skip


def risen(rng: random.Random, w: int) -> Clause:
    """Detect rising or falling edges of s."""
    rising = rng.random() < 0.5
    before, now = ("0", "1") if rising else ("1", "0")
    test = "s & ~{y}_last" if rising else "~s & {y}_last"
    return Clause(
        f"a register: 1 exactly after an edge at which s is {now} and at the edge before was "
        f"{before}; what s was before a reset counts as 0; reset to 0", 1,
        "reg {y}_last;\nalways @(posedge clk)\n  if (rst) begin {y} <= 0; {y}_last <= 0; end\n"
        f"  else begin {{y}} <= {test}; {{y}}_last <= s; end",
        _remembering(
            0,
            lambda n, i: i["s"] << 1 | int(i["s"] == int(now) and n >> 1 == int(before)),
            lambda n: n & 1,
        ),
        "s", True,
    )  # fmt: skip


def pattern_seen(rng: random.Random, w: int) -> Clause:
    """Detect a sequence of values of s."""
    length = rng.randint(3, 5)
    target = rng.randint(1, mask(length))
    bits = f"{target:0{length}b}"
    verilog = (
        f"reg [{length - 1}:0] {{y}}_last;\nwire [{length - 1}:0] {{y}}_next = "
        f"{{{{{{y}}_last[{length - 2}:0], s}}}};\n"
        "always @(posedge clk)\n  if (rst) begin {y} <= 0; {y}_last <= 0; end\n"
        f"  else begin {{y}} <= {{y}}_next == {length}'b{bits}; {{y}}_last <= {{y}}_next; end"
    )
    return Clause(
        f"a register: 1 exactly after an edge at which the last {length} values of s, that of this "
        f"edge included, are {', '.join(bits)} in this order; sequences may overlap, and what s "
        "was before a reset counts as 0; reset to 0", 1, verilog,
        _remembering(0, lambda n, i: (n << 1 | i["s"]) & mask(length), lambda n: int(n == target)),
        "s", True,
    )  # fmt: skip


def feedback(rng: random.Random, w: int) -> Clause:
    """Step a linear feedback shift register."""
    tap = rng.randrange(w - 1)
    start = rng.randint(1, mask(w))
    return Clause(
        f"a shift register: at each edge with en 1 all bits move up by one place, the highest is "
        f"dropped, and bit 0 becomes the xor of bits {w - 1} and {tap} as they were; reset to "
        f"{start}", w,
        _process(str(start), f"if (en) {{y}} <= {{{{{{y}}[{w - 2}:0], {{y}}[{w - 1}] ^ "
                 f"{{y}}[{tap}]}}}};"),
        _remembering(start, lambda n, i: (n << 1 | (n >> w - 1 ^ n >> tap) & 1) & mask(w)
                     if i["en"] else n),
        "en", True,
    )  # fmt: skip


def highest(rng: random.Random, w: int) -> Clause:
    """Hold the largest a so far."""
    return Clause(
        "the largest a at any edge since the last reset, unsigned; reset to 0", w,
        _process("0", "if (a > {y}) {y} <= a;"),
        _remembering(0, lambda n, i: max(n, i["a"])), "a", True,
    )  # fmt: skip


def toggled(rng: random.Random, w: int) -> Clause:
    """Flip a bit whenever a > b."""
    return Clause(
        "a register that flips at each edge at which a > b, unsigned; reset to 0", 1,
        _process("0", "if (a > b) {y} <= ~{y};"),
        _remembering(0, lambda n, i: n ^ int(i["a"] > i["b"])), "a b", True,
    )  # fmt: skip


def run_of_ones(rng: random.Random, w: int) -> Clause:
    """Count for how many edges s has been 1."""
    top = rng.choice([5, 6, 7])
    return Clause(
        f"for how many edges in a row s has been 1, at most {top}; 3 bits; reset to 0", 3,
        _process("0", f"if (!s) {{y}} <= 0;\n  else if ({{y}} < {top}) {{y}} <= {{y}} + 1;"),
        _remembering(0, lambda n, i: min(n + 1, top) if i["s"] else 0), "s", True,
    )  # fmt: skip


def steadied(rng: random.Random, w: int) -> Clause:
    """Debounce s: follow a change that has lasted for some edges."""
    need = rng.randint(2, 3)
    verilog = (
        "reg [1:0] {y}_n;\nalways @(posedge clk)\n  if (rst) begin {y} <= 0; {y}_n <= 0; end\n"
        "  else if (s == {y}) {y}_n <= 0;\n"
        f"  else if ({{y}}_n == {need - 1}) begin {{y}} <= s; {{y}}_n <= 0; end\n"
        "  else {y}_n <= {y}_n + 1;"
    )

    def step(state: int, inputs: Inputs) -> int:
        output, seen = state & 1, state >> 1
        if inputs["s"] == output:
            return output
        return inputs["s"] if seen == need - 1 else output | (seen + 1) << 1

    return Clause(
        f"a register that takes the value of s as soon as s has differed from it at {need} edges "
        "in a row; reset to 0", 1, verilog, _remembering(0, step, lambda n: n & 1), "s", True,
    )  # fmt: skip


def kept(rng: random.Random, w: int) -> Clause:
    """Hold a xor b in a register with an enable input."""
    start = rng.randint(0, mask(w))
    return Clause(
        f"a register that takes a xor b at edges where en is 1 and keeps its value otherwise; "
        f"reset to {start}", w, _process(str(start), "if (en) {y} <= a ^ b;"),
        _remembering(start, lambda n, i: i["a"] ^ i["b"] if i["en"] else n), "a b en", True,
    )  # fmt: skip


def machine(rng: random.Random, w: int) -> Clause:
    """Step a random state machine of four states."""
    table = [(rng.randrange(4), rng.randrange(4)) for _ in range(4)]
    transitions = "; ".join(
        f"from {n} to {next_state} if s is 1, else to {no}"
        for n, (no, next_state) in enumerate(table)
    )
    cases = "\n".join(
        f"    2'd{n}: {{y}} <= s ? 2'd{next_state} : 2'd{no};"
        for n, (no, next_state) in enumerate(table)
    )
    return Clause(
        f"the state of a machine, 2 bits, which goes at each edge {transitions}; reset to 0", 2,
        f"always @(posedge clk)\n  if (rst) {{y}} <= 0;\n  else case ({{y}})\n{cases}\n  endcase",
        _remembering(0, lambda n, i: table[n][i["s"]]), "s", True,
    )  # fmt: skip


CLOCKED = (
    counter, up_and_down, accumulated, shift_register, delayed, risen, pattern_seen, feedback,
    highest, toggled, run_of_ones, steadied, kept, machine,
)  # fmt: skip
"""The kinds of outputs that depend on earlier inputs."""
