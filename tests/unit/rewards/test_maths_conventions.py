"""One test per row of the table of conventions in docs/maths.md."""

from __future__ import annotations

import pytest

from ludus.errors import ConfigError
from ludus.rewards.maths import conventions
from ludus.rewards.maths.decision import decide


def same(gold: str, answer: str, preset: str = "default", **options: object) -> bool:
    return decide(gold, answer, conventions(preset, **options)).equal


def test_percent_counts_as_a_hundredth_or_as_itself_when_one_sign_is_missing() -> None:
    assert same("25\\%", "0.25")
    assert same("25\\%", "25")
    assert same("25", "25\\%")
    assert not same("25", "0.25")
    assert same("25\\%", "0.25", "strict")
    assert not same("25\\%", "25", "strict")


def test_nine_digits_stand_for_an_exact_gold() -> None:
    assert same("\\frac{1}{3}", "0.333333333")
    assert not same("\\frac{1}{3}", "0.333")
    assert not same("\\pi", "3.14")
    assert same("\\pi", "3.14159265358979")
    assert not same("\\frac{1}{3}", "0.333333333", "strict")
    assert same("\\frac{1}{3}", "0.3333", "lenient")
    assert not same("10", "9.999999999")


def test_a_rounded_gold_accepts_what_rounds_to_it() -> None:
    assert same("12.55", "\\frac{640}{51}")
    assert not same("12.54", "\\frac{640}{51}")
    assert same("41.4\\%", "\\sqrt{2}-1")
    assert not same("0.5", "\\frac{12}{25}")
    assert not same("12.55", "\\frac{640}{51}", "strict")


def test_units_convert() -> None:
    assert same("15\\text{ cm}", "0.15 \\text{ m}")
    assert same("1 \\text{ hour}", "60 minutes")
    assert not same("15\\text{ cm}", "15 km")
    assert not same("15\\text{ cm}", "0.15 \\text{ m}", "strict")


def test_a_missing_unit_is_no_difference_but_a_conflicting_one_is() -> None:
    assert same("15\\text{ cm}", "15")
    assert same("15", "15 cm")
    assert not same("5 \\text{ hours}", "5 \\text{ days}")
    assert not same("15\\text{ cm}", "15", "strict")


def test_a_value_may_come_with_or_without_its_letter() -> None:
    assert same("3", "x=3")
    assert same("y=2x+1", "2x+1")
    assert not same("3", "x=3", "strict")


def test_brackets_tell_open_from_closed() -> None:
    assert not same("(0,1)", "[0,1]")
    assert same("(0,1)", "[0,1]", "lenient")


def test_sets_are_unordered_and_tuples_ordered() -> None:
    assert same("1,2,3", "3,1,2")
    assert not same("(1,2)", "(2,1)")
    assert not same("1,2,3", "3,1,2", "strict")


def test_an_interval_is_an_inequality() -> None:
    assert same("x>5", "(5,\\infty)")
    assert same("(5,\\infty)", "x>5")
    assert not same("x>5", "(5,\\infty)", "strict")


def test_marked_degrees_are_radians() -> None:
    assert same("60^\\circ", "\\frac{\\pi}{3}")
    assert same("60^\\circ", "60")
    assert not same("60^\\circ", "\\frac{\\pi}{3}", "strict")


def test_a_choice_may_come_with_its_text() -> None:
    assert same("B", "(B) 42")
    assert same("C", "Option C")
    assert not same("B", "Bachelor")
    assert not same("B", "A, B, C, D")
    assert not same("B", "(B) 42", "strict")


def test_a_base_needs_its_subscript() -> None:
    assert same("1011_2", "1011_{2}")
    assert not same("1011_2", "1011_3")
    assert not same("1011_2", "1011")
    assert same("1011_2", "1011", "lenient")


def test_words_ignore_case_and_the_final_stop() -> None:
    assert same("\\text{Monday}", "monday.")
    assert not same("\\text{Monday}", "Tuesday")
    assert not same("\\text{Monday}", "monday", "strict")


def test_a_ratio_of_two_is_a_fraction() -> None:
    assert same("2:3", "\\frac{2}{3}")
    assert same("2:3", "4:6")
    assert not same("2:3", "\\frac{2}{3}", "strict")


def test_a_decimal_comma_needs_its_locale() -> None:
    assert not same("2.74", "2,74")
    assert same("2.74", "2,74", locale="comma")
    assert same("1234.5", "1.234,5", locale="comma")


def test_commas_group_thousands_only_in_threes() -> None:
    assert same("1234567", "1,234,567")
    assert same("12000", "12{,}000")
    assert same("12000", "12 000")
    assert same("12000", "12\\,000")
    assert not same("12000", "12,00")
    assert not same("2,000", "2")


def test_an_unknown_convention_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="percent"):
        conventions("default", percents="either")
    with pytest.raises(ConfigError, match="strict"):
        conventions("stricter")
