"""Verifiers, recipes and filters of a user's own: what is taken for what, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from torch import Tensor

import ludus
from ludus.agent import Episode, Trajectory, write_episodes
from ludus.cli.main import main
from ludus.cli.train import recipe_or_settings
from ludus.contract import where
from ludus.errors import ConfigError, UnknownEnv
from ludus.rewards.checks import examine_verifier
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.recipes.effects import Circumstances, recipe_effects
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.recipes.resolution import effective, plan_updates, resolve
from ludus.verdict import Verdict


@ludus.verifier("own-parts/listed")
class Listed:
    """The response is a key of a file.

    Args:
        path: the file, of JSON.
    """

    def __init__(self, path: str = "") -> None:
        self.known = json.loads(Path(path).read_text()) if path else {}

    def score(self, sample: ludus.Sample) -> Verdict:
        return Verdict.of(float(sample.text in self.known), f"knows {len(self.known)}")


def share_of_group(rewards: Tensor, groups: Tensor, *, power: float = 0.5) -> Tensor:
    return rewards**power - rewards.mean()


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("own_parts_share")
    module.share_of_group = share_of_group  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "own_parts_share:share_of_group"


def test_an_option_that_is_a_file_of_json_is_no_file_of_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known.json"
    known.write_text('{"tea": 1}')
    assert main(["score", f"own-parts/listed?path={known}", "--gold", "", "--answer", "tea"]) == 0
    assert (
        main(["score", "own-parts/listed", "--path", str(known), "--gold", "", "--answer", "tea"])
        == 0
    )
    assert capsys.readouterr().out == "reward 1: knows 1\n" * 2


def test_a_file_that_an_option_names_and_nobody_has_is_told_with_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["score", "own-parts/listed?path=no.json", "--gold", "", "--answer", "tea"]) == 2
    told = capsys.readouterr().err
    assert "verifier 'own-parts/listed' cannot be made with {'path': 'no.json'}" in told


UNREADY = """
import ludus

class Unready(Exception): ...

class NeverReady:
    def __init__(self, path: str = "") -> None:
        raise Unready("the index is empty")

@ludus.verifier("own/unready")
class Verifier(NeverReady):
    def score(self, sample): return ludus.Verdict.of(1.0)

@ludus.register("own/unready-v0")
class Env(NeverReady, ludus.TextEnv):
    system_prompt = "Say anything."
    def reset(self, *, seed=None, options=None): return "Well?", {}
    def step(self, action): return "", 1.0, True, False, {}
"""


@pytest.mark.parametrize(
    ("words", "debug", "lines"),
    [
        ("serve own/unready?path=x --port 0", "", 1),
        ("serve own/unready-v0?path=x --port 0", "", 1),
        ("score own/unready?path=x --gold a --answer a", "", 1),
        ("eval own/unready-v0?path=x --policy random --tasks 1", "", 1),
        ("serve own/unready?path=x --port 0", "1", 9),
    ],
)
def test_a_constructor_that_fails_is_a_line_with_the_options_the_error_and_its_place(
    tmp_path: Path, words: str, debug: str, lines: int
) -> None:
    (tmp_path / "unready.py").write_text(UNREADY)
    done = subprocess.run(
        [sys.executable, "-m", "ludus", "--import", "unready.py", *words.split()],
        cwd=tmp_path,
        env={**os.environ, "LUDUS_DEBUG": debug},
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = done.stderr.splitlines()
    assert (len(told) == lines) if lines == 1 else (len(told) >= lines), told
    line = "cannot be made with {'path': 'x'}: Unready: the index is empty (unready.py:8)"
    assert f"{line}; LUDUS_DEBUG=1 shows the traceback" in told[-1]


def test_answers_without_labels_have_no_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"response": "a", "gold": "a"}\n')
    assert main(["score", "exact", "--file", str(rows), "--json"]) == 0
    assert "accuracy" not in json.loads(capsys.readouterr().out)
    rows.write_text('{"response": "a", "gold": "a", "label": true}\n')
    assert main(["score", "exact", "--file", str(rows), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0


def test_a_case_that_earns_nothing_is_one_failure_in_few_words() -> None:
    report = examine_verifier("exact", cases=[ludus.Sample(response="a", gold="b")])
    details = {finding.rule: finding.detail for finding in report.failures}
    told = "response 'a' with gold 'b' must earn 1, got reward 0 ('a' is not the gold)"
    assert details == {"right answers": told}


def test_options_in_a_name_are_keywords_in_python() -> None:
    with pytest.raises(UnknownEnv, match=r"did you mean 'ludus/arithmetic-v0'.*keyword arguments"):
        ludus.make("ludus/arithmetic-v0?max_operations=3")


def test_the_place_of_an_error_is_in_the_code_of_the_user() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Listed(path="no.json")
    assert where(caught.value).startswith("test_parts_of_your_own.py:")


@pytest.mark.parametrize("table", ["", "[updates]\nsplits = 4\n", "[sampling]\ngroup_size = 2\n"])
def test_a_file_with_a_base_is_a_recipe_whatever_it_changes(table: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "grpo"\nname = "mine"\n{table}')
    assert recipe_or_settings(str(file)) == {"recipe": str(file)}
    file.write_text('recipe = "grpo"\n')
    assert recipe_or_settings(str(file)) == {"recipe": "grpo"}


def test_a_function_of_your_own_is_told_with_its_defaults_and_its_groups(share: str) -> None:
    recipe = load_recipe("grpo", {"algorithm": {"advantage": share}})
    assert effective(recipe)["algorithm.advantage.power"] == 0.5
    algorithm = resolve(recipe, max_tokens=8)
    updates = plan_updates(algorithm, groups=4)
    told = dict(recipe_effects(algorithm, Circumstances(updates, stale=False, exact=True)))
    assert told[share] == "is given the groups: 8 rollouts of a task"


def test_a_module_named_as_a_file_is_asked_for_by_its_file() -> None:
    wrong = {"algorithm": {"advantage": "own_parts_none.py:share"}}
    with pytest.raises(ConfigError, match=r"by --import own_parts_none\.py$"):
        resolve(load_recipe("grpo", wrong), max_tokens=8)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "episodes").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n')
    paid = Episode(task="train/0", trajectories=[Trajectory(verdict=Verdict.of(1.0))])
    write_episodes(folder / "episodes" / "step-000001.jsonl", [paid])
    return folder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["export", "--to", "jsonl", "--filter", "rewad=1"], "no filter named 'rewad'"),
        (["export", "--to", "jsonl", "--filter", "reward=0..high"], "'high' is no number"),
        (["watch", "--json", "episodes?rewad=..0"], "no filter named 'rewad'"),
        (["watch", "--json", "episodes?sort=-tokns"], "nothing to sort by named 'tokns'"),
        (["watch", "--json", "steps?stp=3"], "does not read 'stp'; it reads run, step"),
        (["watch", "--json", "runs?run=a"], "does not read 'run'; it reads nothing"),
        (["watch", "--json", "steps?step=last"], "step=last: give a whole number"),
        (["watch", "--json", "series?columns=reward/men"], "did you mean 'reward/mean'"),
    ],
)
def test_a_misspelt_query_is_refused_and_not_read_past(
    arguments: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([arguments[0], str(run), *arguments[1:]]) == 2
    assert told in capsys.readouterr().err


def test_a_query_that_is_well_spelt_is_answered(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(run), "--json", "episodes?reward=0.5..&sort=-tokens&limit=5"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 1
    # A run has no column of evaluations before the first one.
    assert main(["watch", str(run), "--json", "series?columns=reward/mean,eval/mean"]) == 0
    assert main(["export", str(run), "--to", "jsonl", "--filter", "reward=..1&split=train"]) == 0


def test_the_model_before_is_found_by_every_name_that_a_run_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.agent.viewer.run import RunReader
    from ludus.cli.gains import _weights

    monkeypatch.setenv("LUDUS_MODELS_DIR", str(tmp_path / "models"))
    for name, before in (("warm", "tiny"), ("run", str(tmp_path / "warm"))):
        write_tiny_policy(tmp_path / name / "checkpoints" / "step-000001")
        (tmp_path / name / "config.toml").write_text(f'[model]\npath = "{before}"\n')
        reader = RunReader(tmp_path / name, name, None)
        reader.refresh()
        weights, why = _weights(reader)
        assert (weights is not None, why) == (True, "")


def test_an_audit_names_a_call_as_a_call() -> None:
    from ludus.agent.audit.report import _said

    call = ludus.ToolCall(name="ship", arguments={"bay": 0, "to": "gate"})
    made = ludus.Message(role=ludus.Role.ASSISTANT, content="Now.", tool_calls=[call])
    assert [_said(made), _said("hello")] == ["Now. ship(bay=0, to='gate')", "hello"]
