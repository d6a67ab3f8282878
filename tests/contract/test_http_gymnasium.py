"""Every environment is a real `gymnasium.Env` through the HTTP client too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import ludus
from ludus.envs import env_ids
from ludus.envs.serving.connect import RemoteServer
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError, LudusError, MissingExtra, UnknownEnv, UnknownTask
from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import BackgroundServer, HttpServer

SHIPPED = [env_id for env_id in env_ids() if env_id.startswith("ludus/")]
SAMPLE = {"ludus/arithmetic-v0", "ludus/calls-v0", "ludus/shapes-v0", "ludus/wikigame-v0"}


def why_not(env_id: str) -> str:
    """Why an environment cannot be served here; empty if it can."""
    try:
        ServedEnv(env_id).load()
    except (MissingExtra, ModuleNotFoundError) as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def server() -> Iterator[RemoteServer]:
    envs = [env_id for env_id in SHIPPED if not why_not(env_id)]
    http = HttpServer([EnvService(envs), ScoreService(["exact"])])
    with BackgroundServer(http) as url, ludus.connect(url) as connection:
        yield connection


@pytest.mark.parametrize(
    "env_id",
    [
        # A text, tools, images and a grid: what Gymnasium's spaces tell apart.
        env_id if env_id in SAMPLE else pytest.param(env_id, marks=pytest.mark.slow)
        for env_id in SHIPPED
    ],
)
def test_every_environment_passes_check_env_through_http(env_id: str, server: RemoteServer) -> None:
    if reason := why_not(env_id):
        pytest.skip(reason)
    env = server.make(env_id)
    assert isinstance(env, gymnasium.Env)
    check_env(env, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("env_id", SHIPPED)
def test_an_episode_is_the_same_here_and_over_there(env_id: str, server: RemoteServer) -> None:
    if reason := why_not(env_id):
        pytest.skip(reason)
    here, there = ludus.make(env_id), server.make(env_id)
    if here.spec is not None and here.spec.nondeterministic:
        pytest.skip("not deterministic")
    for seed in (0, 7):
        assert here.reset(seed=seed) == there.reset(seed=seed)
        for action in ("3", "<answer>4</answer>"):
            one, other = outcome(here, action), outcome(there, action)
            assert one == other
            if not isinstance(one, tuple) or one[2] or one[3]:
                break
    here.close()
    there.close()
    there.close()


def outcome(env: gymnasium.Env[str, str], action: str) -> object:
    """What a step gives, or the type and words of what it raises."""
    try:
        return env.step(action)
    except LudusError as error:
        return type(error).__name__, str(error)


def test_tasks_are_the_same_here_and_over_there(server: RemoteServer) -> None:
    here = ludus.make("ludus/arithmetic-v0").tasks("test")
    there = server.make("ludus/arithmetic-v0").tasks("test")
    assert there.size is here.size is None
    for index in (0, 255, 256, 1000):
        assert there.at(index) == here.at(index)
    assert there.find("test/17") == here.find("test/17")
    with pytest.raises(UnknownTask):
        there.find("train/17")
    with pytest.raises(IndexError):
        there.at(-1)


def test_a_named_task_is_played(server: RemoteServer) -> None:
    env = server.make("ludus/arithmetic-v0")
    _, info = env.reset(options={"task": "test/3"})
    assert info["task"] == "test/3"
    env.close()


def test_an_unknown_environment_names_the_near_miss(server: RemoteServer) -> None:
    with pytest.raises(UnknownEnv, match="did you mean 'ludus/arithmetic-v0'"):
        server.make("ludus/arithmetik-v0")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("ludus/arithmetic-v0", {"max_number": 3}), ("ludus/arithmetic-v0?max_number=3", {})],
)
def test_arguments_are_the_servers_and_a_client_is_told_what_is_its_own(
    server: RemoteServer, name: str, arguments: dict[str, Any]
) -> None:
    for make in (server.make, server.make_async):
        with pytest.raises(ConfigError, match=r"reset.*task, split") as refused:
            make(name, **arguments)
        assert "ludus serve 'ludus/arithmetic-v0?max_number=3'" in str(refused.value)


def test_what_is_offered_is_listed_and_counted(server: RemoteServer) -> None:
    cards = {card.id: card for card in server.envs()}
    assert cards["ludus/arithmetic-v0"].splits == dict.fromkeys(
        ("train", "validation", "test"), None
    )
    assert [card.name for card in server.verifiers()] == ["exact"]
    before = server.traffic.operations
    samples = [ludus.Sample(response=word, gold="salve") for word in ("salve", "vale")]
    assert server.score("exact", samples[0]).reward == 1.0
    assert [verdict.reward for verdict in server.score_batch("exact", samples)] == [1.0, 0.0]
    assert server.traffic.operations == before + 3


def test_vector_environments_of_gymnasium_play_over_http(server: RemoteServer) -> None:
    vector = gymnasium.vector.SyncVectorEnv([lambda: server.make("ludus/arithmetic-v0")] * 3)
    vector.reset(seed=0)
    _, rewards, terminated, _, _ = vector.step(["1", "2", "no number"])
    assert rewards.shape == (3,)
    assert terminated.tolist() == [True, True, True]
    vector.close()


def test_constructor_arguments_are_fixed_by_whoever_serves() -> None:
    easy = "ludus/arithmetic-v0?max_operations=1&operators=+"
    with BackgroundServer(HttpServer([EnvService([easy])])) as url, ludus.connect(url) as server:
        env = server.make("ludus/arithmetic-v0")
        shown = [str(env.reset(seed=seed)[0]) for seed in range(20)]
        assert all(text.count("+") == 1 for text in shown)
        assert not any(operator in text for text, operator in itertools.product(shown, "-*/"))
        env.close()
