"""`ludus new`, `play` and `eval`."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ludus.agent import Episode, Segment, Trajectory, Turn, write_episodes
from ludus.cli.gateway import look
from ludus.cli.main import main
from ludus.cli.new import names_of
from ludus.cli.play import escaped
from ludus.errors import ConfigError
from ludus.messages import assistant, user
from ludus.verdict import Verdict


def run(*command: str, cwd: Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize(
    ("kind", "name"), [("env", "me/spell-out-v0"), ("verifier", "me/last-number")]
)
def test_a_new_package_passes_its_own_tests(kind: str, name: str, tmp_path: Path) -> None:
    assert main(["new", kind, name, "--into", str(tmp_path)]) == 0
    folder = tmp_path / name.replace("/", "-").removesuffix("-v0")
    if kind == "env":
        folder = tmp_path / "me-spell-out"
    tested = run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        cwd=folder,
        PYTHONPATH=str(folder / "src"),
    )
    assert tested.returncode == 0, tested.stdout
    linted = run(sys.executable, "-m", "ruff", "check", ".", cwd=folder)
    assert linted.returncode == 0, linted.stdout
    written = run(
        sys.executable, "-m", "ruff", "format", "--check", "--line-length", "100", ".", cwd=folder
    )
    assert written.returncode == 0, written.stdout


@pytest.mark.slow
def test_an_installed_package_is_found_checked_and_played(tmp_path: Path) -> None:
    for kind, name in (("env", "me/spell-v0"), ("verifier", "me/last-number")):
        assert main(["new", kind, name, "--into", str(tmp_path)]) == 0
    site = tmp_path / "site"
    installed = run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
        "./me-spell",
        "./me-last-number",
        cwd=tmp_path,
    )
    assert installed.returncode == 0, installed.stderr
    where = {"cwd": tmp_path, "PYTHONPATH": str(site)}
    ludus = (sys.executable, "-m", "ludus")
    assert run(*ludus, "check", "me/spell-v0", **where).returncode == 0  # type: ignore[arg-type]
    assert run(*ludus, "check", "me/last-number", **where).returncode == 0  # type: ignore[arg-type]
    listed = json.loads(run(*ludus, "list", "--json", **where).stdout)  # type: ignore[arg-type]
    assert "me/spell-v0" in {e["name"] for e in listed["environments"]}
    assert "me/last-number" in {v["name"] for v in listed["verifiers"]}


def test_new_leaves_what_is_there_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "me-echo").mkdir()
    assert main(["new", "env", "me/echo-v0", "--into", str(tmp_path)]) == 2
    assert "exists and is left as it is" in capsys.readouterr().err
    assert list((tmp_path / "me-echo").iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("env", "me/echo"),
        ("env", "me/Echo-v0"),
        ("env", "../x-v0"),
        ("env", "a/b/c-v0"),
        ("env", ""),
        ("env", "json-v0"),
        ("env", "class-v0"),
        ("env", "ludus/x-v0"),
        ("env", "me/1x-v0"),
        ("env", "me/none-v0"),
        ("env", "me/true-v0"),
        ("env", "me/echo-v\u0663"),
        ("verifier", "me/x-v1"),
        ("verifier", "me/ex act"),
        ("verifier", "import"),
    ],
)
def test_names_that_cannot_be_are_refused(kind: str, name: str) -> None:
    with pytest.raises(ConfigError):
        names_of(name, kind)


@pytest.mark.parametrize(
    ("name", "why"),
    [("me/class-v0", "module"), ("me/none-v0", "class 'None', a word"), ("json-v0", "already")],
)
def test_a_refused_name_is_told_why(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        names_of(name, "env")


def test_a_name_gives_all_the_others() -> None:
    names = names_of("me/tic-tac-toe-v2", "env")
    assert (names.distribution, names.package, names.module, names.classname) == (
        "me-tic-tac-toe",
        "me_tic_tac_toe",
        "tic_tac_toe",
        "TicTacToe",
    )


def played(tmp_path: Path, *arguments: str, stdin: str) -> subprocess.CompletedProcess[str]:
    return run(
        sys.executable, "-m", "ludus", "play", *arguments, cwd=tmp_path, stdin=stdin, COLUMNS="100"
    )


def test_a_person_plays_to_the_end(tmp_path: Path) -> None:
    made = played(
        tmp_path,
        "ludus/arithmetic-v0?operators=%2B&max_operations=1",
        "--seed",
        "3",
        stdin="/calc 1\n/calculator 20+22\n0\n",
    )
    assert made.returncode == 0, made.stderr
    assert "Work out the expression." in made.stdout
    assert "/calculator EXPRESSION" in made.stdout
    assert "did you mean /calculator?" in made.stdout
    assert "42" in made.stdout
    assert "reward 0 (env 0), terminated, task train/3" in made.stdout
    assert "the answer: " in made.stdout


@pytest.mark.parametrize("stdin", ["", "/quit\n"])
def test_a_person_may_leave(stdin: str, tmp_path: Path) -> None:
    made = played(tmp_path, "ludus/maths-v0", stdin=stdin)
    assert (made.returncode, made.stderr) == (0, "")
    assert "left train/0 before the end" in made.stdout


def test_an_unknown_task_is_told(tmp_path: Path) -> None:
    made = played(tmp_path, "ludus/arithmetic-v0", "--task", "train/x", stdin="")
    assert made.returncode == 1
    assert "no task named 'train/x'" in " ".join(made.stdout.split())
    assert "Traceback" not in made.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext 数", "plain\n\ttext 数"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb\x00", "a\\rb\\x00"),
        ("\u202eevil", "\\u202eevil"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(text: str, shown: str) -> None:
    assert escaped(text) == shown


def evaluated(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["eval", *arguments, "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def test_the_expert_is_right_and_random_text_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folder" / "episodes.jsonl"
    best = evaluated(
        "ludus/arithmetic-v0", "--tasks", "20", "--samples", "2", "--out", str(out), capsys=capsys
    )
    floor = evaluated("ludus/arithmetic-v0", "--policy", "random", "--tasks", "20", capsys=capsys)
    assert (best["reward"]["value"], best["pass_at"]["2"]["value"], best["failed"]) == (1.0, 1.0, 0)
    assert floor["reward"]["value"] == 0.0
    episodes = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(episodes) == 40
    assert {e["task"] for e in episodes} == {f"test/{i}" for i in range(20)}


HANGS_AT_ODD_TASKS = """
import time
import ludus

@ludus.register("mine/hangs-v0")
class Hangs(ludus.TextEnv):
    system_prompt = "x"

    def reset(self, *, seed=None, options=None):
        return "x", {}

    def step(self, action):
        if int(self.task.id.removeprefix("test/")) % 2:
            time.sleep(1000)
        return "", 1.0, True, False, {}

    def demonstrate(self):
        return "x"
"""


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_step_that_never_comes_back_costs_its_episode_and_no_other(
    tmp_path: Path, concurrency: int
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS_AT_ODD_TASKS)
    tasks = max(4, concurrency)
    done = run(
        *(sys.executable, "-m", "ludus", "--import", "hangs.py", "eval", "mine/hangs-v0"),
        *("--tasks", str(tasks), "--concurrency", str(concurrency)),
        *("--episode-timeout-s", "1", "--json"),
        cwd=tmp_path,
    )
    result = json.loads(done.stdout)
    assert result["failures"] == {"timeout: no end within 1 s": tasks // 2}
    assert (result["episodes"], result["reward"]["value"]) == (tasks, 1.0)


def test_an_address_and_constructor_arguments_do_not_go_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = "ludus/arithmetic-v0?max_operations=1"
    assert main(["eval", wanted, "--url", "http://127.0.0.1:9", "--policy", "random"]) == 2
    assert "give them to ludus serve" in capsys.readouterr().err


def test_a_file_that_is_no_python_is_told_by_name_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text("import ludus\ndef (\n")
    assert main(["--import", str(tmp_path / "broken.py"), "list"]) == 2
    assert "broken.py': invalid syntax (broken.py, line 2)" in capsys.readouterr().err


def test_an_env_without_an_expert_has_only_failed_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "no_expert.py"
    mine.write_text(
        "import ludus\n"
        "@ludus.register('mine/mute-v0')\n"
        "class Mute(ludus.TextEnv):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return 'x', {}\n"
        "    def step(self, action):\n"
        "        return '', 1.0, True, False, {}\n"
    )
    assert main(["--import", str(mine), "eval", "mine/mute-v0", "--tasks", "2"]) == 1
    assert "mine/mute-v0 has no expert" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "text",
    [
        *("<html>", "[]", "[" * 9999, '{"error": "no"}', '{"error": {"message": 3}}'),
        '{"tree": [], "untrained_tokens": [], "sampled_tokens": 1}',
        '{"tree": 5, "untrained_tokens": {}, "sampled_tokens": 1}',
    ],
)
async def test_a_server_that_is_no_gateway_is_refused_in_a_sentence(text: str) -> None:
    async def page(request: web.Request) -> web.Response:
        status = 404 if request.path.endswith("gone") else 200
        return web.Response(text=text, status=status)

    application = web.Application()
    application.router.add_get("/{path:.*}", page)
    async with TestServer(application) as server:
        for rollout in ("ro_1", "gone"):
            words = [rollout, "--url", str(server.make_url("/")), "--key", "k"]
            with pytest.raises(ConfigError, match="what answers there is no gateway"):
                await asyncio.to_thread(look, words)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("view FILE --out FILE", "holds no page"),
        ("watch FILE --out FILE", "holds no page"),
        ("eval ludus/arithmetic-v0 --tasks 1 --html FILE", "holds no page"),
        ("eval ludus/arithmetic-v0 --policy local --model /nowhere --out FILE", "no such folder"),
        ("eval ludus/arithmetic-v0?max_operations=x --out FILE", "max_operations"),
        ("audit ludus/arithmetic-v0?max_operations=x --keep FILE", "max_operations"),
    ],
)
def test_what_a_file_holds_outlives_a_command_that_fails(
    command: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "episodes.jsonl"
    turn = Turn(observation=[user("1+2?")], message=assistant("3"))
    played = Trajectory(verdict=Verdict.of(1.0), segments=[Segment(turns=[turn])])
    episode = Episode(task="t/0", trajectories=[played])
    write_episodes(file, [episode])
    kept = file.read_bytes()
    assert main(command.replace("FILE", str(file)).split()) == 2
    assert told in capsys.readouterr().err
    assert file.read_bytes() == kept
