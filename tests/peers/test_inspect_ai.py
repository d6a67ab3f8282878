"""Inspect, unmodified, evaluates on a ludus environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.errors import UnknownTask

from . import games

inspect_ai: Any = pytest.importorskip("inspect_ai", reason="make test-peers installs inspect-ai")
model: Any = pytest.importorskip("inspect_ai.model")
from ludus.integrations.inspect_ai import ludus_task  # noqa: E402


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
