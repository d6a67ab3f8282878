"""The examples run, and the verbs work against a server in another process."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ludus.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SAFE = str(ROOT / "examples" / "01_register_an_env.py")


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200"},
    )


def ludus(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run("-m", "ludus", *arguments, stdin=stdin)


@dataclass
class Said:
    """What a verb did in this process."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def verb(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Runs a verb here, which saves the start of Python."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> Said:
        code = main(arguments)
        written = capsys.readouterr()
        return Said(code, written.out, written.err)

    return call


def test_the_environment_example_plays_and_keeps_the_contract() -> None:
    made = run(SAFE)
    assert made.returncode == 0, made.stderr
    assert made.stdout.rstrip().endswith("reward 1")
    checked = ludus("--import", SAFE, "check", "example/safe-v0", "--max-return", "1")
    assert "14 passed, 0 failed, 0 skipped" in checked.stdout, checked.stdout + checked.stderr


def test_the_image_example_scores() -> None:
    made = run(str(ROOT / "examples" / "05_score_images.py"))
    assert made.returncode == 0, made.stderr
    red, grey, refused = made.stdout.splitlines()
    # red is (1, 0, 0): its channels deviate from their mean by 2/3, 1/3, 1/3
    assert float(red.split()[1]) == pytest.approx(4 / 9, abs=1e-4)
    assert float(grey.split()[1]) == 0
    assert refused.startswith("invalid None not an image")


def test_the_verifier_example_serves_and_scores() -> None:
    made = run(str(ROOT / "examples" / "03_serve_a_verifier.py"))
    assert made.returncode == 0, made.stderr
    assert [line.split()[:2] for line in made.stdout.splitlines()] == [
        ["ok", "1.0"],
        ["ok", "0.5"],
        ["ok", "0.0"],
        ["invalid", "None"],
    ]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = ["-m", "ludus", "--import", SAFE, "serve", "example/safe-v0", "maths", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]
        server.terminate()


def test_a_served_environment_is_checked(url: str, verb: Callable[..., Said]) -> None:
    made = verb("check", f"{url}#example/safe-v0")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "12 passed, 0 failed, 2 skipped" in made.stdout  # gold and expert live over there


def test_a_served_verifier_is_checked(url: str, verb: Callable[..., Said]) -> None:
    made = verb("check", f"{url}#maths")
    assert made.returncode == 0, made.stdout + made.stderr
    assert ", 0 failed" in made.stdout


def test_a_served_environment_is_played(url: str) -> None:
    made = ludus("play", "example/safe-v0", "--url", url, stdin="/compare 50\n0\n")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "the secret is " in made.stdout
    assert "the secret was " in made.stdout


def test_a_served_environment_is_evaluated(url: str, verb: Callable[..., Said]) -> None:
    made = verb("eval", "example/safe-v0", "--url", url, "--policy", "random", "--tasks", "30")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "of 30 tasks" in made.stdout
    refused = verb("eval", "example/safe-v0", "--url", url, "--policy", "expert")
    assert (refused.returncode, "leave out --url" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["play", "example/saef-v0", "--url", "{url}"], "did you mean 'example/safe-v0'"),
        (["play", "example/safe-v0", "--url", "http://127.0.0.1:9"], "no answer from"),
        (["check", "{url}#mths"], "did you mean 'maths'"),
        (["check", "{url}#example/saef-v0"], "did you mean 'example/safe-v0'"),
    ],
)
def test_wrong_names_and_addresses_are_told_in_one_line(
    url: str, verb: Callable[..., Said], arguments: list[str], words: str
) -> None:
    made = verb(*(argument.replace("{url}", url) for argument in arguments))
    assert (made.returncode, made.stderr.count("\n")) == (2, 1)
    assert words in made.stderr
