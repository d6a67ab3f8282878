"""docs/sharing.md and the skills of coding agents, followed literally, and publishing."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from ludus.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "sharing.md", *sorted((ROOT / "skills").glob("*/SKILL.md"))]
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "me"), ("EMAIL", "me@localhost"))
}


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.M | re.S)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def share_packages(folder: Path) -> None:
    """Let a fresh environment see ludus and what it needs: no index has this checkout."""
    (site,) = (folder / "fresh" / "lib").glob("python*/site-packages")
    places = [sysconfig.get_paths()["purelib"], str(ROOT / "src")]
    (site / "shared.pth").write_text("\n".join(places))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_commands_run_as_written(page: Path, tmp_path: Path) -> None:
    env = {
        **os.environ,
        **IDENTITY,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for yes: the backend is here, without an index
    }
    servers = list[subprocess.Popen[bytes]]()
    try:
        for line in commands(page):
            if line.endswith("&"):
                server = shlex.split(line.removesuffix("&"))
                servers.append(
                    subprocess.Popen(server, cwd=tmp_path, env=env, stdout=subprocess.PIPE)
                )
                assert servers[-1].stdout is not None
                servers[-1].stdout.readline()  # it is ready when it says so
                continue
            if "install 'ludus-rl" in line:
                share_packages(tmp_path)
                continue
            done = subprocess.run(
                line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            if "--policy expert" in line:
                assert "1.000" in done.stdout
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
            assert server.stdout is not None
            server.stdout.close()


def test_every_skill_says_what_it_is_for_and_stands_in_the_index() -> None:
    index = (ROOT / "skills" / "llms.txt").read_text()
    for page in PAGES[1:]:
        head = page.read_text().split("---")[1]
        assert f"name: {page.parent.name}" in head
        assert re.search(r"^description: \S.{40,}$", head, re.M)
        assert f"({page.parent.name}/SKILL.md)" in index
    for target in re.findall(r"\]\((\S+?)\)", index):
        assert (ROOT / "skills" / target).exists(), target


@pytest.mark.slow
def test_a_version_is_published_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    assert main(["new", "env", "me/shout-v0"]) == 0
    for _ in range(2):  # the same sources again are no other version
        assert main(["env", "publish", "me-shout", "--to", "out", "--skip-check"]) == 0
        time.sleep(1.1)  # another time in the wheel
    lock = (tmp_path / "out" / "me_shout-0.1.0.lock").read_text()
    assert "# environment: me/shout-v0" in lock
    assert re.search(r"^msgspec==\d", lock, re.M)
    source = tmp_path / "me-shout" / "src" / "me_shout" / "shout.py"
    source.write_text(source.read_text() + "# another\n")
    assert main(["env", "publish", "me-shout", "--to", "out", "--skip-check"]) == 2
    assert "raise project.version" in capsys.readouterr().err

    subprocess.run(["git", "init", "--quiet", "--bare", "there.git"], check=True)
    assert main(["env", "publish", "me-shout", "--to", "there.git", "--skip-check"]) == 0
    assert "@v0.1.0" in capsys.readouterr().out
    listed = subprocess.run(
        ["git", "-C", "there.git", "ls-tree", "-r", "--name-only", "v0.1.0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"ludus-env.lock", "pyproject.toml"} <= set(listed.stdout.split())
    assert main(["env", "publish", "me-shout", "--to", "there.git", "--skip-check"]) == 2
    assert "has v0.1.0 already" in capsys.readouterr().err

    # An environment that breaks its contract is not published.
    source.write_text(
        source.read_text().replace("return self.number, {}", "return self.gold(), {}")
    )
    assert main(["env", "publish", "me-shout", "--to", "other"]) == 1
    assert "me/shout-v0 is not published" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_a_folder_without_environments_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "publish", str(tmp_path), "--to", "out"]) == 2
    assert "cannot read" in capsys.readouterr().err
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
    assert main(["env", "publish", str(tmp_path), "--to", "out"]) == 2
    assert "names no environments" in capsys.readouterr().err
