"""One vocabulary: what stands for a run or a model is taken by every verb that means one."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ludus
from ludus.cli.doctor import PROGRAMS, Ability, jobs, outside, tools
from ludus.cli.evaluate import EvalOptions, who_plays
from ludus.cli.main import main
from ludus.cli.runs import UnknownRun, run_place, settings_of
from ludus.config import draft
from ludus.envs.outside.home import installed
from ludus.envs.outside.kinds import kind_names
from ludus.errors import ConfigError, EnvironmentExited
from ludus.sandboxes import TIERS
from ludus.trainer.config import TrainConfig
from ludus.trainer.models.tiny import find_model, write_tiny_policy
from ludus.trainer.run.claim import finished_note, settled_resume
from ludus.trainer.settings.run import RunConfig


def a_run(folder: Path, steps: tuple[int, ...] = ()) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.toml").write_text('recipe = "grpo"\n[run]\nfolder = "elsewhere"\n')
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward/mean": 0.5}) + "\n")
    for step in steps:
        write_tiny_policy(folder / "checkpoints" / f"step-{step:06d}", hidden=16, layers=1, heads=1)
    return folder


@pytest.mark.parametrize("inner", ["", "config.toml", "checkpoints", "checkpoints/step-000002"])
def test_whatever_is_inside_a_run_stands_for_it(inner: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "mine", (2,))
    assert run_place(str(run / inner)) == run


def test_the_name_of_a_run_stands_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a_run(Path("runs/mine"))
    assert run_place("mine") == Path("runs/mine")
    with pytest.raises(UnknownRun, match="did you mean 'runs/mine'"):
        run_place("runs/mime")


def test_the_settings_of_a_run_name_its_folder_and_not_where_it_was(tmp_path: Path) -> None:
    run = a_run(tmp_path / "moved")
    assert settings_of(str(run))["run"]["folder"] == str(run)


def test_a_run_stands_for_its_best_checkpoint_or_else_its_newest(tmp_path: Path) -> None:
    run = a_run(tmp_path / "mine", (2, 10))
    newest = str(run / "checkpoints" / "step-000010")
    assert [find_model(run / p) for p in ("", "config.toml", "checkpoints")] == [newest] * 3
    (run / "checkpoints" / "best").symlink_to("step-000002")
    assert find_model(run) == str((run / "checkpoints" / "step-000002").resolve())


def test_a_run_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        find_model(a_run(tmp_path / "new"))


def test_tiny_is_a_model_everywhere_and_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_MODELS_DIR", str(tmp_path))
    folder = Path(find_model("tiny"))
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert find_model("tiny") == str(folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


def test_two_who_ask_for_tiny_at_once_both_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_MODELS_DIR", str(tmp_path))
    with ThreadPoolExecutor(2) as both:
        found = list(both.map(find_model, ["tiny", "tiny"]))
    assert found == [str(tmp_path / "tiny")] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_resume_auto_begins_where_nothing_is_and_else_goes_on(tmp_path: Path) -> None:
    auto = RunConfig(resume="auto")
    assert settled_resume(auto, tmp_path / "none").resume is False
    assert settled_resume(auto, a_run(tmp_path / "mine")).resume is True
    assert finished_note(4, 5) == ""
    assert "finished" in finished_note(5, 5)


@pytest.mark.parametrize(("given", "value"), [(True, True), (False, False), ("auto", "auto")])
def test_resume_is_read_from_a_file(given: object, value: object) -> None:
    assert draft(TrainConfig, {"run": {"resume": given}}).run.resume == value


@pytest.mark.parametrize(
    ("options", "policy"),
    [({}, "expert"), ({"model": "tiny"}, "local"), ({"model": "m", "base_url": "u"}, "openai")],
)
def test_eval_plays_the_model_that_is_named(options: dict[str, str], policy: str) -> None:
    assert who_plays(EvalOptions(env="ludus/arithmetic-v0", **options)) == policy


def test_eval_refuses_a_model_that_would_not_play() -> None:
    with pytest.raises(ConfigError, match="plays without a model"):
        who_plays(EvalOptions(env="e-v0", model="tiny", policy="expert"))


def test_the_doctor_says_what_is_lacking_and_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["doctor", "--json"])
    lines = json.loads(capsys.readouterr().out)
    assert {line["topic"] for line in lines} > {"jobs", "machine", "extras", "sandboxes", "tools"}
    lacking = [line for line in lines if line["state"] == "no" and line["topic"] != "machine"]
    assert lacking
    assert all(line["remedy"] for line in lacking)
    monkeypatch.setenv("COLUMNS", "80")
    main(["doctor"])
    told = "".join(capsys.readouterr().out.split())  # a long word goes on in the line below
    assert "…" not in told
    for line in lines:
        first, *_ = line["fact"].removeprefix("lacks ").split()
        assert line["name"].replace(" ", "") in told
        assert first in told or len(first) > 30


def test_the_doctor_names_each_missing_program_and_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    missing = {each.name: (each.state, bool(each.remedy)) for each in tools()}
    assert missing == dict.fromkeys(PROGRAMS, ("no", True))
    told = {each.name: each.remedy for each in outside()}
    absent = [kind for kind in kind_names() if not installed(kind)]
    assert [told[kind] for kind in absent] == [f"ludus env install {kind}" for kind in absent]
    holds = Ability("sandboxes", "slots-root", "yes", "it holds")
    states = [[*jobs([*rows])][-1].state for rows in ([holds], [])]
    assert states == ["yes", "note"]


@pytest.mark.slow
def test_the_doctor_of_sandboxes_has_a_line_for_every_tier(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["sandbox", "doctor"])
    lines = capsys.readouterr().out.splitlines()
    for tier in TIERS:
        assert any(line.split()[0] == tier for line in lines if not line.startswith(" "))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_verbs_and_names(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "doctor" in script
    assert "ludus/arithmetic-v0" in script


def test_completion_keeps_the_name_of_a_file_with_a_space_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my run.toml").touch()
    (tmp_path / "my-run.toml").touch()
    main(["completion", "bash"])
    asked = 'COMP_WORDS=(ludus train my) COMP_CWORD=2; _ludus; printf "%s\\n" "${COMPREPLY[@]}"'
    shown = subprocess.run(
        ["bash", "-c", f"{capsys.readouterr().out}\n{asked}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert sorted(shown.stdout.splitlines()) == ["my run.toml", "my-run.toml"], shown.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tools", "game", "judge", "rows", "code"])
def test_a_new_environment_of_every_kind_passes_its_own_tests(kind: str, tmp_path: Path) -> None:
    assert main(["new", "env", f"me/{kind}-v0", "--kind", kind, "--into", str(tmp_path)]) == 0
    source = tmp_path / f"me-{kind}" / "src"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(source.parent)],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["eval", "ludus/arithmetic-v0", "--split", "tset"], "no split named 'tset'"),
        (["check", "http://127.0.0.1:9/"], "http://127.0.0.1:9#NAME"),
        (["train", "grpo", "--trainer.group_size", "1"], "did you mean --rollout.group-size"),
        (["train", "grop", "--env", "ludus/arithmetic-v0"], "did you mean 'grpo'"),
        (["train", "grpo", "--env", "maths"], "'maths' is a verifier"),
        (["sft", "--env", "maths", "--model.path", "tiny"], "'maths' is a verifier"),
        (["eval", "ludus/arithmetic-v0", "--model", "broken.py"], "it is a file, and no .gguf"),
        (["export", "folder", "--to", "jsonl"], "no run to show in 'folder'"),
        (["train", "folder"], "'folder' holds no run: there is no config.toml"),
        (["train", "grpo", "--steps", "two"], "--steps takes a whole number, got 'two'"),
        (["train", "grpo", "--trainer.lr", "fast"], "--trainer.lr takes a number, got 'fast'"),
        (["train", "grpo", "--algorithm.loss.eps-high", "1"], 'base = "grpo"'),
        (["train", "grpo"], "add --env ludus/arithmetic-v0"),
        (["plan", "nosuch"], "no recipe or run named 'nosuch'"),
        (["train", "--run.resume"], "ludus train runs/NAME --run.resume; runs here: runs/mine"),
        (["sft", "--run.resume"], "ludus sft runs/NAME --run.resume; runs here: runs/mine"),
        (["train", "runs/mien", "--run.resume"], "did you mean 'runs/mine'"),
        (["train", "mien", "--run.resume"], "did you mean 'mine'"),
        (["sft", "runs/mien", "--run.resume"], "did you mean 'runs/mine'"),
        (["train", "mine", "--steps", "two"], "--steps takes a whole number, got 'two'"),
        (["plan", "grpo"], "a released model or tiny"),
        (["sweep", "grop"], "did you mean 'grpo'"),
        (["sweep", "grpo", "--env", "ludus/arithmetic-v0"], "settings stand behind --"),
        (["sweep", "options.toml"], "its options stand in [algorithm.loss_options]"),
        (["score", "ludus/arithmetic-v0", "--gold", "1", "--answer", "1"], "is an environment"),
        (["eval", "ludus/arithmetic-v0?max_numbr=3"], "did you mean 'max_number'?"),
        (["--import", "folder", "list"], "a folder, neither a .py file"),
        (["--import", "broken.py", "list"], "it imports 'nothere', which is not installed here"),
        (["watch", "options.toml"], "is no file of episodes"),
        (["compare", "folder"], "'folder' holds no run"),
        (["new", "env", "me/echo-v0", "--kind", "tool"], "choices: tools, game, judge"),
        (["serve", "maths", "--port", "99999"], "--port 99999: ports are 0 to 65535"),
        (["mock-judge", "--port", "99999"], "--port 99999: ports are 0 to 65535"),
        (["retriever", "c.jsonl", "--port", "-1"], "--port -1: ports are 0 to 65535"),
        (["mock-judge", "--failing", "2"], "--failing is a share from 0 to 1, got 2.0"),
        (["mock-judge", "--delay-s", "-1"], "--delay-s is a number of seconds from 0, got -1.0"),
        (
            ["check", "ludus/tally-v0", "--step-timeout-s", "nan"],
            "must be seconds above 0, got nan",
        ),
        (["audit", "ludus/tally-v0", "--step-timeout-s", "0"], "must be seconds above 0, got 0.0"),
        (["env", "install", "gem", "--timeout-s", "nan"], "must be seconds above 0, got nan"),
        (["export", "runs/mine", "--to", "trl", "--filter", "&&"], "'&&' names no filter"),
        (["export", "runs/mine", "--to", "trl", "--filter", "step=1&step=2"], "'step' 2 times"),
        (["compare"], "name the runs to compare"),
        (["score", "exact", "--file", "nope.jsonl"], "see whether the path is right"),
        (["score", "exact", "--file", "folder"], "'folder': Is a directory; name a file"),
        (["score", "maths", "--check-golds", "folder"], "Is a directory; name a file"),
    ],
)
def test_a_wrong_word_is_told_with_the_right_one(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine/config.toml").write_text("steps = 3\n")
    Path("c.jsonl").write_text('{"id": "1", "contents": "a b"}\n')
    Path("broken.py").write_text("import nothere\n")
    Path("options.toml").write_text('base = "grpo"\n[algorithm.loss]\neps_high = 0.3\n')
    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_an_environment_that_exits_is_named_and_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Exits(ludus.TextEnv):
        def reset(self, *, seed=None, options=None):
            return "hi", {}

        def step(self, action):
            sys.exit(3)

    env = ludus.make(Exits())
    env.reset(seed=0)
    with pytest.raises(EnvironmentExited, match=r"step called sys.exit\(3\)"):
        env.step("hi")


def test_a_run_whose_settings_hold_no_table_is_told_by_their_reader(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("run = 3\n")
    assert settings_of(str(tmp_path)) == {"run": 3}


@pytest.mark.parametrize(
    ("lines", "unread"),
    [
        (b'{"ordinal": 0, "group": 0, "task": "\xff", "fate": "trained", "step": 1}\n', 1),
        (b"half a line\n[1]\n\n", 2),
        (b"half a li", 0),  # what was being written when the run was ended
    ],
)
def test_lines_that_are_no_rollouts_are_counted(
    lines: bytes, unread: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = b'{"ordinal": 0, "group": 0, "task": "t", "fate": "trained", "step": 1}\n'
    (tmp_path / "rollouts.jsonl").write_bytes(known + lines)
    assert main(["accounts", str(tmp_path)]) == (1 if unread else 0)
    told = capsys.readouterr()
    assert told.out.split()[:4] == ["issued", "1", "trained", "1"]
    assert (f"unread   {unread} lines" in told.err) is bool(unread)
