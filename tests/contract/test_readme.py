"""The README's examples, run as written."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SECTION = re.compile(r"^### (\d\. .+?)$(.*?)(?=^##|\Z)", re.M | re.S)
BLOCK = re.compile(r"^```(python|console) ?(\S*)\n(.*?)^```", re.M | re.S)
EXPECTED = {
    "python echo.py": "1.0",
    "check me/echo-v0": "me/echo-v0",
    "me/exact": '"reward":1.0',
    '"maths"': '"reward":1.0',
    "ludus sft": "step-000003",
    "ludus train": "report.html",
}


def sections() -> Any:
    return [pytest.param(body, id=title) for title, body in SECTION.findall(README)]


def run(command: str, folder: Path, servers: list[subprocess.Popen[bytes]]) -> Any:
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    if command.endswith("&"):
        server = subprocess.Popen(shlex.split(command[:-1]), cwd=folder, env=env)
        servers.append(server)  # the next line is what waits for it, as on a screen
        return ""
    done = subprocess.run(
        command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("body", sections())
def test_the_examples_of_a_section_run_as_written(body: str, tmp_path: Path) -> None:
    servers = []
    try:
        for kind, name, text in BLOCK.findall(body):
            if kind == "python":
                (tmp_path / name).write_text(text)
                continue
            for line in filter(None, text.splitlines()):
                command = line.removeprefix("$ ")
                said = run(command, tmp_path, servers)
                for part, expected in EXPECTED.items():
                    if part in command and not command.endswith("&"):
                        assert expected in said
                        break
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def test_the_first_screen_shows_the_two_commands() -> None:
    top = README.splitlines()[:12]
    assert any(line.startswith("    make demo") for line in top)
    assert any(line.startswith("    make test") for line in top)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
