"""What a run leaves on disk."""

import asyncio
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.agent.episodes import read_episodes
from ludus.agent.viewer.page import write_report
from ludus.errors import ConfigError
from ludus.messages import ToolCall, assistant, user
from ludus.trainer.config import TrainConfig
from ludus.trainer.demos.calculator import (
    accuracy,
    claim,
    fault_rate,
    next_commands,
    run_demo,
    stop,
)
from ludus.trainer.models.checkpoint import SavedModel, load_state, save_checkpoint
from ludus.trainer.models.checkpoint_folders import Retention, checkpoints
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.run.folder import RunFolder
from ludus.trainer.settings.demos import DemoConfig
from ludus.verdict import Verdict

EVIL = '<script>alert("x")</script>'


def episode(
    task: str, expression: str, asked: str = "1-2", reward: float = 1.0, said: str = EVIL
) -> Any:
    call = ToolCall(name="calculator", arguments={"expression": expression})
    turns = [
        Turn(observation=[user(asked)], message=assistant("", [call])),
        Turn(observation=[user("-1")], message=assistant(said), reward=reward),
    ]
    segment = Segment(prompt_ids=[1], turns=turns)
    return Episode(
        task=task, trajectories=[Trajectory(verdict=Verdict.of(reward), segments=[segment])]
    )


def lost(task: str) -> Any:
    """An episode whose environment failed before the first turn."""
    return Episode(
        task=task,
        trajectories=[Trajectory(verdict=Verdict.unavailable("gone"), stop=Stop.ENV_ERROR)],
    )


def folder(path: Path) -> Any:
    return RunFolder(path / "run", TrainConfig(env="a-v0"))


def test_episodes_come_back_as_they_were(tmp_path: Path) -> None:
    made = [episode("test/0", "1-2"), episode("test/1", "1+2", reward=0.0)]
    path = folder(tmp_path).keep_episodes("step-000001", 1, made)
    assert read_episodes(path) == made


def report_of(path: Path, **head: str) -> tuple[str, dict[str, Any]]:
    """Return a report and the data in it."""
    page = write_report(path, **head).read_text()
    boot = page.partition("id=boot>")[2].partition("</script>")[0]
    data: dict[str, Any] = msgspec.json.decode(boot)
    return page, data


def overview(data: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = data["data"]["runs"]["run"]["overview"]
    return told


def test_the_report_shows_before_and_after_and_no_markup_of_the_models(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.keep_episodes("eval-000000", 0, [episode("test/0", "1+2", reward=0.0)])
    run.keep_episodes("eval-000002", 2, [episode("test/0", "1-2")])
    run.log(0, {"eval/mean": 0.0})
    run.log(1, {"reward/mean": 0.25})
    run.log(2, {"reward/mean": 0.75})
    run.log(2, {"eval/mean": 1.0})
    page, data = report_of(run.path, lead="a < b")
    assert EVIL not in page
    assert (data["lead"], data["left_out"]) == ("a < b", [])
    assert [one["mean"] for one in overview(data)["held_out"]] == [0.0, 1.0]
    (pair,) = overview(data)["instructive"]
    assert (pair["task"], pair["low"], pair["high"]) == ("test/0", 0.0, 1.0)
    shown = data["data"]["runs"]["run"]["episode"]
    assert {str(pair["before"]), str(pair["after"])} <= set(shown)
    assert data["data"]["runs"]["run"]["series"]["reward/mean"]["y"] == [0.25, 0.75]


def test_a_report_of_a_run_that_did_nothing_still_opens(tmp_path: Path) -> None:
    _, data = report_of(folder(tmp_path).path)
    assert overview(data)["run"]["state"] == "ended early" or overview(data)["charts"] == []


def test_the_fault_is_the_first_operator_mistaken() -> None:
    # '-' is mistaken for '+'
    assert fault_rate([episode("a", "1+2")]) == 1.0
    assert fault_rate([episode("a", "1-2")]) == 0.0
    assert fault_rate([episode("a", "1*2")]) == 0.0
    assert fault_rate([episode("a", "1+2"), episode("b", "1-2")]) == 0.5


def test_lost_episodes_are_no_part_of_the_demos_numbers() -> None:
    assert fault_rate([episode("a", "1+2"), lost("b")]) == 1.0
    assert accuracy([episode("a", "1-2"), lost("b")]) == 1.0
    for nothing in ([], [lost("a")], [Episode(task="a")]):
        assert math.isnan(fault_rate(nothing))
        assert math.isnan(accuracy(nothing))


def test_means_of_nothing_are_left_out_of_a_report(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.log(0, {"eval/mean": math.nan, "eval/failed": 4.0})
    run.log(1, {"reward/mean": math.nan})
    assert overview(report_of(run.path)[1])["run"]["reward"] is None
    run.log(2, {"reward/mean": 0.5})
    run.log(2, {"eval/mean": 0.75})
    told = overview(report_of(run.path)[1])
    assert told["run"]["reward"] == 0.5
    assert told["held_out"] == [{"step": 2, "mean": 0.75}]


def test_a_report_compares_no_task_that_was_lost_before_or_after(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.keep_episodes("eval-000000", 0, [lost("test/0"), episode("test/1", "1-2")])
    run.keep_episodes("eval-000002", 2, [episode("test/0", "1-2"), episode("test/1", "1-2")])
    told = overview(report_of(run.path)[1])
    assert [pair["task"] for pair in told["instructive"]] == ["test/1"]


def test_the_demos_next_commands_are_read_by_a_shell_as_they_are_meant() -> None:
    run = Path("my demo's/grpo")
    explain, watch, evaluate = map(shlex.split, next_commands(run))
    assert (explain, watch) == (["ludus", "explain", str(run)], ["ludus", "watch", str(run)])
    assert evaluate[-1] == f"{run}/checkpoints/best"


def test_the_demo_takes_a_missing_an_empty_or_its_own_folder(tmp_path: Path) -> None:
    claim(tmp_path / "new" / "demo")
    (tmp_path / "empty").mkdir()
    claim(tmp_path / "empty")
    claim(tmp_path / "empty")


def test_the_demo_writes_anew_only_what_it_wrote(tmp_path: Path) -> None:
    claim(tmp_path / "demo")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").write_text("years")
    (tmp_path / "demo" / "grpo").mkdir()
    (tmp_path / "demo" / "model").symlink_to(tmp_path / "data")
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    claim(tmp_path / "demo")
    left = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert left == [".ludus-demo", "notes.txt"]
    assert (tmp_path / "data" / "thesis.tex").read_text() == "years"


async def test_the_demo_refuses_a_folder_of_anything_else(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(ConfigError, match="holds files that no demo wrote"):
        await run_demo(DemoConfig(folder=str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(ConfigError, match="cannot write the demo's folder"):
        await run_demo(DemoConfig(folder=str(tmp_path / "report.html")))
    assert (tmp_path / "report.html").read_text() == "mine"


async def test_a_server_that_does_not_end_when_asked_is_killed() -> None:
    deaf = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", deaf, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    await stop(process, patience_s=0.2)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_with_one_line_and_no_report(tmp_path: Path) -> None:
    target = tmp_path / "demo"
    sizes = "--warm_start_steps=1 --steps=1000 --held_out_tasks=4 --tasks_per_step=2 --group_size=2"
    command = [sys.executable, "-m", "ludus", "demo", f"--folder={target}", *sizes.split()]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 90
        while not (target / "grpo" / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)  # a terminal interrupts the server as well
        said, complaint = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert complaint.count("ludus: ") == 1  # besides what loading a model writes
    assert complaint.endswith("ludus: interrupted\n")
    assert "Traceback" not in complaint
    assert "greedy accuracy" not in said
    assert not (target / "report.html").exists()
    with pytest.raises(ProcessLookupError):  # nor is the server left
        os.killpg(process.pid, 0)


def test_checkpoints_are_whole_and_the_oldest_go(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer), hidden=16, layers=1, heads=2)
    for step in (1, 2, 10):
        saved = SavedModel(model, tokenizer)
        save_checkpoint(tmp_path, step, saved, {"learner": {"updates": step}}, Retention(2))
    (tmp_path / ".partial-000011").mkdir()
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000002", "step-000010"]
    assert load_state(checkpoints(tmp_path)[-1]) == {"learner": {"updates": 10}}


def test_a_folder_without_trainer_state_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be resumed"):
        load_state(tmp_path)


def test_checkpoint_state_holds_no_pickled_code(tmp_path: Path) -> None:
    torch.save({"evil": Exception}, tmp_path / "trainer.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        load_state(tmp_path)
