"""Conventions of the comparison: wherever mathematicians differ, an option fixes the choice."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from ludus.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """The options of the comparison; the defaults favour common practice over strictness.

    docs/maths.md lists every option with its value under the strict and the lenient preset.
    """

    percent: Literal["either", "exact"] = "either"
    """How p% is compared. `exact`: p% equals p/100 only. `either`: p% also equals p where only one
    side carries the percent sign.
    """
    decimal_digits: int = 9
    """How many correct significant digits make a decimal equal to an exact gold (1/3, pi); 0 turns
    this off.
    """
    rounded_gold: bool = True
    """Whether a gold with decimals (at least 3 significant digits) accepts an exact answer that
    rounds to the gold.
    """
    unit_conversion: bool = True
    """Whether units of one dimension are converted, so that 15 cm equals 0.15 m."""
    missing_unit: bool = True
    """Whether a unit on one side only is ignored. Two units that conflict are always different."""
    bare_value: bool = True
    """Whether a name before the value may be left out: `x=3` and `3`, `y=2x+1` and `2x+1`."""
    brackets: bool = True
    """Whether open and closed interval ends are told apart: (0,1) and [0,1] differ."""
    ordered_sets: bool = False
    """Whether lists and sets must come in the gold's order; tuples always must."""
    interval_as_inequality: bool = True
    """Whether an interval may be written as an inequality: (5, inf) is x > 5."""
    degrees: bool = True
    """Whether 60 degrees, written with the degree sign, equals pi/3. Whether a bare 60 may stand
    for 60 degrees is decided by `missing_unit`.
    """
    choice_letters: bool = True
    """Whether a gold that is one letter A to J accepts `(B)`, `B) text` and `Option B`."""
    base_subscript: bool = True
    """Whether 1011_2 needs its base. When this is off, the digits alone are enough."""
    text_case: bool = False
    """Whether words are compared with upper and lower case told apart."""
    ratio_as_fraction: bool = True
    """Whether the ratio 2:3 equals the fraction 2/3."""
    locale: Literal["auto", "point", "comma"] = "auto"
    """The decimal mark of answers; a gold always uses points. With `comma`, 2,74 means 2.74 and
    points group thousands. `auto` reads a lone number with a comma so where the words of the
    response are French, German, Spanish, Portuguese, Italian or Russian.
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
    """Return the options of a preset ("default", "strict" or "lenient") with some of them
    overridden.

    Raises:
        ConfigError: an unknown preset or option; the message lists the known names.

    >>> conventions("strict", percent="either").percent
    'either'
    """
    if preset not in PRESETS:
        raise ConfigError(f"no conventions named {preset!r}; there are {', '.join(PRESETS)}")
    field_names = {field.name for field in fields(Conventions)}
    unknown = sorted(set(options) - field_names)
    if unknown:
        raise ConfigError(
            f"no convention named {unknown[0]!r}; there are {', '.join(sorted(field_names))}"
        )
    return replace(PRESETS[preset], **options)  # type: ignore[arg-type]
