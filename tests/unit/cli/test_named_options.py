"""Options of what a command line names, as flags and in files; flags that are given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.cli.arguments import VerbHelp, parse, parse_settings
from ludus.cli.names import from_file, take_options
from ludus.cli.score import ScoreOptions
from ludus.cli.serve_options import ServeOptions
from ludus.errors import ConfigError
from ludus.trainer.config import TrainConfig
from ludus.wire.address import parse_served


def test_flags_of_a_verifier_move_into_its_name() -> None:
    line = [
        "judge",
        "--rubric",
        "r.toml",
        "--base-url=http://x/v1",
        "--port",
        "0",
        "--samples",
        "3",
    ]
    name, *rest = take_options(line, ServeOptions)
    options = {"rubric": "r.toml", "base_url": "http://x/v1", "samples": 3}
    assert parse_served(name) == ("judge", options)
    assert rest == ["--port", "0"]


def test_an_option_goes_to_everything_named_that_takes_it() -> None:
    line = ["judge?mode=hard", "preference", "maths", "--model", "12"]
    judge, preference, maths = take_options(line, ServeOptions)
    assert parse_served(judge)[1] == {"mode": "hard", "model": "12"}
    assert parse_served(preference)[1] == {"model": "12"}
    assert maths == "maths"


def test_the_verbs_own_flags_and_unknown_ones_stay() -> None:
    line = ["ludus/arithmetic-v0", "--max-operations", "2", "--host", "h", "--nonsense", "3"]
    taken = take_options(line, ServeOptions)
    assert taken == ["ludus/arithmetic-v0?max_operations=2", "--host", "h", "--nonsense", "3"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["judge", "--model"], "--model needs a value"),
        (["judge", "--model", "--port", "0"], "--model needs a value"),
        (["judge", "--model", "a", "--model", "b"], "--model is given twice"),
        (["judge?model=a", "--model", "b"], "model is given twice"),
    ],
)
def test_an_option_without_a_value_or_twice_is_told(line: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        take_options(line, ServeOptions)


def test_a_file_has_options_of_one_thing_or_a_table_for_each(tmp_path: Path) -> None:
    one = tmp_path / "one.toml"
    one.write_text('model = "m"\nsamples = 2\n')
    assert from_file(["judge?mode=hard"], one) == ["judge?mode=hard&model=m&samples=2"]
    several = tmp_path / "several.toml"
    several.write_text('[judge]\nmodel = "m"\n')
    assert from_file(["judge", "maths"], several) == ["judge?model=m", "maths"]
    with pytest.raises(ConfigError, match="'model' is not among"):
        from_file(["judge", "maths"], one)
    with pytest.raises(ConfigError, match="model is given twice"):
        from_file(["judge?model=x"], one)
    (tmp_path / "bad.toml").write_text("model = ")
    for bad in ("bad.toml", "none.toml"):
        with pytest.raises(ConfigError, match=bad):
            from_file(["judge"], tmp_path / bad)


def score_options(line: list[str]) -> ScoreOptions:
    return parse(ScoreOptions, line, VerbHelp(verb="score", about="a", example="e"))


def test_a_repeated_flag_of_several_values_keeps_them_all() -> None:
    given = score_options(["maths", "--set", "a=1", "b=2", "--json", "--set", "c=3"])
    assert given.set == ("a=1", "b=2", "c=3")
    assert given.json
    assert score_options(["maths", "--set=a=1", "--set=b=2"]).set == ("a=1", "b=2")


@pytest.mark.parametrize(
    "line", [["--gold", "1", "--gold", "2"], ["--json", "--json"], ["--gold=1", "--gold", "1"]]
)
def test_a_repeated_flag_of_one_value_is_told(line: list[str]) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        score_options(["maths", *line])


def test_settings_and_names_tell_what_is_given_twice() -> None:
    for line in (
        ["--trainer.lr=1", "--trainer.lr", "2"],
        ["--run.resume", "--no-run.resume"],
        ["--rollout.max-tokens=1", "--rollout.max_tokens=2"],
    ):
        with pytest.raises(ConfigError, match="given twice"):
            parse_settings(TrainConfig, line, VerbHelp(verb="train", about="a", example="e"))
    with pytest.raises(ConfigError, match="gives 'n' twice"):
        parse_served("me/echo-v0?n=1&n=2")
