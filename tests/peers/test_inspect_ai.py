"""Inspect, unmodified, evaluates on a ludus environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ludus
from ludus.agent import Episode, Segment, Trajectory, Turn, write_episodes
from ludus.agent.viewer.export import export
from ludus.agent.viewer.run import RunReader
from ludus.errors import UnknownTask
from ludus.messages import ToolCall, assistant, system, tool_result, user
from ludus.verdict import Verdict

from . import games

inspect_ai: Any = pytest.importorskip("inspect_ai", reason="make test-peers installs inspect-ai")
model: Any = pytest.importorskip("inspect_ai.model")
from ludus.integrations.inspect_ai import ludus_task  # noqa: E402

FIND = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
TASK = f"""{FIND}
from inspect_ai import task
from ludus.integrations.inspect_ai import ludus_task
from tests.peers import games

@task
def sums(count):
    return ludus_task(games.Sums, split="test", count=count)
"""
MODEL = f"""{FIND}
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from tests.peers import games

SCRIPTS = {{script.question: script for script in games.scripts("test")}}

@modelapi(name="adds")
class Adds(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        script = next(SCRIPTS[one.text] for one in input if one.role == "user")
        if script.calls and input[-1].role == "user":
            return ModelOutput.for_tool_call("adds/model", "add", {{"first": 1, "second": 2}})
        return ModelOutput.from_content("adds/model", script.said)
"""


@model.modelapi(name="scripted")  # Inspect's own mock asks the network for a tokenizer
class Scripted(model.ModelAPI):  # type: ignore[misc]
    """A model that says what it was given, in order."""

    def __init__(self, model_name: str, *, outputs: list[Any], **settings: Any) -> None:
        super().__init__(model_name)
        self.outputs = iter(outputs)

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
        return next(self.outputs)


def evaluated(folder: Path, *outputs: Any, **task: Any) -> Any:
    """Play one sample for each list of outputs, one after another."""
    mock = model.get_model("scripted/model", outputs=[one for some in outputs for one in some])
    made = ludus_task(games.Sums, split="test", count=len(outputs), **task)
    options = {"log_dir": str(folder), "display": "none", "max_samples": 1, "max_connections": 1}
    (log,) = inspect_ai.eval(made, model=mock, **options)
    return log


def say(text: str) -> Any:
    return model.ModelOutput.from_content("scripted/model", text)


def call(name: str, **arguments: Any) -> Any:
    return model.ModelOutput.for_tool_call("scripted/model", name, arguments)


def test_scores_are_rewards_and_failures_are_unscored(tmp_path: Path) -> None:
    local = ludus.make(games.Sums)
    questions = [str(local.reset(seed=0, options={"task": f"test/{n}"})[0]) for n in range(6)]
    right = [games.answer_to(question) for question in questions]
    outputs = [
        [say(right[0])],
        [say("no idea")],
        [say("break")],
        [say("crash")],
        [call("add", first=1, second=2), say(right[4])],
        [call("gold"), call("submit", total=1)],
    ]
    log = evaluated(tmp_path, *outputs)
    assert log.status == "success", log.error and log.error.traceback
    samples = sorted(log.samples, key=lambda sample: sample.id)
    scores = [sample.scores["ludus_reward"] for sample in samples]
    values = [None if score.value != score.value else score.value for score in scores]
    assert values == [1.0, 0.0, None, None, 1.0, 0.0]
    for index in (0, 1):
        local.reset(seed=0, options={"task": f"test/{index}"})
        assert local.step(right[0] if index == 0 else "no idea")[1] == values[index]
    (result,) = log.results.scores
    assert result.metrics["mean"].value == pytest.approx(2 / 4)  # of the four that have a reward
    assert (result.scored_samples, result.unscored_samples) == (4, 2)
    told = [message.text for message in samples[4].messages if message.role == "tool"]
    assert told == ["3"]
    seen = "\n".join(message.model_dump_json() for one in samples for message in one.messages)
    assert games.SECRET not in seen
    assert "no tool" in seen
    offered = {
        tool.name for event in samples[5].events if event.event == "model" for tool in event.tools
    }
    assert offered == {"add", "submit"}


def test_a_split_that_is_not_there_is_told() -> None:
    with pytest.raises(UnknownTask, match="dev"):
        ludus_task(games.Sums, split="dev")


def test_a_hundred_episodes_of_its_command_have_the_rewards_of_direct_play(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(TASK)
    (tmp_path / "adds.py").write_text(MODEL)
    (tmp_path / "adds-1.dist-info").mkdir()  # a model is found by an entry point
    (tmp_path / "adds-1.dist-info" / "entry_points.txt").write_text("[inspect_ai]\nadds = adds\n")
    command = [
        str(Path(sys.executable).with_name("inspect")),
        "eval",
        "sums.py",
        "-T",
        f"count={games.EPISODES}",
    ]
    command += ["--model", "adds/model", "--display", "none", "--log-format", "json"]
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        command, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (log,) = (tmp_path / "logs").glob("*.json")
    told = json.loads(log.read_text())
    rewards = {one["id"]: one["scores"]["ludus_reward"]["value"] for one in told["samples"]}
    expected = {script.task: script.reward for script in games.scripts("test")}
    assert rewards == expected
    (result,) = told["results"]["scores"]
    mean = sum(expected.values()) / games.EPISODES
    assert result["metrics"]["mean"]["value"] == pytest.approx(mean)


def test_its_reader_opens_what_is_exported(tmp_path: Path) -> None:
    """Two rollouts of one task and a failed one of another: ids, epochs, scores and messages."""
    asked = ToolCall(name="add", arguments={"first": 1, "second": 2}, id="call_0")
    first = Turn(out_ids=[1, 2], logprobs=[-0.5, -0.5])
    first.observation, first.message = [system("Work."), user("1+2?")], assistant("", [asked])
    last = Turn(out_ids=[3], logprobs=[-0.5])
    last.observation = [tool_result("3", asked)]
    last.message = msgspec.structs.replace(assistant("3"), reasoning="It is three.")
    episodes = []
    verdicts = (Verdict.of(0.25), Verdict.of(1.0), Verdict.unavailable("the judge is away"))
    for number, verdict in enumerate(verdicts):
        played = Trajectory(
            verdict=verdict, segments=[Segment(prompt_ids=[7], turns=[first, last])]
        )
        task = "train/0" if number < 2 else "train/1"
        episodes.append(Episode(task=task, ordinal=number, trajectories=[played]))
    write_episodes(tmp_path / "step-000001.jsonl", episodes)
    reader = RunReader(tmp_path / "step-000001.jsonl", "mine", None)
    reader.refresh()
    (path,) = export(reader, "inspect", tmp_path / "out", filters={})

    logs: Any = pytest.importorskip("inspect_ai.log")
    (listed,) = logs.list_eval_logs(str(tmp_path / "out"))
    log = logs.read_eval_log(listed)
    assert (log.status, log.version, log.eval.task) == ("success", 2, "mine")
    samples = {(sample.id, sample.epoch): sample for sample in log.samples}
    assert sorted(samples) == [("train/0", 1), ("train/0", 2), ("train/1", 1)]
    (score,) = log.results.scores
    assert score.metrics["mean"].value == 0.625
    assert (score.scored_samples, score.unscored_samples) == (2, 1)
    good, failed = samples["train/0", 2], samples["train/1", 1]
    assert good.scores["ludus_reward"].value == 1.0
    assert (failed.scores, failed.error.message) == (None, "the judge is away")
    roles = [message.role for message in good.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert good.messages[2].tool_calls[0].arguments == {"first": 1, "second": 2}
    assert good.messages[3].tool_call_id == "call_0"
    assert good.messages[4].content[0].reasoning == "It is three."
    assert (good.output.completion, good.output.usage.output_tokens) == ("3", 3)
    alone = logs.read_eval_log_sample(str(path), id="train/0", epoch=2)
    assert alone.messages == good.messages
    summaries = logs.read_eval_log_sample_summaries(str(path))
    assert [summary.id for summary in summaries] == ["train/0", "train/0", "train/1"]
    again = tmp_path / "again.eval"
    logs.write_eval_log(log, str(again))  # it writes the log as it writes its own
    assert logs.read_eval_log(str(again)).samples == log.samples
