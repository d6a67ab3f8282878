"""A peer's package that is missing, or of another version, is named with what to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.integrations.bridge import PLAYED_WITH

ROOT = Path(__file__).resolve().parents[3]


def old_package(folder: Path, distribution: str, files: dict[str, str]) -> None:
    """Write a package as pip would have installed an old version of it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    info = folder / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n")


def said(folder: Path, line: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\ntry:\n {line}\nexcept ImportError as e: print(e)"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ran.stdout


@pytest.mark.parametrize(
    ("files", "lacking"),
    [
        ({"skyrl_gym/__init__.py": ""}, "skyrl_gym.envs"),
        (
            {
                "skyrl_gym/__init__.py": "",
                "skyrl_gym/envs/__init__.py": "",
                "skyrl_gym/envs/base_text_env.py": "",
            },
            "skyrl_gym.envs.base_text_env.BaseTextEnv",
        ),
    ],
)
def test_a_peer_of_another_version_is_named(
    tmp_path: Path, files: dict[str, str], lacking: str
) -> None:
    old_package(tmp_path, "skyrl-gym", files)
    assert said(tmp_path, "import ludus.integrations.skyrl") == (
        "ludus.integrations.skyrl was played with skyrl-gym 0.4.0, and the one here (0.1.0) has "
        f"no {lacking}: pip install --upgrade 'ludus-rl[skyrl]'\n"
    )


def test_an_old_mcp_is_named(tmp_path: Path) -> None:
    old_package(tmp_path, "mcp", {"mcp/__init__.py": ""})
    line = "from ludus.envs.tools.mcp_client import McpServer; McpServer('x')"
    assert "needs mcp 2 or newer" in said(tmp_path, line)
    assert "0.1.0 is installed" in said(tmp_path, line)


def test_the_page_and_the_script_name_the_versions_that_bridges_do() -> None:
    page = (ROOT / "docs" / "peers.md").read_text()
    script = (ROOT / "scripts" / "peers.sh").read_text()
    for distribution, played in PLAYED_WITH.values():
        assert f"{distribution} {played}" in page
        assert f"{distribution}=={played}" in script


def test_the_table_of_equal_rewards_has_what_the_scripts_play() -> None:
    page = (ROOT / "docs" / "peers.md").read_text()
    table = page.partition("## Equal rewards")[2].partition("\n##")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    scripts = "".join((ROOT / "scripts" / name).read_text() for name in ("peers.sh", "peers_in.sh"))
    known = {*re.search(r'^all="(.*)"$', scripts, re.M)[1].split(), "in"}  # type: ignore[index]
    assert len(rows) > len(PLAYED_WITH)
    for versions, _, out, into, command in rows[1:]:
        directions = [episodes for episodes in (out, into) if episodes]
        assert directions, versions
        for episodes in directions:
            assert int(re.findall(r"\d+", episodes)[0]) >= 100, versions
        peers = " ".join(re.findall(r"`([^`]+)`", command)).split()
        assert peers, versions
        assert set(peers) <= known, versions
        for name, version in re.findall(r"([a-z-]+) (\d+\.\d+\.\d+)", versions):
            pinned = {found[1] for found in re.finditer(rf"\b{name}==([\d.]+)", scripts)}
            assert version in pinned, (versions, name)
