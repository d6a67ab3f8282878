"""The demo on released weights: what it measures, with a tiny model in the place of SmolLM2."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.agent.trajectory import TurnKind
from ludus.cli.main import main
from ludus.errors import ConfigError, TrainingFailed
from ludus.messages import ToolCall, assistant, user
from ludus.trainer.config import TrainConfig
from ludus.trainer.demos.real import (
    answered_twice,
    chosen,
    conclude,
    one_of_each,
    training_of,
    warm_start_of,
)
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.run.folder import RunFolder
from ludus.trainer.settings.demos import RealDemoConfig
from ludus.verdict import Verdict


def episode(task: str, said: str, reward: float | None, kind: str = "after") -> Episode:
    turn = Turn(
        kind=TurnKind.ACT,
        obs_ids=[1],
        out_ids=[2],
        logprobs=[0.0],
        versions=[0],
        observation=[user(f"question {task}")],
        message=assistant(said),
    )
    verdict = Verdict.error("lost")
    if reward is not None:
        verdict = Verdict.of(reward, metrics={"right": float(reward == 1), f"right_{kind}": 0.0})
    segment = Segment(prompt_ids=[1], turns=[turn])
    trajectory = Trajectory(role="policy", verdict=verdict, segments=[segment])
    return Episode(task=task, trajectories=[trajectory])


def kept(folder: Path, first: list[Episode], last: list[Episode]) -> Path:
    run = RunFolder(folder / "rl", TrainConfig())
    run.log(0, {"eval/mean": 0.0})
    run.keep_episodes("eval-000000", 0, first)
    run.keep_episodes("eval-000036", 36, last)
    run.close()
    return folder / "rl"


def test_rewards_are_compared_question_by_question(tmp_path: Path) -> None:
    first = [episode(str(n), f"<i>{n}</i>", 0.0) for n in range(4)]
    last = [episode(str(n), str(n), reward) for n, reward in enumerate((1.0, 1.0, 0.1, 1.0))]
    out = Console(width=100, record=True)
    made = conclude(tmp_path, kept(tmp_path, first, last[::-1]), out, lead="It learned.")
    assert made.before.value == 0.0
    # by hand: mean 3.1 / 4, standard deviation .45 of (1, 1, .1, 1), over 2, times 1.95996
    assert made.gain.value == pytest.approx(0.775)
    assert made.gain.high - made.gain.value == pytest.approx(1.959964 * 0.45 / 2, rel=1e-6)
    assert (made.right_before.value, made.right_after.value) == (0.0, 0.75)
    assert "excludes zero" in out.export_text()
    page = made.report.read_text()
    assert "0.775 (0.334 - 1.216)" in page
    assert "It learned. The figures are means over 4 held-out questions" in page
    assert "<i>0</i>" not in page  # what a model wrote is no markup


def test_a_gain_that_may_be_chance_is_told_as_such(tmp_path: Path) -> None:
    first = [episode(str(n), "7", 0.1) for n in range(4)]
    last = [episode(str(n), "7", reward) for n, reward in enumerate((1.0, 0.1, 0.1, 0.1))]
    out = Console(width=100, record=True)
    assert conclude(tmp_path, kept(tmp_path, first, last), out, lead="").gain.low < 0
    assert "does NOT exclude" in out.export_text()


def test_a_lost_episode_leaves_the_comparison() -> None:
    first = [episode("a", "1", 0.1), episode("b", "1", None), episode("c", "1", 0.1)]
    last = [episode("a", "2", 1.0), episode("b", "2", 1.0), episode("c", "2", None)]
    (pair,) = answered_twice(first, last)
    assert (pair.question, pair.before, pair.after) == ("question a", "1", "2")
    assert (pair.reward_before, pair.reward_after) == (0.1, 1.0)


def test_too_few_comparisons_are_no_result(tmp_path: Path) -> None:
    run = kept(tmp_path, [episode("a", "1", 0.1)], [episode("a", "2", 1.0)])
    with pytest.raises(TrainingFailed, match="only 1 held-out question"):
        conclude(tmp_path, run, Console(record=True), lead="")


def test_examples_show_each_kind_once_and_are_not_chosen_by_reward() -> None:
    kinds = ["sum", "sum", "after", "sum", "after"]
    first = [episode(str(n), "1", 0.1, kind) for n, kind in enumerate(kinds)]
    pairs = answered_twice(first, first)
    assert [one.question for one in one_of_each(pairs)] == ["question 0", "question 2"]


def test_calls_are_shown_with_the_answer() -> None:
    shown, other = episode("a", "7", 1.0), episode("a", "", 1.0)
    call = ToolCall(name="calculator", arguments={"expression": "3+4"})
    asked = other.trajectories[0].turns[0]
    asked.message = assistant("", [call])
    shown.trajectories[0].segments[0].turns.insert(0, asked)
    (pair,) = answered_twice([episode("a", "5", 0.0)], [shown])
    assert (pair.before, pair.after) == ("5", "calculator(3+4), 7")


def test_sizes_that_are_not_given_are_the_tasks() -> None:
    assert chosen(RealDemoConfig()).warm_start_steps == 0
    settings = RealDemoConfig(task="calculator", group_size=4)
    assert (chosen(settings).steps, chosen(settings).group_size) == (15, 4)
    assert "demo_fault=" in warm_start_of(settings, "model").env
    assert "demo_fault=" not in training_of(settings, "model").env
    with pytest.raises(ConfigError, match="from rewards alone, but warm_start_steps is 3"):
        chosen(RealDemoConfig(warm_start_steps=3))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["quiz", "calculator --warm-start-steps 1"])
def test_the_verb_runs_with_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str
) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=2)
    sizes = f"--task {task} --steps 1 --tasks-per-step 1 --group-size 2 --held-out-tasks 3"
    folder = tmp_path / "demo"
    command = ["demo-real", "--model", str(model), "--folder", str(folder), *sizes.split()]
    assert main(command) == 0
    assert (folder / "report.html").is_file()
    assert "3 held-out questions" in capsys.readouterr().out
    assert main(command) == 0  # its own folder is written anew
    (folder / ".ludus-demo").unlink()
    assert main(command) == 2
    assert "no demo wrote" in capsys.readouterr().err


def test_settings_that_cannot_work_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo-real", "--held-out-tasks", "1"]) == 2
    assert "held_out_tasks must be at least 2, got 1" in capsys.readouterr().err
