"""Runs as files of other tools, and recipes compared."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from ludus.agent import Episode, Segment, Trajectory, Turn, write_episodes
from ludus.agent.viewer.compare import BUDGET, bootstrap, compare, improvement, iqm, labels
from ludus.agent.viewer.export import FORMATS, WINDOW, export, windows
from ludus.agent.viewer.run import RunReader
from ludus.errors import ConfigError
from ludus.messages import ToolCall, assistant, system, tool_result, user
from ludus.verdict import Verdict

CALL = ToolCall(name="calculator", arguments={"expression": "1+2"}, id="call_0")


def episode(ordinal: int, reward: float | None = 1.0) -> Episode:
    first = Turn(out_ids=[11, 12], logprobs=[-0.25, -0.5], versions=[3, 4])
    first.observation, first.message = [system("Work."), user("1+2?")], assistant("", [CALL])
    last = Turn(obs_ids=[21, 22, 23], out_ids=[31], logprobs=[-0.125], versions=[4], trained=False)
    last.observation, last.message = [tool_result("3", CALL)], assistant("3")
    verdict = Verdict.unavailable("lost") if reward is None else Verdict.of(reward)
    segment = Segment(prompt_ids=[1, 2, 3], turns=[first, last])
    return Episode(
        task=f"t/{ordinal}",
        ordinal=ordinal,
        trajectories=[Trajectory(verdict=verdict, segments=[segment])],
    )


@pytest.fixture
def reader(tmp_path: Path) -> RunReader:
    folder = tmp_path / "run"
    (folder / "episodes").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n')
    episodes = [episode(0), episode(1, 0.0), episode(2, None)]
    write_episodes(folder / "episodes" / "step-000001.jsonl", episodes)
    (folder / "annotations").mkdir()
    learned = {"role": 0, "window": 0, "advantage": [0.5, 0.5], "logp": [-0.25, -0.75]}
    (folder / "annotations" / "learner.jsonl").write_text(
        json.dumps({"step": 1, "ordinal": 0, "windows": [learned]}) + "\n"
    )
    made = RunReader(folder, "run", None)
    made.refresh()
    return made


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_table_of_windows_keeps_every_id_as_it_was_sampled(
    reader: RunReader, tmp_path: Path
) -> None:
    first, second, third = export(reader, "jsonl", tmp_path / "out", filters={})
    told = rows(first)
    assert list(told[0]) == list(WINDOW)
    assert told[0]["ids"] == [1, 2, 3, 11, 12, 21, 22, 23, 31]
    assert told[0]["mask"] == [0, 0, 0, 1, 1, 0, 0, 0, 0]
    assert told[0]["logprobs"][3:5] == [-0.25, -0.5]
    assert told[0]["versions"] == [-1, -1, -1, 3, 4, -1, -1, -1, 4]
    assert (told[0]["advantages"], told[0]["learner_logprobs"]) == ([0.5, 0.5], [-0.25, -0.75])
    assert [row["reward"] for row in told] == [1.0, 0.0, None]
    assert rows(second) == [{"run": "run", "step": 1, "column": "reward/mean", "value": 0.5}]
    assert third.name == "rollouts.jsonl"
    (only,) = export(reader, "jsonl", tmp_path / "out", filters={"reward": "0.5.."})[:1]
    assert [row["ordinal"] for row in rows(only)] == [0]


def test_a_table_without_rows_leaves_no_file_of_an_earlier_export(
    reader: RunReader, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow", reason="the extra export is not installed")
    (tmp_path / "rollouts.parquet").write_bytes(b"of another run")
    names = [path.name for path in export(reader, "parquet", tmp_path, filters={})]
    assert names == ["windows.parquet", "metrics.parquet"]
    assert not (tmp_path / "rollouts.parquet").exists()


def test_chats_are_what_was_said_and_a_failure_is_no_label(
    reader: RunReader, tmp_path: Path
) -> None:
    (shared,) = export(reader, "sharegpt", tmp_path / "s", filters={})
    turns = [(turn["from"], turn["value"]) for turn in rows(shared)[0]["conversations"]]
    assert turns == [
        ("system", "Work."),
        ("human", "1+2?"),
        ("function_call", '{"name":"calculator","arguments":{"expression":"1+2"}}'),
        ("observation", "3"),
        ("gpt", "3"),
    ]
    (trl,) = export(reader, "trl", tmp_path / "t", filters={})
    assert [row["label"] for row in rows(trl)] == [True, False]
    assert [m["role"] for m in rows(trl)[0]["prompt"]] == ["system", "user"]
    assert [m["role"] for m in rows(trl)[0]["completion"]] == ["assistant", "tool", "assistant"]


def test_atif_numbers_its_steps_and_results_stand_at_the_step_that_called(
    reader: RunReader, tmp_path: Path
) -> None:
    files = export(reader, "atif", tmp_path / "a", filters={})
    document = json.loads(files[0].read_text())
    steps = document["steps"]
    assert [(step["step_id"], step["source"]) for step in steps] == [
        (1, "system"),
        (2, "user"),
        (3, "agent"),
        (4, "agent"),
    ]
    assert steps[2]["observation"]["results"] == [{"source_call_id": "call_0", "content": "3"}]
    assert steps[3]["metrics"]["prompt_token_ids"] == [1, 2, 3, 11, 12, 21, 22, 23]
    assert steps[3]["metrics"]["completion_token_ids"] == [31]


def test_a_training_trace_masks_its_prompt_and_has_a_number_a_token(
    reader: RunReader, tmp_path: Path
) -> None:
    (path,) = export(reader, "training-trace", tmp_path / "o", filters={"reward": "1"})
    (trace,) = rows(path)
    for node in trace["turns"]:
        prompt, sampled = node["prompt_token_ids"], node["completion_token_ids"]
        assert len(node["loss_mask"]) == len(prompt) + len(sampled)
        assert not any(node["loss_mask"][: len(prompt)])
        assert len(node["per_token_logps"]) == len(sampled)
        assert max(node["per_token_logps"]) <= 0
    assert len({node["node_id"] for node in trace["turns"]}) == 2


def test_pi_sessions_are_trees_of_messages(reader: RunReader, tmp_path: Path) -> None:
    head, *entries = rows(export(reader, "pi", tmp_path / "p", filters={})[0])
    assert (head["type"], head["version"]) == ("session", 3)
    assert [one["parentId"] for one in entries] == [None, *(one["id"] for one in entries[:-1])]
    roles = [one["message"]["role"] for one in entries]
    assert roles == ["developer", "user", "assistant", "toolResult", "assistant"]
    assert entries[2]["message"]["stopReason"] == "toolUse"


def test_what_cannot_be_exported_is_told(reader: RunReader, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no format 'csv'; formats: jsonl"):
        export(reader, "csv", tmp_path, filters={})
    with pytest.raises(ConfigError, match=r"passes the filter 'split=train&reward=7\.\.', of \d"):
        export(reader, "jsonl", tmp_path, filters={"split": "train", "reward": "7.."})
    assert set(FORMATS) >= {"parquet", "hf"}
    assert list(windows(reader, iter(()))) == []


# --- recipes compared -----------------------------------------------------------------------------


def run(
    folder: Path, rewards: list[float], *, recipe: str = "grpo", seed: int = 0, steps: int = 2
) -> RunReader:
    (folder / "episodes").mkdir(parents=True)
    (folder / "config.toml").write_text(f'recipe = "{recipe}"\nseed = {seed}\nsteps = {steps}\n')
    (folder / "metrics.jsonl").write_text('{"step": 2, "reward/mean": 0.5}\n')
    held = [
        Episode(task=f"test/{n}", split="test", trajectories=[Trajectory(verdict=Verdict.of(r))])
        for n, r in enumerate(rewards)
    ]
    write_episodes(folder / "episodes" / "eval-000002.jsonl", held)
    made = RunReader(folder, folder.name, None)
    made.refresh()
    return made


def test_two_recipes_are_compared_by_worked_numbers(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "a1", [1.0, 0.5], seed=1),
        run(tmp_path / "a2", [0.5, 0.5], seed=2),
        run(tmp_path / "b1", [0.5, 0.0], seed=1, recipe="rloo"),
        run(tmp_path / "b2", [0.0, 0.5], seed=2, recipe="rloo"),
    ]
    told = compare(runs)
    assert told["refused"] == []
    assert [(one["recipe"], one["scores"]) for one in told["recipes"]] == [
        ("grpo", [0.75, 0.5]),
        ("rloo", [0.25, 0.25]),
    ]
    # middle half of 0.5 0.5 0.5 1.0 and of 0 0 0.5 0.5
    assert [one["iqm"] for one in told["recipes"]] == [0.5, 0.25]
    # task 0: 1>.5, 1>0, .5=.5, .5>0: 3.5 of 4; task 1: .5>0, .5=.5, twice: 3 of 4
    (pair,) = told["pairs"]
    assert pair["probability"] == (3.5 / 4 + 3 / 4) / 2
    low, high = pair["interval"]
    assert low <= pair["probability"] <= high
    by_seed = compare(runs, by="seed")
    assert [one["recipe"] for one in by_seed["recipes"]] == ["seed = 1", "seed = 2"]
    assert [one["scores"] for one in by_seed["recipes"]] == [[0.75, 0.25], [0.5, 0.25]]
    one_seed = compare([runs[0], runs[2]])
    assert one_seed["recipes"][0]["interval"] is None


@given(names=st.lists(st.text("ab/", min_size=1, max_size=3), min_size=2, max_size=4, unique=True))
def test_different_recipes_never_have_one_name(names: list[str]) -> None:
    with TemporaryDirectory() as folder:
        recipes = [f"{name}/a-folder-of-many-letters-that-all-have.toml" for name in names]
        runs = [run(Path(folder) / str(n), [], recipe=name) for n, name in enumerate(recipes)]
        assert len({*labels(runs)}) == len({*labels(runs, "recipe")}) == len(names)


def test_a_setting_that_no_run_has_makes_no_recipes(tmp_path: Path) -> None:
    runs = [run(tmp_path / name, [1.0], seed=n) for n, name in enumerate("ab")]
    (why,) = compare(runs, by="sede")["refused"]
    assert "no run has the setting 'sede'" in why


def test_runs_with_other_budgets_or_tasks_are_refused_by_name(tmp_path: Path) -> None:
    usual = [run(tmp_path / f"r{n}", [1.0, 0.0], seed=n) for n in range(2)]
    told = compare([*usual, run(tmp_path / "long", [1.0, 0.0], steps=9)])["refused"]
    assert "long has steps = 9, the others have 2" in told
    assert "long stands at step 2 of 9" in told
    told = compare([*usual, run(tmp_path / "other", [1.0, 0.0, 1.0])])["refused"]
    assert told == ["other was judged on 1 held-out tasks that another run has not"]


@given(names=st.lists(st.sampled_from(BUDGET[2:]), min_size=1, unique=True), swapped=st.booleans())
def test_what_a_run_of_another_kind_does_not_know_is_one_line(
    names: list[str], swapped: bool
) -> None:
    """As `ludus sft` has no rollouts, whichever of the two is named first."""
    with TemporaryDirectory() as folder:
        usual, other = run(Path(folder) / "usual", [1.0]), run(Path(folder) / "other", [1.0])
        with (usual.path / "config.toml").open("a") as file:
            file.writelines(f"{name} = 8\n" for name in names)
        (why,) = compare([other, usual] if swapped else [usual, other])["refused"]
        told = [name for name in BUDGET if name in names]
        assert why == f"other has no {', '.join(told)}, of which another run has a value"


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Oracle: the known median of a drawn distribution, 200 samples of 10 runs on 5 tasks."""
    draw = np.random.default_rng(0)
    covered = 0
    for number in range(100):
        scores = draw.normal(0.5, 0.1, size=(10, 5))
        low, high = bootstrap([scores], iqm, draws=200, seed=number)
        covered += low <= 0.5 <= high
    assert 85 <= covered <= 99


def test_the_probability_of_improvement_is_antisymmetric() -> None:
    draw = np.random.default_rng(1)
    first, second = draw.random((4, 3)), draw.random((6, 3))
    assert improvement(first, second) + improvement(second, first) == pytest.approx(1.0)
    assert improvement(first, first) == pytest.approx(0.5)


@pytest.mark.parametrize("inner", ["", "episodes"])
def test_what_is_exported_is_never_replaced(inner: str, reader: RunReader) -> None:
    kept = {path: path.read_bytes() for path in reader.path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="holds what is exported, which would be replaced"):
        export(reader, "jsonl", reader.path / inner, filters={})
    assert {path: path.read_bytes() for path in reader.path.rglob("*") if path.is_file()} == kept


@pytest.mark.parametrize("to", [name for name in FORMATS if name in ("sharegpt", "trl", "jsonl")])
def test_a_file_of_episodes_is_never_replaced_by_its_export(to: str, tmp_path: Path) -> None:
    name = {"jsonl": "windows.jsonl"}.get(to, f"{to}.jsonl")
    write_episodes(tmp_path / name, [episode(0)])
    kept = (tmp_path / name).read_bytes()
    made = RunReader(tmp_path / name, "file", None)
    made.refresh()
    with pytest.raises(ConfigError, match="would be replaced"):
        export(made, to, tmp_path, filters={})
    assert (tmp_path / name).read_bytes() == kept


def a_run(folder: Path, episodes: list[Episode]) -> RunReader:
    (folder / "episodes").mkdir(parents=True)
    write_episodes(folder / "episodes" / "step-000001.jsonl", episodes)
    made = RunReader(folder, "run", None)
    made.refresh()
    return made


def test_every_role_of_an_episode_has_a_file_inside_the_folder(tmp_path: Path) -> None:
    told = episode(0)
    roles = ["a", "a", "../../outside"]
    told.trajectories = [msgspec.structs.replace(told.trajectories[0], role=role) for role in roles]
    out = tmp_path / "deep" / "out"
    files = export(a_run(tmp_path / "run", [told]), "atif", out, filters={})
    assert len({path.resolve() for path in files}) == 3
    assert {path.resolve().parent for path in files} == {out.resolve()}
    assert [json.loads(path.read_text())["agent"]["extra"]["role"] for path in files] == roles


def test_what_the_policy_said_before_a_window_began_is_still_its_own(tmp_path: Path) -> None:
    told = episode(0)
    first = told.trajectories[0].segments[0].turns[0]
    first.observation = [user("1+1?"), assistant("2"), user("1+2?")]
    (file,) = export(a_run(tmp_path / "run", [told]), "pi", tmp_path / "out", filters={})
    said = [row["message"]["role"] for row in rows(file)[1:]]
    assert said[:4] == ["user", "assistant", "user", "assistant"]
    assert rows(file)[2]["message"]["usage"]["output"] == 0
