"""Servers that a client uses as one: who is asked, who is left out, and what a loss costs."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web

import ludus
from ludus.envs import TextEnv
from ludus.envs.serving.client import RemoteSession
from ludus.envs.serving.connect import RemoteServer
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError, SessionGone
from ludus.rewards import Sample, Verdict
from ludus.rewards.serving.client import RemoteVerifier
from ludus.rewards.serving.server import ScoreService
from ludus.wire import roster
from ludus.wire.fleet import Fleet, FleetMember, HealthRules
from ludus.wire.replicas import HEDGED_SHARE, MAX_HEDGES
from ludus.wire.roster import Roster
from ludus.wire.server import HttpServer

DICE, CLOCK, LIAR = "test/dice-v0", "test/clock-v0", "test/liar-v0"


class Dice(TextEnv):
    """Answers each action with a sum of throws: task, seed and actions fix everything."""

    never_blocks = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.total = self.rng.randrange(100)
        return f"begin with {self.total}", {}

    def step(self, action: str) -> Any:
        self.total += self.rng.randrange(6) * len(action)
        return str(self.total), float(self.total), False, False, {}


class Clock(Dice):
    """Says that it is not deterministic."""

    deterministic = False


class Liar(Dice):
    """Says that it is deterministic, and counts the episodes of all sessions."""

    episodes: ClassVar[int] = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        Liar.episodes += 1
        return f"episode {Liar.episodes}", {}


class Line:
    """A line to a server that can be cut, and put up again."""

    def __init__(self, target: str) -> None:
        self.target = int(target.rpartition(":")[2])
        self.port = 0
        self._cuts = 0
        self._ends: set[asyncio.StreamWriter] = set()

    async def up(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._cuts += 1
        self._server.close()
        for end in list(self._ends):
            end.transport.abort()

    def hold(self) -> None:
        """Carry nothing until `go_on`."""
        for end in list(self._ends):
            end.transport.pause_reading()  # type: ignore[attr-defined]

    def go_on(self) -> None:
        for end in list(self._ends):
            end.transport.resume_reading()  # type: ignore[attr-defined]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cuts = self._cuts
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._ends |= {writer, far_writer}
        if self._cuts > cuts:  # while the connection was made
            for end in (writer, far_writer):
                end.transport.abort()
        await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def serving() -> AsyncGenerator[HttpServer]:
    envs = EnvService(
        [
            ServedEnv(name, factory=made)
            for name, made in ((DICE, Dice), (CLOCK, Clock), (LIAR, Liar))
        ]
    )
    async with HttpServer([envs, ScoreService(["exact"])]) as server:
        yield server


@asynccontextmanager
async def fleet(number: int) -> AsyncGenerator[tuple[RemoteServer, list[Line]]]:
    """A client of several servers, each behind a line that can be cut."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serving()) for _ in range(number)]
        lines = [Line(server.url) for server in servers]
        urls = [await line.up() for line in lines]
        stack.callback(lambda: [line.cut() for line in lines])
        yield await stack.enter_async_context(ludus.connect(",".join(urls))), lines


def home(client: RemoteServer, session: RemoteSession) -> int:
    """The number of the server that a session is played on."""
    return [session in one.sessions for one in client.replicas.members].index(True)


async def episode(session: RemoteSession, seed: int, cut: Callable[[int], None]) -> list[Any]:
    """The answers to a random episode; `cut` is called before each step."""
    rng = random.Random(seed)
    answers: list[Any] = [(await session.reset(seed=seed))[0]]
    for number in range(rng.randrange(3, 12)):
        cut(number)
        answers.append((await session.step("x" * rng.randrange(5)))[:4])
    return answers


@pytest.mark.parametrize("seed", range(12))
async def test_an_episode_is_the_same_whichever_servers_are_lost_under_it(seed: int) -> None:
    rng = random.Random(seed)
    async with fleet(3) as (client, lines):
        alone = await episode(client.make_async(DICE), seed, lambda number: None)
        session, fatal = client.make_async(DICE), rng.sample(range(len(alone) - 1), 2)

        def cut(number: int) -> None:
            if number in fatal:
                lines[home(client, session)].cut()

        assert await episode(session, seed, cut) == alone
        assert client.traffic.replays == 2


async def test_a_line_that_breaks_for_a_moment_moves_no_session() -> None:
    async with fleet(2) as (client, lines):
        session = client.make_async(CLOCK)
        await session.reset(seed=1)
        here = home(client, session)
        lines[here].cut()
        step = asyncio.create_task(session.step("x"))
        await asyncio.sleep(0.1)
        await lines[here].up()
        assert (await step)[1] > 0
        assert (home(client, session), client.traffic.replays) == (here, 0)


async def test_what_is_not_deterministic_is_gone_with_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ludus.envs.serving.client.PATIENCE_S", 0.3)
    async with fleet(2) as (client, lines):
        for env, why in ((CLOCK, "the episode is lost"), (LIAR, "was answered otherwise")):
            session = client.make_async(env)
            await session.reset(seed=1)
            here = home(client, session)
            lines[here].cut()
            with pytest.raises(SessionGone, match=why):
                await session.step("x")
            await session.reset(seed=1)  # a new session, on the other
            await session.close()
            await lines[here].up()
            await client.replicas.returns(client.replicas.members[here], 30.0)


async def test_a_lost_server_costs_no_score_and_is_asked_again_once_it_is_back() -> None:
    sample = Sample(response="a", gold="a")
    async with fleet(3) as (client, lines):
        verifier = client.verifier("exact")
        await asyncio.gather(*(verifier.score(sample) for _ in range(60)))
        lines[1].cut()
        verdicts = await asyncio.gather(*(verifier.score(sample) for _ in range(300)))
        assert all(verdict.ok for verdict in verdicts)
        await lines[1].up()
        lost = client.replicas.members[1]
        assert await client.replicas.returns(lost, 30.0)
        lost.took_s.clear()  # and again where it is slow for a moment
        async with asyncio.timeout(60):
            while len(lost.took_s) < 20:
                await asyncio.gather(*(verifier.score(sample) for _ in range(300)))


async def test_a_blocking_client_passes_over_a_server_that_is_gone() -> None:
    async with fleet(2) as (client, lines):
        lines[0].cut()

        def use() -> list[Any]:
            env = client.make(DICE)
            first, _ = env.reset(seed=5)
            verdict = client.score("exact", Sample(response="a", gold="a"))
            verdicts = client.score_batch("exact", [Sample(response="a", gold="b")] * 3)
            return [first, verdict.reward, len(verdicts), len(client.envs())]

        assert (await asyncio.to_thread(use))[1:] == [1.0, 3, 3]


async def test_a_blocking_episode_moves_to_another_server() -> None:
    async with fleet(2) as (client, lines):
        env = await asyncio.to_thread(client.make, DICE)
        await asyncio.to_thread(env.reset, seed=5)
        (here,) = [number for number, one in enumerate(client._blocking.members) if one.sessions]
        lines[here].cut()
        observation, *_ = await asyncio.to_thread(env.step, "x")
        assert int(str(observation)) >= 0
        assert client.traffic.replays == 1


async def test_a_blocking_episode_leaves_a_server_that_is_no_longer_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "READ_AGAIN_S", 0.0)
    async with serving() as first, serving() as second:
        line = Line(first.url)
        file = tmp_path / "servers"
        file.write_text(await line.up())
        async with ludus.connect(f"file:{file}", timeout_s=5) as client:
            env = await asyncio.to_thread(client.make, DICE)
            await asyncio.to_thread(env.reset, seed=5)
            file.write_text(second.url)
            await asyncio.to_thread(client.score, "exact", Sample(response="a", gold="a"))
            assert [one.name for one in client._blocking.members] == [second.url]
            line.cut()
            observation, *_ = await asyncio.to_thread(env.step, "x")
            assert int(str(observation)) >= 0
            assert client.traffic.replays == 1


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(answer: Answer) -> AsyncGenerator[str]:
    """A server of our own."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def reply(writer: asyncio.StreamWriter, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1 << 16)
    await reply(writer, b"\x00 no JSON")


async def another_version(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = await reader.read(1 << 16)
    health = {"status": "ready", "instance": "other", "protocol": 2, "services": {}}
    await reply(writer, json.dumps(health if b"/readyz" in asked else {}).encode())


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest.mark.parametrize("answer", [garbage, another_version, silence])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_member_that_is_no_server_of_ours_costs_nothing(
    answer: Answer, stream: bool
) -> None:
    async with (
        serving() as server,
        listening(answer) as other,
        ludus.connect(f"{other},{server.url}", stream=stream) as client,
        asyncio.timeout(60),
    ):
        sessions = [client.make_async(DICE) for _ in range(4)]
        await asyncio.gather(*(session.reset(seed=0) for session in sessions))
        verifier = client.verifier("exact")
        samples = [Sample(response="a", gold="a")] * 20
        verdicts = await asyncio.gather(*map(verifier.score, samples))
        assert all(verdict.ok for verdict in verdicts)
        while [one.name for one in client.replicas.fleet.up()] != [server.url]:
            await asyncio.sleep(0.05)  # until the other is found out


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (
            "127.0.0.1:8765",
            "connect(): a server's address looks like http://127.0.0.1:8765, got '127.0.0.1:8765'",
        ),
        ("", "connect(): give one or more different addresses, each once, got ''"),
        (
            "htp://me:pw@127.0.0.1:8765",
            "connect(): a server's address looks like http://127.0.0.1:8765, got "
            "'htp://***@127.0.0.1:8765'",
        ),
        (8765, "connect() takes one or more addresses in one text, separated by commas, got 8765"),
    ],
)
def test_an_address_that_is_none_is_told_once_with_what_it_looks_like(
    address: Any, told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        ludus.connect(address)
    assert str(refused.value) == told


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["timeout_s", "attempt_timeout_s"])
def test_a_limit_that_is_none_is_refused_before_anything_is_sent(name: str, limit: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is a number of seconds above 0"):
        ludus.connect("http://127.0.0.1:1", **{name: limit})


async def test_a_server_named_by_two_addresses_counts_once() -> None:
    async with serving() as server:
        with pytest.raises(ConfigError, match="each once"):
            ludus.connect(f"{server.url},{server.url}/")
        alias = server.url.replace("127.0.0.1", "localhost")
        async with ludus.connect(f"{server.url},{alias}") as client:
            for member in client.replicas.members:
                with suppress(Exception):
                    await client.replicas._look(member)
            assert len(client.replicas.fleet.up()) == 1
            assert (await client.make_async(DICE).reset(seed=1))[0].startswith("begin")


def test_addresses_come_from_a_list_a_file_or_a_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "servers"
    file.write_text("http://a:1  # the first\n\nhttp://b:2/\n")
    read = Roster(f"file:{file}")
    assert read.urls == Roster("http://a:1, http://b:2/").urls == ["http://a:1", "http://b:2"]
    (under_a_path,) = Roster("dns+http://127.0.0.1:8765/ludus/").urls
    assert under_a_path == "http://127.0.0.1:8765/ludus"
    file.write_text("http://a:1\nhttp://c:3\n")
    read.read_again()
    assert read.urls == ["http://a:1", "http://c:3"]
    for mistake in (
        "",
        "http://a:1\nhttp://a:1",
        "a:1",
        "ftp://a:1",
        "http://a:b",
        "http://",
        "http://[::1",
    ):
        file.write_text(mistake)
        read.read_again()
        assert read.urls == ["http://a:1", "http://c:3"]
        assert "the servers stay as they are" in caplog.text
        with pytest.raises(ConfigError):
            Roster(f"file:{file}")
        caplog.clear()
    with pytest.raises(ConfigError, match="cannot read"):
        Roster(f"file:{tmp_path}/nothing")
    for name in ("nothing.invalid", "no..name", f"{'long' * 16}.invalid"):
        with pytest.raises(ConfigError, match="does not resolve"):
            Roster(f"dns+http://{name}:8765")


async def test_a_name_that_changes_adds_servers_and_drains_those_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as old, serving() as new:
        ports = [int(server.url.rpartition(":")[2]) for server in (old, new)]
        lines = [Line(server.url) for server in (old, new)]
        # Two addresses of one port, since a name stands for addresses and not for ports.
        for line, host in zip(lines, ("127.0.0.1", "127.0.0.2"), strict=True):
            line.port = line.port or lines[0].port
            server = await asyncio.start_server(line._serve, host, line.port)
            line.port, line._server = server.sockets[0].getsockname()[1], server
        assert len(set(ports)) == 2
        hosts = ["127.0.0.1"]

        def resolve(name: str, port: int, **_: object) -> list[Any]:
            return [(0, 0, 0, "", (host, port)) for host in hosts]

        monkeypatch.setattr(roster, "READ_AGAIN_S", 0.0)
        # Only the reading of the name: the sockets go on with the machine's own.
        fake = type("Names", (), {"getaddrinfo": staticmethod(resolve), "SOCK_STREAM": 1})
        monkeypatch.setattr(roster, "socket", fake)
        async with ludus.connect(f"dns+http://servers:{lines[0].port}") as client:
            session = client.make_async(CLOCK)
            await session.reset(seed=1)
            hosts[:] = ["127.0.0.2"]
            async with asyncio.timeout(30):
                while len(client.replicas.members) == 1:
                    await asyncio.sleep(0.05)
            fresh = client.make_async(DICE)
            await fresh.reset(seed=1)
            assert home(client, fresh) == 1
            assert (await session.step("x"))[1] > 0  # goes on where it is
            await session.close()
            async with asyncio.timeout(30):
                while len(client.replicas.members) == 2:
                    await asyncio.sleep(0.05)
        for line in lines:
            line.cut()


async def test_a_name_that_resolves_slowly_holds_up_no_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with serving() as first, serving() as second:
        lines = [Line(first.url), Line(second.url)]
        file = tmp_path / "servers"
        file.write_text("\n".join([await line.up() for line in lines]))
        async with ludus.connect(f"file:{file}") as client:
            session = client.make_async(DICE)
            await session.reset(seed=1)
            read, slow = client.replicas.roster._read, threading.Event()

            def read_slowly() -> list[str]:
                slow.wait(20)
                return read()

            monkeypatch.setattr(roster, "READ_AGAIN_S", 0.0)
            monkeypatch.setattr(client.replicas.roster, "_read", read_slowly)
            await asyncio.sleep(1.0)  # until the reading has begun
            still = lines[home(client, session)]
            still.hold()
            still._server.close()
            try:
                async with asyncio.timeout(10):
                    await session.step("x")  # moves to the other server
            finally:
                slow.set()
            assert client.traffic.replays == 1
        for line in lines:
            line.cut()


async def test_at_most_a_twentieth_of_the_calls_is_asked_a_second_time() -> None:
    sample = Sample(response="a", gold="a")
    async with fleet(2) as (client, lines):
        verifier = client.verifier("exact")
        for _ in range(12):  # the card is read, and the usual times are known
            await asyncio.gather(*(verifier.score(sample) for _ in range(20)))
            await asyncio.sleep(0.1)
        async with asyncio.timeout(120):  # a machine that stood still is forgotten
            while (client.replicas._patience_s or 1.0) > 0.5:
                await asyncio.gather(*(verifier.score(sample) for _ in range(20)))
                await asyncio.sleep(0.1)
        before, rounds = client.traffic.hedges, list[asyncio.Future[list[Verdict]]]()
        lines[0].hold()
        async with asyncio.timeout(120):
            while client.traffic.hedges == before:
                # A server that stood still is asked nothing for a while; the other answers all.
                rounds.append(asyncio.gather(*(verifier.score(sample) for _ in range(200))))
                while client.traffic.hedges == before and not rounds[-1].done():
                    await asyncio.sleep(0.01)
        lines[0].go_on()
        verdicts = [verdict for scoring in rounds for verdict in await scoring]
        assert all(verdict.ok for verdict in verdicts)
        assert 0 < client.traffic.hedges - before <= MAX_HEDGES + HEDGED_SHARE * len(verdicts)


async def test_a_group_of_which_a_server_answers_a_part_has_no_reward() -> None:
    async def part(_: web.Request) -> web.Response:
        verdict = {"status": "ok", "reward": 1.0}
        return web.json_response({"verdicts": [verdict]})

    app = web.Application()
    app.router.add_post("/v1/score_group", part)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with ludus.connect(url, timeout_s=2.0) as client:
        samples = [Sample(response="a"), Sample(response="b")]
        verdicts = await client.group_verifier("ranks").score_group(samples)
    await runner.cleanup()
    assert [verdict.reward for verdict in verdicts] == [None, None]
    assert "answered 1 of 2 samples" in verdicts[0].detail


async def test_whether_a_second_call_is_harmless_is_asked_again_where_the_answer_was_lost() -> None:
    async with fleet(2) as (client, _):
        verifier = client.verifier("exact")
        assert isinstance(verifier, RemoteVerifier)
        assert not verifier._is_hedged()
        assert verifier._card is not None
        verifier._card.cancel()  # as the end of an event loop does
        async with asyncio.timeout(10):
            while not verifier._is_hedged():
                await asyncio.sleep(0.01)


class Late:
    """A verifier that takes a moment where `slow` is true."""

    never_blocks = True

    def __init__(self) -> None:
        self.slow, self.calls = False, 0

    async def score(self, sample: Sample) -> float:
        self.calls += 1
        await asyncio.sleep(0.3 if self.slow else 0.0)
        return 1.0


async def test_a_member_that_is_slower_than_the_others_gets_less_and_no_new_session() -> None:
    judges = [Late() for _ in range(3)]
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                HttpServer(
                    [
                        EnvService([ServedEnv(DICE, factory=Dice)]),
                        ScoreService(verifiers={"late": judge}),
                    ]
                )
            )
            for judge in judges
        ]
        urls = ",".join(server.url for server in servers)
        client = await stack.enter_async_context(ludus.connect(urls))
        verifier, slow = client.verifier("late"), client.replicas.members[0]

        async def score(number: int) -> None:
            samples = [Sample(response="a") for _ in range(number)]
            await asyncio.gather(*(verifier.score(sample) for sample in samples))

        judges[0].slow = True
        async with asyncio.timeout(60):
            while not slow.slow_until:
                await score(6)
        calls = [judge.calls for judge in judges]
        for _ in range(10):
            await score(6)
        first, *others = (j.calls - before for j, before in zip(judges, calls, strict=True))
        assert first < min(others) / 2
        slow.slow_until = float("inf")  # or the time may be over
        sessions = [client.make_async(DICE) for _ in range(6)]
        await asyncio.gather(*(session.reset(seed=1) for session in sessions))
        assert not slow.sessions


RULES = HealthRules(
    check_every_s=0.05, check_timeout_s=0.2, max_missed=2, mend_again_s=0.05, max_mend_again_s=0.1
)


async def nothing(*_: object) -> None:
    pass


def fleet_of(member: FleetMember, revive: Callable[..., Awaitable[None]]) -> Fleet[FleetMember]:
    return Fleet(
        [member],
        RULES,
        check=nothing,
        revive=revive,
        is_sure=lambda _: True,
        on_loss=lambda _: None,
        on_tick=nothing,
    )


async def test_who_waits_for_a_lost_member_is_woken_when_the_fleet_closes() -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    member = FleetMember("a")
    members = fleet_of(member, never)
    members.lose(member, RuntimeError("gone"))
    waiting = [asyncio.create_task(members.settled(member)), asyncio.create_task(members.changed())]
    await asyncio.sleep(0.05)
    await members.close()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*waiting) == [False, None]


async def test_a_member_that_is_barred_as_it_comes_back_stays_out() -> None:
    member = FleetMember("a")

    async def bar(*_: object) -> None:
        members.bar(member, "is the same server as another")

    members = fleet_of(member, bar)
    members.lose(member, RuntimeError("gone"))
    await asyncio.sleep(0.1)
    await members.close()
    assert (member.barred, member.serving) == (True, False)
