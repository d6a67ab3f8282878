"""Overlap with a reference, and target lengths, by worked numbers and by independent code."""

from __future__ import annotations

import random
import sys

import pytest

from ludus.errors import ConfigError, MissingExtra
from ludus.rewards import Sample, make_verifier
from ludus.rewards.overlap import MAX_CHARACTERS, longest_common


def reward(name: str, response: str, gold: object, **options: object) -> float | None:
    verdict = make_verifier(name, **options).score(Sample(response=response, gold=gold))
    return verdict.reward  # type: ignore[union-attr]


def by_table(one: list[str], other: list[str]) -> int:
    """The longest common subsequence by the table of the textbook."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


def test_the_longest_common_subsequence_is_that_of_the_textbook() -> None:
    rng = random.Random(0)
    for _ in range(200):
        one, other = ([rng.choice("abcd") for _ in range(rng.randint(0, 40))] for _ in range(2))
        assert longest_common(one, other) == by_table(one, other)


def test_rouge_is_that_of_the_paper_and_the_best_reference_counts() -> None:
    gold = "police killed the gunman"
    assert reward("overlap", "police kill the gunman", gold) == 0.75
    assert reward("overlap", "the gunman kill police", gold) == 0.5
    assert reward("overlap", "Police killed -- the gunman!", ["something", gold]) == 1
    # P 3/8, R 3/4 with recall weighing more
    long = "police kill the gunman and then they left"
    assert reward("overlap", long, gold, beta=2.0) == pytest.approx(
        5 * 3 / 8 * 3 / 4 / (3 / 4 + 4 * 3 / 8)
    )
    assert reward("overlap", "?!", gold) == 0


def test_keywords_are_whole_words_of_which_a_share_counts() -> None:
    golds = ["Eiffel Tower", "1889", "iron"]
    said = "The eiffel tower is made of irony."
    assert reward("overlap", said, golds, metric="keywords") == pytest.approx(1 / 3)
    assert reward("overlap", f"{said} Iron, 1889", golds, metric="keywords") == 1


@pytest.mark.parametrize(
    ("said", "keyword", "held"),
    [
        ("\u6771\u4eac\u306b\u884c\u304f", "\u6771\u4eac", True),  # Japanese has no spaces
        ("\u4eac\u6771", "\u6771\u4eac", False),
        ("\u0915\u093e", "\u0915\u093f", False),  # ka and ki of Devanagari
        ("\u0915\u093f \u0915\u093e", "\u0915\u093f", True),
        ("caf\u00e9", "cafe\u0301", True),  # one text in two encodings
        ("cafe\u0301", "cafe", False),
        ("we use C# there", "C#", True),
        ("we use C there", "C#", False),
        ("5 percent", "5%", False),
        ("a - b", "a + b", False),
        ("the Eiffel-Tower", "Eiffel Tower", True),
        ("I don\u2019t", "don't", True),
    ],
)
def test_keywords_of_any_script_are_held_where_they_are_said(
    said: str, keyword: str, held: bool
) -> None:
    assert reward("overlap", said, [keyword], metric="keywords") == held


def test_a_text_without_spaces_is_compared_by_its_characters() -> None:
    # Seven of eight characters are common, in order.
    said, gold = (
        "\u4eca\u65e5\u306f\u6771\u4eac\u306b\u884c\u304f",
        "\u4eca\u65e5\u306f\u4eac\u90fd\u306b\u884c\u304f",
    )
    assert reward("overlap", said, gold) == pytest.approx(7 / 8)


def test_bleu_and_chrf_are_those_of_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sacrebleu", None)
        with pytest.raises(MissingExtra, match=r"ludus-rl\[overlap\]"):
            make_verifier("overlap", metric="bleu")
    sacrebleu = pytest.importorskip("sacrebleu", reason="pip install 'ludus-rl[overlap]'")
    text, gold = "the cat sat on the mat today", "the cat sat on a mat today"
    bleu = sacrebleu.sentence_bleu(text, [gold]).score / 100
    assert reward("overlap", text, gold, metric="bleu") == pytest.approx(bleu)
    assert 0 < bleu < 1
    assert reward("overlap", text, text, metric="chrf") == pytest.approx(1)


@pytest.mark.parametrize(
    ("count", "precise", "flexible"),
    [(10, 1, 1), (11, 0, 1), (9, 0, 1), (5, 0, 0.5 / 0.9), (20, 0, 0), (25, 0, 0), (0, 0, 0)],
)
def test_a_length_is_met_or_nearly(count: int, precise: float, flexible: float) -> None:
    said = " ".join(["word"] * count)
    assert reward("target-length", said, 10, match="precise") == precise
    assert reward("target-length", said, "10") == pytest.approx(flexible)


def test_failures_are_no_rewards_and_long_answers_cost_nothing() -> None:
    for name, gold in (
        ("overlap", None),
        ("overlap", []),
        ("overlap", " "),
        ("target-length", "x"),
    ):
        assert reward(name, "a word", gold) is None
    assert reward("overlap", "a " * MAX_CHARACTERS, "a") == 0
    assert reward("target-length", "a " * 10_000_000, 5) == 0
    for match in ("precise", "flexible"):  # what stands far behind the words counts, too
        said = "one two three" + " " * 10_000 + "and more " * 1000
        assert reward("target-length", said, 3, match=match) == 0
    for name, options in (
        ("overlap", {"metric": "meteor"}),
        ("overlap", {"beta": 0.0}),
        ("target-length", {"match": "loose"}),
        ("target-length", {"tolerance": 1.0}),
    ):
        with pytest.raises(ConfigError, match=f"{name}: "):
            make_verifier(name, **options)
