"""`ludus serve --config`: what the file says, what the command line says over it, and SIGHUP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.main import main
from ludus.cli.serve_options import read_options

CONFIG = """
names = ["ludus/arithmetic-v0?max_operations=2", "exact"]
max_sessions = 1
step_timeout_s = 20
tokens = "tokens.toml"
token = "env:OPERATORS_TOKEN"
access_log = "access.jsonl"
roster = "servers"
"""
TOKENS = '[alice]\ntoken = "alice"\nscopes = ["env:*"]\n'


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERATORS_TOKEN", "secret")
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    (tmp_path / "tokens.toml").write_text(TOKENS)
    file = tmp_path / "serve.toml"
    file.write_text(CONFIG)
    return file


def test_the_file_gives_defaults_and_the_command_line_wins(config: Path) -> None:
    options = read_options(["--config", str(config)])
    assert options.names == ("ludus/arithmetic-v0?max_operations=2", "exact")
    assert (options.max_sessions, options.step_timeout_s, options.port) == (1, 20.0, 8765)
    assert options.tokens == config.parent / "tokens.toml"
    assert options.access_log == str(config.parent / "access.jsonl")
    assert options.roster == config.parent / "servers"
    assert options.token.reveal() == "secret"
    config.write_text(CONFIG + 'uds = ""\n')
    assert not read_options(["--config", str(config)]).uds  # as where it is not named
    options = read_options(["maths", f"--config={config}", "--max-sessions", "7", "--port=0"])
    assert options.names == ("maths",)
    assert (options.max_sessions, options.step_timeout_s, options.port) == (7, 20.0, 0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max_sesions = 3", "did you mean 'max_sessions'"),
        ("max_sessions = 'many'", "max_sessions"),
        ("names = ['exact']\nmax_sessions = 0", "--max-sessions must be at least 1, got 0"),
        ("names = ['exact']\nworker_memory_mb = 0", "--worker-memory-mb must be at least 1, got 0"),
        ("names = ['exact']\nmax_reply_mb = 0.0", "must be a number more than 0, got 0.0"),
        ("names = ['exact']\nmax_reply_mb = nan", "must be a number more than 0, got nan"),
        ("max_sessions = ", "serve.toml"),
        ("names = " + "[" * 9999 + "]" * 9999, "serve.toml: maximum recursion depth"),
        (f"names = ['exact']\nreplicas = '1..{'9' * 5000}'", "--replicas is LEAST..MOST"),
        ("[limits]\nmax_sessions = 3", "limits"),
        ("names = 'exact'", "names"),
        ("host = '0.0.0.0'\nnames = ['exact']", "without a token"),
        ("names = ['exakt']", "did you mean 'exact'"),
        ("tokens = 'nowhere.toml'\nnames = ['exact']", "cannot read the tokens"),
        ("access_log = 'nowhere/x'\nnames = ['exact']\nport = 0", "cannot write the access log"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    words: str,
) -> None:
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    (tmp_path / "serve.toml").write_text(line + "\n")
    assert main(["serve", "--config", str(tmp_path / "serve.toml")]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert main(["serve", "--config", str(tmp_path / "missing.toml")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["serve", "--config", str(tmp_path)]) == 2
    assert "Is a directory" in (told := capsys.readouterr().err)
    assert "unexpected" not in told


@contextmanager
def served(config: Path, *arguments: str) -> Generator[tuple[subprocess.Popen[str], list[str]]]:
    command = [sys.executable, "-m", "ludus", "serve", "--config", str(config), "--port", "0"]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1].split(",")
        finally:
            process.kill()


def create(url: str, session: str, token: str) -> int:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(
        f"{url}/v1/envs/ludus/arithmetic-v0/sessions",
        json.dumps({"session": session}).encode(),
        headers,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def waits_until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_sighup_reads_limits_tokens_and_the_log_again_and_a_mistake_changes_nothing(
    config: Path, workers: str
) -> None:
    log = config.parent / "access.jsonl"
    with served(config, "--workers", workers) as (process, urls):
        for url in urls:
            assert [create(url, name, "secret") for name in ("a", "b")] == [200, 429]
        config.write_text(CONFIG.replace("max_sessions = 1", "max_sessions = 2\nthreads = 3"))
        (config.parent / "tokens.toml").write_text(TOKENS.replace('"alice"', '"alicia"'))
        log.rename(log.with_suffix(".1"))
        os.kill(process.pid, signal.SIGHUP)
        for url in urls:
            waits_until(lambda url=url: create(url, "b", "secret") == 200)
            assert create(url, "c", "secret") == 429
            assert [create(url, "c", token) for token in ("alice", "alicia")] == [401, 429]
        waits_until(log.exists)
        config.write_text(CONFIG.replace("max_sessions = 1", "max_sessions = 0"))
        os.kill(process.pid, signal.SIGHUP)
        assert process.stderr is not None
        told = ""
        while "the limits stay as they are" not in told:
            told += (line := process.stderr.readline())
            assert line, told
        assert "threads change at the next start" in told
        assert create(urls[0], "c", "secret") == 429
    assert "secret" not in log.read_text() + log.with_suffix(".1").read_text()
