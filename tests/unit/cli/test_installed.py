"""The name `ludus` on PyPI is another project's: what is ours says so."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ludus
from ludus.cli.main import main
from ludus.installed import foreign_distribution

ROOT = Path(__file__).parents[3]


def imported(folder: Path) -> subprocess.CompletedProcess[str]:
    """`import ludus` with `folder` on the path, in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", "import ludus"],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def distribution(folder: Path, summary: str, name: str = "ludus-2.0.1.dist-info") -> None:
    info = folder / name
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: ludus\nVersion: 2.0.1\nSummary: {summary}\n"
    )


def test_import_tells_of_another_projects_distribution(tmp_path: Path) -> None:
    distribution(tmp_path, "A game engine")
    done = imported(tmp_path)
    assert done.returncode == 0
    assert "RuntimeWarning" in done.stderr
    assert "pip uninstall ludus" in done.stderr
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize("is_file", [False, True])
def test_what_old_tools_installed_is_found_as_well(tmp_path: Path, is_file: bool) -> None:
    info = tmp_path / "ludus-2.0.1-py3.12.egg-info"
    if not is_file:
        info.mkdir()
    file = info if is_file else info / "PKG-INFO"
    file.write_text("Name: ludus\nSummary: A game engine\n")
    assert foreign_distribution([str(tmp_path)]) == str(info)
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
    file.write_text(f"Name: ludus\nSummary: {own}\n")
    assert foreign_distribution([str(tmp_path)]) == ""


@pytest.mark.parametrize("name", ["ludus-0.1.0.dist-info", "ludus_rl-0.1.0.dist-info"])
def test_our_own_distribution_under_either_name_is_no_news(tmp_path: Path, name: str) -> None:
    made = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    distribution(tmp_path, made["description"], name)
    done = imported(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_our_name_and_version_are_those_that_packages_depend_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == ("ludus-rl", ludus.__version__)
    extras = project["optional-dependencies"]
    inside = [one for group in extras.values() for one in group if one.startswith("ludus")]
    assert inside
    assert all(one.startswith("ludus-rl[") for one in inside)
    for kind, name in (("env", "me/echo-v0"), ("verifier", "me/exact")):
        assert main(["new", kind, name, "--into", str(tmp_path / kind)]) == 0
        (written,) = (tmp_path / kind).glob("*/pyproject.toml")
        made = tomllib.loads(written.read_text())["project"]
        assert made["dependencies"] == [f"ludus-rl>={ludus.__version__}"]
