"""Which program a completion holds, by the rules of CommonOJ's clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ludus.sandboxes.fusion import extraction
from ludus.sandboxes.fusion.extraction import blocks_of, choose


def program(completion: str, language: str = "python") -> str | None:
    block = choose(blocks_of(completion, language), language)
    return block.code if block else None


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("Sure:\n```python\ndef f():\n    pass\n```\nDone.", "def f():\n    pass"),
        ("```bash\npip install x\n```\nthen\n```python\nx = 1\n```", "x = 1"),
        ("```\nx = 1\n```", "x = 1"),
        ("```py\nfirst = 1\n```\n```python\nsecond = 2\n```", "first = 1"),
        ("```cpp\nint x;\n```", "int x;"),
        ("1. Like so: ```python\n   x = 1\n   ```", "   x = 1"),
        ("```Python3\nx = 1\n\n  \n```", "x = 1"),
        ("I was cut off\n```python\nx = 1\ny =", "x = 1\ny ="),
        ("no fence\nimport os\ndef f(a):\n    return a\nbye", "import os\ndef f(a):\n    return a"),
        ("class A:\n    x = 1\n\n    y = 2\n", "class A:\n    x = 1\n    y = 2"),
        ("nothing at all", None),
        ("", None),
        ("```python", None),
        ("def f():", None),
    ],
)
def test_the_first_block_of_the_best_kind_in_the_right_language(
    completion: str, code: str | None
) -> None:
    assert program(completion) == code


def test_a_closed_fence_comes_before_a_definition_outside_of_it() -> None:
    assert program("def f():\n    return 1\n```python\nx = 2\n```") == "x = 2"


def test_an_unclosed_fence_comes_before_a_definition() -> None:
    assert program("def f():\n    return 1\n```python\nx = 2") == "x = 2"


def test_without_the_language_the_first_block_is_taken() -> None:
    assert program("```ruby\nputs 1\n```\n```lua\nprint(1)\n```") == "puts 1"


@pytest.mark.parametrize(
    "completion",
    [
        "```\n" * 200_000,
        "```python\n" + "\n" * 1_000_000,
        "import a\n" * 300_000,
        "def f():\n" * 300_000,
        "def f():\n" + " x\n" * 300_000,
        "`" * 1_000_000,
        "```" + " " * 1_000_000 + "\n" + "\t\n" * 300_000 + "``",
    ],
)
def test_hostile_completions_take_time_in_proportion_to_their_length(
    completion: str, costs_at_most: Callable[[int], AbstractContextManager[None]]
) -> None:
    with costs_at_most(500):
        program(completion)


def test_run_as_a_program_it_runs_a_clients_logic_and_keeps_its_prints_apart(
    tmp_path: Path,
) -> None:
    logic = (
        "print('noise')\n"
        "code = extract_fenced_code(completion)[0].code.partition('\\nassert')[0]\n"
        "submit_code_blocks([CodeBlock(priority=40, code=code, language='python')])"
    )
    job = {"completion": "```python\nx = 1\nassert x\n```", "logic": logic}
    (tmp_path / extraction.JOB_FILE).write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, extraction.__file__], cwd=tmp_path, capture_output=True, timeout=30
    )
    assert json.loads(done.stdout) == [{"priority": 40, "code": "x = 1", "language": "python"}]
    assert done.stderr == b"noise\n"
