"""`ludus serve`: what it says when it cannot, and that it can."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.cli.serve import split_names
from ludus.cli.workers import ServerWorker, without
from ludus.errors import UnknownName
from ludus.secret import Secret


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr."""
    assert main(["serve", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ludus: ")
    assert said.count("\n") == 1
    return said


def test_a_port_in_use_is_one_line_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = complaint(capsys, "exact", "--port", str(port))
    assert f"port {port} on 127.0.0.1 is in use" in said
    assert "--port 0" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["exact", "--host", "0.0.0.0"], "without a token"),
        (["exakt"], "did you mean 'exact'"),
        (["ludus/arithmetik-v0"], "did you mean 'ludus/arithmetic-v0'"),
        (["ludus/arithmetic-v0?max_operation=2", "--port", "0"], "max_operation"),
        (["ludus/arithmetic-v0?max_operations=99", "--port", "0"], "got 1, 99"),
        ([], "nothing to serve"),
        (["exact", "--chaos", "dorp=0.1"], "drop, delay and error"),
        (["exact", "--port", "99999"], "0 to 65535"),
        (["exact", "--workers", "0"], "--workers"),
        (["exact", "--lease-s", "0"], "--lease-s"),
        (["sandox"], "did you mean 'sandbox'"),
        (["sandbox", "sandbox?slots=2"], "give 'sandbox' once"),
        (["sandbox?slot=2"], "did you mean 'slots'"),
        (["sandbox?slots=0"], "at least 1"),
        (["sandbox?slots=many"], "$.slots"),
        (["sandbox?max_queue=0"], "max_queue must be above 0"),
        (["sandbox?tier=slots-rot"], "known: slots-root"),
        (["sandbox", "--host", "0.0.0.0"], "without a token"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    assert words in complaint(capsys, *arguments)


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    assert "ludus serve ludus/arithmetic-v0 maths" in capsys.readouterr().out


def test_environments_are_told_from_verifiers() -> None:
    names = ["exact", "ludus/arithmetic-v0?max_operations=2"]
    assert split_names(names) == (names[1:], names[:1])
    with pytest.raises(UnknownName):
        split_names(["no-such-thing"])


def test_workers_are_started_with_the_same_options_and_no_token_in_sight() -> None:
    line = ["exact", "maths?a=1", "--port", "9", "--workers=2", "--token=secret", "--lease-s=2"]
    arguments = without(line, ("workers", "port", "token"))
    assert arguments == ["exact", "maths?a=1", "--lease-s=2"]
    worker = ServerWorker(line, 9001, Secret("secret"))
    assert "secret" not in repr(vars(worker))


@pytest.mark.slow
def test_code_of_ones_own_is_served_by_every_worker_until_sigint(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import ludus\n\n@ludus.verifier('me/short')\n"
        "def short(sample):\n    return len(sample.text) < 5\n"
    )
    command = [sys.executable, "-m", "ludus", "--import", "mine.py", "serve", "me/short"]
    with subprocess.Popen(
        [*command, "--port", "0", "--workers", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LUDUS_TOKEN": "secret"},
    ) as served:
        assert served.stdout is not None
        urls = served.stdout.readline().split()[-1].split(",")
        assert len(set(urls)) == 2
        for url in urls:
            body = json.dumps({"verifier": "me/short", "sample": {"response": "abc"}}).encode()
            headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
            request = urllib.request.Request(f"{url}/v1/score", body, headers)
            with urllib.request.urlopen(request, timeout=60) as reply:
                assert json.load(reply)["reward"] == 1.0
        served.send_signal(signal.SIGINT)
        assert served.wait(20) == 0


def test_no_worker_outlives_a_killed_parent() -> None:
    command = [sys.executable, "-m", "ludus", "serve", "exact", "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        ports = [
            int(url.rpartition(":")[2]) for url in served.stdout.readline().split()[-1].split(",")
        ]
        served.kill()
    deadline = time.monotonic() + 60
    while any(listens(port) for port in ports):
        assert time.monotonic() < deadline
        time.sleep(0.1)


LOUD = """
import os
import ludus

if "LUDUS_WORKER" in os.environ:
    print("loaded; look at http://127.0.0.1:1", "x" * 200_000)

@ludus.verifier("me/loud")
def loud(sample):
    print("y" * 200_000, flush=True)
    if sample.text == "die":
        os._exit(1)
    return True

loud.never_blocks = True
"""


def test_a_worker_that_prints_more_than_a_pipe_holds_goes_on(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    command = [sys.executable, "-m", "ludus", "--import", "loud.py", "serve", "me/loud"]
    with (tmp_path / "log").open("wb") as log:
        served = subprocess.Popen(
            [*command, "--port", "0", "--workers", "2"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert served.stdout is not None
    out, lines = served.stdout, queue.Queue[str]()
    threading.Thread(target=lambda: lines.put(out.readline()), daemon=True).start()
    try:
        url = lines.get(timeout=60).split()[-1].split(",")[0]
        assert [score(url, "fine"), score(url, "fine")] == [1.0, 1.0]
        with pytest.raises(http.client.RemoteDisconnected):
            score(url, "die")
        deadline = time.monotonic() + 60
        while (reward := score_or_none(url, "fine again")) is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert reward == 1.0
    finally:
        served.send_signal(signal.SIGINT)
        assert served.wait(60) == 0
        out.close()
    assert (tmp_path / "log").read_text().count("y" * 200_000) == 4


def test_a_worker_that_ends_at_the_start_is_told_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("import os\nif 'LUDUS_WORKER' in os.environ: os._exit(3)\n")
    command = [sys.executable, "-m", "ludus", "--import", "gone.py", "serve", "exact"]
    made = subprocess.run(
        [*command, "--port", "0", "--workers", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 2
    assert "could not start (exit code 3)" in made.stderr


def score(url: str, response: str) -> float:
    """The reward of `me/loud`."""
    body = json.dumps({"verifier": "me/loud", "sample": {"response": response}}).encode()
    request = urllib.request.Request(f"{url}/v1/score", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        reward: float = json.load(reply)["reward"]
        return reward


def score_or_none(url: str, response: str) -> float | None:
    """The reward of `me/loud`; None while nobody is there who answers. A process that ends may take
    a connection and reset it, since its sockets are closed one after another.
    """
    try:
        return score(url, response)
    except urllib.error.HTTPError:
        raise
    except (urllib.error.URLError, ConnectionError):
        return None


def listens(port: int) -> bool:
    """Whether somebody answers at the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
