"""`ludus model probe`, and the probe at the start of a run."""

import json
from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.trainer.config import ModelConfig
from ludus.trainer.models.loading import load_tokenizer, open_chat
from ludus.trainer.models.tiny import write_tiny_policy, write_tiny_vision_policy

NO_TOOLS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = write_tiny_policy(tmp_path / "model", hidden=32, layers=1, heads=2)
    (folder / "chat_template.jinja").write_text(NO_TOOLS)
    return folder


def test_a_template_file_is_probed_without_a_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text(NO_TOOLS)
    assert main(["model", "probe", str(path)]) == 0
    table = capsys.readouterr().out
    assert "tools_as_text" in table
    assert "unverified" in table


def test_a_models_folder_is_probed_in_token_ids_as_json(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "probe", str(model), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fallbacks"] == {"tools_as_text": True, "calls_as_text": True}
    details = [one.get("detail") for one in report["findings"] if "prefix" in one["feature"]]
    assert details == ["text and tokens alike"] * 7
    assert main(["model", "probe", str(model), "--template", "training:smollm2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fallbacks"] == {}


def test_images_are_shown_by_a_model_with_an_image_processor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def outcome_for_images() -> str:
        assert main(["model", "probe", str(folder), "--json"]) == 0
        findings = json.loads(capsys.readouterr().out)["findings"]
        return {one["feature"]: one["outcome"] for one in findings}["images"]

    folder = write_tiny_vision_policy(tmp_path / "vision", hidden=48, heads=2)
    assert outcome_for_images() == "supported"
    (folder / "config.json").unlink()  # a tokenizer alone
    assert outcome_for_images() == "refused"


def test_a_template_that_plays_no_episode_ends_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text("{{ raise_exception('never') }}")
    assert main(["model", "probe", str(path)]) == 1
    assert "never" in capsys.readouterr().out
    assert main(["model", "probe", str(tmp_path / "none.jinja")]) == 2


def test_a_run_keeps_the_table_and_says_what_was_repaired(model: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(model))
    opened = open_chat(ModelConfig(), str(model), tokenizer, tmp_path)
    assert "tools_as_text" in (tmp_path / "template.txt").read_text()
    assert "tools (tools_as_text" in opened.report.notice()
    with pytest.raises(ConfigError, match="no template that ludus knows"):
        open_chat(ModelConfig(template="training"), str(model), tokenizer)


def test_a_base_model_is_played_with_a_template_that_is_named(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "chat_template.jinja").unlink()
    playing = ["eval", "ludus/arithmetic-v0", "--model", str(model), "--tasks", "1"]
    assert main([*playing, "--max-tokens", "4"]) == 2
    assert "name one with --model.template" in capsys.readouterr().err
    assert main([*playing, "--max-tokens", "4", "--template", "training:qwen2_5"]) == 0
