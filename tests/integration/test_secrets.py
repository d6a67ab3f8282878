"""A token is used and never shown: planted ones are searched for in everything a run leaves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ludus
from ludus.config import as_table, build, read_toml
from ludus.errors import ConfigError, LudusError
from ludus.llm.client import ChatClient
from ludus.secret import Secret, refuse_credentials_in, without_credentials
from ludus.trainer.config import RewardConfig, TrainConfig, VLLMConfig
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.run.folder import referring
from ludus.wire.client import AsyncTransport, Client

PLANTED = "planted-5ecret-f00d"
ENV = "ludus/arithmetic-v0"


def ludus_command(*arguments: str, **more: str) -> subprocess.Popen[str]:
    environment = {n: v for n, v in os.environ.items() if n != "LUDUS_TOKEN"} | more
    return subprocess.Popen(
        [sys.executable, "-m", "ludus", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def run(*arguments: str, **more: str) -> tuple[int, str]:
    process = ludus_command(*arguments, **more)
    said, _ = process.communicate(timeout=300)
    return process.returncode, said


@contextlib.contextmanager
def served() -> Generator[tuple[str, subprocess.Popen[str]]]:
    process = ludus_command("serve", ENV, "exact", "--port", "0", LUDUS_TOKEN=PLANTED)
    assert process.stdout is not None
    lines: list[str] = []
    while " at http" not in (line := process.stdout.readline()):
        assert line, lines
        lines.append(line)
    try:
        yield line.split(" at ")[1].strip(), process
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=60)
        assert PLANTED not in said


def holding(folder: Path) -> list[str]:
    """The files of a folder that hold the planted token."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if PLANTED.encode() in path.read_bytes()]


@pytest.mark.slow
def test_no_token_in_anything_a_run_leaves_and_it_goes_on_by_the_environment(
    tmp_path: Path,
) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=32, layers=2, heads=2)
    settings = tmp_path / "settings.toml"
    folder = tmp_path / "run"
    with served() as (url, _):
        settings.write_text(
            f'env = "{ENV}"\nenv_url = "{url}"\nenv_token = "{PLANTED}"\nsteps = 1\n'
            f'[model]\npath = "{model}"\n'
            "[rollout]\ntasks_per_step = 2\ngroup_size = 2\nmax_tokens = 4\nmax_turns = 1\n"
            "[eval]\ntasks = 2\n"
            f'[run]\nfolder = "{folder}"\nsave_every = 1\n'
            f'[[reward]]\nname = "{url}#exact"\ntoken = "{PLANTED}"\n'
        )
        code, said = run("train", str(settings))
        assert code == 0, said
        assert (PLANTED in said, holding(folder)) == (False, [])
        written = (folder / "config.toml").read_text()
        assert written.count('"env:LUDUS_TOKEN"') == 2

        again = ("train", str(folder / "config.toml"), "--run.resume", "--steps=2")
        code, said = run(*again)
        assert code != 0
        assert "export LUDUS_TOKEN" in said
        code, said = run(*again, LUDUS_TOKEN=PLANTED)
        assert code == 0, said
        assert (PLANTED in said, holding(folder)) == (False, [])

        code, said = run("train", str(settings), f"--run.folder={tmp_path / 'wrong'}",
                         "--env-token=planted-wrong")  # fmt: skip
        assert code != 0
        assert "planted" not in said.replace(str(tmp_path), "")


async def test_no_repr_and_no_error_shows_a_token() -> None:
    client = Client("http://127.0.0.1:9", AsyncTransport(), token=PLANTED)
    request = client.build("GET", "/v1/envs", None)
    assert request.headers["Authorization"] == f"Bearer {PLANTED}"  # the control: it is used
    config = TrainConfig(
        env_token=Secret(PLANTED), reward=[RewardConfig("http://x#a", token=Secret(PLANTED))]
    )
    shown: list[Any] = [
        client, request, ludus.connect("http://127.0.0.1:9", token=PLANTED), config,
        VLLMConfig(url="http://x", api_key=Secret(PLANTED)),
        ChatClient("http://127.0.0.1:9/v1", "m", api_key=PLANTED), as_table(config),
        referring(config),
    ]  # fmt: skip
    for one in shown:
        assert PLANTED not in repr(one)
        assert PLANTED not in str(one)
    with pytest.raises(LudusError) as caught:
        await client.within(0.3).get("/v1/envs", dict)
    assert PLANTED not in str(caught.value)
    await client.transport.close()


def test_a_secret_is_shown_in_no_form_but_one() -> None:
    secret = Secret(PLANTED)
    forms = (repr(secret), str(secret), f"{secret}", f"{secret:>40}", "%s %r" % (secret, secret))  # noqa: UP031
    assert not any(PLANTED in form for form in forms)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    assert secret.reveal() == PLANTED
    assert (bool(Secret()), Secret("a") == Secret("a"), Secret("a") == "a") == (False, True, False)


def test_a_reference_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("env:LUDUS_TEST_SECRET")
    monkeypatch.delenv("LUDUS_TEST_SECRET", raising=False)
    with pytest.raises(ConfigError, match="export LUDUS_TEST_SECRET"):
        secret.reveal()
    monkeypatch.setenv("LUDUS_TEST_SECRET", "")
    with pytest.raises(ConfigError, match="LUDUS_TEST_SECRET is empty"):
        secret.reveal()
    monkeypatch.setenv("LUDUS_TEST_SECRET", PLANTED)
    assert (secret.reveal(), str(secret)) == (PLANTED, "env:LUDUS_TEST_SECRET")
    made = build(TrainConfig, {"env_token": "env:LUDUS_TEST_SECRET"})
    assert referring(made)["env_token"] == "env:LUDUS_TEST_SECRET"


@pytest.mark.parametrize("name", ["", "MY-TOKEN", "1TOKEN", " TOKEN", "TOKEN\n"])
def test_a_reference_to_no_variable_is_not_the_secret_itself(name: str) -> None:
    with pytest.raises(ConfigError, match="env:MY_TOKEN"):
        Secret(f"env:{name}")
    with pytest.raises(ConfigError, match="env:MY_TOKEN"):
        build(TrainConfig, {"env_token": f"env:{name}"})


@pytest.mark.parametrize("end", ["\n", "\r\n", "\0", "\x7f", "\ud800"])
def test_a_secret_that_no_header_can_carry_is_refused_and_not_shown(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="printable characters") as refused:
        ludus.connect("http://127.0.0.1:1", token=PLANTED + end)
    assert PLANTED not in str(refused.value)
    if end.isascii() and end != "\0":  # what a variable can hold
        monkeypatch.setenv("LUDUS_TOKEN", PLANTED + end)
        with pytest.raises(ConfigError, match="LUDUS_TOKEN holds a line end") as refused:
            Secret("env:LUDUS_TOKEN").reveal()
        assert PLANTED not in str(refused.value)
        code, said = run("gateway", "inspect", "ro_1", LUDUS_TOKEN=PLANTED + end)
        assert (code, "printable characters" in said, PLANTED in said) == (2, True, False)


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ({"env_url": f"http://me:{PLANTED}@host"}, "env_url"),
        ({"env": f"ludus/search-v0?retriever=http://{PLANTED}@host"}, "env"),
        ({"reward": [{"name": f"https://host/x?token={PLANTED}#exact"}]}, "reward.name"),
        ({"vllm": {"url": f"http://host/?api_key={PLANTED}"}}, "vllm.url"),
    ],
)
def test_an_address_with_a_credential_is_refused_without_showing_it(
    table: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=r"\*\*\*") as caught:
        build(TrainConfig, table)
    assert name in str(caught.value)
    assert PLANTED not in str(caught.value)
    with pytest.raises(ConfigError):
        ludus.connect(f"http://me:{PLANTED}@host").envs()


@pytest.mark.parametrize(
    "wrap", [list, tuple, lambda items: [list(items)], lambda items: [{"a": items}]]
)
def test_an_address_with_a_credential_is_found_in_lists(wrap: Any) -> None:
    with pytest.raises(ConfigError, match=r"setting 'stages"):
        refuse_credentials_in({"stages": wrap([f"http://me:{PLANTED}@host"])})


def test_an_address_may_refer_to_a_credential() -> None:
    for env in ("ors/http://h:1?api_key=env:KEY", "ors/http://h:1?api_key=env:KEY&environment=x"):
        assert build(TrainConfig, {"env": env}).env == env
    for value in ("ENV:KEY", "env:MY-KEY", "env:KEY.", "xenv:KEY"):
        with pytest.raises(ConfigError, match=r"\*\*\*"):
            build(TrainConfig, {"env": f"ors/http://h:1?api_key={value}"})


def test_a_wrong_value_of_a_secret_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f'[[reward]]\nname = "u#a"\ntoken = ["{PLANTED}"]\n')
    with pytest.raises(ConfigError) as caught:
        build(TrainConfig, read_toml(path))
    assert PLANTED not in str(caught.value)


def test_credentials_of_addresses_are_hidden() -> None:
    given = f"see http://me:{PLANTED}@h/p?n=1&access_token={PLANTED}&k=2 and wss://h?key={PLANTED}"
    assert without_credentials(given) == (
        "see http://***@h/p?n=1&access_token=***&k=2 and wss://h?key=***"
    )
    for name in ("client_secret", "X-Amz-Signature", "sig", "hf_token", "apikey", "refresh.token"):
        for before in "?&#":
            given = f"https://h/p{before}{name}={PLANTED}&n=1"
            assert without_credentials(given) == f"https://h/p{before}{name}=***&n=1"
    for name in ("monkey", "design", "tokens", "keys"):
        assert without_credentials(f"https://h/p?{name}=1") == f"https://h/p?{name}=1"
    assert without_credentials("http://h/p?n=1#x a@b") == "http://h/p?n=1#x a@b"
    assert without_credentials("http://me:p@ss@h/p http://h") == "http://***@h/p http://h"
