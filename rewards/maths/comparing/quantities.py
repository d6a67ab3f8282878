"""Single values with marks: percent signs, degrees, units, number bases and rounding."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

from ..proving.judge import Judge
from ..proving.probe import approximate
from ..reading.nodes import EXACT, Node, const, has, is_scalar, mul, num, over, power, sym, symbols
from ..reading.units import UNIT_PART, dimension
from .families import residue_class

MARKS = frozenset({"percent", "degree", "quantity", "based", "mod", "ratio"})


def same_value(gold: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether two single values agree under the conventions."""
    if gold.op in EXACT and answer.op in EXACT:
        return same_number(gold, answer, judge)
    if "based" in (gold.op, answer.op):
        return _same_based(gold, answer, judge)
    if "mod" in (gold.op, answer.op):
        return _same_residue(gold, answer, judge)
    if "ratio" in (gold.op, answer.op):
        return _same_ratio(gold, answer, judge)
    if "degree" in (gold.op, answer.op):
        return _same_angle(gold, answer, judge)
    if "quantity" in (gold.op, answer.op):
        return _same_quantity(gold, answer, judge)
    if "percent" in (gold.op, answer.op):
        return _same_percent(gold, answer, judge)
    if not (is_scalar(gold) and is_scalar(answer)):
        return judge.decided("structure", False, f"a {gold.op} is not a {answer.op}")
    return same_number(gold, answer, judge)


def same_number(gold: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether two numbers are equal, or equal up to the rounding that the conventions
    allow.
    """
    if answer.op == "dec" and gold.op != "dec":
        if _digits_agree(gold, answer, judge):
            return judge.decided("decimal digits", True)
        # `judge.equal` would find the difference too; the refusal here can say that the answer was
        # rounded. A rational gold is left to `judge.equal`, which compares it exactly.
        exact = approximate(gold) if gold.op != "num" and judge.directed else None
        if exact is not None and (
            abs(exact - float(answer.value)) > 1e-9 * max(1e-300, abs(exact))
        ):
            reason = f"{answer.note} is rounded: the gold is {exact:.10g}"
            return judge.decided("exact", False, reason)
    # Undirected, neither side is the gold, so either may be the exact value.
    if gold.op == "dec" and not judge.directed and _digits_agree(answer, gold, judge):
        return judge.decided("decimal digits", True)
    if gold.op == "dec" and judge.directed and _rounds_to(gold, answer, judge):
        return judge.decided("rounded gold", True)
    if gold.op == "mul" and judge.directed and _is_measured_as(gold, answer, judge):
        return judge.decided("rounded gold", True)
    return judge.equal(gold, answer)


def significant(numeral: str) -> int:
    """Return how many significant digits a written decimal has.

    >>> significant("0.0833"), significant("3.10")
    (3, 3)
    """
    return len(numeral.replace(".", "").replace("-", "").lstrip("0"))


def _digits_agree(gold: Node, answer: Node, judge: Judge) -> bool:
    """Return whether a long decimal is the gold, cut or rounded.

    The decimal must have at least `decimal_digits` significant digits and lie within one unit of
    its last digit.
    """
    digits = judge.conventions.decimal_digits
    if not digits or significant(answer.note) < digits:
        return False
    decimals = len(answer.note.partition(".")[2])
    unit = Fraction(1, 10**decimals)
    if gold.op == "num":
        exact = Fraction(gold.value)
        scale: int = 10**decimals
        if (scale * exact.numerator) % exact.denominator == 0:
            # The gold terminates within these decimals, so a right decimal would equal the gold.
            # Only the noise of a double that was printed in full is forgiven.
            noise = abs(exact) * Fraction(1, 10**13)
            return significant(answer.note) >= 14 and abs(exact - answer.value) <= noise
        return abs(exact - answer.value) <= unit
    value = approximate(gold)
    if value is None:
        return False
    gap: float = abs(value - float(answer.value))
    # Both values are doubles here, so that `gap` itself has a rounding error.
    return gap <= float(unit) * 1.001 + 4e-15 * abs(value)


def _rounds_to(gold: Node, answer: Node, judge: Judge) -> bool:
    """Return whether an exact answer, or a decimal of at least `decimal_digits`, rounds to the
    gold's decimals.
    """
    decimals = len(gold.note.partition(".")[2])
    if not judge.conventions.rounded_gold:
        return False
    if not judge.approximate:
        # A gold such as 0.5 is too coarse: many different values round to it. An answer in decimals
        # needs more digits than the gold, or it could be another rounding of another value.
        if significant(gold.note) < 3 and decimals < 2:
            return False
        digits = max(judge.conventions.decimal_digits, significant(gold.note) + 3)
        if answer.op == "dec" and significant(answer.note) < digits:
            return False
    if answer.op == "dec" and len(answer.note.partition(".")[2]) < decimals:
        return False
    value = float(answer.value) if answer.op in {"num", "dec"} else approximate(answer)
    # A whole number has nothing to round: it equals the gold exactly or not at all.
    if value is None or (answer.op == "num" and isinstance(answer.value, int)):
        return False
    unit = 10.0 ** -len(gold.note.partition(".")[2])
    return abs(value - float(gold.value)) <= unit / 2 * (1 + 1e-9)


def _is_measured_as(gold: Node, answer: Node, judge: Judge) -> bool:
    r"""Return whether an answer with more digits rounds to a gold such as `3.01 \times 10^{23}`,
    which is a measured value.
    """
    wanted, given = _mantissa(gold), _mantissa(answer) or answer
    if wanted is None or given.op != "dec" or not judge.conventions.rounded_gold:
        return False
    if not MEASURED <= significant(wanted.note) < significant(given.note):
        return False
    value, exact = approximate(answer), approximate(gold)
    if value is None or exact is None:
        return False
    unit = abs(exact / float(wanted.value)) * 10.0 ** -len(wanted.note.partition(".")[2])
    return abs(value - exact) <= unit / 2 * (1 + 1e-9)


MEASURED = 3
"""The fewest significant digits of a measured value to which others are rounded."""


def _mantissa(node: Node) -> Node | None:
    """Return the decimal of `a \\times 10^n`, or None for another formula."""
    if node.op != "mul" or len(node.args) != 2 or node.args[0].op != "dec":
        return None
    power = node.args[1]
    is_power = power.op == "pow" and power.args[0] == num(10) and power.args[1].op in EXACT
    return node.args[0] if is_power and node.args[0].value else None


def _same_percent(gold: Node, answer: Node, judge: Judge) -> bool:
    if gold.op == answer.op:
        return same_number(gold.args[0], answer.args[0], judge)
    signed, plain, swapped = (gold, answer, False) if gold.op == "percent" else (answer, gold, True)
    inner = signed.args[0]

    def pair(first: Node) -> bool:
        # The gold stays the first argument, because rounding is judged in the gold's favour.
        return same_value(plain, first, judge) if swapped else same_value(first, plain, judge)

    if swapped and (symbols(plain) or not is_scalar(plain)):
        return judge.decided("percent", False, "the percent sign is on one side only")
    # A gold between -1 and 1 is a share: 0.5 is 50%, and the answer 0.5% must not pass for it.
    share = swapped and plain.op in EXACT and -1 < plain.value < 1
    if judge.conventions.percent == "either" and not share and pair(inner):
        return judge.decided("percent sign missing", True)
    if inner.op == "num":
        hundredth = num(Fraction(inner.value) / 100)
    elif inner.op != "dec":
        hundredth = over(inner, num(100))
    else:
        # A decimal keeps the last digit, so that 6.67% becomes 0.0667.
        value = Fraction(inner.value) / 100
        places = len(inner.note.partition(".")[2]) + 2
        written = f"{Decimal(value.numerator) / value.denominator:.{places}f}"
        hundredth = Node("dec", (), value, written)
    return pair(hundredth) and judge.decided("percent", True)


def _in_radians(node: Node) -> Node:
    return mul(node, const("pi"), num(Fraction(1, 180)))


def _same_angle(gold: Node, answer: Node, judge: Judge) -> bool:
    if gold.op == answer.op:
        return same_number(gold.args[0], answer.args[0], judge)
    marked, plain = (gold, answer) if gold.op == "degree" else (answer, gold)
    if plain.op == "quantity":
        if plain.note != "rad":
            return judge.decided("units", False, f"degrees are not {plain.note}")
        plain = plain.args[0]
        return judge.equal(_in_radians(marked.args[0]), plain)
    if not is_scalar(plain):
        return judge.decided("structure", False, "only one side is an angle")
    # A value with a constant such as pi is taken for radians, any other bare value for degrees.
    if judge.conventions.degrees and has(plain, "const"):
        return judge.equal(_in_radians(marked.args[0]), plain)
    if not judge.conventions.missing_unit or (marked is answer and symbols(plain)):
        return judge.decided("missing unit", False, "the degree sign is on one side only")
    inner = marked.args[0]
    return same_number(*((inner, plain) if marked is gold else (plain, inner)), judge)


def _same_quantity(gold: Node, answer: Node, judge: Judge) -> bool:
    if gold.op != answer.op:
        marked, plain = (gold, answer) if gold.op == "quantity" else (answer, gold)
        # `20% increase` is a share of something in words.
        share = plain.op == marked.args[0].op == "percent"
        if plain.op in {"percent", "mod", "based"} and not share:
            return judge.decided("units", False, f"{marked.note!r} is not a {plain.op}")
        if is_scalar(plain) and symbols(plain) and not symbols(marked.args[0]):
            # Where no markup sets its letters apart, `10 m/s` reads as a product of variables.
            factors = [marked.args[0]]
            for sign, name, raised in UNIT_PART.findall(marked.note):
                turn = -1 if sign == "/" else 1
                factors += [power(sym(letter), num(turn)) for letter in name[:-1]]
                factors.append(power(sym(name[-1]), num(turn * int(raised or 1))))
            return judge.equal(mul(*factors), plain)
        # A radian is a pure number, so that its name may be left out under every convention.
        if marked.note == "rad" or judge.conventions.missing_unit:
            pair = (gold.args[0], answer) if marked is gold else (gold, answer.args[0])
            return same_value(*pair, judge)
        return judge.decided("missing unit", False, f"the unit {marked.note!r} is on one side only")
    divided = "/" in gold.note + answer.note
    letters = [sorted(side.note.replace("*", "")) for side in (gold, answer) if not divided]
    if letters and letters[0] == letters[1]:
        # `2mg`, which may be a product of letters, and `2 g m`
        return same_value(gold.args[0], answer.args[0], judge)
    first, second = dimension(gold.note), dimension(answer.note)
    # Labels that are not units agree if either contains the other, like `eggs` and `eggs a day`.
    left, right = ({word.rstrip("s") for word in side.note.split()} for side in (gold, answer))
    labelled = first is None and second is None and bool(left) and bool(right)
    if gold.note == answer.note or (labelled and (left <= right or right <= left)):
        return same_value(gold.args[0], answer.args[0], judge)
    converts = judge.conventions.unit_conversion
    if first is None or second is None or first[1] != second[1] or not converts:
        return judge.decided("units", False, f"the unit {answer.note!r} is not {gold.note!r}")
    if "eV" in gold.note != answer.note or "eV" in answer.note != gold.note:
        for charge in _CHARGES:  # the value that a school uses for the charge of an electron
            scaled = [
                _times(node.args[0], scale * charge / _CHARGE if "eV" in node.note else scale)
                for node, (scale, _) in ((gold, first), (answer, second))
            ]
            if judge.equal(*scaled):
                return True
    return judge.equal(_times(gold.args[0], first[0]), _times(answer.args[0], second[0]))


_CHARGE = Fraction("1.602176634")
_CHARGES = (Fraction("1.6"), Fraction("1.602"))


def _times(node: Node, factor: Fraction) -> Node:
    return (
        num(Fraction(node.value) * factor) if node.op in {"num", "dec"} else mul(node, num(factor))
    )


def _same_based(gold: Node, answer: Node, judge: Judge) -> bool:
    if gold.op == answer.op:
        same = gold.value == answer.value and gold.note.lstrip("0") == answer.note.lstrip("0")
        texts = [f"{node.note} base {node.value}" for node in (answer, gold)]
        return judge.decided("number base", same, " is not ".join(texts))
    based, plain = (gold, answer) if gold.op == "based" else (answer, gold)
    if based is gold and plain.op == "num" and 2 <= gold.value <= 36:
        with suppress(ValueError):  # The numeral may have a digit that the base does not have.
            if plain.value == int(gold.note, int(gold.value)):
                return judge.decided("number base", True)
    digits = plain.op == "num" and str(plain.value) == based.note
    same = digits and (not judge.conventions.base_subscript or based.value == 10)
    return judge.decided("number base", same, f"the base {based.value} is on one side only")


def _same_residue(gold: Node, answer: Node, judge: Judge) -> bool:
    first, second = residue_class(gold), residue_class(answer)
    if first and second:
        if not judge.equal(first[1], second[1]):
            return judge.decided("congruence", False, "the moduli differ")
        residues, modulus = (first[0], second[0]), first[1]
        if all(part.op == "num" for part in (*residues, modulus)) and modulus.value:
            same = (residues[0].value - residues[1].value) % modulus.value == 0
            return judge.decided("congruence", same, "the residues differ")
        return judge.equal(*residues)
    if not judge.conventions.bare_value:
        return judge.decided("congruence", False, "only one side has a modulus")
    if second and not (gold.op == "num" and isinstance(gold.value, int)):
        return judge.decided(
            "congruence", False, "the answer is a class of numbers, and the gold a value"
        )
    return same_value(first[0] if first else gold, second[0] if second else answer, judge)


def _same_ratio(gold: Node, answer: Node, judge: Judge) -> bool:
    if gold.op == answer.op:
        if gold.args == answer.args:
            return judge.decided("ratio", True)
        if len(gold.args) != len(answer.args) or any(
            part.value == 0 and part.op == "num" for part in gold.args + answer.args
        ):
            return judge.decided("ratio", False, "the ratios differ")
        first, second = gold.args[0], answer.args[0]
        return all(
            judge.equal(mul(a, second), mul(b, first))
            for a, b in zip(gold.args, answer.args, strict=True)
        )
    ratio, plain = (gold, answer) if gold.op == "ratio" else (answer, gold)
    *_, last = ratio.args
    is_pair = len(ratio.args) == 2 and judge.conventions.ratio_as_fraction
    if not is_pair or not is_scalar(plain) or not is_scalar(last) or last == num(0):
        return judge.decided("ratio", False, "only one side is a ratio")
    return judge.equal(over(*ratio.args), plain)
