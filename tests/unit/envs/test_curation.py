"""`ludus tasks`: repetitions, golds, clusters and splits."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.main import main
from ludus.envs.curation import (
    TaskCollection,
    likeness,
    read_candidates,
    words_of,
    write_collection,
)
from ludus.errors import ConfigError


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def curate(sources: list[str], *, verifier: str = "maths", **shares: float) -> TaskCollection:
    return read_candidates(sources, verifier=verifier).divided(**shares)  # type: ignore[arg-type]


NOUNS = ["apple", "river", "tower", "horse", "lamp", "garden", "winter", "letter", "bridge"]


def problem(n: int, *, shape: int = 0) -> dict[str, str]:
    """A question of a shape, which differs from others of it in numbers alone."""
    rng = random.Random(shape)
    words = " ".join(rng.choice(NOUNS) for _ in range(14))
    return {"question": f"In the {words}, what is {n} plus {shape}?", "answer": str(n + shape)}


def test_repetitions_doubt_and_unreadable_golds_are_left_out(tmp_path: Path) -> None:
    rows = [problem(n, shape=n) for n in range(12)]
    again = {**rows[0], "question": rows[0]["question"].upper().replace(",", " ,")}
    other = {**rows[1], "answer": "99"}
    near = {**rows[2], "question": rows[2]["question"].replace("In the", "Inside the")}
    unreadable = {"question": "What is the shape of it?", "answer": "see solution"}
    rows += [again, other, near, unreadable, {"text": "nothing"}]
    collection = curate([lines(tmp_path / "a.jsonl", rows)], test=0.2)
    reasons = {each.row: each.reason for each in collection.left_out}
    assert reasons == {
        13: "repeated", 2: "answers disagree", 14: "answers disagree", 15: "nearly repeated",
        16: "gold cannot be read", 17: "no question or answer",
    }  # fmt: skip
    assert sum(map(len, collection.splits.values())) == 11


def test_no_question_is_in_two_splits_not_even_with_other_numbers(tmp_path: Path) -> None:
    rows = [problem(n, shape=shape) for shape in range(40) for n in range(5)]
    random.Random(0).shuffle(rows)
    collection = curate([lines(tmp_path / "a.jsonl", rows)], validation=0.1, test=0.2)
    assert collection.clusters == 40
    shapes = {
        split: {" ".join(words_of(p.question, numbers=False)) for p in problems}
        for split, problems in collection.splits.items()
    }
    assert [len(shapes[split]) for split in ("train", "validation", "test")] == [28, 4, 8]
    assert not shapes["train"] & shapes["test"]
    assert not shapes["train"] & shapes["validation"]
    again = curate([lines(tmp_path / "b.jsonl", rows[::-1])], validation=0.1, test=0.2)
    both = [
        {split: sorted(p.id for p in problems) for split, problems in each.splits.items()}
        for each in (collection, again)
    ]
    assert {key: len(value) for key, value in both[0].items()} == {
        key: len(value) for key, value in both[1].items()
    }


def test_likeness_is_jaccard_by_hand() -> None:
    one, other = ["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "d", "e", "g"]
    assert likeness(one, other) == 2 / 4  # of abcd bcde cdef cdeg
    assert likeness(one, one) == 1
    assert likeness([], ["a"]) == 0


def test_what_is_written_is_a_source_of_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = lines(tmp_path / "a.jsonl", [problem(n, shape=n) for n in range(20)])
    out = tmp_path / "tasks"
    assert main(["tasks", source, "--out", str(out), "--test", "0.2"]) == 0
    told = capsys.readouterr().out
    assert "15 train, 1 validation, 4 test, of 20 rows in 20 clusters" in told
    env = ludus.make("ludus/maths-v0", source=str(out / "train.jsonl"), validation=0.0, test=0.0)
    observation, _ = env.reset(seed=0)
    assert "plus" in str(observation)
    card = json.loads((out / "card.json").read_text())
    assert card["tasks"] == {"train": 15, "validation": 1, "test": 4}
    assert main(["tasks", source, "--out", str(out)]) == 2
    assert "is not empty; name another folder" in capsys.readouterr().err


def test_a_split_that_stays_short_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = lines(tmp_path / "a.jsonl", [problem(n, shape=0) for n in range(20)])
    assert main(["tasks", source, "--out", str(tmp_path / "tasks"), "--test", "0.2"]) == 0
    told = capsys.readouterr().out
    assert "20 train, 0 validation, 0 test" in told
    assert "test has 0 of 4 tasks: most questions are alike but for numbers" in told


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    empty = lines(tmp_path / "a.jsonl", [{"question": "q", "answer": ""}])
    with pytest.raises(ConfigError, match="no task is left of"):
        curate([empty])
    with pytest.raises(ConfigError, match="shares of the whole"):
        curate([empty], test=1.5)
    source = lines(tmp_path / "b.jsonl", [problem(1)])
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        write_collection(curate([source], test=0.0, validation=0.0), file / "deeper")
    free = curate([lines(tmp_path / "c.jsonl", [{"question": "q", "answer": "see solution"}])],
                  verifier="exact", test=0.0, validation=0.0)  # fmt: skip
    assert len(free.splits["train"]) == 1
