"""What a client does when the network or the server fails: nothing is played twice, nothing becomes
a zero, nothing hangs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.envs import TextEnv
from ludus.envs.serving.client import EPISODES, RemoteSession
from ludus.envs.serving.connect import RemoteServer
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import (
    ConfigError,
    EpisodeEnded,
    InvalidAction,
    Overloaded,
    RequestRejected,
    RequestTimeout,
    RewardUnavailable,
    ServerFault,
    ServerUnreachable,
    SessionGone,
    Unauthorized,
    UnknownEnv,
    UnknownTask,
    UnknownVerifier,
)
from ludus.messages import ImagePart, Message, Role, TextPart
from ludus.rewards.exact import exact
from ludus.rewards.serving.server import ScoreService
from ludus.verdict import Verdict
from ludus.wire.chaos import Chaos
from ludus.wire.replicas import BlockingReplicas, SessionSeats
from ludus.wire.server import HttpServer

ENV = "test/ledger-v0"


RUN = "-".join(os.environ.get(f"PYTEST_XDIST_{name}", "0") for name in ("TESTRUNUID", "WORKER"))
"""The same in this process and in the workers that it starts."""
PLAYED = Path(tempfile.gettempdir()) / f"ludus-played-{RUN}"
"""The ledger that all sessions share, in whichever process they are played."""
BEGUN = PLAYED.with_name(f"{PLAYED.name}-begun")
"""Is there once a slow step has begun."""


def played() -> list[str]:
    """The actions in the ledger."""
    return PLAYED.read_text().splitlines() if PLAYED.exists() else []


class Ledger(TextEnv):
    """Every action played is written down: the reward is how many."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.count = 0
        return "begin", {}

    def step(self, action: Any) -> Any:
        if action == "unavailable":
            return "", Verdict.unavailable("the judge is down"), True, False, {}
        if action == "sleep":
            BEGUN.touch()
            time.sleep(0.5)
        if isinstance(action, Message):
            return [action], 0.0, False, False, {"bytes": len(action.images[0].data)}
        with PLAYED.open("a") as ledger:
            ledger.write(f"{action}\n")
        self.count += 1
        return action, float(self.count), self.count == 40, False, {"verdicts": [1, 2]}


@asynccontextmanager
async def serving(limits: SessionLimits | None = None, **kwargs: Any) -> AsyncGenerator[HttpServer]:
    PLAYED.unlink(missing_ok=True)
    BEGUN.unlink(missing_ok=True)
    envs = EnvService([ServedEnv(ENV, factory=Ledger)], limits=limits)
    async with HttpServer([envs, ScoreService(["exact"])], **kwargs) as server:
        yield server


@asynccontextmanager
async def connected(url: str, **kwargs: Any) -> AsyncGenerator[RemoteServer]:
    async with ludus.connect(url, **kwargs) as server:
        yield server


class Proxy:
    """A TCP proxy that cuts connections: requests pass, every k-th reply is lost."""

    def __init__(self, port: int, *, every: int) -> None:
        self.target = port
        self.every = every
        self.replies = self.lost = 0
        self.port = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        forward = asyncio.create_task(self._forward(reader, far_writer))
        try:
            while data := await far_reader.read(1 << 16):
                self.replies += data.startswith((b"HTTP/1.1", b"\x82"))  # or a frame of a stream
                if self.replies % self.every == 0:
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            forward.cancel()
            for stream in (writer, far_writer):
                stream.transport.abort()

    @staticmethod
    async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


@pytest.fixture(params=["stream", "batched", "one by one"])
def style(request: pytest.FixtureRequest) -> str:
    return request.param


def session_of(server: RemoteServer, style: str) -> RemoteSession:
    if style == "one by one":
        group = BlockingReplicas(server.replicas.roster, server.replicas.build)
        return RemoteSession(ENV, SessionSeats(group, EPISODES))
    return server.make_async(ENV)


@asynccontextmanager
async def playing(url: str, style: str, **kwargs: Any) -> AsyncGenerator[RemoteSession]:
    format = "json" if style.endswith("json") else "msgpack"
    stream = style.startswith("stream")
    async with connected(url, format=format, stream=stream, **kwargs) as server:
        session = session_of(server, style)
        yield session
        await session.close()


async def test_lost_replies_are_asked_for_again_and_no_action_is_played_twice(style: str) -> None:
    async with (
        serving() as server,
        Proxy(server.port, every=3) as proxy,
        playing(f"http://127.0.0.1:{proxy.port}", style) as session,
    ):
        await session.reset(seed=0)
        rewards = [(await session.step(f"a{i}"))[1] for i in range(30)]
        assert proxy.lost >= 10
        assert rewards == [float(i + 1) for i in range(30)]
        assert played() == [f"a{i}" for i in range(30)]


async def test_under_chaos_64_sessions_play_exactly_what_they_would_without() -> None:
    chaos = Chaos.parse("drop=0.2,delay=0.2:0.01,error=0.1")
    async with serving(chaos=chaos) as server, connected(server.url) as client:
        sessions = [client.make_async(ENV) for _ in range(64)]

        async def play(session: RemoteSession, index: int) -> list[float]:
            await session.reset(seed=index)
            return [(await session.step(f"{index}/{turn}"))[1] for turn in range(8)]

        rewards = await asyncio.gather(*(play(s, i) for i, s in enumerate(sessions)))
        assert rewards == [[float(turn + 1) for turn in range(8)]] * 64
        assert len(played()) == len(set(played())) == 64 * 8
        assert client.traffic.retries > 0
        await asyncio.gather(*(session.close() for session in sessions))


async def test_a_retry_after_is_honoured(style: str) -> None:
    async with (
        serving(SessionLimits(max_sessions=1)) as server,
        playing(server.url, style) as first,
        playing(server.url, style) as second,
    ):
        await first.reset(seed=0)
        waiting = asyncio.create_task(second.reset(seed=0))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await first.close()
        assert (await waiting)[0] == "begin"


async def test_a_server_that_stays_full_is_overloaded(style: str) -> None:
    async with (
        serving(SessionLimits(max_sessions=1)) as server,
        playing(server.url, style) as first,
        playing(server.url, style, timeout_s=0.5) as second,
    ):
        await first.reset(seed=0)
        with pytest.raises(Overloaded, match="1 of 1 sessions"):
            await second.reset(seed=0)


async def test_an_unavailable_reward_is_raised_with_its_verdict(style: str) -> None:
    async with serving() as server, playing(server.url, style) as session:
        await session.reset(seed=0)
        with pytest.raises(RewardUnavailable, match="the judge is down") as caught:
            await session.step("unavailable")
        assert caught.value.verdict == Verdict.unavailable("the judge is down")
        with pytest.raises(EpisodeEnded):
            await session.step("x")
        assert (await session.reset(seed=1))[0] == "begin"
        assert (await session.step("x"))[1] == 1.0


async def test_a_step_over_time_is_a_typed_error_and_the_next_episode_works(style: str) -> None:
    async with (
        serving(SessionLimits(step_timeout_s=0.2)) as server,
        playing(server.url, style) as session,
    ):
        await session.reset(seed=0)
        with pytest.raises(RequestTimeout, match=r"did not answer within 0\.2 s"):
            await session.step("sleep")
        with pytest.raises((SessionGone, EpisodeEnded)):
            await session.step("x")
        await session.reset(seed=0)
        assert (await session.step("x"))[1] == 1.0


@pytest.mark.parametrize("style", ["stream", "stream of json", "batched", "one by one", "json"])
async def test_messages_with_images_travel_whole(style: str) -> None:
    picture = ImagePart(data=bytes(range(256)))
    said = Message(role=Role.ASSISTANT, content=[TextPart(text="ä🙂\n"), picture])
    async with serving() as server, playing(server.url, style) as session:
        await session.reset(seed=0)
        observation, _, _, _, info = await session.step(said)
        assert observation == [said]
        assert info == {"bytes": 256}


async def test_a_step_given_up_by_its_caller_does_not_confuse_the_next_episode(style: str) -> None:
    async with serving() as server, playing(server.url, style) as session:
        await session.reset(seed=0)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await session.step("sleep")
            assert (await session.reset(seed=1))[0] == "begin"
            assert (await session.step("x"))[1] == 1.0


async def test_a_stopping_server_answers_what_is_in_flight() -> None:
    async with (
        serving() as server,
        playing(server.url, "batched", timeout_s=3) as session,  # the close finds nobody
    ):
        await session.reset(seed=0)
        running = asyncio.create_task(session.step("sleep"))
        async with asyncio.timeout(60):
            while not BEGUN.exists():
                await asyncio.sleep(0.01)
        await server.stop()
        assert (await running)[1] == 1.0


async def test_a_connection_is_not_shared_between_event_loops() -> None:
    async with serving() as server, connected(server.url) as client:
        session = client.make_async(ENV)
        await session.reset(seed=0)
        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, client.make_async(ENV).reset(seed=0))
        await session.close()


async def test_a_batch_too_large_for_the_server_goes_in_smaller_ones() -> None:
    async with serving(max_body_bytes=300_000) as server, connected(server.url) as client:
        sessions = [client.make_async(ENV) for _ in range(16)]
        await asyncio.gather(*(session.reset(seed=0) for session in sessions))
        words = ["x" * 70_000] * 15 + ["y" * 400_000]
        outcomes = await asyncio.gather(
            *(session.step(word) for session, word in zip(sessions, words, strict=True)),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [tuple] * 15 + [RequestRejected]
        assert "takes at most 300000 bytes" in str(outcomes[-1])
        assert (await sessions[-1].step("short"))[1] == 1.0  # the seq was not used up
        assert client.traffic.retries == 0


async def test_errors_come_back_as_the_types_a_local_environment_raises(style: str) -> None:
    async with serving() as server, playing(server.url, style) as session:
        with pytest.raises(EpisodeEnded):
            await session.step("x")
        with pytest.raises(UnknownTask, match="train/x"):
            await session.reset(options={"task": "train/x"})
        await session.reset(seed=0)
        with pytest.raises(InvalidAction):
            await session.step(3)  # type: ignore[arg-type]
        unknown = RemoteSession("test/leger-v0", session._seats)
        with pytest.raises(UnknownEnv, match="did you mean 'test/ledger-v0'"):
            await unknown.reset(seed=0)
        await session.close()
        await session.close()


async def test_a_wrong_token_is_unauthorized_for_environments_and_verifiers() -> None:
    async with serving(token="secret") as server, connected(server.url, token="wrong") as client:
        with pytest.raises(Unauthorized):
            await client.make_async(ENV).reset(seed=0)
        with pytest.raises(Unauthorized):
            await client.verifier("exact").score(ludus.Sample(response="a", gold="a"))


async def test_a_remote_verifier_gives_what_a_local_one_gives() -> None:
    async with serving() as server, connected(server.url) as client:
        verifier = client.verifier("exact")
        samples = [ludus.Sample(response=str(i), gold=str(i % 3)) for i in range(600)]
        verdicts = await asyncio.gather(*(verifier.score(sample) for sample in samples))
        assert [verdict.reward for verdict in verdicts] == [1.0] * 3 + [0.0] * 597
        assert client.traffic.requests == 19  # 600 samples, 32 in a frame
        missing = await verifier.score(ludus.Sample(response="x"))
        assert missing == exact(ludus.Sample(response="x"))
        with pytest.raises(UnknownVerifier, match="did you mean 'exact'"):
            await client.verifier("exat").score(samples[0])


async def test_a_verifier_that_cannot_be_reached_is_unavailable_never_a_zero() -> None:
    # longer than a busy machine takes to be refused: what is told is why, not that it took long
    async with connected("http://127.0.0.1:9", timeout_s=3.0) as client:
        verdict = await client.verifier("exact").score(ludus.Sample(response="a", gold="a"))
        assert (verdict.status, verdict.reward) == (ludus.Status.UNAVAILABLE, None)
        assert "is 'ludus serve' running there?" in verdict.detail


async def test_nobody_listening_is_a_typed_error_within_the_deadline(style: str) -> None:
    async with (
        asyncio.timeout(60),  # otherwise 120
        playing("http://127.0.0.1:9", style, timeout_s=0.7) as session,
    ):
        with pytest.raises(ServerUnreachable, match="ludus serve"):
            await session.reset(seed=0)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler) -> AsyncGenerator[int]:
    """A TCP server of our own; its port."""
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            await handler(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


@pytest.mark.slow
async def test_a_server_that_accepts_and_never_answers_is_a_timeout(style: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with (
        listening(silent) as port,
        playing(f"http://127.0.0.1:{port}", style, timeout_s=0.6) as session,
    ):
        with pytest.raises(RequestTimeout):
            await session.reset(seed=0)


async def test_something_that_is_no_ludus_server_is_said_so(style: str) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        await writer.drain()
        await reader.read()

    async with (
        listening(other) as port,
        playing(f"http://127.0.0.1:{port}", style, timeout_s=5) as session,
    ):
        with pytest.raises(ServerFault, match="is it a ludus server"):
            await session.reset(seed=0)


async def test_an_error_page_of_a_proxy_is_retried_and_then_told(style: str) -> None:
    async def gateway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        page = b"<html>Bad Gateway</html>"
        head = b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Type: text/html\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(page) + page)
        await writer.drain()
        await reader.read()

    async with (
        listening(gateway) as port,
        connected(f"http://127.0.0.1:{port}", timeout_s=0.8) as c,
    ):
        session = session_of(c, style)
        with pytest.raises(ServerFault, match="HTTP 502: <html>Bad Gateway"):
            await session.reset(seed=0)
        assert c.traffic.retries >= 1


class Process:
    """A real `ludus serve`."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments
        self.process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self, *more: str) -> str:
        """Start it and wait for its address."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ludus", "serve", *self.arguments, *more),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            line = (await self.process.stdout.readline()).decode()
        self.url = line.split()[-1]
        return self.url

    async def end(self, number: int) -> int:
        """Send a signal and wait."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(60):
            return await self.process.wait()


@pytest.mark.parametrize(
    "env", ["ludus/arithmetic-v0", pytest.param("ludus/coding-tools-v0", marks=pytest.mark.slow)]
)
async def test_a_restarted_server_costs_only_the_episodes_that_cannot_be_played_again(
    env: str,
) -> None:
    served = Process(env, "exact")
    url = await served.start("--port", "0")
    try:
        async with connected(url, timeout_s=60) as client:
            sessions = [client.make_async(env) for _ in range(8)]
            await asyncio.gather(*(s.reset(seed=i) for i, s in enumerate(sessions)))
            await served.end(signal.SIGKILL)
            steps = [asyncio.create_task(session.step("1")) for session in sessions]
            await served.start("--port", url.rpartition(":")[2])
            outcomes = await asyncio.gather(*steps, return_exceptions=True)
            if env == "ludus/arithmetic-v0":
                assert [type(outcome) for outcome in outcomes] == [tuple] * 8
                assert client.traffic.replays == 8
            else:
                assert [type(outcome) for outcome in outcomes] == [SessionGone] * 8
                assert "restarted" in str(outcomes[0])
                with pytest.raises(EpisodeEnded):
                    await sessions[0].step("1")
            again = await asyncio.gather(*(s.reset(seed=i) for i, s in enumerate(sessions)))
            assert len(again) == 8
            await asyncio.gather(*(session.close() for session in sessions))
        assert await served.end(signal.SIGTERM) == 0
    finally:
        await served.end(signal.SIGKILL)


@pytest.mark.slow
async def test_workers_share_sessions_and_a_killed_one_costs_no_episode() -> None:
    served = Process("ludus/arithmetic-v0", "exact", "--workers", "2", "--port", "0")
    url = await served.start()
    assert url.count("http://") == 2
    try:
        async with connected(url, timeout_s=60) as client:
            sessions = [client.make_async("ludus/arithmetic-v0") for _ in range(16)]
            await asyncio.gather(*(s.reset(seed=i) for i, s in enumerate(sessions)))
            assert [len(one.sessions) for one in client.replicas.members] == [8, 8]
            os.kill(await _listener(client.urls[0]), signal.SIGKILL)
            outcomes = await asyncio.gather(*(session.step("no number") for session in sessions))
            assert [outcome[1:3] for outcome in outcomes] == [(0.0, True)] * 16
            assert client.traffic.replays == 8
            await asyncio.gather(*(s.reset(seed=i) for i, s in enumerate(sessions)))
        assert await served.end(signal.SIGTERM) == 0
    finally:
        await served.end(signal.SIGKILL)


async def _listener(url: str) -> int:
    import psutil

    port = int(url.rpartition(":")[2])
    for connection in psutil.net_connections("tcp"):
        if connection.laddr and connection.laddr.port == port and connection.status == "LISTEN":
            assert connection.pid is not None
            return connection.pid
    raise AssertionError(f"nobody listens on {port}")
