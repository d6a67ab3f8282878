"""Forks of an episode: a child is its parent's twin until they act otherwise, over HTTP too."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from ludus.agent.policy import RandomPolicy
from ludus.envs import EnvSession, TextEnv, env_ids, make_async
from ludus.envs.forking import Nursery, digest_of_state, essence, fork_session
from ludus.envs.serving.client import RemoteSession
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.envs.session import expert_action
from ludus.errors import (
    EpisodeEnded,
    LudusError,
    MissingExtra,
    NotForkable,
    Overloaded,
    ReplayDiverged,
    SessionGone,
)
from ludus.messages import as_messages
from ludus.trainer.rollout.source import open_source
from ludus.wire.server import BackgroundServer, HttpServer

QUICK = {"arithmetic", "tally", "ledger", "textworld", "calls"}
SLOW = pytest.mark.slow
SHIPPED = [
    env_id
    if env_id.split("/")[1].removesuffix("-v0") in QUICK
    else pytest.param(env_id, marks=SLOW)
    for env_id in env_ids()
    if env_id.startswith("ludus/")
]


class Dice(TextEnv):
    """Says a die's face at each step."""

    forks = "copy"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.said: list[str] = []
        return "roll", {}

    def step(self, action: str) -> Any:
        self.said.append(f"{action}{self.rng.randint(1, 10**9)}")
        return " ".join(self.said), 0.0, len(self.said) == 9, False, {}


class Replayed(Dice):
    """The same, which has no copy."""

    forks = "replay"


class Sealed(Dice):
    """The same, which cannot be forked."""

    forks = "no"


class Fickle(Replayed):
    """Says that it is deterministic, and counts across its objects."""

    count = itertools.count()

    def step(self, action: str) -> Any:
        return f"{next(self.count)}", 0.0, False, False, {}


class Slow(Replayed):
    """Lives in a worker process."""

    never_blocks = False


for kind in (Dice, Replayed, Sealed, Fickle):
    kind.never_blocks = True


def nursery(session: EnvSession, build: Any) -> Nursery:
    async def another() -> EnvSession:
        return EnvSession(build(), session.id)

    return Nursery(another, lambda env: EnvSession(env, session.id))


async def played(session: Any, actions: list[Any]) -> list[bytes]:
    answers = []
    for action in actions:
        try:
            answer = await session.step(action)
        except EpisodeEnded:
            break
        answers.append(essence(answer))
    return answers


async def acting(session: EnvSession, opening: Any, steps: int) -> list[Any]:
    """Play the environment's expert, or at random where there is none."""
    player = RandomPolicy().begin(seed=1)
    messages, actions = as_messages(opening[0]), []
    for _ in range(steps):
        if not session.is_open:
            break
        try:
            action = expert_action(session)
        except LudusError:
            turn = await player.act(messages, opening[1]["briefing"].tools)
            action = turn.message  # type: ignore[union-attr, assignment]
        actions.append(action)
        await session.step(action)
    return actions


@pytest.mark.parametrize("env_id", SHIPPED)
async def test_a_child_is_the_twin_of_its_parent(env_id: str) -> None:
    """Every shipped environment: a child, and a child of it, answer what the parent answers."""
    try:
        guide, parent = make_async(env_id), make_async(env_id)
    except MissingExtra as error:
        pytest.skip(str(error))
    actions = await acting(guide, await guide.reset(seed=3, options={"split": "train"}), 6)
    await parent.reset(seed=3, options={"split": "train"})
    half = max(0, min(len(actions) - 1, len(actions) // 2))
    await played(parent, actions[:half])
    place = nursery(parent, lambda: make_async(env_id).env)
    if parent.env.forks == "no" or not parent.env.deterministic:
        with pytest.raises(NotForkable):
            await fork_session(parent, place, seed=None)
        return
    child = await fork_session(parent, place, seed=None)
    grandchild = await fork_session(child, place, seed=None)
    assert digest_of_state(child) == digest_of_state(parent) == digest_of_state(grandchild)
    sessions = (parent, child, grandchild)
    answers = [await played(session, actions[half:]) for session in sessions]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]
    for session in (*sessions, guide):
        await session.close()


@pytest.mark.parametrize("kind", [Dice, Replayed])
async def test_seeds_are_fresh_from_the_fork_on_and_touch_nobody_else(kind: type[Dice]) -> None:
    parent, twin = EnvSession(kind()), EnvSession(kind())
    for session in (parent, twin):
        await session.reset(seed=1)
        await played(session, ["a", "b"])
    place = nursery(parent, kind)
    fresh = [await fork_session(parent, place, seed=seed) for seed in (7, 8, 7)]
    same = [await fork_session(parent, place, seed=None) for _ in range(2)]
    first, second, again = [await played(child, ["c", "d"]) for child in fresh]
    assert first == again != second
    expected = await played(twin, ["c", "d"])
    assert [await played(child, ["c", "d"]) for child in same] == [expected, expected]
    await parent.step("x")
    assert await parent.step("y")  # the parent goes on, whatever its children did


async def test_what_cannot_be_forked_says_why() -> None:
    sealed = EnvSession(Sealed())
    await sealed.reset(seed=0)
    with pytest.raises(NotForkable, match="it says forks = 'no'"):
        await fork_session(sealed, nursery(sealed, Sealed), seed=None)
    judged = EnvSession(Replayed())
    judged.env.deterministic = False
    await judged.reset(seed=0)
    with pytest.raises(NotForkable, match="it is not deterministic"):
        await fork_session(judged, nursery(judged, Replayed), seed=None)
    assert digest_of_state(judged) == ""
    fickle = EnvSession(Fickle())
    await fickle.reset(seed=0)
    await fickle.step("a")
    with pytest.raises(ReplayDiverged, match="step 1 of the episode"):
        await fork_session(fickle, nursery(fickle, Fickle), seed=None)
    ended = EnvSession(Dice())
    with pytest.raises(EpisodeEnded, match="nothing to fork"):
        await fork_session(ended, nursery(ended, Dice), seed=None)
    await ended.reset(seed=0)
    await played(ended, ["a"] * 9)
    with pytest.raises(EpisodeEnded, match="nothing to fork"):
        await fork_session(ended, nursery(ended, Dice), seed=None)


# --- over HTTP ------------------------------------------------------------------------------------

SERVED = {"test/dice-v0": Dice, "test/replayed-v0": Replayed, "test/slow-v0": Slow}
OTHERS = {"test/sealed-v0": Sealed, "test/fickle-v0": Fickle}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    served = [ServedEnv(name, factory=kind) for name, kind in {**SERVED, **OTHERS}.items()]
    service = EnvService(served, limits=SessionLimits(max_sessions=6))
    async with HttpServer([service]) as server, aiohttp.ClientSession(server.url) as session:
        yield session


async def post(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Any]:
    async with http.post(path, json=body) as reply:
        return reply.status, await reply.json()


async def begin(http: aiohttp.ClientSession, env: str, steps: int = 2, name: str = "p") -> None:
    body = {"session": name, "reset": {"seed": 1}}
    assert (await post(http, f"/v1/envs/{env}/sessions", body))[0] == 200
    for seq in range(1, steps + 1):
        assert (await step(http, name, seq))[0] == 200


async def step(http: aiohttp.ClientSession, name: str, seq: int, action: str = "a") -> Any:
    return await post(http, f"/v1/sessions/{name}/step", {"seq": seq, "action": action})


async def fork(http: aiohttp.ClientSession, **body: Any) -> tuple[int, Any]:
    return await post(http, "/v1/sessions/p/fork", {"seq": 3, **body})


@pytest.mark.parametrize("env", SERVED)
async def test_children_over_http_are_sessions_of_their_own(
    http: aiohttp.ClientSession, env: str
) -> None:
    await begin(http, env)
    status, reply = await fork(http, children=["c", "d"])
    assert status == 200
    assert [child["session"] for child in reply["children"]] == ["c", "d"]
    assert (reply["kind"], reply["session"], reply["turn"]) == ("forked", "p", 2)
    assert reply["how"] == ("copy" if env == "test/dice-v0" else "replay")
    assert len(reply["digest"]) == 32
    assert (await fork(http, children=["c", "d"]))[1] == reply, "sent again, answered again"
    parent = await step(http, "p", 3)
    children = [await step(http, name, 0) for name in "cd"]
    assert {each[1]["observation"] for each in children} == {parent[1]["observation"]}
    async with http.delete("/v1/sessions/p") as deleted:
        assert deleted.status == 200
    assert (await step(http, "c", 1))[0] == 200, "a child outlives its parent"
    status, of_fork = await post(
        http, "/v1/sessions/c/fork", {"seq": 2, "children": ["e"], "seeds": [5]}
    )
    assert (status, of_fork["turn"]) == (200, 4)
    (_, fresh), (_, old) = await step(http, "e", 0), await step(http, "c", 2)
    assert fresh["observation"] != old["observation"]


async def test_a_fork_is_of_one_moment_and_of_one_body(http: aiohttp.ClientSession) -> None:
    await begin(http, "test/dice-v0")
    for seq in (2, 4):
        status, reply = await post(http, "/v1/sessions/p/fork", {"seq": seq, "children": ["c"]})
        assert (status, reply["error"]["code"]) == (409, "sequence_conflict")
    assert (await fork(http, children=["c"]))[0] == 200
    status, reply = await fork(http, children=["c"], seeds=[1])
    assert (status, reply["error"]["code"]) == (409, "sequence_conflict")
    assert (await fork(http, children=["x", "x"]))[1]["error"]["code"] == "invalid"
    assert (await fork(http, children=["x"], seeds=[1, 2]))[1]["error"]["code"] == "invalid"
    assert (await fork(http, children=[]))[0] == 422
    assert (await post(http, "/v1/sessions/no/fork", {"seq": 0, "children": ["x"]}))[0] == 404


async def test_some_children_may_fail_and_the_others_live(http: aiohttp.ClientSession) -> None:
    await begin(http, "test/dice-v0")
    status, reply = await fork(http, children=list("abcdefg"))
    assert status == 200
    codes = [child.get("error", {}).get("code") for child in reply["children"]]
    assert codes == [None] * 5 + ["overloaded"] * 2
    assert (await step(http, "e", 0))[0] == 200
    assert (await step(http, "f", 0))[0] == 404


@pytest.mark.parametrize(
    ("env", "code"), [("test/sealed-v0", "not_forkable"), ("test/fickle-v0", "replay_diverged")]
)
async def test_a_child_that_cannot_be_leaves_no_session(
    http: aiohttp.ClientSession, env: str, code: str
) -> None:
    await begin(http, env)
    _, reply = await fork(http, children=["c"])
    assert reply["children"][0]["error"]["code"] == code
    assert (await step(http, "c", 0))[0] == 404
    assert (await step(http, "p", 3))[0] == 200, "the parent goes on"


async def test_the_client_raises_what_the_server_met_and_a_dead_child_is_gone() -> None:
    served = [ServedEnv(name, factory=kind) for name, kind in {**SERVED, **OTHERS}.items()]
    service = EnvService(served, limits=SessionLimits(max_sessions=4))
    with BackgroundServer(HttpServer([service])) as url:
        source = open_source("test/slow-v0", url=url)
        parent = await source.open()
        with pytest.raises(EpisodeEnded):
            await source.fork(parent, None, 1)
        await parent.reset(seed=1)
        await parent.step("a")
        child, twin, third = await source.fork(parent, [1, 1, 2], 3)
        assert isinstance(child, RemoteSession)
        assert isinstance(twin, RemoteSession)
        assert isinstance(third, RemoteSession)
        (crowd,) = await source.fork(parent, None, 1)
        assert isinstance(crowd, Overloaded)
        answers = [essence(await each.step("b")) for each in (child, twin, third)]
        assert answers[0] == answers[1] != answers[2]
        await child.close()
        with pytest.raises(EpisodeEnded):
            await child.step("c")
        # its name is gone on the server too, for whoever still holds it
        child.name = twin.name
        await twin.close()
        with pytest.raises(SessionGone):
            await child.step("c")
        for session in (third, parent):
            await source.release(session)
        await source.close()


async def test_sources_fork_in_this_process_and_in_worker_processes() -> None:
    for env in ("ludus/arithmetic-v0", "ludus/twenty-questions-v0"):
        source = open_source(env)
        (task,) = await source.tasks("train", [0])
        parent = await source.open(task)
        await parent.reset(seed=0, options={"task": task.id})
        children = await source.fork(parent, None, 2)
        assert not [child for child in children if isinstance(child, LudusError)]
        answers = {essence(await each.step("7")) for each in [parent, *children]}  # type: ignore[union-attr]
        assert len(answers) == 1
        for session in [parent, *children]:
            await source.release(session)  # type: ignore[arg-type]
        await source.close()
