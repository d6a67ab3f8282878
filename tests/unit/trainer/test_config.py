"""Settings: read, merged, refused."""

import math
from pathlib import Path

import pytest

from ludus.cli.arguments import VerbHelp, parse_settings
from ludus.config import as_table, build, read_toml, to_toml
from ludus.errors import ConfigError
from ludus.trainer.config import RewardConfig, SFTConfig, TrainConfig


def parsed(*line: str) -> TrainConfig:
    return parse_settings(
        TrainConfig, line, VerbHelp(verb="train", about="Trains.", example="ludus train")
    )


def test_the_command_line_holds_numbers_flags_texts_and_lists() -> None:
    config = parsed(
        *("--trainer.lr=1e-6", "--env", "ludus/maths-v0", "--run.resume"),
        *("--run.no-tensorboard", "--reward=[{name = 'maths', weight = 0.5}]"),
    )
    assert (config.trainer.lr, config.env) == (1e-6, "ludus/maths-v0")
    assert (config.run.resume, config.run.tensorboard) == (True, False)
    assert config.reward == [RewardConfig(name="maths", weight=0.5)]


def test_a_setting_is_written_with_hyphens_or_as_in_the_file() -> None:
    for line in (
        ["--env-url=u", "--rollout.max-tokens=3", "--no-run.tensorboard", "--run.resume=true"],
        ["--env_url=u", "--rollout.max_tokens", "3", "--run.tensorboard", "false", "--run.resume"],
    ):
        config = parsed(*line)
        assert (config.env_url, config.rollout.max_tokens) == ("u", 3)
        assert (config.run.resume, config.run.tensorboard) == (True, False)


def test_a_text_that_looks_like_a_number_stays_a_text() -> None:
    config = parsed("--env_token=0123", "--vllm.api-key", "1e5", "--run.folder=7", "--steps=7")
    assert (config.env_token.reveal(), config.vllm.api_key.reveal()) == ("0123", "1e5")
    assert (config.run.folder, config.steps) == ("7", 7)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        'steps = 5\n[trainer]\nlr = 1e-3\nwarmup_steps = 7\n[[reward]]\nname = "exact"\n'
    )
    config = parsed(str(file), "--trainer.lr=2e-3")
    assert (config.steps, config.trainer.lr, config.trainer.warmup_steps) == (5, 2e-3, 7)
    assert config.reward == [RewardConfig(name="exact")]


def test_what_the_command_line_repairs_is_no_error_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[trainer]\nupdates_per_step = 32\n")
    assert parsed(str(file), "--rollout.tasks-per-step=64").trainer.updates_per_step == 32
    with pytest.raises(ConfigError, match="a step has only 16 groups"):
        parsed(str(file))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--trainer.lrr=1"], "unknown options: --trainer.lrr=1; did you mean --trainer.lr"),
        (["--engine=magic"], "--engine 'magic' is not a choice; choices: local, vllm"),
        (["--engine=vlm"], "did you mean 'vllm'?"),
        (["--steps=many"], "--steps takes a whole number, got 'many'"),
        (["--steps=0"], "steps must be positive, got 0"),
        (["--run.tensorboard=maybe"], "is a switch, which takes no 'maybe'"),
        (["--reward=[{nme = 'x'}]"], "no setting named 'nme'; did you mean 'name'?"),
        (["--reward=[{name = 'x'"], "is not TOML"),
        (["--reward=x"], "is not TOML"),
        (["--reward=3"], "is not a list of tables"),
    ],
)
def test_a_command_line_that_cannot_work_is_refused(line: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(*line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_secret_is_not_shown_by_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    table = {"env_token": "hush", "vllm": {"api_key": "hush"}, "reward": [{"name": "x"}]}
    with pytest.raises(SystemExit):
        parse_settings(
            TrainConfig,
            ["file.toml", "--help"],
            VerbHelp(verb="train", about="Trains.", example="ludus train"),
            named=lambda name: table,
        )
    shown = capsys.readouterr().out
    assert "hush" not in shown
    assert 'name = "x"' in shown


def test_a_config_survives_its_own_file(tmp_path: Path) -> None:
    config = build(TrainConfig, {"env": "a-v0", "reward": [{"name": "x"}]})
    file = tmp_path / "config.toml"
    file.write_text(to_toml(as_table(config)))
    assert build(TrainConfig, read_toml(file)) == config


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"trainer": {"lrr": 1}}, "no setting named 'trainer.lrr'; did you mean 'trainer.lr'?"),
        ({"stepz": 1}, "no setting named 'stepz'; did you mean 'steps'?"),
        ({"steps": "many"}, "setting 'steps': Expected `int`, got `str`"),
        ({"engine": "magic"}, "setting 'engine'"),
        ({"steps": 0}, "steps must be positive, got 0"),
        ({"rollout": {"temperature": -1}}, "rollout.temperature must not be negative, got -1"),
        ({"trainer": {"updates_per_step": 17}}, "a step has only 16 groups"),
        ({"run": {"keep": 0}}, "run.keep must be positive, got 0"),
        ({"trainer": {"weight_decay": math.inf}}, "trainer.weight_decay must be finite, got inf"),
        (
            {"trainer": {"lora": {"rank": 4, "alpha": math.inf}}},
            "trainer.lora.alpha must be finite",
        ),
        ({"ranks": {"sequence": 0}}, "ranks.sequence must be positive, got 0"),
        ({"model": {"max_image_pixels": -1}}, "model.max_image_pixels must not be negative"),
        ({"vllm": {"probe_tolerance": math.nan}}, "vllm.probe_tolerance must not be negative"),
        ({"vllm": {"startup_timeout_s": -1}}, "vllm.startup_timeout_s must be positive, got -1"),
        ({"vllm": {"max_model_len": 0}}, "vllm.max_model_len must be positive, got 0"),
        ({"vllm": {"gpu_memory_utilization": 50}}, "gpu_memory_utilization is a share above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(
    table: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build(TrainConfig, table)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_file_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("steps = \n")
    with pytest.raises(ConfigError, match="line 1"):
        read_toml(file)
    with pytest.raises(ConfigError, match="no such file"):
        read_toml(tmp_path / "b.toml")


def test_an_unfinished_config_says_what_to_add() -> None:
    with pytest.raises(ConfigError, match="--env"):
        SFTConfig().require_complete()
    with pytest.raises(ConfigError, match=r"--model\.path"):
        TrainConfig(env="a-v0").require_complete()


def test_a_section_given_in_part_keeps_the_defaults_of_its_verb() -> None:
    """SFT's learning rate is 1e-3 and its warm-up ten updates, training's 1e-6 and none."""
    given = {"trainer": {"lr_decay": "linear"}}
    sft, train = build(SFTConfig, given).trainer, build(TrainConfig, given).trainer
    assert (sft.lr, sft.warmup_steps, sft.lr_decay) == (1e-3, 10, "linear")
    assert (train.lr, train.warmup_steps, train.lr_decay) == (1e-6, 0, "linear")
    assert build(SFTConfig, {"trainer": {"lr": 0.5}}).trainer.warmup_steps == 10
    assert build(SFTConfig, {"trainer": {"warmup_steps": 0}}).trainer.warmup_steps == 0


@pytest.mark.parametrize("config", [SFTConfig, TrainConfig])
def test_the_help_shows_the_defaults_that_hold(
    config: type[SFTConfig] | type[TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_settings(config, ["--help"], VerbHelp(verb="v", about="About.", example="ludus v"))
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for section in ("trainer", "run"):
        holds = getattr(config(), section)
        for name in ("lr", "warmup_steps") if section == "trainer" else ("keep", "save_every"):
            option = f"--{section}.{name} ".replace("_", "-")
            shown = text.partition(option)[2].partition("(default: ")[2].partition(")")[0]
            assert float(shown) == getattr(holds, name)
