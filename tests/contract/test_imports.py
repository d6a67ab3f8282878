"""What an import costs, and that every module stands by itself."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ludus"
FOLDERS = ["agent", "envs", "rewards", "sandboxes", "trainer"]
LIGHT = ["ludus.envs", "ludus.rewards", "ludus.agent", "ludus.sandboxes", "ludus.cli.main"]
LAZY = [
    *("ludus.agent", "ludus.envs", "ludus.rewards", "ludus.sandboxes", "ludus.trainer"),
    *("ludus.envs.outside", "ludus.llm"),
]
HEAVY = "torch", "transformers", "vllm", "datasets"
DEPENDENCIES = ("aiohttp", "asyncio", "gymnasium", "httpx", "jinja2", "msgspec", "numpy", *HEAVY)


def fresh(code: str) -> str:
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.mark.parametrize("module", ["ludus", *LAZY])
def test_a_package_that_exports_lazily_loads_few_modules(module: str) -> None:
    """A bare import takes about 20 ms of CPU; modules are counted, since seconds depend on what
    else the machine does. numpy alone would be over 100 modules, msgspec and asyncio over 60.
    """
    code = (
        f"import sys; before = len(sys.modules); import {module}; print(len(sys.modules) - before)"
    )
    assert int(fresh(code)) < 100
    code = f"import sys, {module}; print([m for m in {DEPENDENCIES!r} if m in sys.modules])"
    assert fresh(code) == "[]"


CLAIMS = ["ludus.trainer.run.claim", "ludus.trainer.models.checkpoint_folders"]
"""What looks at the folder of a run, and needs no model for it."""


@pytest.mark.parametrize("module", ["ludus", *LIGHT, *CLAIMS])
def test_only_the_trainer_needs_torch(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert fresh(code) == "[]"


def modules(*roots: str) -> list[str]:
    """The dotted names of all modules under `roots`, read from the files."""
    found: list[str] = []
    for root in roots:
        folder = SOURCE / root
        for path in folder.rglob("*.py"):
            name = ".".join(("ludus", *path.relative_to(SOURCE).with_suffix("").parts))
            found.append(name.removesuffix(".__init__"))
    return sorted(found)


LIGHT_FOLDERS = ["cli", "wire", "llm", "agent", "envs", "rewards", "sandboxes"]
PACKAGES = [  # a folder that has moved away may have left its compiled files
    name
    for name in modules(*FOLDERS, "llm")
    if (SOURCE / name.replace(".", "/")[6:] / "__init__.py").exists()
]


def test_every_module_imports_alone() -> None:
    """Each is imported in a child forked from a process that has imported no part of ludus, so a
    module that works only after another was imported is found; forking saves the start of Python.
    """
    code = (
        "import os, sys, traceback\n"
        "failed = 0\n"
        "for name in sys.argv[1:]:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            __import__(name)\n"
        "        except BaseException as error:\n"
        "            print(name, type(error).__name__, error, flush=True)\n"
        "            os._exit(1)\n"
        "        os._exit(0)\n"
        "    failed += os.waitpid(child, 0)[1] != 0\n"
        "sys.exit(failed > 0)\n"
    )
    light = [
        name
        for name in modules()
        if not name.startswith(("ludus.trainer", "ludus.rewards.learned"))
    ]
    made = subprocess.run(
        [sys.executable, "-c", code, *light], capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stdout


def of_type_checking(package: str) -> set[str]:
    """The names that a package imports for type checkers only."""
    file = importlib.import_module(package).__file__
    assert file is not None
    return {
        alias.name
        for block in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("package", ["ludus", *LAZY])
def test_a_lazy_package_lists_what_type_checkers_see_and_what_can_be_imported(package: str) -> None:
    if package.startswith("ludus.trainer"):
        pytest.importorskip("torch", reason="the extra 'train' is not installed")
    made = importlib.import_module(package)
    listed = list(made.__all__)
    assert len(set(listed)) == len(listed)
    assert of_type_checking(package) == set(listed)
    assert set(listed) <= set(dir(made))
    for name in listed:
        assert not isinstance(getattr(made, name), ModuleType), name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'maek'"):
        _ = made.maek


def test_what_a_lazy_package_can_import_is_listed() -> None:
    """In a fresh interpreter, where no submodule has been imported: `dir` shows the table."""
    code = (
        "import importlib, types\n"
        f"for package in {['ludus', *LAZY]!r}:\n"
        "    made = importlib.import_module(package)\n"
        "    plumbing = {'TYPE_CHECKING', 'annotations', 'lazy_exports', 'Path'}\n"
        "    public = {n for n in dir(made) if not n.startswith('_')\n"
        "              and not isinstance(vars(made).get(n), types.ModuleType)} - plumbing\n"
        "    assert public == set(made.__all__), public ^ set(made.__all__)\n"
    )
    fresh(code)


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - set(LAZY)))
def test_a_folders_all_is_what_it_imports(package: str) -> None:
    made = importlib.import_module(package)
    listed = list(getattr(made, "__all__", []))
    assert len(set(listed)) == len(listed)
    public = {
        name for name, value in vars(made).items()
        if not name.startswith("_") and not isinstance(value, type(sys)) and name != "annotations"
    }  # fmt: skip
    assert public == set(listed)


@pytest.mark.parametrize(
    "before",
    [
        "import gymnasium; import ludus",
        "import ludus; import gymnasium",
        # A look whether the package is there, as transformers takes one, imports nothing.
        "import ludus, importlib.util; importlib.util.find_spec('gymnasium'); import gymnasium",
        # A finder of before Python 3.4, which has no method `find_spec`.
        "import ludus; old = type('Old', (), {'find_module': lambda *of: None}); "
        "sys.meta_path.insert(0, old()); import gymnasium",
    ],
)
def test_gymnasium_knows_the_ids_whichever_comes_first(before: str) -> None:
    code = f"import sys; {before}; print(gymnasium.spec('ludus/arithmetic-v0').id)"
    left = "print([finder for finder in sys.meta_path if 'ludus' in type(finder).__module__])"
    assert fresh(f"{code}; {left}").splitlines() == ["ludus/arithmetic-v0", "[]"]
