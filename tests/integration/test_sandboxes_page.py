"""The sandbox of docs/sandboxes.md, made as written."""

import re
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
