"""When held-out tasks are played, which checkpoint was best, and when a run ends early."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.errors import ConfigError, TrainingFailed
from ludus.metrics import read_metrics
from ludus.trainer.config import EvalConfig, RunConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.rollout.evaluate import HeldOutScores
from ludus.trainer.run.evaluations import EvaluationCalls, Evaluations, ScoredStep, ScoreHistory
from ludus.trainer.run.folder import RunFolder
from ludus.trainer.run.saver import LearnedPolicy, Saver
from ludus.verdict import Verdict


def scores(*rewards: float, versions: tuple[int, ...] = ()) -> HeldOutScores:
    turn = Turn(out_ids=[1] * len(versions), versions=list(versions))
    return HeldOutScores(
        [
            Episode(
                task=str(n),
                trajectories=[
                    Trajectory(verdict=Verdict.of(one), segments=[Segment(turns=[turn])])
                ],
            )
            for n, one in enumerate(rewards)
        ]
    )


class Played:
    """A run without training: evaluations with the given means."""

    def __init__(
        self,
        path: Path,
        settings: EvalConfig,
        steps: int,
        *means: float,
        history: ScoreHistory | None = None,
    ) -> None:
        self.means = list(means)
        self.gate = asyncio.Event()
        self.gate.set()
        self.prepared: list[int] = []
        self.heard: list[tuple[int, float | None]] = []
        self.folder = RunFolder(path, TrainConfig(env="a-v0"))
        self.told: dict[str, str] = {}
        self.tellings: list[str] = []

        def tell(step: int, name: str, text: str) -> None:
            self.told[name] = text
            self.tellings.append(name)

        tokenizer = build_tokenizer()
        model = build_model(len(tokenizer), hidden=16, layers=1, heads=2)
        saver = Saver(
            RunConfig(keep=1),
            self.folder,
            LearnedPolicy(Learner(model, TrainerConfig()), tokenizer),
            dict,
            tell,
        )
        self.saver = saver
        self.evaluations = Evaluations(
            settings,
            steps,
            history or ScoreHistory(),
            EvaluationCalls(
                prepare=self.prepare,
                play=self.play,
                heard=lambda step, found: self.heard.append((step, found.mean)),
            ),
            saver,
        )

    async def prepare(self, step: int) -> None:
        self.prepared.append(step)

    async def play(self) -> HeldOutScores:
        await self.gate.wait()
        return scores(self.means.pop(0))

    async def run(self, steps: int) -> int:
        """Return the step at which the run ended."""
        step = 0
        await self.evaluations.at(step)
        while step < steps and not self.evaluations.stopped:
            step += 1
            await self.evaluations.at(step)
            await asyncio.sleep(0)
        await self.evaluations.finish(step)
        self.folder.close()
        return step

    @property
    def saved(self) -> list[str]:
        return [path.name for path in checkpoints(self.folder.checkpoints)]


async def test_the_best_checkpoint_stays_however_many_follow(tmp_path: Path) -> None:
    played = Played(tmp_path, EvalConfig(every=1), 9, 0.1, 0.2, 0.9, 0.3, 0.4, 0.5, 0.2)
    assert await played.run(6) == 6
    for step in (7, 8):  # with run.keep = 1
        await played.saver.save(step)
    assert played.saved == ["step-000002", "step-000008"]
    assert (tmp_path / "checkpoints" / "best").resolve().name == "step-000002"
    assert played.heard == [(0, 0.1), (1, 0.2), (2, 0.9), (3, 0.3), (4, 0.4), (5, 0.5), (6, 0.2)]


async def test_only_the_newest_stay_where_the_best_is_not_asked_for(tmp_path: Path) -> None:
    settings = EvalConfig(every=1, keep_best=False)
    played = Played(tmp_path, settings, 9, 0.1, 0.9, 0.3)
    assert await played.run(2) == 2
    assert played.saved == []
    assert not (tmp_path / "checkpoints" / "best").exists()


async def test_a_run_ends_at_the_score_that_was_asked_for(tmp_path: Path) -> None:
    played = Played(tmp_path, EvalConfig(every=2, stop_at=0.8), 100, 0.1, 0.5, 0.8)
    assert await played.run(100) == 4
    assert (
        "held-out score of step 4 is 0.800, and eval.stop_at is 0.8" in played.evaluations.stopped
    )
    assert "ends early" in played.told["early_stop"]


async def test_a_run_ends_when_patience_is_used_up_and_not_before(tmp_path: Path) -> None:
    settings = EvalConfig(every=1, patience=2)
    # two in a row without a new best come only after the best at step 4
    played = Played(tmp_path, settings, 100, 0.1, 0.3, 0.2, 0.4, 0.5, 0.5, 0.4)
    assert await played.run(100) == 6
    assert "no better than 0.500 at step 4 (eval.patience)" in played.evaluations.stopped


async def test_a_resumed_run_decides_as_the_run_would_have_decided(tmp_path: Path) -> None:
    settings = EvalConfig(every=1, patience=2)
    await Played(tmp_path, settings, 100, 0.1, 0.5, 0.5).run(2)
    history = ScoreHistory(read_metrics(tmp_path / "metrics.jsonl"))
    assert (history.best, history.last_step, history.since_best) == (ScoredStep(1, 0.5), 2, 1)
    assert history.reason_to_stop(settings) == ""
    history.add(3, None)  # every episode failed: neither better nor worse
    assert history.reason_to_stop(settings) == ""
    history.add(4, 0.2)
    assert "eval.patience" in history.reason_to_stop(settings)


@pytest.mark.parametrize("beside", ["own", "shared"])
async def test_training_goes_on_beside_an_evaluation_and_a_late_one_is_told(
    tmp_path: Path, beside: Any
) -> None:
    played = Played(tmp_path, EvalConfig(every=2, beside=beside), 20, 0.1, 0.9, 0.4)
    at = played.evaluations.at
    played.gate.clear()
    await at(0)
    for step in range(1, 5):  # step 2 and 4 are due, and the first still runs
        await at(step)
    assert played.tellings == ["evaluation_late"]
    assert played.heard == []
    assert "the evaluation of step 0 still runs at step" in played.told.pop("evaluation_late")
    assert not played.told
    played.gate.set()
    await asyncio.sleep(0.01)
    played.gate.clear()
    await at(5)  # the first is collected, and the one that is due starts, with these weights
    assert played.heard == [(0, 0.1)]
    assert played.prepared == [0, 5]
    await played.saver.save(8)
    assert played.saved == ["step-000005", "step-000008"]  # its score may be the best
    played.gate.set()
    await played.evaluations.finish(20)
    assert played.heard == [(0, 0.1), (5, 0.9), (20, 0.4)]
    assert played.prepared == [0, 5, 20]
    await played.saver.save(20)
    assert played.saved == ["step-000005", "step-000020"]
    assert (tmp_path / "checkpoints" / "best").resolve().name == "step-000005"
    played.folder.close()


@pytest.mark.parametrize(("last", "resumed", "cut"), [(0, 7, 5), (0, 5, None), (-1, 3, 0)])
async def test_an_evaluation_that_a_kill_cut_is_told_with_the_step_that_is_scored_instead(
    tmp_path: Path, last: int, resumed: int, cut: int | None
) -> None:
    history = ScoreHistory()
    if last >= 0:
        history.add(last, 0.1)
    settings = EvalConfig(every=5, beside="shared")
    played = Played(tmp_path, settings, 20, 0.3, history=history)
    await played.evaluations.at(resumed)
    assert played.prepared == [resumed]
    told = [text for name, text in played.told.items() if name == "evaluation_cut"]
    assert len(told) == (cut is not None)
    for text in told:
        assert f"evaluation of step {cut} had not ended" in text
        assert f"the line says step {resumed}" in text
    await played.evaluations.cancel()
    played.folder.close()


async def test_an_evaluation_that_is_cancelled_leaves_no_line(tmp_path: Path) -> None:
    played = Played(tmp_path, EvalConfig(every=2, beside="shared"), 20)
    played.gate.clear()
    await played.evaluations.at(0)
    await played.evaluations.cancel()
    await played.evaluations.cancel()
    assert not (tmp_path / "metrics.jsonl").exists()
    played.folder.close()


async def test_an_evaluation_that_fails_beside_training_ends_the_run(tmp_path: Path) -> None:
    class FailingEvaluations(Played):
        async def play(self) -> HeldOutScores:
            raise TrainingFailed("all 4 episodes failed")

    played = FailingEvaluations(tmp_path, EvalConfig(every=2, beside="shared"), 20)
    await played.evaluations.at(0)
    await asyncio.sleep(0.01)
    with pytest.raises(TrainingFailed, match="all 4 episodes failed"):
        await played.evaluations.at(1)
    await played.evaluations.cancel()
    played.folder.close()


def sampled(passed: list[int], samples: int) -> HeldOutScores:
    """Tasks of which the given numbers of samples pass."""
    return HeldOutScores(
        [
            Episode(task=str(n), trajectories=[Trajectory(verdict=Verdict.of(float(i < good)))])
            for n, good in enumerate(passed)
            for i in range(samples)
        ],
        samples=samples,
    )


def test_pass_at_k_is_the_unbiased_estimate_with_an_interval_over_tasks() -> None:
    found = sampled([0, 1, 2, 4], 4)
    # 1 - C(4 - c, k) / C(4, k): k = 2 gives 0, 1/2, 5/6 and 1
    assert {k: round(rate.value, 6) for k, rate in found.pass_at.items()} == {
        1: round(7 / 16, 6),
        2: round((0 + 1 / 2 + 5 / 6 + 1) / 4, 6),
        4: 0.75,
    }
    # at k = 4 each task passes or does not: Wilson's interval of 3 out of 4
    assert found.pass_at[4].low == pytest.approx(0.300642, abs=1e-5)
    assert found.pass_at[4].high == pytest.approx(0.954413, abs=1e-5)
    # the error is that of four tasks with means 0, 1/4, 1/2, 1, not that of 16 episodes
    assert found.mean == 7 / 16
    assert found.standard_error == pytest.approx(0.213478, abs=1e-6)
    assert {"eval/pass@1", "eval/pass@4/low", "eval/pass@4/high"} <= set(found.numbers)
    assert "pass@4 0.750 (0.301 to 0.954)" in found.told


def test_weights_that_changed_meanwhile_label_the_score() -> None:
    changed, one = scores(1.0, 0.0, versions=(3, 3, 4)), scores(1.0, 0.0, versions=(3, 3))
    assert "by weights of version 3 to 4" in changed.told
    assert changed.numbers["eval/oldest_version"] == 3
    assert changed.numbers["eval/newest_version"] == 4
    assert "version" not in one.told
    assert one.numbers["eval/oldest_version"] == one.numbers["eval/newest_version"] == 3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"samples": 4}, "eval.temperature is 0: greedy episodes of a task are all the same"),
        ({"stop_at": 0.5}, "eval.every is 0"),
        ({"patience": 2}, "eval.every is 0"),
        ({"samples": 0}, "eval.samples must be positive"),
        ({"stop_at": float("nan"), "every": 1}, "eval.stop_at must be finite"),
    ],
)
def test_settings_without_an_effect_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        EvalConfig(**settings)
    with pytest.raises(ConfigError, match=r'take eval\.beside = "shared"'):
        TrainConfig(engine="vllm", eval=EvalConfig(beside="own"))
