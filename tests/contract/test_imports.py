"""What an import costs, and that every module stands by itself."""

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ludus

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ludus"
FOLDERS = ["agent", "envs", "rewards", "sandboxes", "trainer"]
LIGHT = ["ludus.envs", "ludus.rewards", "ludus.agent", "ludus.sandboxes", "ludus.cli.main"]
PUBLIC = [
    *("Briefing", "Message", "Sample", "TextEnv", "Verdict", "check_env", "check_verifier"),
    *("LudusError", "RewardUnavailable", "ToolCall", "ToolError", "ToolResult"),
    *("connect", "make", "make_async", "make_verifier", "register", "score", "tool", "verifier"),
]
HEAVY = "torch", "transformers", "vllm", "datasets"


def fresh(code: str) -> str:
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_import_ludus_takes_less_than_300_ms() -> None:
    def seconds(code: str) -> float:
        started = time.perf_counter()
        fresh(code)
        return time.perf_counter() - started

    took = min(seconds("import ludus") for _ in range(5))
    bare = min(seconds("pass") for _ in range(5))
    assert took - bare < 0.300


@pytest.mark.parametrize("module", ["ludus", *LIGHT])
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
PACKAGES = [
    name for name in modules(*FOLDERS, "llm") if (SOURCE / name.replace(".", "/")[6:]).is_dir()
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


def test_every_module_of_the_trainer_imports() -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    for name in modules("trainer"):
        importlib.import_module(name)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_folders_all_is_what_it_imports(package: str) -> None:
    made = importlib.import_module(package)
    listed = list(getattr(made, "__all__", []))
    assert len(set(listed)) == len(listed)
    public = {
        name for name, value in vars(made).items()
        if not name.startswith("_") and not isinstance(value, type(sys)) and name != "annotations"
    }  # fmt: skip
    assert public == set(listed)


def test_the_public_names_are_all_there() -> None:
    for name in PUBLIC:
        assert getattr(ludus, name) is not None
        assert name in dir(ludus)
        assert name in ludus.__all__  # what help(ludus) shows
    with pytest.raises(AttributeError, match="no attribute 'maek'"):
        _ = ludus.maek  # type: ignore[attr-defined]
