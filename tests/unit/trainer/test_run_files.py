"""What a run leaves on disk."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.errors import ConfigError
from ludus.messages import ToolCall, assistant, user
from ludus.trainer.checkpoint import checkpoints, load_state, save_checkpoint
from ludus.trainer.config import TrainConfig
from ludus.trainer.demo import fault_rate
from ludus.trainer.report import write_report
from ludus.trainer.run_folder import RunFolder, read_episodes
from ludus.trainer.tiny import build_model, build_tokenizer
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


def folder(path: Path) -> Any:
    return RunFolder(path / "run", TrainConfig(env="a-v0"), resume=False, tensorboard=False)


def test_episodes_come_back_as_they_were(tmp_path: Path) -> None:
    made = [episode("test/0", "1-2"), episode("test/1", "1+2", reward=0.0)]
    path = folder(tmp_path).keep_episodes("step-000001", made)
    assert read_episodes(path) == made


def test_the_report_shows_before_and_after_and_escapes_what_the_model_wrote(tmp_path: Path) -> None:
    run = folder(tmp_path)
    run.keep_episodes("eval-000000", [episode("test/0", "1+2", reward=0.0)])
    run.keep_episodes("eval-000002", [episode("test/0", "1-2")])
    run.log(0, {"eval/mean": 0.0})
    run.log(1, {"reward/mean": 0.25})
    run.log(2, {"reward/mean": 0.75})
    run.log(2, {"eval/mean": 1.0})
    page = write_report(run.path, lead="a < b").read_text()
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert "a &lt; b" in page
    assert "polyline" in page
    assert page.index("1+2") < page.index("1-2", page.index("1+2"))


def test_a_report_of_a_run_that_did_nothing_still_opens(tmp_path: Path) -> None:
    assert "No step was finished" in write_report(folder(tmp_path).path).read_text()


def test_the_fault_is_the_first_operator_mistaken() -> None:
    # '-' is mistaken for '+'
    assert fault_rate([episode("a", "1+2")]) == 1.0
    assert fault_rate([episode("a", "1-2")]) == 0.0
    assert fault_rate([episode("a", "1*2")]) == 0.0
    assert fault_rate([episode("a", "1+2"), episode("b", "1-2")]) == 0.5


def test_checkpoints_are_whole_and_the_oldest_go(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer), hidden=16, layers=1, heads=2)
    for step in (1, 2, 10):
        save_checkpoint(tmp_path, step, model, tokenizer, {"learner": {"updates": step}}, keep=2)
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
