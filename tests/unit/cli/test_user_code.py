"""User code named by --import: under which name a file is a module, and what a command repeats."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ludus.cli import loading
from ludus.cli.loading import command_line, import_user_code
from ludus.trainer.engines.vllm.server import environment

ENV = """
import ludus

@ludus.register("mine/{name}-v0")
class Mine(ludus.TextEnv):
    '''Say it back.'''
    def reset(self, *, seed=None, options=None):
        return "salve", {{}}
    def step(self, action):
        return "", float(action == "salve"), True, False, {{}}
    def demonstrate(self):
        return "salve"
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "imported", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def written(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"VALUE = {str(path)!r}\n")
    return path


@pytest.mark.parametrize(
    ("name", "module", "has"),
    [
        ("numbers.py", "numbers", "Integral"),  # standard library, imported or not
        ("colorsys.py", "colorsys", "rgb_to_hsv"),
        ("numpy.py", "numpy", "array"),  # installed
        ("ludus.py", "ludus", "make"),
    ],
)
def test_a_file_stands_in_for_no_module_of_its_name(
    name: str, module: str, has: str, tmp_path: Path
) -> None:
    sys.modules.pop("colorsys", None)
    path = written(tmp_path, name)
    import_user_code(str(path))
    assert hasattr(__import__(module), has)
    ours = [one for one in list(sys.modules.values()) if getattr(one, "VALUE", "") == str(path)]
    assert len(ours) == 1
    assert ours[0].__name__.startswith(f"ludus_import_{module}_")


def test_a_file_with_a_name_of_its_own_keeps_it(tmp_path: Path) -> None:
    path = written(tmp_path, "surely_my_own.py")
    import_user_code(str(path))
    assert str(path) == __import__("surely_my_own").VALUE


@pytest.mark.parametrize("name", ["my-envs.py", "two.words.py", "3.py", "__main__.py"])
def test_a_file_whose_name_is_no_module_name_is_imported(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    main_before = sys.modules["__main__"]
    import_user_code(str(path))
    assert any(getattr(one, "VALUE", "") == str(path) for one in list(sys.modules.values()))
    assert sys.modules["__main__"] is main_before


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    both = [written(tmp_path / side, "twice_named.py") for side in ("a", "b")]
    for path in both:
        import_user_code(str(path))
    values = {getattr(one, "VALUE", "") for one in list(sys.modules.values())}
    assert {str(path) for path in both} <= values


def test_a_file_that_raises_leaves_no_module(tmp_path: Path) -> None:
    path = tmp_path / "raises_at_once.py"
    path.write_text("raise RuntimeError('no')")
    with pytest.raises(RuntimeError, match="no"):
        import_user_code(str(path))
    assert "raises_at_once" not in sys.modules


@pytest.mark.slow
def test_an_environment_of_such_a_file_is_played_in_a_worker_process(tmp_path: Path) -> None:
    (tmp_path / "numbers.py").write_text(ENV.format(name="numbers"))
    # -P as the installed `ludus` has it: Python itself puts nothing of this folder on the path
    command = [sys.executable, "-P", "-m", "ludus", "--import", "numbers.py"]
    command += ["eval", "mine/numbers-v0"]
    for policy in ("expert", "random"):  # the second plays in worker processes
        made = subprocess.run(
            [*command, "--tasks", "2", "--policy", policy, "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert made.returncode == 0, made.stderr
        assert json.loads(made.stdout)["failed"] == 0


def test_a_vllm_server_imports_nothing_from_the_current_folder() -> None:
    assert environment({})["PYTHONSAFEPATH"] == "1"
    assert environment({"PYTHONSAFEPATH": ""})["PYTHONSAFEPATH"] == ""  # the user's own choice


def test_a_command_to_type_has_the_imports_of_this_one(tmp_path: Path) -> None:
    path = written(tmp_path / "a b", "imported_once.py")
    import_user_code(str(path))
    import_user_code("json")
    assert command_line("train", "x y/config.toml", "--run.resume") == (
        f"ludus --import '{path}' --import json train 'x y/config.toml' --run.resume"
    )


@contextmanager
def started(command: list[str], cwd: Path) -> Generator[subprocess.Popen[str]]:
    """A process that does not outlive the test."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["train", "sft"])
def test_the_command_that_is_told_after_an_interruption_resumes_the_run(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(ENV.format(name="own"))
    start = [sys.executable, "-m", "ludus", "--import", "mine.py"]
    warm = "sft --env mine/own-v0 --model.path tiny --batch-size 2 --run.folder warm --steps"
    subprocess.run([*start, *warm.split(), "1"], cwd=tmp_path, check=True, timeout=120)
    model = "warm/checkpoints/step-000001"
    settings = {
        "train": "train grpo --rollout.tasks-per-step 1 --rollout.group-size 2 --eval.tasks 1 "
        "--rollout.max-tokens 2",
        "sft": "sft --batch-size 2",
    }[verb].split()
    common = f"--env mine/own-v0 --model.path {model} --steps 100000 --run.folder run".split()
    with started([*start, *settings, *common], tmp_path) as process:
        metrics = tmp_path / "run" / "metrics.jsonl"
        waited = subprocess.run(
            ["sh", "-c", f"until grep -qs '\"step\":[2-9]' {metrics}; do sleep 0.1; done"],
            timeout=120,
        )
        assert waited.returncode == 0
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    again = said.partition("go on with: ")[2].split("\n")[0].split()
    assert again[:3] == ["ludus", "--import", "mine.py"], said
    with started([*start[:3], *again[1:]], tmp_path) as resumed:
        before = len(metrics.read_text().splitlines())
        more = f"until [ $(wc -l < {metrics}) -gt {before + 1} ]; do sleep 0.1; done"
        subprocess.run(["sh", "-c", more], timeout=120, check=True)
        resumed.send_signal(signal.SIGINT)
        resumed.communicate(timeout=120)
    assert resumed.returncode == 130


@pytest.mark.parametrize("verb", ["sft", "eval", "check"])
def test_an_import_behind_the_verb_is_told_where_it_stands(verb: str) -> None:
    command = [sys.executable, "-m", "ludus", verb, "--import", "mine.py", "--env", "me/mine-v0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert f"ludus --import FILE.py {verb} ..." in ended.stderr
