"""Runs in which nothing can be learned, or the weights would break: each is told within one step,
with the remedy, and nothing is lost.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.agent.episodes import read_episodes
from ludus.agent.viewer.page import write_report
from ludus.cli.main import main
from ludus.errors import TrainingFailed, UpdateRefused
from ludus.findings import newest, read_findings
from ludus.metrics import read_metrics
from ludus.rewards import Sample
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.rollout import scoring
from ludus.trainer.train import run_training
from ludus.verdict import Verdict

ENV = "ludus/arithmetic-v0"
FAULTS = "planted_faults"
PLANTED = '''
"""A loss whose gradient is NaN in some updates."""
import torch

started, broken = 0, set()

class Poison(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logp):
        return logp.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        gradient[0] = float("nan")  # of the first row of a pass
        return gradient

def planted_loss(logp: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor):
    logp = Poison.apply(logp) if started in broken else logp
    return -(advantages * logp * mask).sum(), mask.sum()
'''


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": ENV,
        "steps": 3,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=2, group_size=3, max_tokens=6, max_turns=2),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=2),
        "run": RunConfig(folder=str(folder / "run"), tensorboard=False, save_every=1),
    }
    return TrainConfig(**{**settings, **changes})


class Random:
    """A verifier that gives what nobody could learn, and breaks as often as it is told."""

    def __init__(self, fails: int) -> None:
        self.asked, self.fails = 0, fails
        """Of ten questions."""

    async def score(self, sample: Sample) -> Verdict:
        self.asked += 1
        if self.asked * 7 % 10 < self.fails:
            return Verdict.unavailable("the judge is down")
        return Verdict.of(float(self.asked % 3))


@ludus.verifier("test/noise")
class Noise(Random):
    def __init__(self) -> None:
        super().__init__(0)


@ludus.verifier("test/three-in-ten")
class ThreeInTen(Random):
    def __init__(self) -> None:
        super().__init__(3)


@ludus.verifier("test/nine-in-ten")
class NineInTen(Random):
    def __init__(self) -> None:
        super().__init__(9)


NOISE = [RewardConfig("test/noise")]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with the loss, and a recipe that names it."""
    (tmp_path / f"{FAULTS}.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(FAULTS, None)
    (tmp_path / "faulty.toml").write_text(
        f'base = "grpo"\nname = "faulty"\n[algorithm]\nloss = "{FAULTS}:planted_loss"\nagg = ""\n'
        "[updates]\nsplits = 1\nepochs = 1\n"
    )
    module = importlib.import_module(FAULTS)

    class Counting(Updater):
        """Tells the loss which step it is in: the search for a culprit calls it many times."""

        def step(self, *arguments: Any, **named: Any) -> dict[str, float]:
            vars(module)["started"] += 1
            return super().step(*arguments, **named)

    monkeypatch.setattr("ludus.trainer.ranks.launch.Updater", Counting)
    yield module, str(tmp_path / "faulty.toml")
    sys.modules.pop(FAULTS, None)


def told(folder: Path) -> dict[str, tuple[int, str]]:
    """What was told first, by name: the step and the text."""
    found: dict[str, tuple[int, str]] = {}
    for one in read_findings(folder):
        found.setdefault(one.name, (one.step, one.sentence))
    return found


def steps_of(folder: Path) -> list[dict[str, float]]:
    return [row for row in read_metrics(folder / "metrics.jsonl") if "episode/count" in row]


def weights(path: Path) -> list[torch.Tensor]:
    return list(load_model(str(path)).parameters())


async def test_a_planted_nan_is_refused_told_and_costs_one_update(
    model: Path, tmp_path: Path, planted: Any
) -> None:
    module, recipe = planted
    module.broken = {2}
    run = RunConfig(folder=str(tmp_path / "run"), tensorboard=False, save_every=1, keep=9)
    result = await run_training(config(model, tmp_path, recipe=recipe, reward=NOISE, run=run))
    assert result.step == 3
    step, refused = told(result.folder)["refused"]
    assert step == 2
    assert "the weights kept" in refused
    text = told(result.folder)["refusal 0"][1]
    assert "the gradient is not finite (norm nan" in text
    assert [row["update/refused"] for row in steps_of(result.folder)] == [0.0, 1.0, 0.0]
    # the weights of step 2 are those of step 1; those of step 3 have moved on
    one, two, three = (weights(path) for path in checkpoints(result.folder / "checkpoints"))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(two, three, strict=True))
    # what is needed to look at it
    (kept,) = torch.load(result.folder / "refused" / "step-000002.pt", weights_only=True)
    episodes = read_episodes(result.folder / "episodes" / "refused-000002.jsonl")
    assert kept["ids"].shape[0] >= 1
    assert {"advantages", "mask", "sampler_logp"} <= set(kept)
    assert kept["episodes"] == [f"{one.group} rollout {one.index}" for one in episodes]
    for one in episodes[:3]:
        assert f"task {one.task} (group {one.group}, rollout {one.index})" in text
    assert "updates were refused" in write_report(result.folder).read_text()


async def test_refusals_in_a_row_end_the_run_and_good_checkpoints_stay(
    model: Path, tmp_path: Path, planted: Any
) -> None:
    module, recipe = planted
    module.broken = set(range(2, 100))
    trainer = TrainerConfig(lr=1e-3, max_refused=2)
    settings = config(model, tmp_path, recipe=recipe, reward=NOISE, trainer=trainer, steps=50)
    with pytest.raises(
        UpdateRefused, match="2 updates in a row were refused, the last at step 3"
    ) as stopped:
        await run_training(settings)
    folder = tmp_path / "run"
    assert "from task " in str(stopped.value)
    assert f"What to do: mend {module.__name__}:" in str(stopped.value)
    assert [row["update/refused"] for row in steps_of(folder)] == [0.0, 1.0, 1.0]
    for path in checkpoints(folder / "checkpoints"):
        assert all(bool(one.isfinite().all()) for one in weights(path))
    # it goes on from there once the fault is mended
    module.broken = set()
    on = RunConfig(folder=str(folder), tensorboard=False, resume=True)
    again = config(model, tmp_path, recipe=recipe, reward=NOISE, trainer=trainer, steps=4, run=on)
    assert (await run_training(again)).step == 4
    assert steps_of(folder)[-1]["update/refused"] == 0.0


async def test_groups_that_earn_nothing_are_told_with_their_cause(
    model: Path, tmp_path: Path
) -> None:
    """An untrained policy solves nothing, since it knows no prompt: its answers come to no end."""
    result = await run_training(config(model, tmp_path))
    found = newest(read_findings(result.folder))
    assert "in 100% of the groups every rollout earns nothing" in found["all_wrong"].sentence
    told_cause = {name: found[name].cause for name in ("no_signal", "all_wrong", "cut_turns")}
    assert told_cause == {
        "no_signal": "all_wrong",
        "all_wrong": "strange_prompt",
        "cut_turns": "strange_prompt",
    }
    assert found["strange_prompt"].cause is None
    assert found["no_calls"].cause == "strange_prompt"
    assert "or it was trained with none" in found["strange_prompt"].sentence


@pytest.mark.parametrize(("window", "words"), [(20, "the policy sampled none"), (158, "")])
async def test_a_window_that_is_too_small_is_told_in_the_first_step(
    model: Path, tmp_path: Path, window: int, words: str
) -> None:
    rollout = RolloutConfig(
        tasks_per_step=2, group_size=3, max_tokens=60, max_turns=9, window=window
    )
    result = await run_training(config(model, tmp_path, steps=1, rollout=rollout))
    found = told(result.folder)
    step, text = found["context_full"]
    assert step == 1
    assert f"rollout.window = {window}" in text
    assert words in found.get("nothing_trained", (1, ""))[1]
    assert ("nothing_trained" in found) == bool(words)


async def test_a_verifier_that_fails_three_times_in_ten_costs_no_episode_and_is_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BACKOFF_S", 0.01)
    rollout = RolloutConfig(tasks_per_step=4, group_size=4, max_tokens=4, max_turns=1)
    reward = [RewardConfig("test/three-in-ten")]
    result = await run_training(config(model, tmp_path, steps=2, rollout=rollout, reward=reward))
    step, text = told(result.folder)["verifiers_asked_again"]
    assert step == 1
    assert "verifiers were unavailable and asked again" in text
    for row in steps_of(result.folder):
        assert row["reward/unavailable"] <= 1  # asked three times, few fail for good
        assert row["update/tokens"] > 0
        assert row["update/grad_norm"] > 0


async def test_episodes_that_are_lost_are_left_out_counted_and_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BACKOFF_S", 0.001)
    rollout = RolloutConfig(tasks_per_step=4, group_size=4, max_tokens=4, max_turns=1)
    reward = [RewardConfig("test/nine-in-ten")]
    settings = config(
        model, tmp_path, steps=1, rollout=rollout, reward=reward, eval=EvalConfig(tasks=16)
    )
    result = await run_training(settings)
    (row,) = steps_of(result.folder)
    episodes = read_episodes(result.folder / "episodes" / "eval-000001.jsonl")
    assert any(not one.trajectories[0].verdict.ok for one in episodes)
    lost = row["reward/unavailable"]
    assert 8 <= lost < 16
    text = told(result.folder)["without_reward"][1]
    assert f"{lost / 16:.0%} of the episodes have no reward and are left out" in text
    assert "unavailable: the judge is down" in text
    assert "unavailable: the judge is down" in write_report(result.folder).read_text()


async def test_a_run_in_which_every_episode_is_lost_stops_and_says_why(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "MAX_ASKED_AGAIN", 0)
    monkeypatch.setattr(NineInTen, "score", _down)
    reward = [RewardConfig("test/nine-in-ten")]
    with pytest.raises(TrainingFailed, match="most often: unavailable: the judge is down"):
        await run_training(config(model, tmp_path, reward=reward))


async def _down(self: object, sample: Sample) -> Verdict:
    return Verdict.unavailable("the judge is down")


def test_one_held_out_task_says_that_its_error_is_unknown(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--env", ENV, f"--model.path={model}", "--steps=1", "--eval.tasks=1"]
    arguments += ["--rollout.tasks_per_step=1", "--rollout.max_tokens=4", "--run.folder=run"]
    assert main(["train", "grpo", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "error unknown from one episode (1 episode)" in shown
    words = " ".join(shown.split())
    assert "strange_prompt at step 1: from the first step on the policy writes at" in words
    written = (tmp_path / "run" / "metrics.jsonl").read_text()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "nan" not in shown.lower().replace("finance", "")
    json.loads(page.partition("id=boot>")[2].partition("</script>")[0], parse_constant=pytest.fail)
    for line in written.splitlines():
        numbers = json.loads(line, parse_constant=pytest.fail)
        assert None not in numbers.values()
        assert all(math.isfinite(value) for value in numbers.values())
    assert "the error of a mean is unknown from one episode; raise eval.tasks" in page
