"""The conventions: where mathematicians differ, an option says which way this verifier goes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from ludus.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """Options of the comparison. The table with the strict and lenient columns is in
    docs/maths.md.
    """

    percent: Literal["either", "exact"] = "either"
    """`either`: p% is p/100, and also p when only one side has the sign. `exact`: p% is p/100
    only.
    """
    decimal_digits: int = 9
    """Correct significant digits that make a decimal equal to an exact gold (1/3, pi); 0 means
    never.
    """
    rounded_gold: bool = True
    """A gold with decimals (at least 3 significant digits) accepts an exact answer that rounds to
    it.
    """
    unit_conversion: bool = True
    """15 cm = 0.15 m."""
    missing_unit: bool = True
    """A unit on one side only is no difference; two units that conflict always are."""
    bare_value: bool = True
    """`x=3` and `3`, `y=2x+1` and `2x+1` are the same answer."""
    brackets: bool = True
    """(0,1) and [0,1] differ."""
    ordered_sets: bool = False
    """Lists and sets must come in the gold's order. Tuples always must."""
    interval_as_inequality: bool = True
    """(5, inf) is x > 5."""
    degrees: bool = True
    """60 degrees, marked, is pi/3; and 60 without its mark is 60 degrees."""
    choice_letters: bool = True
    """A gold that is one letter A to J accepts `(B)`, `B) text`, `Option B`."""
    base_subscript: bool = True
    """1011_2 needs its base; without this option the digits alone are enough."""
    text_case: bool = False
    """Words are compared with their case."""
    ratio_as_fraction: bool = True
    """2:3 is 2/3."""
    locale: Literal["point", "comma"] = "point"
    """Which mark starts the decimals of an answer (a gold always has points). With `comma`, 2,74
    is 2.74 and points group thousands.
    """


DEFAULT = Conventions()
STRICT = Conventions(
    percent="exact",
    decimal_digits=0,
    rounded_gold=False,
    unit_conversion=False,
    missing_unit=False,
    bare_value=False,
    ordered_sets=True,
    interval_as_inequality=False,
    degrees=False,
    choice_letters=False,
    text_case=True,
    ratio_as_fraction=False,
)
LENIENT = Conventions(decimal_digits=4, brackets=False, base_subscript=False)
PRESETS = {"default": DEFAULT, "strict": STRICT, "lenient": LENIENT}


def conventions(preset: str = "default", **options: object) -> Conventions:
    """A preset with single options changed.

    Raises:
        ConfigError: an unknown preset or option; the message names those there are.

    >>> conventions("strict", percent="either").percent
    'either'
    """
    if preset not in PRESETS:
        raise ConfigError(f"no conventions named {preset!r}; there are {', '.join(PRESETS)}")
    known = {field.name for field in fields(Conventions)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigError(
            f"no convention named {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )
    return replace(PRESETS[preset], **options)  # type: ignore[arg-type]
