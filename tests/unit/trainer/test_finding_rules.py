"""Rules: their remedies are accepted, planted faults are named, healthy runs are quiet."""

from __future__ import annotations

import functools
import json
import random
import re
import shlex
import string
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.viewer.columns import column
from ludus.cli.arguments import VerbHelp, parse, parse_settings
from ludus.cli.audit import AuditOptions
from ludus.cli.main import main
from ludus.cli.model import ProbeOptions
from ludus.cli.tasks import TasksOptions
from ludus.cli.train import recipe_or_settings
from ludus.cli.view import ViewOptions
from ludus.config import as_table
from ludus.trainer.config import SFTConfig, TrainConfig
from ludus.trainer.findings.diagnosis import Diagnosis
from ludus.trainer.findings.history import RunHistory
from ludus.trainer.findings.quantities import CONDITIONS, QUANTITIES
from ludus.trainer.findings.rule import RULES
from ludus.trainer.findings.summary import MOST, roots_of, summary_of
from ludus.trainer.findings.words import WORDS, _reweighed
from ludus.trainer.run.folder import RunFolder

ROOT = Path(__file__).resolve().parents[3]
PLANTED: dict[str, Any] = json.loads((Path(__file__).parent / "planted_runs.json").read_text())
HELP = VerbHelp(verb="train", about="", example="")


@functools.cache
def accepted(command: str) -> None:
    """Parse a remedy by the command line that would run it; several rules have the same one.

    Raises:
        ConfigError: the command line refuses it.
    """
    words = shlex.split(command)
    if words[0] != "ludus":
        parse_settings(TrainConfig, words, HELP, named=recipe_or_settings)
    elif words[1] == "audit":
        parse(AuditOptions, words[2:], HELP)
    elif words[1] == "model":
        parse(ProbeOptions, words[3:], HELP)
    elif words[1] == "sft":
        parse_settings(SFTConfig, words[2:], HELP)
    else:
        assert words[1] == "view", command
        assert "path" in ViewOptions.__annotations__
        assert len(words) == 3


def histories() -> list[RunHistory]:
    """Runs of two configs, with the parts of a reward."""
    rows = [
        {
            "step": float(step),
            "episode/count": 8.0,
            "reward/mean": 0.1 + 0.1 * step,
            "reward/part/env": 1.0 - 0.1 * step,
            "reward/part/exact": 0.2 * step,
            "reward/share/env": 0.02,
            "reward/share/exact": 0.98,
            "reward/spread/env": 0.4,
            "reward/spread/exact": 0.4,
            "episode/tokens": 10.0 * step,
            "group/tasks": 2.0,
        }
        for step in range(1, 7)
    ]
    changed = {"rollout": {"temperature": 0.5, "window": 512}, "model": {"tool_format": "hermes"}}
    reward = {"reward": [{"name": "exact", "weight": 2.0}], "model": {"path": "a folder/b"}}
    found = [RunHistory(as_table(TrainConfig())), RunHistory(changed), RunHistory(reward)]
    for history in found:
        for row in rows:
            history.add(row)
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_remedy_is_a_command_that_works(rule: Any) -> None:
    for history in histories():
        if remedy := rule.remedy_of(history):
            accepted(remedy)


def test_a_reward_that_is_weighed_anew_keeps_its_other_settings() -> None:
    given = {"name": "https://host#it's", "weight": 2.0, "timeout_s": 90.0, "token": "env:TOKEN"}
    history = RunHistory({"reward": [given, {"name": "exact", "weight": 1.0, "token": ""}]})
    words = shlex.split(_reweighed(history, "exact", 3.0))
    config = parse_settings(TrainConfig, words, HELP, named=recipe_or_settings)
    first, second = config.reward
    assert (first.name, first.weight, first.timeout_s) == ("https://host#it's", 2.0, 90.0)
    assert first.token.reference == "env:TOKEN"
    assert (second.name, second.weight) == ("exact", 3.0)


def test_causes_and_names_of_rules_are_rules() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert {cause for rule in RULES for cause in rule.causes} <= set(names)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_word_of_a_rule_is_a_column_a_setting_or_a_word(rule: Any) -> None:
    settings = {
        f"{section}.{name}" if name else section
        for section, table in as_table(TrainConfig()).items()
        for name in (leaves(table) if isinstance(table, dict) else [""])
    }
    told = [*string.Formatter().parse(rule.sentence), *string.Formatter().parse(rule.remedy)]
    for word in [word for _, word, _, _ in told if word] + [rule.quantity, *rule.evidence]:
        if "/" in word:
            assert column(word.replace("*", "any")).group != "Other", word
        else:
            known = {"number", "level", *WORDS, *settings, *QUANTITIES}
            assert word in known, word
    assert set(rule.when) <= set(CONDITIONS)


PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_option_that_a_page_names_is_one(page: Path) -> None:
    """An option with a dot is one of train or sft, which share the sections, or of tasks."""
    text = page.read_text()
    known = {
        f"{section}.{name}"
        for config in (TrainConfig(), SFTConfig(), TasksOptions(sources=()))
        for section, table in as_table(config).items()
        if isinstance(table, dict)
        for name in leaves(table)
    }
    named = {
        name.replace("-", "_") for name in re.findall(r"--(?:no-)?([a-z_]+(?:\.[a-z_-]+)+)", text)
    }
    of_others = {"env.taskset.split"}  # Prime's, in peers.md
    assert {name.replace(".no_", ".") for name in named} - of_others <= known


def leaves(table: dict[str, Any]) -> list[str]:
    """The settings of a section, those of its own sections dotted."""
    return [
        name if not isinstance(value, dict) else f"{name}.{each}"
        for name, value in table.items()
        for each in (leaves(value) if isinstance(value, dict) else [""])
    ]


def diagnosed(run: dict[str, Any]) -> Diagnosis:
    """The diagnosis of a recorded run."""
    diagnosis = Diagnosis(RunHistory(run["settings"], run["recipe"]))
    for row in run["rows"]:
        diagnosis.add(of(run, row))
    return diagnosis


def of(run: dict[str, Any], row: list[float | None]) -> dict[str, float]:
    """A recorded row, with the names of its columns."""
    named = zip(run["columns"], row, strict=True)
    return {name: value for name, value in named if value is not None}


@pytest.mark.parametrize("name", [name for name in PLANTED if PLANTED[name]["expected"]])
def test_a_planted_fault_is_the_first_cause_that_is_told(name: str) -> None:
    """Recorded by `benchmarks/planted_runs.py keep`; docs/training.md has precision and recall."""
    run, diagnosis = PLANTED[name], diagnosed(PLANTED[name])
    if "solved" in run["expected"]:
        assert diagnosis.state == "solved"
        return
    roots = [each for each in roots_of(diagnosis.standing()) if each.severity != "info"]
    assert roots[0].name in run["expected"]


def test_a_short_run_says_what_is_wrong_and_nothing_of_trends() -> None:
    """Three steps say that answers are cut, and nothing of a reward that does not move."""
    usual = PLANTED["grpo"]
    diagnosis = Diagnosis(RunHistory({"steps": 3}, usual["recipe"]))
    rows = [row for row in (of(usual, row) for row in usual["rows"]) if "reward/mean" in row]
    for row in rows[:3]:
        diagnosis.add(row | {"turn/cut": 0.9})
    assert [name for name, each in diagnosis.findings.items() if each.severity != "info"] == [
        "cut_turns"
    ]


@pytest.mark.parametrize("runs", [10, pytest.param(30, marks=pytest.mark.slow)])
def test_a_run_that_learns_is_at_no_step_said_to_be_flat(runs: int) -> None:
    usual, flat = PLANTED["grpo"], 0
    for seed in range(runs):
        draw = random.Random(seed)
        slope, noise = draw.uniform(0.0, 0.015), draw.uniform(0.02, 0.1)
        diagnosis = Diagnosis(RunHistory({"steps": 40}, usual["recipe"]))
        rows = [row for row in (of(usual, row) for row in usual["rows"]) if "reward/mean" in row]
        for step in range(40):
            reward = 0.2 + slope * step + draw.gauss(0, noise)
            mixed = {"reward/mean": reward, "group/equal": 0.0, "group/solved": 0.0}
            diagnosis.add(rows[0] | mixed | {"step": step + 1.0, "group/failed": 0.0})
            both = {name for name in ("flat", "learning") if name in diagnosis.findings}
            both = {name for name in both if diagnosis.findings[name].status == "open"}
            assert len(both) < 2, (seed, step)
        flat += "flat" in diagnosis.findings
    assert flat  # some of the slow ones are


@pytest.mark.parametrize("name", ["rate-too-high", "answers-cut"])
def test_whatever_holds_has_a_first_cause(name: str) -> None:
    """Where everything fails at once, findings that could explain each other make no circle."""
    run = PLANTED[name]
    diagnosis = Diagnosis(RunHistory(run["settings"], run["recipe"]))
    for step, row in enumerate(run["rows"]):
        named = of(run, row)
        if step > 10:  # collapse and cut turns could each be the cause of the other
            named |= {"turn/cut": 1.0, "reward/mean": 0.0, "reward/std": 0.0, "group/failed": 1.0}
        elif "reward/mean" in named:
            named |= {"turn/cut": 0.3 * (step > 8), "reward/mean": 0.9, "group/failed": 0.0}
        diagnosis.add(named)
    for finding in diagnosis.findings.values():
        assert diagnosis.findings[diagnosis.causes_of(finding.name)[-1]].cause is None


@pytest.mark.parametrize("name", [name for name in PLANTED if not PLANTED[name]["expected"]])
def test_a_healthy_run_warns_of_nothing(name: str) -> None:
    diagnosis = diagnosed(PLANTED[name])
    assert [f.name for f in diagnosis.findings.values() if f.severity != "info"] == []
    assert diagnosis.state in ("solved", "learning")
    assert len(summary_of(diagnosis)) <= MOST


def test_findings_follow_from_the_rows_alone_wherever_a_run_was_interrupted() -> None:
    """The law of a resumed run: rows that are read again open and close what they did."""
    run = PLANTED["reward-hacked"]
    whole = diagnosed(run)
    half = diagnosed({**run, "rows": run["rows"][: len(run["rows"]) // 2]})
    for row in run["rows"][len(run["rows"]) // 2 :]:
        half.add(of(run, row))
    assert half.findings == whole.findings


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize(("path", "expected"), [("falls", "audit_falls"), ("rises", "")])
def test_a_reward_that_rises_while_the_audits_falls_is_named(
    path: str, expected: str, every: int
) -> None:
    usual = PLANTED["grpo"]
    diagnosis = Diagnosis(RunHistory(usual["settings"], usual["recipe"]))
    rows = [row for row in (of(usual, row) for row in usual["rows"]) if "reward/mean" in row]
    for number, row in enumerate(rows):
        share = number / len(rows)
        right = row["reward/mean"] if path == "rises" else 0.4 * (1 - share)
        audited = {"audit/reward": right, "audit/standard_error": 0.02, "audit/like/padding": share}
        audited["audit/undeserved"] = 1 - right / max(row["reward/mean"], right)
        diagnosis.add(row | (audited if number % every == 0 else {}))
        diagnosis.standing()  # says at any step what it has to say
    roots = [each for each in roots_of(diagnosis.standing()) if each.severity != "info"]
    assert [each.name for each in roots] == [expected] * bool(expected)
    if expected:
        assert diagnosis.state == "broken"
        assert "'padding'" in roots[0].sentence


def steps_of(reward: float, **columns: list[float]) -> list[dict[str, float]]:
    """Ten steps that earn the same, each with a value of the columns."""
    usual = {"episode/count": 64.0, "group/count": 8.0, "reward/mean": reward}
    return [
        usual | {"step": float(step + 1)} | {name: values[step] for name, values in columns.items()}
        for step in range(10)
    ]


def told(rows: list[dict[str, float]], settings: dict[str, Any]) -> dict[str, str]:
    """What each finding of a run stands at."""
    diagnosis = Diagnosis(RunHistory(settings))
    for row in rows:
        diagnosis.add(row)
    return {name: finding.status for name, finding in diagnosis.findings.items()}


def test_a_reward_of_at_most_one_is_on_the_usual_scale_wherever_the_bar_is() -> None:
    for passing in (0.1, 0.3, 1.0):
        findings = told(steps_of(1.0), {"steps": 10, "eval": {"passing": passing}})
        assert findings["solved"] == "open"
        assert "above_scale" not in findings
    assert told(steps_of(70.0), {"steps": 10})["above_scale"] == "open"


def test_a_prompt_is_no_longer_strange_once_turns_come_to_their_end() -> None:
    entropy, cut = [2.0] * 10, [0.7] * 10
    columns = {"kind/act_entropy": entropy, "turn/cut": cut}
    assert told(steps_of(0.1, **columns), {"steps": 10})["strange_prompt"] == "open"
    columns["turn/cut"] = [0.7] * 4 + [0.0] * 6
    assert told(steps_of(0.1, **columns), {"steps": 10})["strange_prompt"] == "closed"


@pytest.mark.parametrize(
    ("end", "name"), [("agent_failed", "agent_fails"), ("agent_timeout", "agent_late")]
)
def test_an_agent_that_often_breaks_is_named_as_long_as_it_does(end: str, name: str) -> None:
    for share, expected in ((0.2, None), (0.6, "open")):
        assert (
            told(steps_of(0.5, **{f"stop/{end}": [share] * 10}), {"steps": 10}).get(name)
            == expected
        )
    mended = told(steps_of(0.5, **{f"stop/{end}": [0.6] * 4 + [0.0] * 6}), {"steps": 10})
    assert mended[name] == "closed"


def test_remedies_import_what_the_run_has_imported(tmp_path: Path) -> None:
    file = tmp_path / "my own.py"
    file.write_text("")
    try:
        assert main(["--import", str(file), "list"]) == 0
        RunFolder(tmp_path / "run", TrainConfig(env="me/x")).close()
    finally:
        assert main(["--version"]) == 0  # which imports nothing
    history = RunHistory.read(tmp_path / "run")
    for remedy in ("warm_start", "audit"):
        begin, option, name, *words = shlex.split(str(WORDS[remedy](history)))
        assert (begin, option, name) == ("ludus", "--import", str(file))
        assert "me/x" in words
        accepted(shlex.join(["ludus", *words]))
    RunFolder(tmp_path / "plain", TrainConfig(env="me/x")).close()
    assert str(WORDS["audit"](RunHistory.read(tmp_path / "plain"))) == "ludus audit me/x --rl"
