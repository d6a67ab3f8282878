"""The commands of docs/judges.md, as a reader types them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.cli.main import main

PAGE = Path(__file__).parents[3] / "docs" / "judges.md"


@pytest.mark.slow
def test_the_first_commands_of_the_page_score_and_measure_a_judge(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    rubric = re.search(r"with `rubric\.toml`:\n\n((?:    .*\n|\n)+)", text)
    command = re.search(r"ludus (score judge (?:.*\\\n)*.*)\n", text)
    assert rubric is not None
    assert command is not None
    (tmp_path / "rubric.toml").write_text(re.sub(r"^    ", "", rubric[1], flags=re.MULTILINE))
    base = [sys.executable, "-m", "ludus"]
    judge = subprocess.Popen(
        [*base, "mock-judge", "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert judge.stdout is not None
    try:
        url = judge.stdout.readline().split(" at ")[1].split(" ")[0]
        written = command[1].replace("\\\n", " ").replace("http://127.0.0.1:9000/v1", url)
        scored = subprocess.run(
            [*base, *shlex.split(written)], capture_output=True, text=True, cwd=tmp_path
        )
        parts = "  names-capital 1, weight 2\n  invents 0, weight -1\n"
        assert scored.stdout == f"reward 1: every criterion is met\n{parts}", scored.stderr
        checked = subprocess.run(
            [*base, "check-judge", url, "--json"], capture_output=True, text=True, cwd=tmp_path
        )
        assert json.loads(checked.stdout)["model"] == "mock", checked.stderr
    finally:
        judge.terminate()
        judge.wait(30)
        judge.stdout.close()


def test_a_card_that_cannot_be_written_is_told_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nowhere" / "card.json"
    assert main(["check-judge", "http://127.0.0.1:1/v1", "--out", str(out)]) == 2
    assert "there is no such folder" in capsys.readouterr().err
