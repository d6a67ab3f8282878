"""The outputs of generated modules: for each a sentence, Verilog source, and a model in Python.

The inputs are `a` and `b` of W bits and `s` of one bit; clocked outputs have `clk`, `rst` and `en`
as well. `{y}` is the name of the output; registers that belong to the output are named after it.

The Verilog text of a clause is a template for `str.format`, in which `{y}` is the output and a
brace of Verilog is written twice. In f-strings all of these braces are doubled once more: `{{y}}`
is the output, and `{{{{` is one brace of Verilog. In the lambdas, `n` is the state and `i` the
inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Inputs = dict[str, int]
Model = Callable[[Inputs], int]
"""Returns the value of the output, given the inputs.

The model of a clocked output is called once per rising edge, with the inputs at that edge, and
returns the value after the edge. It keeps state, so every simulation has its own model.
"""


@dataclass(frozen=True, slots=True)
class Clause:
    """An output of a module."""

    says: str
    width: int
    verilog: str
    """Module items, with `{y}` for the output; a `reg` exactly if assigned in a process."""
    model: Callable[[], Model]
    reads: str
    """The inputs that the output depends on, besides `clk` and `rst`, separated by spaces."""
    clocked: bool = False

    @property
    def is_reg(self) -> bool:
        """Whether the output is assigned in a process."""
        return "always" in self.verilog


def mask(width: int) -> int:
    """Return a number of `width` bits that are all 1.

    >>> mask(4)
    15
    """
    return (1 << width) - 1


def signed(value: int, width: int) -> int:
    """Read a number of `width` bits as two's complement.

    >>> signed(0b1110, 4)
    -2
    """
    return value - (1 << width) if value >> (width - 1) else value


def rotated(value: int, places: int, width: int) -> int:
    """Rotate a number of `width` bits to the left.

    >>> rotated(0b1001, 1, 4)
    3
    """
    places %= width
    return (value << places | value >> (width - places)) & mask(width)


def _stateless(function: Model) -> Callable[[], Model]:
    return lambda: function


# --- without a clock ------------------------------------------------------------------------------


def total(rng: random.Random, w: int) -> Clause:
    """Add a and b, with the carry."""
    return Clause(
        f"the sum a + b with its carry, {w + 1} bits", w + 1, "assign {y} = a + b;",
        _stateless(lambda i: i["a"] + i["b"]), "a b",
    )  # fmt: skip


def saturated(rng: random.Random, w: int) -> Clause:
    """Add a and b, and saturate at the maximum."""
    top = mask(w)
    return Clause(
        f"a + b, or {top} if that is more than {w} bits can hold", w,
        f"wire [{w}:0] {{y}}_sum = a + b;\nassign {{y}} = {{y}}_sum[{w}] ? {w}'d{top} : "
        f"{{y}}_sum[{w - 1}:0];",
        _stateless(lambda i: min(i["a"] + i["b"], top)), "a b",
    )  # fmt: skip


def distance(rng: random.Random, w: int) -> Clause:
    """Take the absolute difference of a and b."""
    return Clause(
        "the difference between a and b, the larger minus the smaller, both unsigned", w,
        "assign {y} = a > b ? a - b : b - a;", _stateless(lambda i: abs(i["a"] - i["b"])), "a b",
    )  # fmt: skip


def larger_signed(rng: random.Random, w: int) -> Clause:
    """Take the larger of a and b in two's complement."""
    return Clause(
        "the larger of a and b, both read as two's complement", w,
        "assign {y} = $signed(a) > $signed(b) ? a : b;",
        _stateless(lambda i: max(i["a"], i["b"], key=lambda v: signed(v, w))), "a b",
    )  # fmt: skip


def ones(rng: random.Random, w: int) -> Clause:
    """Count the bits of a that are 1."""
    bits = w.bit_length()
    return Clause(
        f"how many bits of a are 1, {bits} bits", bits,
        "integer {y}_i;\nalways @(*) begin\n  {y} = 0;\n"
        f"  for ({{y}}_i = 0; {{y}}_i < {w}; {{y}}_i = {{y}}_i + 1)\n"
        "    {y} = {y} + a[{y}_i];\nend",
        _stateless(lambda i: i["a"].bit_count()), "a",
    )  # fmt: skip


def odd_ones(rng: random.Random, w: int) -> Clause:
    """Compute the parity of some bits of a."""
    constant = rng.randint(1, mask(w)) | 1 << rng.randrange(w)
    places = ", ".join(str(place) for place in range(w) if constant >> place & 1)
    return Clause(
        f"1 if the number of 1s among the bits {places} of a is odd, else 0", 1,
        f"assign {{y}} = ^(a & {w}'d{constant});",
        _stateless(lambda i: (i["a"] & constant).bit_count() % 2), "a",
    )  # fmt: skip


def reversed_bits(rng: random.Random, w: int) -> Clause:
    """Reverse the bits of a."""
    items = "\n".join(f"assign {{y}}[{i}] = a[{w - 1 - i}];" for i in range(w))
    return Clause(
        f"the bits of a in reverse: bit 0 of a becomes bit {w - 1}", w, items,
        _stateless(lambda i: sum((i["a"] >> k & 1) << (w - 1 - k) for k in range(w))), "a",
    )  # fmt: skip


def turned(rng: random.Random, w: int) -> Clause:
    """Rotate a by the low bits of b."""
    low = max(1, (w - 1).bit_length() - 1)
    return Clause(
        f"a rotated to the left by the number in the lowest {low} bits of b", w,
        f"wire [{2 * w - 1}:0] {{y}}_twice = {{{{a, a}}}} << b[{low - 1}:0];\n"
        f"assign {{y}} = {{y}}_twice[{2 * w - 1}:{w}];",
        _stateless(lambda i: rotated(i["a"], i["b"] & mask(low), w)), "a b",
    )  # fmt: skip


def to_gray(rng: random.Random, w: int) -> Clause:
    """Convert a to Gray code."""
    return Clause(
        "the reflected Gray code of a: a xor (a shifted right by one)", w,
        "assign {y} = a ^ (a >> 1);", _stateless(lambda i: i["a"] ^ i["a"] >> 1), "a",
    )  # fmt: skip


def from_gray(rng: random.Random, w: int) -> Clause:
    """Convert a from Gray code."""
    items = "\n".join(f"assign {{y}}[{i}] = ^(a >> {i});" for i in range(w))
    return Clause(
        "the number whose reflected Gray code, n xor (n shifted right by one), is a", w, items,
        _stateless(lambda i: sum(((i["a"] >> k).bit_count() & 1) << k for k in range(w))), "a",
    )  # fmt: skip


def leading_zeros(rng: random.Random, w: int) -> Clause:
    """Count the zeros before the highest 1 of a."""
    bits = w.bit_length()
    return Clause(
        f"how many 0s stand before the highest 1 of a, {w} if a is 0; {bits} bits", bits,
        "integer {y}_i;\nalways @(*) begin\n"
        f"  {{y}} = {w};\n"
        f"  for ({{y}}_i = 0; {{y}}_i < {w}; {{y}}_i = {{y}}_i + 1)\n"
        f"    if (a[{{y}}_i]) {{y}} = {w - 1} - {{y}}_i;\nend",
        _stateless(lambda i: w - i["a"].bit_length()), "a",
    )  # fmt: skip


def compared(rng: random.Random, w: int) -> Clause:
    """Compare a and b: less, equal, greater."""
    return Clause(
        "three bits: bit 2 is 1 if a < b, bit 1 if a == b, bit 0 if a > b, all unsigned", 3,
        "assign {y} = {{a < b, a == b, a > b}};",
        _stateless(lambda i: (i["a"] < i["b"]) << 2 | (i["a"] == i["b"]) << 1 | (i["a"] > i["b"])),
        "a b",
    )  # fmt: skip


_OPERATIONS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "a AND b": ("a & b", lambda a, b: a & b),
    "a OR b": ("a | b", lambda a, b: a | b),
    "a XOR b": ("a ^ b", lambda a, b: a ^ b),
    "NOT a": ("~a", lambda a, _: ~a),
    "a + b": ("a + b", lambda a, b: a + b),
    "a - b": ("a - b", lambda a, b: a - b),
    "b - a": ("b - a", lambda a, b: b - a),
    "a shifted left by one": ("a << 1", lambda a, _: a << 1),
    "b shifted right by one": ("b >> 1", lambda _, b: b >> 1),
}


def chosen(rng: random.Random, w: int) -> Clause:
    """Choose between two operations by s."""
    first_name, second_name = rng.sample(sorted(_OPERATIONS), 2)
    (text, first), (text_2, second) = _OPERATIONS[first_name], _OPERATIONS[second_name]
    return Clause(
        f"the lowest {w} bits of: {first_name} if s is 1, {second_name} if s is 0", w,
        f"assign {{y}} = s ? {text} : {text_2};",
        _stateless(lambda i: (first if i["s"] else second)(i["a"], i["b"]) & mask(w)), "a b s",
    )  # fmt: skip


def scaled(rng: random.Random, w: int) -> Clause:
    """Multiply a by a constant and add another."""
    factor, addend = rng.randint(3, 13), rng.randint(1, mask(w))
    return Clause(
        f"the lowest {w} bits of {factor} * a + {addend}", w,
        f"assign {{y}} = {factor} * a + {addend};",
        _stateless(lambda i: (factor * i["a"] + addend) & mask(w)), "a",
    )  # fmt: skip


def divides(rng: random.Random, w: int) -> Clause:
    """Test whether a constant divides a."""
    divisor = rng.choice([3, 5, 6, 7])
    return Clause(
        f"1 if a is divisible by {divisor}, else 0", 1, f"assign {{y}} = (a % {divisor}) == 0;",
        _stateless(lambda i: int(i["a"] % divisor == 0)), "a",
    )  # fmt: skip


def between(rng: random.Random, w: int) -> Clause:
    """Test whether a is in a range."""
    low = rng.randint(1, mask(w) // 2)
    high = rng.randint(low + 1, mask(w) - 1)
    return Clause(
        f"1 if a is from {low} to {high}, both included, else 0", 1,
        f"assign {{y}} = a >= {low} && a <= {high};",
        _stateless(lambda i: int(low <= i["a"] <= high)), "a",
    )  # fmt: skip


def merged(rng: random.Random, w: int) -> Clause:
    """Take some bits from a and the others from b."""
    from_a = rng.randint(1, mask(w) - 1)
    places = ", ".join(str(place) for place in range(w) if from_a >> place & 1)
    return Clause(
        f"b with the bits {places} taken from a instead", w,
        f"assign {{y}} = (a & {w}'d{from_a}) | (b & ~{w}'d{from_a});",
        _stateless(lambda i: i["a"] & from_a | i["b"] & ~from_a), "a b",
    )  # fmt: skip


def shifted_signed(rng: random.Random, w: int) -> Clause:
    """Shift a to the right and keep the sign."""
    places = rng.randint(1, w - 2)
    return Clause(
        f"a, read as two's complement, shifted right by {places} with its sign kept", w,
        f"assign {{y}} = $signed(a) >>> {places};",
        _stateless(lambda i: signed(i["a"], w) >> places & mask(w)), "a",
    )  # fmt: skip


COMBINATIONAL = (
    total, saturated, distance, larger_signed, ones, odd_ones, reversed_bits, turned, to_gray,
    from_gray, leading_zeros, compared, chosen, scaled, divides, between, merged, shifted_signed,
)  # fmt: skip
"""The kinds of outputs that are functions of the present inputs."""


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
