"""The outputs of generated modules: for each a sentence, Verilog source, and a model in Python.

The inputs are `a` and `b` of W bits and `s` of one bit; clocked outputs have `clk`, `rst` and `en`
as well. `{y}` is the name of the output; registers that belong to the output are named after it.
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
