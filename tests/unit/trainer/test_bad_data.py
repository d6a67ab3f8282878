"""What people's data have wrong with them, as the commands meet it.

Rows that hold no conversation are in `test_data_files.py`, files that change in the same place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent.episodes import write_episodes
from ludus.agent.trajectory import Episode, Segment, Trajectory, Turn
from ludus.cli.main import main
from ludus.messages import Message
from ludus.metrics import read_metrics
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.verdict import Verdict

MEGABYTE = "x" * (1 << 20)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


class Command:
    """A command on rows, whose words the test reads."""

    def __init__(
        self, model: Path, folder: Path, capsys: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.model, self.folder, self.capsys, self.caplog = model, folder, capsys, caplog

    def __call__(self, verb: str, rows: list[Any], **options: object) -> tuple[int, str]:
        """Run a verb; returns its status, and what it has said."""
        self.caplog.clear()
        data = self.folder / "rows.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        settings: dict[str, object] = {
            "data": data, "model.path": self.model, "run.folder": self.folder / "run",
            "held-out": 0, "epochs": 1, "batch-size": 4, **options,
        }  # fmt: skip
        pairs = [(f"--{name}", str(value)) for name, value in settings.items()]
        words = [*verb.split(), *(word for pair in pairs for word in pair)]
        status = main(words)
        spoken = self.capsys.readouterr()
        return status, spoken.out + spoken.err + self.caplog.text


@pytest.fixture
def command(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Command:
    return Command(model, tmp_path, capsys, caplog)


def pairs(count: int) -> list[dict[str, Any]]:
    return [{"prompt": f"q{n}", "chosen": "yes", "rejected": "no"} for n in range(count)]


def talk(*said: str) -> dict[str, Any]:
    roles = ("user", "assistant") * len(said)
    turns = zip(roles, said, strict=False)
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def test_a_conversation_that_ends_with_the_user_is_learned_up_to_its_last_answer(
    command: Command,
) -> None:
    status, _ = command("sft", [talk("hi", "yo", "and then?"), talk("hi", "yo"), talk("hello")])
    assert status == 0
    # the second row says what is left of the first
    assert len(read_metrics(command.folder / "run" / "metrics.jsonl")) == 1
    assert "1 repeated; 1 without a turn of the assistant to learn" in command.caplog.text


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (talk("<|im_start|>user\nhi<|im_end|>", "yo"), "'<|im_start|>'"),
        (talk("[INST] hi [/INST]", "yo"), "'[INST]'"),
        (talk("<s>hi", "yo"), "'<s>'"),
        (talk("hi", "yo</s>"), "'</s>'"),
        (talk("hi", "yo<|endoftext|>"), "'<|endoftext|>'"),
        (talk("hi", "<|start_header_id|>assistant<|end_header_id|>yo"), "'<|start_header_id|>'"),
    ],
)
def test_templates_are_not_mixed(command: Command, rows: dict[str, Any], told: str) -> None:
    status, said = command("sft", [rows])
    assert status == 2
    assert f"row 1: already written in a chat template: {told}" in said


def test_who_asks_may_speak_of_a_mark(command: Command) -> None:
    status, said = command("sft", [talk("what is <|im_end|>?", "a mark; in HTML <s>this</s> is")])
    assert (status, "left out" in said) == (0, False)


@pytest.mark.slow
def test_pairs_of_one_annotator_ties_and_circles_are_told(command: Command) -> None:
    rows = [{**row, "annotator": "ann"} for row in pairs(6)]
    rows += [{"prompt": "r", "chosen": a, "rejected": b} for a, b in ("ab", "bc", "ca")]
    rows += [{"prompt": "t", "chosen": "a", "rejected": "b", "preference": "tie"}]
    rows += [{"prompt": "e", "chosen": "a", "rejected": "a"}]
    for verb in ("train dpo", "train reward"):
        folder = command.folder / verb.replace(" ", "-")
        status, said = command(verb, rows, **{"run.folder": folder})
        assert status == 0
        assert "the preferences of 1 prompts go round in a circle" in said
        assert "all preferences are of one annotator, ann" in said
        assert "1 with equal answers" in said
    status, said = command("train dpo", rows[-2:])
    assert status == 2
    assert "no row of" in said


@pytest.mark.parametrize("verb", ["sft", "train dpo", "train kto", "train reward"])
def test_a_megabyte_in_a_message_is_left_out_and_counted(command: Command, verb: str) -> None:
    rows: list[dict[str, Any]] = pairs(8)
    if verb == "sft":
        rows = [talk(row["prompt"], row["chosen"]) for row in rows] + [talk(MEGABYTE, "a")]
    elif verb == "train kto":
        rows = [{"prompt": f"q{n}", "completion": "a", "label": n % 2 == 0} for n in range(8)]
        rows += [{"prompt": "q", "completion": MEGABYTE, "label": True}]
    else:
        rows += [{"prompt": "q", "chosen": "a", "rejected": MEGABYTE}]
    status, said = command(verb, rows)
    assert status == 0
    assert "left out 1 longer than" in said


def test_pairs_of_a_run_with_another_tokenizer_are_refused(command: Command) -> None:
    turn = Turn(out_ids=[5, 6, 7], message=Message(role="assistant", content="something else"))
    played = [
        Trajectory(verdict=Verdict.of(reward), segments=[Segment(prompt_ids=[3], turns=[turn])])
        for reward in (0.0, 1.0)
    ]
    episodes = command.folder / "played.jsonl"
    write_episodes(episodes, [Episode(task="t", group="g", trajectories=[each]) for each in played])
    status, said = command("train dpo", [], data=episodes)
    assert status == 2
    assert "are of another tokenizer: a turn says 'something else'" in said


IMAGE = "data:image/png;base64," + "A" * 8


def test_a_head_on_the_wrong_model(command: Command) -> None:
    images = [{"prompt": "q", "answers": [IMAGE, IMAGE + "BBBB"], "ranks": [1, 2]}]
    status, said = command("train reward", images, kind="image")
    assert (status, "kind image needs ImageReward.pt" in said) == (2, True)
    other = command.folder / "ImageReward.pt"
    torch.save({"some.weight": torch.zeros(2)}, other)
    (command.folder / "vocab.txt").write_text("a\n")
    status, said = command("train reward", images, kind="image", **{"model.path": other})
    assert status == 2
    assert "some.weight" in said
    steps = [{"prompt": "q", "steps": ["a"], "labels": [True]}]
    status, said = command("train reward", steps)
    assert status == 2
    assert "without preferences: its columns are prompt, steps, labels" in said


def test_images_that_are_gone(command: Command) -> None:
    shown = {"role": "user", "content": "<image>what is it?"}
    row = {"messages": [shown, {"role": "assistant", "content": "a cat"}], "images": ["gone.png"]}
    status, said = command("sft", [row])
    assert status == 2
    assert "with images that are gone: 'gone.png', No such file" in said
