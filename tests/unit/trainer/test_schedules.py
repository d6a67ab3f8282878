"""Numbers that move: read where they stand, moved by step, metric or bound, kept by a resume."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from ludus.errors import ConfigError
from ludus.trainer.algorithms import adaptive_kl_coefficient, curriculum_budget
from ludus.trainer.recipes.recipe import load_policies, load_recipe, policy_names, valued
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.recipes.schedules import (
    PATIENCE,
    AdaptiveKL,
    Cosine,
    Dual,
    Exponential,
    Follow,
    Linear,
    Numbers,
    Stairs,
    first_value,
)

UPDATED = {"update/updates": 1.0}


def kl(schedule: str) -> dict[str, object]:
    kind, *words = schedule.split()
    table: dict[str, object] = {"schedule": kind}
    for word in words:
        name, _, value = word.partition("=")
        table[name] = value if name == "metric" else json.loads(value)
    return {"algorithm": {"kl": {"place": "loss", "coefficient": table}}}


def test_a_schedule_stands_in_the_place_of_a_number() -> None:
    recipe = load_recipe("grpo", kl("linear start=0.4 end=0 steps=4"))
    assert recipe.algorithm.kl.coefficient == 0.4
    numbers = Numbers(recipe.schedules)
    seen = []
    for step in range(6):
        seen.append(numbers.values["algorithm.kl.coefficient"])
        numbers.learned(step + 1, UPDATED)
    assert seen == pytest.approx([0.4, 0.3, 0.2, 0.1, 0, 0])
    last = valued(recipe, numbers.values)
    assert last.algorithm.kl.coefficient == 0
    assert resolve(last, max_tokens=8).recipe.algorithm.kl.place == "loss"


def test_numbers_of_lists_are_named_by_their_place() -> None:
    recipe = load_recipe("grpo", load_policies("think_short"))
    assert set(recipe.schedules) == {"sampling.rules.0.options.tokens", "shaping.0.options.budget"}
    changed = valued(recipe, dict.fromkeys(recipe.schedules, 32.0))
    assert changed.sampling.rules[0].options["tokens"] == 32.0
    assert changed.shaping[0].options["budget"] == 32.0


def test_policies_follow_each_other() -> None:
    merged = load_recipe("rloo", load_policies("dars, hapo_history,think_short"))
    assert [rule.name for rule in merged.sampling.rules] == ["dars", "history", "budget"]
    assert len(merged.shaping) == 2
    for name in policy_names():
        resolve(load_recipe("grpo", load_policies(name)), max_tokens=64)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 50), st.integers(0, 20), st.floats(-5, 5), st.floats(-5, 5))
def test_timed_numbers_go_from_start_to_end(
    steps: int, after: int, start: float, end: float
) -> None:
    for kind in (Linear, Cosine, Exponential):
        schedule = kind(start=start, end=end, steps=steps, after=after)
        values = [schedule.at(step) for step in range(after + steps + 3)]
        assert values[: after + 1] == pytest.approx([start] * (after + 1))
        assert values[-3:] == pytest.approx([end] * 3)
        assert values == sorted(values, reverse=start > end)


def test_published_schedules() -> None:
    """ZeroSearch's equation 3 at a half and at the end, and the stairs of its own function."""
    rising = Exponential(start=0.0, end=0.75, steps=100)
    assert rising.at(50) == pytest.approx((math.sqrt(4) - 1) / 3 * 0.75)
    stairs = Stairs(start=256.0, gamma=0.7, every=100)
    for step in (0, 99, 100, 350):
        assert stairs.at(step) == curriculum_budget(step, start=256.0, gamma=0.7, every=100)
    controller = AdaptiveKL(target=6.0, horizon=100.0)
    assert controller.moved(0.2, 12.0) == adaptive_kl_coefficient(
        0.2, 12.0, target=6.0, horizon=100.0, steps=1.0
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 2), min_size=1, max_size=30), st.floats(0.01, 5), st.floats(0, 2))
def test_dual_ascent_is_projected_ascent(path: list[float], rate: float, bound: float) -> None:
    upper = Dual(metric="m", at_most=bound, rate=rate, most=3.0)
    lower = Dual(metric="m", at_least=bound, rate=rate, most=3.0)
    value = other = mirror = 0.0
    for measured in path:
        value = upper.moved(value, measured)
        other = lower.moved(other, measured)
        mirror = max(0.0, min(3.0, mirror + rate * (measured - bound)))
        assert value == pytest.approx(mirror)
        assert 0 <= other <= 3
    assert upper.excess(bound + 1) == pytest.approx(lower.excess(bound - 1))


def test_a_line_of_points_is_followed_and_ends_where_it_ends() -> None:
    line = Follow(metric="m", points=((0.0, 1.0), (0.5, 0.2), (1.0, 0.0)), start=1.0)
    assert [line.moved(9, m) for m in (-1, 0, 0.25, 0.5, 0.75, 2)] == pytest.approx(
        [1, 1, 0.6, 0.2, 0.1, 0]
    )


def test_a_bound_that_cannot_be_met_is_said_once() -> None:
    dual = Dual(metric="update/kl", at_most=0.1, rate=100.0, most=5.0)
    numbers = Numbers({"algorithm.kl.coefficient": dual})
    said = [numbers.learned(step, {"update/kl": 1.0}) for step in range(1, 2 * PATIENCE)]
    notes = [note for each in said for note in each]
    assert len(notes) == 1
    assert "update/kl <= 0.1 is not met" in notes[0]
    assert "its most, 5," in notes[0]


def test_an_unknown_metric_is_refused_with_the_nearest_name() -> None:
    numbers = Numbers({"x": Dual(metric="update/kll", at_most=0.1, rate=1.0)})
    with pytest.raises(ConfigError, match="did you mean 'update/kl'"):
        numbers.learned(1, {"update/kl": 1.0, **UPDATED})
    held_out = Numbers({"x": Dual(metric="eval/mean", at_most=0.1, rate=1.0)})
    assert held_out.learned(1, UPDATED) == []  # there may be an evaluation later


@pytest.mark.parametrize("measured", [math.nan, math.inf])
def test_a_metric_that_is_no_number_leaves_its_number_where_it_is(measured: float) -> None:
    numbers = Numbers({"x": Dual(metric="update/kl", at_most=0.1, rate=1.0, most=math.inf)})
    assert numbers.learned(1, {"update/kl": measured, **UPDATED}) == []
    assert numbers.values == {"x": 0.0}
    numbers.learned(2, {"update/kl": 0.3, **UPDATED})
    assert numbers.values == {"x": pytest.approx(0.2)}


def test_the_state_brings_the_numbers_back() -> None:
    schedules = {
        "a": Dual(metric="m", at_most=0.0, rate=0.1),
        "b": Linear(start=0.0, end=1.0, steps=10),
    }
    one = Numbers(schedules)
    for step in range(1, 4):
        one.learned(step, {"m": 1.0})
    two = Numbers(schedules, step=3)
    two.restore(one.state())
    assert two.values == one.values
    assert one.values == {"a": pytest.approx(0.3), "b": pytest.approx(0.3)}
    assert two.learned(4, {"update/updates": 1.0}) == []  # not measured in every step
    added = Numbers({**schedules, "c": Dual(metric="mm", at_most=0.0, rate=0.1)}, step=3)
    added.restore(one.state())
    with pytest.raises(ConfigError, match="'mm', which no step measures; did you mean 'm'"):
        added.learned(4, {"update/updates": 1.0, "m": 1.0})


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (kl("liner start=1 end=0 steps=3"), "coefficient"),
        (kl("linear start=1 end=0 steps=0"), "steps must be at least 1"),
        (kl("linear start=NaN end=0 steps=1"), "start must be finite"),
        (kl("cosine start=0 end=Infinity steps=1"), "end must be finite"),
        (kl("exponential start=0 end=1 steps=2 base=1"), "base must be positive and other than 1"),
        (kl("exponential start=0 end=1 steps=2 base=-4"), "base must be positive"),
        (kl("adaptive_kl target=0.1 horizon=0"), "horizon must be positive"),
        (kl("adaptive_kl target=0.1 horizon=9 start=0"), "start must be positive"),
        (kl("adaptive_kl target=0.1 horizon=100 updates=1024"), "turn the sign"),
        (kl("adaptive_kl target=0.1 horizon=100 updates=-1"), "updates must be positive"),
        (kl("stairs start=2 gamma=1.5 every=1"), "gamma = 1.5 rises without end"),
        (kl("stairs start=0.1 gamma=0.5 every=9"), "start = 0.1 is below least = 1"),
        (kl("follow metric=m start=1 points=[[0,NaN]]"), "points must be finite"),
        (kl("dual metric=update/kl rate=1"), "either at_most or at_least"),
        (kl("dual metric=update/kl rate=1 at_most=1 at_least=0"), "either at_most or at_least"),
        (kl("dual metric=update/kl rate=-1 at_most=1"), "rate must be positive"),
        (kl("dual metric=update/kl rate=1 at_most=1 start=9 most=5"), "outside of"),
        (
            {"sampling": {"group_size": {"schedule": "linear", "start": 8, "end": 4, "steps": 2}}},
            "cannot move during a run",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(overrides: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe("grpo", overrides)


def test_a_recipe_with_schedules_is_read_back_from_its_record(tmp_path: Path) -> None:
    import msgspec

    from ludus.trainer.recipes.recipe import Recipe
    from ludus.trainer.recipes.resolution import compare

    recipe = load_recipe("grpo", load_policies("think_short,l1_exact"))
    again = msgspec.json.decode(msgspec.json.encode(recipe), type=Recipe)
    assert compare(recipe, again) == []
    assert first_value(again.schedules["shaping.0.options.budget"]) == 256.0
