"""The script of `make check` sees what it is for: circles, class names used twice, "Of"."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="check_style")
def loaded() -> ModuleType:
    pytest.importorskip("grimp", reason="the extra 'dev' is not installed")
    spec = importlib.util.spec_from_file_location(
        "check_style", ROOT / "scripts" / "check_style.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_style"] = module
    spec.loader.exec_module(module)
    return module


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> str:
    name = f"planted_{folder.name}".replace("-", "_")
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return name


@pytest.mark.parametrize(
    ("first", "circle"),
    [
        ("from . import b", True),
        ("try:\n    from . import b\nexcept ImportError:\n    pass", True),
        ("class A:\n    from . import b", True),
        ("def late():\n    from . import b", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import b", True),
        ("from . import c", False),
    ],
)
def test_a_circle_is_found_wherever_the_imports_stand(
    check_style: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    circle: bool,
) -> None:
    files = {"__init__": "", "a": first, "b": "from . import a", "c": ""}
    name = package(tmp_path, monkeypatch, **files)
    found = check_style.circles(check_style.imports(name))
    assert found == ([[f"{name}.a", f"{name}.b"]] if circle else [])


def test_a_package_that_imports_its_part_is_in_a_circle_with_it(
    check_style: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"__init__": "from .a import x", "a": "x = 1", "b": ""}
    name = package(tmp_path, monkeypatch, **files)
    assert check_style.circles(check_style.imports(name)) == []
    (tmp_path / name / "a.py").write_text(f"import {name}\nx = 1")
    assert check_style.circles({"a": ["b"], "b": ["c"], "c": ["a"]}) == [["a", "b", "c"]]


def test_names_used_twice_and_docs_that_begin_with_of_are_found(
    check_style: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_style, "ROOT", tmp_path)
    texts = {
        "one": 'class Twice:\n    size: int = 1\n    """Of one."""\nclass _Own: ...\n',
        "two": 'def told():\n    """Of what."""\nclass Twice: ...\nclass _Own: ...\n',
        "three": '"""Often, not "Of "."""\nclass Once: ...\n',
    }
    style = check_style.Style()
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        style.read(tmp_path / f"{name}.py")
    assert style.twins() == [("Twice", ["one.py:1", "two.py:3"])]
    assert [place.split(":")[0] for place in style.begin_with_of] == ["one.py", "two.py"]
