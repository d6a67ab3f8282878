"""`ludus train reward`: what planted preferences teach, what is served, and what is refused."""

from __future__ import annotations

import asyncio
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from ludus.agent.data.preferences import PreferenceReader
from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.metrics import read_metrics
from ludus.rewards import Sample
from ludus.rewards.learned.text.process_reward import ProcessRewardModel
from ludus.rewards.learned.text.reward_model import RewardModel
from ludus.trainer import algorithms as A
from ludus.trainer.config import ModelConfig, RewardModelConfig, RunConfig, TrainerConfig
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.reward_models.measures import CARD, RewardModelCard
from ludus.trainer.reward_models.rankings import _steps
from ludus.trainer.reward_models.training import run_reward


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=32, layers=1, heads=2)


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def config(model: Path, folder: Path, data: str, **settings: Any) -> RewardModelConfig:
    usual: dict[str, Any] = {"epochs": 1.0, "batch_size": 16, "held_out": 0.25, "eval_every": 0}
    return RewardModelConfig(
        data=data,
        model=ModelConfig(path=str(model)),
        trainer=TrainerConfig(lr=3e-3, warmup_steps=5),
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=10),
        **{**usual, **settings},
    )


def worth(answer: str) -> float:
    return 0.8 * answer.count("a")


def answer(rng: random.Random, length: int = 8) -> str:
    return "".join(rng.choice("ab") for _ in range(length))


def planted(count: int, *, seed: int = 0, length_bias: float = 0.0) -> list[Any]:
    """Pairs whose labels follow Bradley and Terry on `worth`; with a bias also on the length."""
    rng = random.Random(seed)
    rows = []
    while len(rows) < count:
        sizes = (4, 14) if length_bias else (8, 8)
        one, two = (answer(rng, rng.randint(*sizes)) for _ in range(2))
        if one == two:
            continue
        gap = worth(one) - worth(two) + length_bias * (len(one) - len(two))
        if rng.random() > 1 / (1 + math.exp(-gap)):
            one, two = two, one
        rows.append({"prompt": f"q{len(rows)}", "chosen": one, "rejected": two})
    return rows


def ceiling(rows: list[Any]) -> float:
    """How often the true worth agrees with the noisy labels; ties count half."""
    gaps = [worth(row["chosen"]) - worth(row["rejected"]) for row in rows]
    return sum((gap > 0) + (gap == 0) / 2 for gap in gaps) / len(gaps)


def scores(checkpoint: Path, answers: list[str]) -> list[float]:
    verifier = RewardModel(str(checkpoint))
    prepared = [verifier.prepare(Sample(prompt="q", response=text)) for text in answers]
    return [verdict.reward or 0.0 for verdict in verifier.score_batch(prepared)]


def test_rankings_are_scored_as_by_hand() -> None:
    scores = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    groups = torch.zeros(3, dtype=torch.long)
    tie = torch.tensor([1, 2, 2])
    won = -math.log(1 / (1 + math.exp(-1.0))) - math.log(1 / (1 + math.exp(-1.5)))
    assert float(A.bradley_terry_loss(scores, groups, tie)[0]) == pytest.approx(won / 2)
    every = sum(math.exp(x) for x in (2.0, 1.0, 0.5))
    by_order = -(2 - math.log(every)) - (1 - math.log(math.exp(1.0) + math.exp(0.5)))
    ranks = torch.tensor([1, 2, 3])
    assert float(A.plackett_luce_loss(scores, groups, ranks)[0]) == pytest.approx(by_order)
    assert float(A.plackett_luce_loss(scores, groups, tie)[0]) == pytest.approx(math.log(every) - 2)
    nothing = A.bradley_terry_loss(scores, groups, torch.ones(3))
    assert [float(each) for each in nothing] == [0, 0]
    pair = A.plackett_luce_loss(scores[:2], groups[:2], ranks[:2])
    torch.testing.assert_close(pair, A.bradley_terry_loss(scores[:2], groups[:2], ranks[:2]))


@pytest.mark.slow
async def test_planted_preferences_are_learned_up_to_their_noise(
    model: Path, tmp_path: Path
) -> None:
    data = lines(tmp_path / "pairs.jsonl", planted(1200))
    trained = await run_reward(config(model, tmp_path / "run", data, epochs=2.0))
    fresh = planted(1000, seed=7)
    told = scores(
        trained.checkpoint, [row[side] for row in fresh for side in ("chosen", "rejected")]
    )
    agreed = sum(good > bad for good, bad in zip(told[::2], told[1::2], strict=True)) / len(fresh)
    assert agreed >= 0.95 * ceiling(fresh)
    assert ceiling(fresh) < 0.9  # positive control: the labels are noisy
    card = msgspec.json.decode((trained.checkpoint / CARD).read_bytes(), type=RewardModelCard)
    measures = {measure.name: measure for measure in card.measures}
    assert set(measures) == {"agreement", "calibration", "injection", "length", "position"}
    rate = measures["agreement"].rate
    assert rate is not None
    assert rate.low < rate.value < rate.high
    assert measures["position"].events == 0
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert (
        last["held_out/accuracy_low"] <= last["held_out/accuracy"] <= last["held_out/accuracy_high"]
    )
    assert last["held_out/calibration_error"] < 0.12


@pytest.mark.slow
async def test_length_control_leaves_the_taste_for_length_out(model: Path, tmp_path: Path) -> None:
    data = lines(tmp_path / "pairs.jsonl", planted(1200, length_bias=1.0))
    padded = ["a" * 4, "a" * 4 + "b" * 8]
    told = {}
    for control in (False, True):
        settings = config(
            model, tmp_path / f"run{control}", data, epochs=2.0, length_control=control
        )
        checkpoint = (await run_reward(settings)).checkpoint
        short, long = scores(checkpoint, padded)
        told[control] = long - short
    assert told[False] > 0.5
    assert told[True] < told[False] / 2
    rows = read_metrics(tmp_path / "runTrue" / "metrics.jsonl")
    assert rows[-1]["reward_model/length"] > 0.5


@pytest.mark.slow
async def test_rankings_ratings_and_margins_are_learned(model: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    rankings, ratings = [], []
    for n in range(300):
        answers = list({answer(rng) for _ in range(4)})
        worths = [worth(each) for each in answers]
        if len(set(worths)) > 1:
            ranks = [1 + sum(other > mine for other in worths) for mine in worths]
            rankings.append({"prompt": f"q{n}", "answers": answers, "ranks": ranks})
        ratings.append({"prompt": f"r{n}", "answer": answers[0], "rating": 3 + worths[0]})
    pairs = [{**row, "margin": 0.5} for row in planted(200)]
    for name, rows, settings in (
        ("plackett-luce", rankings, {"objective": "plackett-luce"}),
        ("rating", ratings, {"objective": "rating"}),
        ("margins", pairs, {"margins": True}),
    ):
        data = lines(tmp_path / f"{name}.jsonl", rows)
        trained = await run_reward(config(model, tmp_path / name, data, epochs=3.0, **settings))
        low, high = scores(trained.checkpoint, ["bbbbbbbb", "aaaaaaaa"])
        assert high > low, name
        last = read_metrics(tmp_path / name / "metrics.jsonl")[-1]
        assert last.get("held_out/accuracy", last.get("held_out/correlation", 0)) > 0.7, name


@pytest.mark.slow
async def test_steps_are_learned_and_served(model: Path, tmp_path: Path) -> None:
    rng = random.Random(2)
    rows = []
    for n in range(300):
        labels = [rng.random() < 0.5 for _ in range(3)]
        steps = [f"{'a' if right else 'b'}{rng.randint(0, 9)}" for right in labels]
        rows.append({"prompt": f"q{n}", "completions": steps, "labels": labels})
    data = lines(tmp_path / "steps.jsonl", rows)
    settings = config(model, tmp_path / "run", data, kind="process", objective="steps", epochs=3.0)
    trained = await run_reward(settings)
    assert trained.serve.startswith("process-reward?model=")
    verifier = ProcessRewardModel(str(trained.checkpoint), whole="mean")
    sample = Sample(prompt="q", response="a1\n\nb2\n\na3")
    (verdict,) = verifier.score_batch([verifier.prepare(sample)])
    assert verdict.reward == pytest.approx(2 / 3, abs=0.15)


@pytest.mark.slow
def test_a_file_may_name_the_column_of_steps_in_either_way() -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "q", "steps": ["a", "b"], "completions": None, "labels": [1, 0]},
        {"prompt": "q", "steps": None, "completions": ["a", "b"], "labels": [1, 0]},
        {"prompt": "q", "completions": ["a", "b"], "labels": [True, False]},
    ]
    read = [_steps(PreferenceReader(Path()), row) for row in rows]
    assert [(one.steps, one.labels) for one in read] == [(["a", "b"], [True, False])] * 3


async def test_a_run_that_was_cut_ends_as_one_that_was_not(model: Path, tmp_path: Path) -> None:
    data = lines(tmp_path / "pairs.jsonl", planted(80))

    def settings(name: str, steps: int, **run: Any) -> RewardModelConfig:
        made = config(model, tmp_path / name, data, epochs=0.0, steps=steps)
        return replace(made, run=replace(made.run, **run))

    whole = await run_reward(settings("whole", 6))
    await run_reward(settings("cut", 3))
    resumed = await run_reward(settings("cut", 6, resume=True))
    answers = ["ab", "ba", "aaaa"]
    assert scores(resumed.checkpoint, answers) == scores(whole.checkpoint, answers)


def test_the_command_line_trains_serves_and_tells(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{**row, "annotator": "ann"} for row in planted(30)]
    circle = [("a", "b"), ("b", "c"), ("c", "a")]
    rows += [{"prompt": "round", "chosen": x, "rejected": y, "annotator": "ann"} for x, y in circle]
    rows += [{"prompt": "same", "chosen": "a", "rejected": "a"}]
    data, run = lines(tmp_path / "pairs.jsonl", rows), tmp_path / "run"
    words = ["--data", data, "--model.path", str(model), "--run.folder", str(run)]
    assert main(["train", "reward", *words, "--batch-size", "16"]) == 0
    out = capsys.readouterr().out
    assert "serve       ludus serve 'reward-model?model=" in out
    assert "the preferences of 1 prompts go round in a circle" in caplog.text
    assert "all preferences are of one annotator, ann" in caplog.text
    assert "1 with equal answers" in caplog.text
    assert main(["train", str(run / "config.toml"), "--run.resume", "--batch-size", "8"]) == 2
    assert "batch_size was 16 and is 8" in capsys.readouterr().err


def test_what_cannot_be_is_refused(model: Path, tmp_path: Path) -> None:
    pairs = lines(tmp_path / "pairs.jsonl", planted(8))
    steps = [{"prompt": "q", "steps": ["a"], "labels": [True, False]}]
    for settings, why in (
        ({"objective": "steps"}, "belong together"),
        ({"kind": "process"}, "belong together"),
        ({"kind": "image", "objective": "rating"}, "learns from rankings"),
        ({"margins": True, "objective": "rating"}, "a setting of bradley-terry"),
        ({"steps": 3}, "set one of them"),
        ({"frozen": 2.0}, "frozen is a share"),
    ):
        with pytest.raises(ConfigError, match=why):
            config(model, tmp_path, pairs, **settings)
    bad = lines(tmp_path / "steps.jsonl", steps)
    process = config(model, tmp_path / "p", bad, kind="process", objective="steps")
    with pytest.raises(ConfigError, match="with 1 steps and 2 labels"):
        asyncio.run(run_reward(process))
    with pytest.raises(ConfigError, match=r"needs ImageReward\.pt"):
        asyncio.run(run_reward(config(model, tmp_path / "i", pairs, kind="image")))
    ratings = lines(tmp_path / "r.jsonl", [{"prompt": "q", "answer": "a", "rating": 1}])
    with pytest.raises(ConfigError, match="without preferences"):
        asyncio.run(run_reward(config(model, tmp_path / "r", ratings)))
    with pytest.raises(ConfigError, match="no data named"):
        RewardModelConfig().require_complete()


@pytest.mark.slow
async def test_a_head_is_not_put_on_the_wrong_model(model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"q{n}", "steps": ["a"], "labels": [True]} for n in range(8)]
    data = lines(tmp_path / "steps.jsonl", rows)
    settings = config(model, tmp_path / "p", data, kind="process", objective="steps", held_out=0.0)
    trained = await run_reward(settings)
    pairs = lines(tmp_path / "pairs.jsonl", planted(8))
    with pytest.raises(ConfigError, match="holds Qwen2ForTokenClassification, and a Sequence"):
        await run_reward(config(trained.checkpoint, tmp_path / "t", pairs))
