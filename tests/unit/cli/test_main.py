"""The `ludus` command as a user meets it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.cli.main import VERBS, main
from ludus.errors import ConfigError
from ludus.rewards.registry import describe_verifiers, find_verifier

MINE = """
import ludus

@ludus.register("mine/parrot-v0")
class Parrot(ludus.TextEnv):
    '''Say it back. And more.'''

    def reset(self, *, seed=None, options=None):
        self.word = self.rng.choice("abcdefgh")
        return f"say {self.word} (answer: {self.word})", {}

    def step(self, action):
        return "", float(action == self.word), True, False, {}

    def gold(self):
        return self.word

@ludus.verifier("mine/yes")
def yes(sample):
    '''Says yes.'''
    return True
"""


def ludus(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ludus", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_help_lists_every_verb_and_needs_nothing_heavy() -> None:
    code = (
        "import sys; from ludus.cli.main import main; main(['--help']);"
        "print([m for m in ('torch', 'tyro', 'gymnasium', 'aiohttp') if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert all(f"  {verb} " in made.stdout for verb in VERBS)
    assert made.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"ludus {verb}" in shown
    assert not re.findall(r"--[\w.-]*_[\w.-]*", shown)  # options are written with hyphens


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert written.startswith("ludus: ")
    return written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chek"], "did you mean 'check'"),
        (["check", "ludus/arithmetik-v0"], "did you mean 'ludus/arithmetic-v0'"),
        (["check", "mths"], "did you mean 'maths'"),
        (["check", "arithmetic"], "did you mean 'ludus/arithmetic-v0'"),
        (["play", "maths"], "an environment's id ends in -vN"),
        (["play", "ludus/arithmetic-v0", "--sed", "3"], "did you mean --seed"),
        (["play"], "ENV"),
        (["play", "ludus/arithmetic-v0", "--seed", "x"], "'x'"),
        (["play", "ludus/arithmetic-v0?colour=1"], "does not take these arguments"),
        (["eval", "ludus/arithmetic-v0", "--policy", "openai"], "needs --base-url and --model"),
        (["eval", "ludus/arithmetic-v0", "--policy", "expret"], "expret"),
        (["eval", "ludus/arithmetic-v0", "--split", "tets"], "did you mean 'test'"),
        (["eval", "ludus/arithmetic-v0", "--tasks", "0"], "--tasks must be at least 1, got 0"),
        (["eval", "ludus/arithmetic-v0", "--budget", "-5"], "--budget must be at least 0, got -5"),
        (["eval", "ludus/arithmetic-v0", "--passing", "nan"], "--passing must be a number"),
        (["eval", "ludus/arithmetic-v0", "--max-turns", "-1"], "max_turns must be at least 0"),
        (["eval", "ludus/arithmetic-v0", "--episode-timeout-s", "0"], "seconds above 0, got 0"),
        (["eval", "ludus/arithmetic-v0", "--verifier", "exakt"], "did you mean 'exact'"),
        (
            ["eval", "ludus/arithmetic-v0", "--html", "/proc/none/x.html"],
            "cannot write '/proc/none/x.html'",
        ),
        (["eval", "--env", "ludus/arithmetic-v0"], "--env is no option here"),
        (["score", "--verifier=maths", "--gold", "1"], "--verifier is no option here"),
        (["plan", "none.json", "--gpus", "4"], "no such file: 'none.json'"),
        (["train", "/dev/null/x.py"], "no such file: '/dev/null/x.py'"),
        (["eval", "ludus/arithmetic-v0", "--out", "/proc/none/x.jsonl"], "cannot write --out"),
        (
            ["play", "ludus/arithmetic-v0?max_operations=abc"],
            "max_operations must be a whole number",
        ),
        (["check", "exact", "--cases", "none.jsonl"], "cannot read 'none.jsonl'"),
        (["check", "exact", "--cases", "/dev/null"], "holds no cases"),
        (["check", "exact", "--max-return", "1"], "--max-return is for an environment"),
        (["check", "ludus/arithmetic-v0", "--cases", "x"], "--cases is for a verifier"),
        (["score", "exact", "--file", "/dev/null"], "holds no answers"),
        (["view", "/dev/null"], "holds no episodes"),
        (["serve", "mathz"], "no environment or verifier named 'mathz'; did you mean 'maths'"),
        (["serve", "maths", "maths?preset=strict"], "'maths' is named 2 times"),
        (["serve", "me/x-v0", "ludus/arithmetic-v0"], "no environment or verifier named"),
        (["serve", "ludus/tally-v0", "ludus/tally-v0?base=3"], "is named 2 times"),
        (["serve", "maths", "--step-timeout-s", "inf"], "must be a number more than 0"),
        (["serve", "learner", "no-model", "--max-body-mb", "nan"], "must be a number more than 0"),
        (["serve", "learner", "no-model", "--tls-key", "key.pem"], "goes with --tls-cert"),
        (["serve", "learner", "no-model", "--port", "70000"], "ports are 0 to 65535"),
        (["serve", "learner", "no-model", "--chaos", "fire"], "chaos knows drop"),
        (["serve", "learner", "no-model", "--host", "0.0.0.0"], "refusing to serve on 0.0.0.0"),
        (["train", "grpo", "--engine", "vlm"], "did you mean 'vllm'? choices: local, vllm"),
        (["train", "grpo", "--trainer.lr", "fast"], "'fast'"),
        (["sandbox", "dcotor"], "no action named 'dcotor'; did you mean 'doctor'"),
        (["sandbox", "doctor", "here"], "no sandbox tier named 'here'"),
        (["sandbox", "shell", "a", "b"], "unknown options: b"),
        (["recipes", "shwo"], "no action named 'shwo'; did you mean 'show'"),
        (["recipes", "diff", "grpo"], "missing from ludus recipes diff: RECIPE"),
        (["--import", ".", "list"], "neither a .py file nor the name of a module"),
        (["new", "env", "Echo"], "me/echo-v0"),
        (["--import", "none.py", "list"], "no such file"),
        (["--import", "no_such_module", "list"], "no such module"),
        (["--import"], "needs a Python file"),
        (["audit", "ludus/tally-v0", "--budget-s=-3"], "--budget-s is -3; give seconds from 0"),
        (["audit", "ludus/tally-v0", "--rl-budget-s=nan"], "--rl-budget-s is nan"),
        (["train", "a" * 300], "File name too long: 'aaa"),
        (["score", "rows.jsonl", "--out", "/dev/zero"], "'/dev/zero': it is no file"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"verifier": "maths", "response": "2", "gold": "2"}')
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    complaint = said(capsys)
    assert words in complaint
    assert "unexpected" not in complaint


def test_an_unexpected_error_is_named_and_its_traceback_is_there_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken_code.py"
    broken.write_text("raise KeyError('boom')")
    assert main(["--import", str(broken), "list"]) == 2
    told = "unexpected KeyError: 'boom' (broken_code.py:1; set LUDUS_DEBUG=1 for the traceback)"
    assert told in said(capsys)
    monkeypatch.setenv("LUDUS_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["--import", str(broken), "list"])


def test_ctrl_c_is_one_line_and_130(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = tmp_path / "stopped_code.py"
    stopped.write_text("raise KeyboardInterrupt")
    assert main(["--import", str(stopped), "list"]) == 130
    assert said(capsys) == "ludus: interrupted\n"


@pytest.mark.parametrize(
    ("exit_code", "status", "words"),
    [("", 0, ""), ("0", 0, ""), ("7", 7, ""), ("'no key given'", 1, "no key given\n")],
)
def test_an_exit_of_ones_own_code_has_the_status_that_python_gives_it(
    exit_code: str, status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaving = tmp_path / "leaving_code.py"
    leaving.write_text(f"import sys\nsys.exit({exit_code})")
    assert main(["--import", str(leaving), "list"]) == status
    assert capsys.readouterr().err == words
    python = subprocess.run([sys.executable, leaving], capture_output=True, text=True, timeout=60)
    assert (python.returncode, python.stderr) == (status, words)


def test_version() -> None:
    assert ludus("--version").stdout.startswith("ludus 0.")


def test_a_reader_that_goes_away_is_no_error() -> None:
    made = subprocess.run(
        f"{sys.executable} -m ludus list --json | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.stderr == ""


def test_list_shows_environments_and_verifiers_and_the_users_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    made = json.loads(ludus("--import", str(mine), "list", "--json").stdout)
    environments = {e["name"]: e["summary"] for e in made["environments"]}
    verifiers = {v["name"]: v["summary"] for v in made["verifiers"]}
    assert environments["mine/parrot-v0"] == "Say it back"
    assert verifiers["mine/yes"] == "Says yes"
    assert {"ludus/arithmetic-v0", "ludus/maths-v0"} <= set(environments)
    assert {"maths", "exact"} <= set(verifiers)
    described = [entry for entries in made.values() for entry in entries]
    assert all(bool(entry["summary"]) != bool(entry["problem"]) for entry in described)
    assert all("pip install" in entry["problem"] for entry in described if entry["problem"])


def test_a_file_may_import_its_neighbours_and_hides_nothing_installed(tmp_path: Path) -> None:
    (tmp_path / "word_of_mine.py").write_text("WORD = 'salve'")
    (tmp_path / "json.py").write_text("raise RuntimeError('hides the standard library')")
    mine = tmp_path / "mine.py"
    mine.write_text(MINE + "\nfrom word_of_mine import WORD\n")
    made = ludus("--import", str(mine), "list", "--json")
    assert (made.returncode, made.stderr) == (0, "")
    assert "mine/parrot-v0" in made.stdout


def test_a_broken_package_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_offer.py").write_text("raise ZeroDivisionError('at import')")
    info = tmp_path / "broken_offer-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-offer\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ludus.verifiers]\nme/broken = broken_offer:it\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    descriptions = {description.name: description for description in describe_verifiers()}
    assert "cannot be imported: ZeroDivisionError" in descriptions["me/broken"].problem
    assert descriptions["exact"].summary
    with pytest.raises(
        ConfigError, match=r"offered by the package broken-offer.*ZeroDivisionError"
    ):
        find_verifier("me/broken")


def test_lists_and_help_import_nothing_that_computes() -> None:
    commands = [["list"], ["recipes"], ["--help"], *([verb, "--help"] for verb in VERBS)]
    heavy = ["torch", "transformers", "sympy", "PIL", "datasets", "bm25s", "vllm"]
    # Each command is run in the same process, so that one report is about all of them.
    program = (
        "import json, sys\n"
        "from ludus.cli.main import main\n"
        f"statuses = [main(command) for command in {commands}]\n"
        f"print(json.dumps([statuses, [name for name in {heavy} if name in sys.modules]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [[0] * len(commands), []]


def test_check_passes_and_fails_by_exit_status(tmp_path: Path) -> None:
    good = ludus("check", "ludus/arithmetic-v0", "--max-return", "1")
    assert (good.returncode, good.stderr) == (0, "")
    assert "14 passed, 0 failed, 0 skipped" in good.stdout
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    bad = ludus("--import", str(mine), "check", "mine/parrot-v0", "--json")
    assert bad.returncode == 1
    failed = [f for f in json.loads(bad.stdout)["findings"] if f["outcome"] == "failed"]
    assert [f["rule"] for f in failed] == ["gold"]


def test_check_reads_cases_and_options_of_a_verifier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"response": "\\\\boxed{2}", "gold": "2"}\n')
    cases.write_text("\n" + cases.read_text() + "\n")
    assert main(["check", "maths?preset=strict", "--cases", str(cases)]) == 0
    assert main(["check", "exact", "--cases", str(cases)]) == 1
    assert "must earn 1" in " ".join(capsys.readouterr().out.split())
    cases.write_text("{\n")
    assert main(["check", "exact", "--cases", str(cases)]) == 2
    assert "line 1" in capsys.readouterr().err
