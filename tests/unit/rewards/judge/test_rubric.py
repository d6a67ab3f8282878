"""Rubrics and the rewards that their formulas give, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.errors import ConfigError
from ludus.rewards.judge import aggregate, load_rubric, read_rubric
from ludus.rewards.judge.rubric import Rubrics

ITEMS: list[dict[str, Any]] = [
    {"id": "a", "text": "names the city", "weight": 3.0},
    {"id": "b", "text": "gives a date", "weight": 1.0},
    {"id": "c", "text": "invents a source", "weight": -2.0},
]
SCORES = {"a": 1.0, "b": 0.5, "c": 1.0}


@pytest.mark.parametrize(
    ("formula", "reward"),
    [
        ("positive_normalised", 1.5 / 4),  # 3 + 0.5 - 2, over 3 + 1
        ("weighted_sum", 1.5),
        ("weighted_mean", 1.5 / 2),  # over 3 + 1 - 2
        ("evolving", 1.5 / 4),
        ("mean", (1 + 0.5 + 0) / 3),
        ("min", 0.0),
        ("worst_k", 0.25),  # the worst two are 0 and 0.5
    ],
)
def test_each_formula_gives_the_number_worked_out_by_hand(formula: str, reward: float) -> None:
    rubric = read_rubric({"items": ITEMS, "aggregation": formula, "clip": False, "worst": 2})
    assert aggregate(rubric, SCORES) == pytest.approx(reward)


def test_evolving_divides_by_one_at_least() -> None:
    rubric = read_rubric({"items": [{"text": "x", "weight": 0.5}], "aggregation": "evolving"})
    assert aggregate(rubric, {"item-1": 1.0}) == 0.5


def test_flaws_alone_may_lower_a_reward_that_is_not_clipped() -> None:
    rubric = read_rubric({"items": ITEMS, "clip": False})
    assert aggregate(rubric, {"a": 0.0, "b": 0.0, "c": 1.0}) == -0.5
    clipped = read_rubric({"items": ITEMS})
    assert aggregate(clipped, {"a": 0.0, "b": 0.0, "c": 1.0}) == 0.0


def test_a_failed_gate_leaves_the_floor_whatever_the_rest_says() -> None:
    gated = [*ITEMS, {"id": "g", "text": "is in English", "gate": True}]
    rubric = read_rubric({"items": gated, "floor": 0.1})
    assert aggregate(rubric, {**SCORES, "g": 0.0}) == 0.1
    assert aggregate(rubric, {"g": 0.0}) == 0.1
    assert aggregate(rubric, {**SCORES, "g": 1.0}) == pytest.approx(1.5 / 4)


def test_a_flaw_as_a_gate_must_be_absent() -> None:
    rubric = read_rubric([{"id": "f", "text": "insults", "weight": -1, "gate": True}, "is kind"])
    assert aggregate(rubric, {"f": 1.0, "item-2": 1.0}) == 0.0
    assert aggregate(rubric, {"f": 0.0, "item-2": 1.0}) == 1.0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "1 to 64 items"),
        ({"items": []}, "1 to 64 items"),
        (["  "], "no text"),
        ([{"text": "x", "weight": 0}], "must not be 0"),
        ([{"text": "x", "weight": float("nan")}], "must not be 0"),
        ([{"text": "x", "weight": -1}], "every weight is negative"),
        ([{"text": "x", "wieght": 2}], "wieght"),
        ([{"text": "x", "id": "a"}, {"text": "y", "id": "a"}], "share the id"),
        ([{"text": "x" * 5000}], "5000 characters"),
        ([{"text": "x", "kind": "stars"}], "stars"),
        ([{"text": "x", "kind": "graded", "max_score": 0}], "1 to 100"),
        ({"items": ["x"], "aggregation": "average"}, "average"),
        ("be nice", "object"),
        (
            {
                "items": [{"text": "x", "weight": 1}, {"text": "y", "weight": -1}],
                "aggregation": "weighted_mean",
            },
            "positive_normalised",
        ),
    ],
)
def test_a_rubric_that_cannot_work_is_refused_with_the_reason(data: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_rubric(data)


def test_a_file_is_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "rubric.toml"
    path.write_text('[[items]]\ntext = "x"\nweight = 0\n')
    with pytest.raises(ConfigError, match=r"rubric\.toml: .*must not be 0"):
        load_rubric(path)
    path.write_text("items = [")
    with pytest.raises(ConfigError, match="not TOML"):
        load_rubric(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_rubric(tmp_path / "none.toml")


def test_the_longest_question_within_a_prompt_names_its_rubric(tmp_path: Path) -> None:
    path = tmp_path / "rubrics.jsonl"
    rows = [
        {"question": question, "rubric": [{"text": text}]}
        for question, text in (("Why?", "says why"), ("Who, and why?", "says who"), ("How?", "how"))
    ]
    path.write_text("\n\n".join(map(json.dumps, rows)) + "\n\n")
    rubrics = Rubrics(path)
    for prompt, text in (
        ("Be brief.\nWho, and why?\n", "says who"),
        ("Question: Why?", "says why"),
        ("Question: Why?\r\nBe brief.", "says why"),
        ("Why?", "says why"),
    ):
        assert rubrics.of(prompt).items[0].text == text
    with pytest.raises(ConfigError, match="no rubric for the question 'When"):
        rubrics.of("When?")
    with pytest.raises(ConfigError, match="no rubric for the question"):
        rubrics.of("When did he leave, and where to? Why? he asked.")
    path.write_text('{"question": "Why?"}\n')
    with pytest.raises(ConfigError, match="row 1"):
        Rubrics(path)
    path.write_text("\n")
    with pytest.raises(ConfigError, match="has no row"):
        Rubrics(path)


def test_a_row_may_stand_twice(tmp_path: Path) -> None:
    file = tmp_path / "rubrics.jsonl"
    file.write_text('{"question": "Why?", "rubric": ["polite"]}\n' * 2)
    assert Rubrics(file).of("Why?").items[0].text == "polite"


def test_weights_whose_sum_is_no_number_are_refused() -> None:
    with pytest.raises(ConfigError, match="the sum of the weights"):
        read_rubric([{"text": text, "weight": 1e308} for text in "ab"])


@pytest.mark.parametrize("floor", [float("nan"), float("inf")])
def test_a_floor_that_is_no_reward_is_refused(floor: float) -> None:
    with pytest.raises(ConfigError, match="floor must be finite"):
        read_rubric({"items": ITEMS, "floor": floor})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b'{"question": " ", "rubric": ["polite"]}', "row 1: the question is empty"),
        (b'{"question": "\xff", "rubric": ["polite"]}', "row 1"),
        (
            b'{"question": "Why?", "rubric": ["polite"]}\n{"question": "Why?", "rubric": ["neat"]}',
            "row 2: the question 'Why.' has another rubric above",
        ),
    ],
)
def test_rows_whose_question_names_no_rubric_are_refused(
    row: bytes, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "rubrics.jsonl"
    file.write_bytes(row + b"\n")
    with pytest.raises(ConfigError, match=said):
        Rubrics(file)
