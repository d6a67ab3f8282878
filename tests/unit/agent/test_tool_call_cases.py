"""Labelled turns of every format: which calls would be run. The cases and the rules of their labels
are in `benchmarks/tool_call_cases.py`.
"""

import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.parsing import TOOL_FORMATS, tool_format
from ludus.envs import ToolSpec

PATH = Path(__file__).parents[3] / "benchmarks" / "tool_call_cases.py"


def load() -> Any:
    spec = util.spec_from_file_location("tool_call_cases", PATH)
    assert spec is not None
    assert spec.loader is not None
    made = util.module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


LABELLED = load()
SPECS = [
    ToolSpec(name=name, description="", parameters={"properties": {
        key: {"type": kind} for key, kind in given.items()
    }})
    for name, given in LABELLED.TOOLS.items()
]  # fmt: skip
CASES = list(LABELLED.cases())


def test_there_are_many_cases_of_every_format_and_half_of_them_are_held_out() -> None:
    assert LABELLED.FORMATS.keys() == TOOL_FORMATS.keys()
    assert len(CASES) >= 1400
    assert 0.4 < sum(case.held_out for case in CASES) / len(CASES) < 0.6
    assert len({(case.format, case.situation) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_exactly_the_calls_that_may_be_run_are_run(name: str) -> None:
    for case in (case for case in CASES if case.format == name):
        read = tool_format(name).parse(case.text, complete=case.complete, tools=SPECS)
        run = [(call.name, call.arguments) for call in read.tool_calls if not call.error]
        assert run == case.wanted, (case.situation, case.text)
