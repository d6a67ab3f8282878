"""The sandbox of docs/sandboxes.md, made as written."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.errors import ConfigError
from ludus.sandboxes import (
    ExecutionStatus,
    Limits,
    NetworkNotAllowed,
    Sandbox,
    Session,
    grade_in_detail,
    open_sandbox,
)

PAGE = (Path(__file__).parents[2] / "docs" / "sandboxes.md").read_text()


@pytest.fixture
def plain() -> Sandbox:
    (text,) = re.findall(r"^```python plain\.py\n(.*?)^```", PAGE, re.M | re.S)
    made: dict[str, Any] = {}
    exec(text, made)
    return made["PlainSandbox"]()


async def test_it_runs_programs_and_says_how_they_ended(plain: Sandbox) -> None:
    done = await plain.execute(
        "import sys; print(input(), sys.argv[1], open('a').read()); open('b', 'w').write('back')",
        stdin="in",
        argv=["argument"],
        files={"a": "file"},
        fetch_files=["b"],
    )
    assert (done.status, done.stdout, done.tier) == ("ok", "in argument file\n", "plain")
    assert done.files == {"b": b"back"}
    assert (await plain.execute("raise SystemExit(3)")).exit_code == 3
    late = await plain.execute("while True: pass", limits=Limits(timeout_s=0.5))
    assert late.status is ExecutionStatus.TIMEOUT
    loud = await plain.execute("print('x' * 99)", limits=Limits(output_bytes=9))
    assert (loud.status, loud.stdout) == (ExecutionStatus.OUTPUT_LIMIT, "x" * 9)


async def test_it_refuses_what_it_cannot_do(plain: Sandbox) -> None:
    with pytest.raises(ConfigError, match="runs python"):
        await plain.execute("int main() {}", "cpp")
    with pytest.raises(ConfigError, match="outside the work directory"):
        await plain.execute("", files={"../a": ""})
    with pytest.raises(NetworkNotAllowed):
        await plain.execute("", network=True)


async def test_what_works_without_slots_is_as_the_page_says(plain: Sandbox) -> None:
    tests = [{"input": "1\n", "output": "2\n"}]
    graded = await grade_in_detail(plain, "print(int(input()) + 1)", tests, kind="stdin")
    assert graded.verdict.reward == 1.0
    with pytest.raises(ConfigError, match="need slots, not the tier 'plain'"):
        await grade_in_detail(plain, "def f(): pass", ["assert f() is None"])
    with pytest.raises(ConfigError, match="needs slots, not the tier 'plain'"):
        await Session.open(plain)


async def test_odd_source_runs_and_a_link_is_not_fetched(plain: Sandbox, tmp_path: Path) -> None:
    assert (await plain.execute("print(1)\0")).status is ExecutionStatus.ERROR
    assert (await plain.execute("x = '\ud800'")).status is ExecutionStatus.ERROR
    assert (await plain.execute(f"print(1)  # {'x' * 200_000}")).stdout == "1\n"
    (tmp_path / "secret").write_text("the driver's")
    linking = f"import os; os.symlink({str(tmp_path / 'secret')!r}, 'link')"
    done = await plain.execute(linking, fetch_files=["link"])
    assert (done.status, done.files) == (ExecutionStatus.OK, {})


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in re.findall(r"^```\w+ ([\w.]+)\n(.*?)^```", PAGE, re.M | re.S):
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "plain", raising=False)
    return tmp_path


@pytest.mark.usefixtures("importable")
async def test_it_is_opened_by_its_name() -> None:
    sandbox = await open_sandbox("plain:PlainSandbox")
    assert (sandbox.tier, (await sandbox.execute("print(2)")).stdout) == ("plain", "2\n")
    with pytest.raises(ConfigError, match="not of 'plain:PlainSandbox'"):
        await open_sandbox("plain:PlainSandbox", image="some/image")


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plain:Missing", "has no attribute 'Missing'; name an installed module"),
        ("nowhere_at_all:Box", "No module named 'nowhere_at_all'.*--import nowhere_at_all.py"),
        ("plain:Path", "made a PosixPath; derive its class"),
        ("os:sep", "is a str; name a class"),
        ("json:loads", "cannot be made without arguments"),
        ("plain", "no sandbox tier named 'plain'.*as module:attribute"),
    ],
)
async def test_a_name_that_makes_no_sandbox_says_what_to_name(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await open_sandbox(name)


@pytest.mark.slow
def test_the_commands_of_the_page_that_name_it(importable: Path) -> None:
    (block,) = re.findall(r"^```console\n(.*?plain:PlainSandbox.*?)^```", PAGE, re.M | re.S)
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outputs = [
        subprocess.run(
            ["bash", "-c", line.removeprefix("$ ")],
            cwd=importable,
            env={**os.environ, "PATH": paths},
            capture_output=True,
            text=True,
            timeout=120,
        )
        for line in block.splitlines()
    ]
    assert [done.returncode for done in outputs] == [0, 0, 0], outputs
    assert "chosen: plain:PlainSandbox, by its name" in outputs[0].stdout
    assert "0 failed" in outputs[1].stdout
    assert outputs[2].stdout == "42\n\n"
