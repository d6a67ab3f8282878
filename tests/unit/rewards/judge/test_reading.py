"""What judges write, and the one thing in it that may count."""

from __future__ import annotations

import pytest

from ludus.rewards.judge.reading import (
    UnreadableVerdict,
    read_choice,
    read_holistic,
    read_item,
    read_items,
    read_ranking,
)
from ludus.rewards.judge.rubric import ItemKind, RubricItem

BINARY = RubricItem(text="x", id="a")
GRADED = RubricItem(text="x", id="b", kind=ItemKind.GRADED, max_score=4)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"reason": "ok", "met": true}', 1.0),
        ('{"met": false, "reason": "no"}', 0.0),
        ('```json\n{"reason": "ok", "met": true}\n```', 1.0),
        ('Here is it:\n{"reason": "it says {1, 2}", "met": true}.', 1.0),
        ('<think>maybe {"met": false}</think>{"met": true}', 1.0),
        ('{"reason": "the text says \\"met\\": false", "met": true}', 1.0),
        ('{"reason": "two\nlines", "met": true}', 1.0),
    ],
)
def test_one_consistent_verdict_is_read(answer: str, score: float) -> None:
    assert read_item(answer, BINARY) == score


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "yes",
        "The criterion is met.",
        "8 out of 10",
        "CORRECT",
        '{"met": "true"}',
        '{"met": 1}',
        '{"met": null}',
        '{"met": [true]}',
        '{"Met": true}',
        '{"score": 1}',
        '{"met": true} {"met": false}',
        '{"met": true} and again {"met": true}',
        '{broken {"met": true}',
        '{"note": 1} {"met": false}',
        '{"met": true, "met": true}',
        '{"met": true, "met": false}',
        '{"verdict": {"met": true}}',
        '[{"met": true}, {"met": false}]',
        '{"met": true',
        '"met": true',
        "<html>502</html>",
        '<think>{"met": true}',
        '<think>a</think><think>{"met": true}',
        "word " * 200_000,
        '{"met": ' + "[" * 5000,
        '{"a":' * 5000,
        "{" * 5000 + '"met": true}',
    ],
)
def test_what_holds_no_single_verdict_is_never_a_number(answer: str) -> None:
    with pytest.raises(UnreadableVerdict):
        read_item(answer, BINARY)


@pytest.mark.parametrize(("answer", "score"), [("3", 0.75), ("0", 0.0), ("4", 1.0), ("4.0", 1.0)])
def test_a_graded_score_is_divided_by_the_highest(answer: str, score: float) -> None:
    assert read_item(f'{{"reason": "", "score": {answer}}}', GRADED) == score


@pytest.mark.parametrize(
    "value",
    ["5", "-1", "2.5", '"3"', "true", "NaN", "Infinity", "1e999", "null", "[3]", '"3 of 4"', "7e9"],
)
def test_a_score_out_of_range_or_of_another_type_is_no_score(value: str) -> None:
    with pytest.raises(UnreadableVerdict):
        read_item(f'{{"score": {value}}}', GRADED)
    with pytest.raises(UnreadableVerdict):
        read_holistic(f'{{"score": {value if value not in "57e9" else 11}}}')


def test_a_holistic_score_runs_from_one_to_ten() -> None:
    assert read_holistic('{"score": 1}') == 0.0
    assert read_holistic('{"score": 10}') == 1.0
    assert read_holistic('{"score": 4}') == pytest.approx(1 / 3)


def test_a_batch_names_every_item_once() -> None:
    rows = '{"id": "a", "met": true}, {"id": "b", "score": 2}'
    assert read_items(f'{{"verdicts": [{rows}]}}', [BINARY, GRADED]) == {"a": 1.0, "b": 0.5}
    for wrong in (
        '{"id": "a", "met": true}',
        rows + ', {"id": "c", "met": true}',
        rows + ', {"id": "a", "met": false}',
        '{"id": "a", "met": true}, {"id": "b", "score": 9}',
        '{"id": "a", "met": true}, 2',
    ):
        with pytest.raises(UnreadableVerdict):
            read_items(f'{{"verdicts": [{wrong}]}}', [BINARY, GRADED])
    with pytest.raises(UnreadableVerdict, match="goes on"):
        read_items(
            f'{{"verdicts": [{rows}]}} {{"verdicts": [{rows.replace("2", "3")}]}}', [BINARY, GRADED]
        )


def test_choices_and_rankings_hold_exactly_the_names() -> None:
    assert read_choice('{"better": "tie"}', "better", ["A", "B", "tie"]) == "tie"
    for wrong in ('{"better": "C"}', '{"better": "a"}', '{"better": "A"} {"better": "B"}', "A"):
        with pytest.raises(UnreadableVerdict):
            read_choice(wrong, "better", ["A", "B", "tie"])
    assert read_ranking('{"ranking": ["B", "A"]}', ["A", "B"]) == ["B", "A"]
    for wrong in ('{"ranking": ["A"]}', '{"ranking": ["A", "A"]}', '{"ranking": "AB"}', "A > B"):
        with pytest.raises(UnreadableVerdict):
            read_ranking(wrong, ["A", "B"])
