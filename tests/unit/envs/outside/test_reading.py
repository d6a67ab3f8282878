"""What a peer's scorer may evaluate of a policy's answer."""

from __future__ import annotations

import builtins
import sys
import time
from pathlib import Path

import pytest

from ludus.envs.outside.inside.adapters.for_reasoning_gym import answer_in
from ludus.envs.outside.inside.reading import NotPlain, check_expression, guarded, read_plain


@pytest.mark.parametrize(
    "text",
    [
        "3000000!",
        "(9!)!",
        "10**1024!",
        "9^99999999",
        "9^9^9",
        "x^500",
        "Float(1/3, 10**9)",
        "sqrt(10**4000+1)",
        "(10**4000+1)**(1/3)",
        "(10**4000+1)**0.5",
        "(10**4000+1)**(2!/4)",
        "10**10**10",
    ],
)
def test_what_would_take_sympy_minutes_is_refused(text: str) -> None:
    with pytest.raises(NotPlain):
        check_expression(text)


@pytest.mark.parametrize(
    "text",
    ["5!", "(3+4)!/2!", "2^10", "x^50 + 1", "sqrt(2)/2", "8**(1/3)", "Float(1/3, 20)", "10**4000"],
)
def test_what_an_answer_may_say_is_read(text: str) -> None:
    check_expression(text)


def test_a_scorer_may_import_and_may_not_run_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A data class is made by `exec`, so that this import needs it twice.
    source = "import dataclasses\n@dataclasses.dataclass\nclass Thing:\n    size: int = 1\n"
    (tmp_path / "imported_by_a_scorer.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with guarded():
        import imported_by_a_scorer  # type: ignore[import-not-found]

        for program in ("x = 1", compile("x = 1", "answer", "exec")):
            with pytest.raises(NotPlain):
                exec(program)
        with pytest.raises(NotPlain):
            eval("__import__('os').getpid()")
    assert imported_by_a_scorer.Thing().size == 1
    assert builtins.exec.__module__ == "builtins"
    del sys.modules["imported_by_a_scorer"]


def test_a_literal_is_read_without_names() -> None:
    assert read_plain("[1, (2, 'a')]") == [1, (2, "a")]
    assert read_plain("2**3 ^ 1") == 9
    with pytest.raises(NotPlain):
        read_plain("[open]")


def test_tags_that_are_left_open_cost_no_more_than_the_text_is_long() -> None:
    assert answer_in("<answer>1</answer> or <answer>\n 2 </answer> <answer>") == "2"
    assert answer_in("<answer><answer>7</answer></answer>") == "<answer>7"
    opened = "<answer>" * 100_000
    started = time.process_time()
    assert answer_in(opened) == opened
    assert time.process_time() - started < 2  # tried at each tag, it would be minutes
