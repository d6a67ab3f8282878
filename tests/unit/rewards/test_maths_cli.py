"""`ludus score`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ludus.cli.main import main

ROWS = [
    {"gold": "1/2", "response": r"\boxed{0.5}", "label": True, "category": "fraction"},
    {"gold": "1/2", "prediction": r"\boxed{2}", "label": False, "category": "fraction"},
    {"gold": "7", "response": r"\boxed{7}", "label": False, "category": "number"},
    {"gold": "", "response": "7", "label": True, "category": "number"},
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


def test_one_answer_is_scored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "maths", "--gold", "1/2", "--answer", r"\boxed{\frac{2}{4}}"]) == 0
    assert capsys.readouterr().out.startswith("reward 1")


def test_a_gold_may_be_left_out_where_the_verifier_needs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lengths.py").write_text(
        "import ludus\n\n@ludus.verifier('me/lengths')\ndef lengths(sample):\n"
        "    return ludus.Verdict.of(0.5, parts={'short': (1.0, 0.5)})\n"
    )
    verb = ["--import", str(tmp_path / "lengths.py"), "score", "me/lengths", "--answer", "x"]
    assert main(verb) == 0
    assert capsys.readouterr().out == "reward 0.5\n  short 1, weight 0.5\n"
    assert main([*verb, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == {"short": [1.0, 0.5]}
    assert main(["score", "maths", "--answer", "1"]) == 1
    assert capsys.readouterr().out.startswith("invalid: ")


def test_a_near_miss_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "math", "--gold", "1", "--answer", "1"]) == 2
    said = capsys.readouterr().err.strip()
    assert "did you mean 'maths'" in said
    assert "\n" not in said


def test_an_explanation_says_what_was_extracted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "maths", "--gold", "3", "--answer", "\x1b[1m x is 4", "--explain"]) == 0
    said = capsys.readouterr().out
    assert "extracted" in said
    assert "\\x1b[1m" in said
    assert "reward 0" in said


def test_a_file_is_reported_with_failures_apart(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "maths", "--file", str(rows), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    # right: rows 1 and 2; wrong: row 3; row 4 has no reward
    assert said["statuses"] == {"ok": 3, "invalid": 1}
    assert (said["accuracy"], said["precision"], said["recall"]) == (0.5, 0.5, 1.0)
    assert said["categories"] == {"fraction": 1.0, "number": 0.0}


def test_what_has_no_reward_is_no_zero_in_the_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"gold": "1", "response": "1"}\n{"gold": "", "response": "1"}\n')
    assert main(["score", "maths", "--file", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_reward"] == 1.0  # one ok, one invalid
    path.write_text('{"gold": "", "response": "1"}\n')
    assert main(["score", "maths", "--file", str(path)]) == 0
    assert "no reward" in capsys.readouterr().out


def test_a_line_that_is_not_utf_8_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"gold": "1", "response": "1"}\n{"problem": "\xff", "answer": "1"}\n')
    assert main(["score", "maths", "--file", str(path)]) == 2
    assert "rows.jsonl:2" in capsys.readouterr().err
    assert main(["play", f"ludus/maths-v0?source={path}"]) == 2
    assert "rows.jsonl, line" in capsys.readouterr().err


def test_any_verifier_scores_a_file(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "exact", "--file", str(rows)]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_unreadable_golds_are_listed(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "maths", "--check-golds", str(rows)]) == 1
    assert f"{rows}:4: invalid" in capsys.readouterr().out


def test_an_explanation_lists_the_candidates_and_why_they_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = r"The book says the answer is 7. I get \boxed{8}. Wait, no: the answer is 9."
    assert main(["score", "maths", "--gold", "9", "--answer", answer, "--explain"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "candidate" in line]
    assert "'8', in a box, from character 44: a later statement wins" in lines[-3]
    assert "'9', announced as the answer, from character 72: wins" in lines[-2]
    assert "a higher rank wins" in lines[-1]


def test_golds_with_a_problem_are_listed_with_row_and_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "golds.jsonl"
    path.write_text(
        "\n".join(
            [
                "1/2",
                "",
                json.dumps({"gold": r"$x=\boxed{2}$ and $y=\boxed{3}$"}),
                json.dumps({"gold": ["7", r"\int_0^1 x\,dx"]}),
                "2x+3y=6",
                r"2\pi\approx 6.28",
                "n/a",
            ]
        )
    )
    assert main(["score", "maths", "--check-golds", str(path)]) == 1
    output = capsys.readouterr().out
    said = [line for line in output.splitlines() if not line.startswith("    ")]
    assert "pays 1/2; x = 1/2; " in output
    found = [line.removeprefix(f"{path}:").split(": ")[:2] for line in said[:-1]]
    assert found == [
        ["3", "boxes"], ["4", "evaluate"], ["5", "equation"], ["6", "approximate"],
        ["7", "invalid"],
    ]  # fmt: skip
    assert "'x = 2 , y = 3'" in said[0]
    assert said[-1].startswith("6 golds checked: 1 approximate, 1 boxes")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--gold and --answer"),
        (["--answer", "1", "--explain"], "--gold and --answer"),
        (["--file", "no/such/file"], "cannot read"),
        (["--gold", "1", "--answer", "1", "--set", "presett=1"], "presett"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "maths", *arguments]) == 2
    assert said in capsys.readouterr().err
