"""`ludus sweep` for real: a tiny model, two recipes, tuned, compared and gone on with."""

import json
from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.trainer.models.tiny import write_tiny_policy

SETTINGS = [
    "--env=ludus/arithmetic-v0", "--steps=2", "--rollout.tasks_per_step=2",
    "--rollout.group_size=2", "--rollout.max_tokens=4", "--rollout.max_turns=1", "--eval.tasks=3",
    "--eval.every=2", "--run.tensorboard=false", "--run.save_every=0",
]  # fmt: skip


@pytest.mark.slow
def test_recipes_are_tuned_trained_compared_and_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=1)
    folder = tmp_path / "sweep"
    words = ["sweep", "grpo", "rloo", "--seeds", "2", "--tuning-seeds", "1"]
    words += ["--folder", str(folder), "--jobs", "2", "--json"]
    settings = ["--", f"--model.path={model}", *SETTINGS]
    tune = ["--tune", "trainer.lr=1e-4,1e-3"]
    assert main([*words, *tune, *settings]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(told["tuned"]) == {"grpo", "rloo"}
    assert {one["recipe"] for one in told["recipes"]} == {"grpo", "rloo"}
    assert [len(one["runs"]) for one in told["recipes"]] == [2, 2]
    (pair,) = told["pairs"]
    assert pair["decision"] == "open"  # two seeds are never enough
    logs = {path: path.stat().st_mtime_ns for path in folder.rglob("*.log")}
    assert len(logs) == 2 * 2 + 2 * 2
    assert main([*words, *tune, *settings]) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.log")} == logs
    capsys.readouterr()
    chosen = float(told["tuned"]["grpo"]["trainer.lr"])
    other = next(value for value in (1e-4, 1e-3) if value != chosen)
    fixed = [*words, "--tune", f"trainer.lr={other}"]
    assert main([*fixed, *settings]) == 2
    assert f"with trainer.lr = {chosen}" in capsys.readouterr().err
