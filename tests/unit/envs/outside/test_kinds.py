"""Ids of other projects' environments, the catalogue, and how interpreters are installed."""

import dataclasses
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import ludus
from ludus.cli.main import main
from ludus.envs.outside import home, kinds, sources
from ludus.envs.outside.inside.adapters.for_inspect import InspectTask
from ludus.envs.outside.inside.contract import PeerBroken
from ludus.envs.registry import find_env
from ludus.errors import ConfigError, UnknownEnv

from .conftest import PEER  # pyright: ignore


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_HOME", str(tmp_path / "home"))


def test_an_environment_that_is_not_installed_names_the_command() -> None:
    with pytest.raises(ConfigError, match="run 'ludus env install reasoning-gym'"):
        ludus.make("reasoning-gym/countdown-v0")


def test_an_installation_that_was_broken_off_is_told(tmp_path: Path) -> None:
    (tmp_path / "home" / "envs" / "textarena" / "bin").mkdir(parents=True)
    with pytest.raises(ConfigError, match="textarena was not installed to the end"):
        ludus.make("textarena/TicTacToe-v0")


@pytest.mark.parametrize(
    ("env_id", "error", "said"),
    [
        ("reasoning-gym/countdow-v0", UnknownEnv, "did you mean 'reasoning-gym/countdown-v0'"),
        ("textarena/Tictactoe-v0", UnknownEnv, "did you mean 'textarena/TicTacToe-v0'"),
        ("textarena/Klondike-v0", ConfigError, "a file of the package does not parse"),
        ("verifiers/", UnknownEnv, "name a family"),
        ("alfworld/pick_two-v0", UnknownEnv, "did you mean 'alfworld/pick_two_obj_and_place-v0'"),
        ("textworld", UnknownEnv, "ludus brings ludus/textworld-v0"),
        ("alfworld", UnknownEnv, "name a family, as in alfworld/pick_and_place_simple-v0"),
        ("reasoning-gym/", UnknownEnv, "name a family, as in reasoning-gym/"),
    ],
)
def test_an_id_that_cannot_be_made_says_why(env_id: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        find_env(env_id)


def test_the_catalogue_lists_families_and_variants_apart() -> None:
    listed = {name: kinds.catalogue(name) for name in ("reasoning-gym", "textarena", "gem")}
    counts = {
        name: (len(one.families), sum(max(1, len(family.variants)) for family in one.families))
        for name, one in listed.items()
        if one is not None
    }
    assert counts == {"reasoning-gym": (106, 106), "textarena": (96, 238), "gem": (40, 171)}
    for one in listed.values():
        assert one is not None
        names = [family.name for family in one.families]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "change", [lambda: home.install(kinds.find_kind("gem")), lambda: home.remove("gem")]
)
def test_an_environment_is_changed_by_one_process_at_a_time(
    tmp_path: Path, change: Callable[[], object]
) -> None:
    place = tmp_path / "home" / "envs" / "gem"
    place.mkdir(parents=True)
    hold = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'a') as file:\n"
        "    fcntl.flock(file, fcntl.LOCK_EX)\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", hold, str(place.with_name(".gem.lock"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="another process installs or removes 'gem'"):
            change()
        assert place.is_dir()
        assert home.installed_kinds() == ["gem"]
        other.communicate("")
    home.remove("gem")
    assert home.installed_kinds() == []


def test_all_are_listed_without_installing_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--available", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    ids = {one["id"] for one in told}
    assert {"reasoning-gym/countdown-v0", "textarena/TicTacToe-v0", "gem/Wordle-v0"} <= ids
    assert len(ids) == len(told) >= 150
    needy = {one["id"]: one["needs"] for one in told if one.get("needs")}
    assert "axon-rl/GSM-8k" in needy["gem/math-GSM8K-v0"]
    assert "alfworld-download" in needy["alfworld/all-v0"]
    assert main(["list", "--available"]) == 0
    printed = capsys.readouterr().out
    assert "openenv/URL" in printed


def test_a_kind_of_a_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "peer_kinds.py").write_text(
        "from ludus.envs.outside import EnvKind\n"
        f"MINE = EnvKind(name='mine', about='Mine.', requires=('mine',), package='json',\n"
        f"               adapter={PEER.adapter!r}, any_family=True)\n"
        "OTHER = 7\n"
    )
    info = tmp_path / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[ludus.env_kinds]\nmine = peer_kinds:MINE\nother = peer_kinds:OTHER\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    env = ludus.make("mine/echo-v0")  # the package of this kind is there: this interpreter runs it
    assert env.reset(seed=0)[0]
    env.close()
    with pytest.raises(ConfigError, match="not that EnvKind"):
        find_env("other/echo-v0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["instal"], "no action of ludus env named 'instal'; did you mean 'install'"),
        (["install", "reasoning-gim"], "did you mean 'reasoning-gym'"),
        (["install", "gem", "--python", "/no/python"], "python='/no/python' is not a program"),
        (["remove", "gem"], "no environment of 'gem' is installed"),
    ],
)
def test_a_wrong_command_is_told_in_a_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", *words]) == 2
    assert said in capsys.readouterr().err


def write_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    """Write a wheel with one module, which pip installs without an index."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        needs = f"Requires-Dist: {requires}\n" if requires else ""
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_an_environment_is_installed_played_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With wheels of this test and no index; packages that clash are told and not kept."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    write_wheel(tmp_path, "peer_common", "1")
    write_wheel(tmp_path, "peer_common", "2")
    write_wheel(tmp_path, "peer_one", "1", "peer_common==1")
    write_wheel(tmp_path, "peer_two", "1", "peer_common==2")
    kind = dataclasses.replace(PEER, requires=("peer_one",), package="peer_one")
    monkeypatch.setitem(kinds.KINDS, "peer", kind)
    assert main(["env", "install", "peer/echo-v0", "--package", "peer_two"]) == 2
    assert "pip cannot install peer_one peer_two" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="peer was not installed to the end"):
        ludus.make("peer/echo-v0")
    assert main(["env", "install", "peer"]) == 0
    capsys.readouterr()
    record = home.installed("peer")
    assert record is not None
    assert record.packages["peer_common"] == "1"
    env = ludus.make("peer/evaluates-v0", walls=False)
    env.reset(seed=0)
    assert env.step("__import__('peer_one').VERSION")[0] == "1"
    env.close()
    assert main(["env", "list", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"peer"}
    assert main(["env", "remove", "peer"]) == 0
    assert home.installed_kinds() == []


def test_every_command_of_an_installation_has_the_limit(tmp_path: Path) -> None:
    late = tmp_path / "python"
    late.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;\n'
        '*"pip list"*) echo "[]" ;;\n'
        '*"pip check"*) exec sleep 30 ;;\n'
        "esac\n"
    )
    late.chmod(0o755)
    with pytest.raises(ConfigError, match=r"cannot check the installed packages.*timed out"):
        home.install(kinds.find_kind("gem"), python=str(late), timeout_s=2)
    assert home.installed("gem") is None


def test_ids_of_other_projects_are_environments_on_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sources.is_outside("openenv/http://127.0.0.1:8000")
    assert not sources.is_outside("me/echo-v0")
    assert main(["check", "verifiers/anything"]) == 2
    assert "ludus env install verifiers" in capsys.readouterr().err
    assert main(["check", "openenv/nowhere"]) == 2
    assert "name the server's address" in capsys.readouterr().err


def test_every_evaluation_of_inspect_says_what_it_lacks() -> None:
    """They were tried one by one; where data come from elsewhere, the place is named."""
    listed = kinds.catalogue("inspect")
    assert listed is not None
    needs = {family.name: family.needs for family in listed.families}
    assert len(needs) == 129
    vague = ("not tried", "its data set, which", "what its function asks for", "what its task asks")
    assert not [name for name, need in needs.items() if any(one in need for one in vague)]
    assert "openai/gsm8k of Hugging Face" in needs["gsm8k"]
    assert "openaipublic.blob.core.windows.net" in needs["mgsm"]  # data from elsewhere
    assert "sandbox of its own (containers) for its scorer" in needs["humaneval"]  # runs programs
    assert "tools of its own solver" in needs["agent_threat_bench"]
    assert "a model that grades" in needs["writingbench"]


@pytest.mark.parametrize("kind", ["alfworld", "gem", "inspect", "reasoning-gym", "textarena"])
def test_no_family_is_left_untried(kind: str) -> None:
    listed = kinds.catalogue(kind)
    assert listed is not None
    told = {family.name: f"{family.needs} {family.problem}" for family in listed.families}
    assert not [name for name, need in told.items() if "not tried" in need]


INSPECT = {
    "inspect_ai": {},
    "inspect_ai.model": {
        "ChatMessageUser": lambda content: SimpleNamespace(role="user", text=content),
        "ModelOutput": SimpleNamespace(
            from_content=lambda _, text: SimpleNamespace(
                message=SimpleNamespace(role="assistant", text=text)
            )
        ),
        "ModelName": str,
    },
    "inspect_ai.scorer": {"Target": str, "value_to_float": lambda: float},
    "inspect_ai.solver": {
        "TaskState": lambda **given: SimpleNamespace(tools=[], completed=False, **given)
    },
}
"""What an evaluation's adapter asks of inspect_ai, where that is not installed."""
EVALUATION = """
import asyncio
from types import SimpleNamespace

EMPTY = dict(sandbox=None, files=None, choices=None, metadata=None)

async def asks(state, generate):
    await asyncio.sleep(0.001)  # as whoever reads a file
    state.messages[0].text = f"Think: {state.messages[0].text}"
    return await generate(state)

async def asks_twice(state, generate):
    return (await asyncio.gather(generate(state), generate(state)))[0]

async def score(state, target):
    return SimpleNamespace(value=float(state.messages[-1].text == target), explanation="")

def sums(solver="asks"):
    samples = [SimpleNamespace(id=n, input=f"{n}+0", target=f"{n}", **EMPTY) for n in range(40)]
    return SimpleNamespace(dataset=samples, solver=globals()[solver], scorer=score, sandbox=None)
"""


@pytest.fixture
def evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., InspectTask]]:
    """Makes the task `sums`; its loops are closed at the end."""
    for name, fields in INSPECT.items():
        module = ModuleType(name)
        vars(module).update(fields)
        monkeypatch.setitem(sys.modules, name, module)
    file = tmp_path / "tasks.py"
    file.write_text(EVALUATION)
    with ExitStack() as loops:

        def made(**settings: str) -> InspectTask:
            task = InspectTask("inspect/sums", {"path": str(file), **settings})
            loops.callback(task._loop.close)
            return task

        yield made


def test_an_evaluation_begins_anew_in_the_midst_of_a_sample(
    evaluation: Callable[..., InspectTask],
) -> None:
    task = evaluation()
    for index in range(3):
        begun = task.reset({"split": "train", "index": index})
        text = begun["observation"][0]["content"]
        assert text.startswith("Think: ")
    answered = task.step({"text": text.removeprefix("Think: ").removesuffix("+0")})
    assert (answered["reward"], answered["terminated"]) == (1.0, True)


def test_a_solver_that_asks_twice_at_once_is_told_and_not_waited_for(
    evaluation: Callable[..., InspectTask],
) -> None:
    task = evaluation(solver="asks_twice")
    with pytest.raises(PeerBroken, match="asks again before it has an answer"):
        task.reset({"split": "train", "index": 0})
