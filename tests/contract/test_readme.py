"""The README's examples and the tutorials, run as written."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SECTION = re.compile(r"^### (\d\. .+?)$(.*?)(?=^##|\Z)", re.M | re.S)
BLOCK = re.compile(r"^```(python|toml|json|nginx|console) ?(\S*)\n(.*?)^```", re.M | re.S)
COMMAND = re.compile(r"^\$ (.+?)\n((?:(?!\$ ).*\n)*)", re.M)
"""A command, and what stands below: lines that it prints, in part."""
FIRST = ("02", "03", "06", "12")
"""The tutorials that the slow tests run: an own environment with tools, data, a judge, Ray. The
first one trains what it wrote, as the second and the README do.
"""
NEEDS = re.compile(r"<!-- needs: .* -->")
"""What a tutorial asks of a machine: programs and packages."""
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


def tutorials() -> Any:
    """Every tutorial; those that CI reads on each change are slow, the others are large."""
    return [
        pytest.param(
            page.read_text(),
            id=page.stem,
            marks=pytest.mark.slow if page.stem[:2] in FIRST else pytest.mark.large,
        )
        for page in sorted((ROOT / "docs" / "tutorials").glob("[0-9]*.md"))
    ]


class Reader:
    """Types the blocks of a page, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[subprocess.Popen[bytes]] = []
        self.env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def type(self, body: str) -> None:
        for kind, name, text in BLOCK.findall(body):
            if kind != "console":
                (self.folder / name).write_text(text)
                continue
            for command, expected in COMMAND.findall(text):
                printed = self.run(command)
                for line in filter(None, expected.splitlines()):
                    assert line in printed, f"{command}\n{printed}"
                for part, line in EXPECTED.items():
                    if part in command and not command.endswith("&"):
                        assert line in printed
                        break

    def run(self, command: str) -> str:
        if command.endswith("&"):
            server = subprocess.Popen(shlex.split(command[:-1]), cwd=self.folder, env=self.env)
            self.servers.append(server)  # the next line is what waits for it, as on a screen
            return ""
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def leave(self) -> None:
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
        for server in self.servers:
            server.wait(60)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.leave()


@pytest.mark.slow
@pytest.mark.parametrize("body", sections())
def test_the_examples_of_a_section_run_as_written(body: str, reader: Reader) -> None:
    reader.type(body)


@pytest.mark.parametrize("body", tutorials())
def test_a_tutorial_runs_as_written(body: str, reader: Reader) -> None:
    for need in (NEEDS.search(body) or [""])[0].split()[2:-1]:
        if not (shutil.which(need) or find_spec(need)):
            pytest.skip(f"{need} is not installed")
    reader.type(body)


@pytest.mark.large
def test_the_notebook_runs_in_a_fresh_kernel() -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples" / "10_in_a_notebook.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())
    )
    first, last = map(float, re.findall(r"(\d\.\d\d) in the", printed))
    assert last > first


def test_the_first_screen_shows_the_two_commands() -> None:
    top = README.splitlines()[:12]
    assert any(line.startswith("    make demo") for line in top)
    assert any(line.startswith("    make test") for line in top)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
