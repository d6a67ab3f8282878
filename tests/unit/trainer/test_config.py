"""Settings: read, merged, refused."""

from pathlib import Path

import pytest

from ludus.cli.settings import describe
from ludus.config import as_table, build, merge, read_overrides, read_toml, to_toml
from ludus.errors import ConfigError
from ludus.trainer.config import RewardConfig, SFTConfig, TrainConfig


def test_overrides_read_numbers_flags_texts_and_lists() -> None:
    got = read_overrides(
        [
            *("--trainer.lr=1e-6", "--env", "ludus/maths-v0", "--run.resume"),
            *("--no-run.tensorboard", "--reward=[{name = 'maths', weight = 0.5}]"),
        ]
    )
    assert got["trainer"] == {"lr": 1e-6}
    assert got["env"] == "ludus/maths-v0"
    assert got["run"] == {"resume": True, "tensorboard": False}
    assert got["reward"] == [{"name": "maths", "weight": 0.5}]


def test_a_setting_is_written_with_hyphens_or_as_in_the_file() -> None:
    spelt = ["--env-url=u", "--rollout.max-tokens=3"], ["--env_url=u", "--rollout.max_tokens=3"]
    for given in spelt:
        assert read_overrides(given) == {"env_url": "u", "rollout": {"max_tokens": 3}}


def test_a_text_that_looks_like_a_number_stays_a_text() -> None:
    given = ["--env_token=0123", "--vllm.api-key", "1e5", "--run.folder=7", "--steps=7"]
    config = build(TrainConfig, read_overrides(given, TrainConfig))
    assert (config.env_token.reveal(), config.vllm.api_key.reveal()) == ("0123", "1e5")
    assert (config.run.folder, config.steps) == ("7", 7)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        'steps = 5\n[trainer]\nlr = 1e-3\nwarmup_steps = 7\n[[reward]]\nname = "exact"\n'
    )
    config = build(TrainConfig, merge(read_toml(file), read_overrides(["--trainer.lr=2e-3"])))
    assert (config.steps, config.trainer.lr, config.trainer.warmup_steps) == (5, 2e-3, 7)
    assert config.reward == [RewardConfig(name="exact")]


def test_a_config_survives_its_own_file(tmp_path: Path) -> None:
    config = build(TrainConfig, read_overrides(["--env=a-v0", "--reward=[{name = 'x'}]"]))
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
def test_the_help_shows_the_defaults_that_hold(config: type[SFTConfig] | type[TrainConfig]) -> None:
    lines = {line.split("=")[0].strip(): line for line in describe(config).splitlines()}
    for section in ("trainer", "run"):
        holds = getattr(config(), section)
        for name in ("lr", "warmup_steps") if section == "trainer" else ("keep", "save_every"):
            shown = lines[f"--{section}.{name}".replace("_", "-")].split("=")[1].split()[0]
            assert float(shown) == getattr(holds, name)
