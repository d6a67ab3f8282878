"""Mistakes, cases and the tasks drawn from them; nothing here runs a broken function."""

from __future__ import annotations

import ast
import doctest
from types import ModuleType

import pytest

from ludus.envs.families.repair import CodeRepair
from ludus.envs.families.repair.cases import CASES, MODULES, library
from ludus.envs.families.repair.faults import draw, faults_of
from ludus.envs.families.repair.mutations import KILLS, mutants, normal
from ludus.envs.families.repair.repair_env import RepairTasks
from ludus.envs.families.repair.survey import ENDLESS, survey
from ludus.envs.tasks import GeneratedTasks
from ludus.errors import ConfigError
from ludus.sandboxes import execute

SPLITS = ("train", "validation", "test")


def bodies(source: str) -> list[str]:
    """The mistakes of a function of one line, as that line."""
    return [
        mutant.source.splitlines()[-1].strip() for mutant in mutants(f"def f(a, b):\n {source}")
    ]


@pytest.mark.parametrize(
    ("source", "mistaken"),
    [
        ("return a < b", ["return a <= b"]),
        ("return a == b", ["return a != b"]),
        ("return a in b", ["return a not in b"]),
        ("return a // b", ["return a * b"]),
        ("return a and b", ["return a or b"]),
        ("return True", ["return False"]),
        ("return a[2]", ["return a[3]"]),
        ("return -a", ["return +a"]),
        ("return max(a)", ["return min(a)"]),
        ("return a.lower()", ["return a.upper()"]),
        ("return range(a)", ["return range(a - 1)"]),
        ("return a if b else a", ["return a if not b else a"]),
        ("return a < b < a", []),
        ("return 'text'", []),
    ],
)
def test_each_mistake_is_one_node_away(source: str, mistaken: list[str]) -> None:
    assert bodies(source) == mistaken


def test_a_statement_is_left_out_where_another_stays() -> None:
    source = "def f(xs):\n    for x in xs:\n        x += a\n        y = x\n    return y"
    kinds = {mutant.kind: mutant.source for mutant in mutants(source)}
    assert "x += a" not in kinds["omission"] or "y = x" not in kinds["omission"]
    assert "pass" not in kinds["omission"]
    alone = "def f(xs):\n    for x in xs:\n        x += a\n    return y"
    assert [mutant.kind for mutant in mutants(alone)] == ["operator"]


def test_every_mistake_differs_from_the_function_and_from_the_others() -> None:
    for function in library().values():
        made = [mutant.source for mutant in mutants(function.source)]
        assert len({function.source, *made}) == len(made) + 1
        for source in made:
            assert normal(source) == source


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_functions_do_what_their_docstrings_say(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted >= 8) == (0, True)


def test_functions_stand_alone() -> None:
    for function in library().values():
        tree = ast.parse(function.source)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & (set(library()) - {function.name}), function.name
        assert not [
            node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert ast.get_docstring(tree.body[0])  # type: ignore[arg-type]


def test_every_function_has_cases_with_different_results() -> None:
    assert len(library()) == 54
    for function in library().values():
        assert len(function.calls) == len(function.results) == len(function.tests) == CASES
        assert len(set(function.results)) > 1, function.name


def test_cases_by_hand() -> None:
    chunks = library()["chunks"]
    assert dict(zip(chunks.calls, chunks.results, strict=True))["chunks([1, 2], 0)"] == "ValueError"
    assert chunks.tests[1].startswith("try:\n    chunks([1, 2], 0)\nexcept ValueError:")
    leap = dict(
        zip(library()["is_leap_year"].calls, library()["is_leap_year"].results, strict=True)
    )
    assert [leap[f"is_leap_year({year})"] for year in (1900, 2000, 2024, 2023)] == [
        "False", "True", "True", "False",
    ]  # fmt: skip


def test_the_table_has_a_mask_for_every_mistake() -> None:
    assert set(KILLS) == set(library())
    for name, function in library().items():
        masks = KILLS[name].split()
        assert len(masks) == len(mutants(function.source)), name
        assert all(mask == ENDLESS or len(mask) == 4 for mask in masks)


@pytest.mark.slow
async def test_the_table_is_what_the_mistakes_do() -> None:
    try:
        execute("pass")
    except ConfigError as error:
        pytest.skip(str(error))
    found = await survey()
    assert {name: " ".join(masks) for name, masks in found.items()} == KILLS


def usable(mask: str) -> bool:
    return mask != ENDLESS and int(mask, 16).bit_count() >= 2


def test_no_mistake_is_in_two_splits_and_each_fails_two_tests() -> None:
    sources = {
        split: {fault.source for faults in faults_of(split).values() for fault in faults}
        for split in SPLITS
    }
    sizes = [len(sources[split]) for split in SPLITS]
    assert sum(sizes) == sum(usable(mask) for masks in KILLS.values() for mask in masks.split())
    assert sizes[0] > 0.75 * sum(sizes)
    assert min(sizes) > 0.07 * sum(sizes)
    assert not sources["train"] & sources["test"]
    assert not sources["train"] & sources["validation"]
    assert not sources["validation"] & sources["test"]
    for split in SPLITS:
        for faults in faults_of(split).values():
            assert all(len(fault.failing) >= 2 for fault in faults)


@pytest.mark.parametrize(("functions", "faults"), [(1, 1), (4, 1), (6, 3), (20, 5)])
def test_files_hold_what_was_asked_for(functions: int, faults: int) -> None:
    for index in range(20):
        repair = draw(GeneratedTasks("train").at(index), functions, faults)
        assert set(repair.files) == set(repair.right) == set(repair.tests)
        defined = [text.count("def ") for text in repair.right.values()]
        assert sum(defined) == functions
        assert sum(len(tests) for tests in repair.tests.values()) == CASES * functions
        broken = [fault.function.name for fault in repair.faults]
        assert len(set(broken)) == faults
        for fault in repair.faults:
            file = fault.function.file
            assert fault.source in repair.files[file]
            assert fault.function.source in repair.right[file]
        changed = [file for file in repair.files if repair.files[file] != repair.right[file]]
        assert set(changed) == {fault.function.file for fault in repair.faults}


def test_nothing_but_the_mistake_tells_a_broken_function_from_a_right_one() -> None:
    repair = draw(GeneratedTasks("train").at(1), 6, 1)
    for text in repair.files.values():
        assert normal(text).split() == text.split()


def test_difficulty_is_the_number_of_functions() -> None:
    tasks = RepairTasks("train", (2, 5))
    assert {tasks.at(index).difficulty for index in range(50)} == {2.0, 3.0, 4.0, 5.0}


@pytest.mark.parametrize(
    "arguments",
    [
        {"faults": 0},
        {"faults": 2, "min_functions": 1},
        {"min_functions": 3, "max_functions": 2},
        {"max_functions": 55},
        {"min_functions": 50, "max_functions": 54, "faults": 50},
        {"report": "everything"},
        {"turns": 0},
        {"run_timeout_s": 61},
        {"max_letters": 1},
    ],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        CodeRepair(**arguments)  # type: ignore[arg-type]
