"""What an operator sees of a request: its line in the log, its id, its trace, its metrics."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

import ludus
from ludus.envs import TextEnv
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import ConfigError, SequenceConflict
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.verdict import Verdict
from ludus.wire import access
from ludus.wire.access import AccessLine, AccessLog
from ludus.wire.client import trace_headers
from ludus.wire.codec import trace_parent
from ludus.wire.faults import CAUSES
from ludus.wire.principals import Principals
from ludus.wire.prometheus import ServerMetrics
from ludus.wire.routes import Service
from ludus.wire.server import HttpServer
from ludus.wire.tracing import Tracer

ENV = "test/asks-v0"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Asks(TextEnv):
    """Tells the trace that its calls would belong to; in a worker process."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "begin", {}

    def step(self, action: str) -> Any:
        match action:
            case "judged":
                return "", Verdict.of(0.25, "a secret"), False, False, {}
            case "unjudged":
                return "", Verdict.unavailable("the judge is down"), True, False, {}
            case _:
                return trace_headers().get("traceparent", ""), 1.0, False, False, {}


@asynccontextmanager
async def serving(**options: Any) -> AsyncGenerator[HttpServer]:
    limits = SessionLimits(max_sessions=2)
    services: list[Service] = [
        EnvService([ServedEnv(ENV, factory=Asks)], limits=limits),
        ScoreService(["exact"]),
    ]
    async with HttpServer(services, **options) as server:
        yield server


async def ask(server: HttpServer, path: str, body: Any, **headers: str) -> tuple[int, Any, Any]:
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as http,
        http.post(path, json=body) as reply,
    ):
        return reply.status, await reply.json(), reply.headers


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def test_each_request_and_operation_is_a_line_without_secrets(tmp_path: Path) -> None:
    path, tokens = tmp_path / "access.jsonl", tmp_path / "tokens.toml"
    tokens.write_text('[alice]\ntoken = "alices-secret"\nscopes = ["*"]\n')
    principals = Principals("", tokens)
    async with serving(principals=principals, access_log=AccessLog(str(path))) as server:
        create, bearer = {"session": "one", "reset": {}}, "Bearer alices-secret"
        status, _, headers = await ask(
            server, f"/v1/envs/{ENV}/sessions", create, Authorization=bearer, traceparent=PARENT
        )
        given = headers["X-Request-Id"]
        assert status == 200
        await ask(server, "/v1/sessions/one/step", {"seq": 5, "action": "x"}, Authorization=bearer)
        await ask(server, "/v1/envs?token=query-secret", {}, Authorization="Bearer wrong-secret")
        async with ludus.connect(server.url, token="alices-secret") as client:
            session = client.make_async(ENV)
            await session.reset()
            await session.step("thought-secret")
            await client.verifier("exact").score(Sample(response="a", gold="a"))
    first, second, third, *streamed = lines(path)
    assert first | {"time": 0, "ms": 0} == {
        "time": 0,
        "request_id": given,
        "principal": "alice",
        "session": "one",
        "method": "POST",
        "route": "/v1/envs/{id}/sessions",
        "status": 200,
        "ms": 0,
        "bytes": first["bytes"],
        "trace": PARENT[3:35],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert first["ms"] > 0 < first["bytes"]
    assert (second["status"], second["cause"]) == (409, "sequence_conflict")
    assert (third["status"], third["cause"], third.get("principal")) == (401, "unauthorized", None)
    operations = [line["route"] for line in streamed if line["method"] == "STREAM"]
    assert operations[:3] == ["create", "step", "score"]
    assert {line["session"] for line in streamed if line["route"] == "step"} == {session.name}
    assert {line["principal"] for line in streamed} == {"alice"}
    assert "secret" not in path.read_text("utf-8")


async def test_a_request_has_one_id_in_its_header_its_error_and_its_line(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    async with serving(access_log=AccessLog(str(path))) as server:
        for sent in ("mine-1", "", "not/an id\t", "x" * 129):
            body = {"seq": 0, "action": "x"}
            status, reply, headers = await ask(
                server, "/v1/sessions/nobody/step", body, **{"X-Request-Id": sent}
            )
            given = headers["X-Request-Id"]
            assert (given == sent) == (sent == "mine-1")
            assert (status, reply["error"]["request_id"]) == (404, given)
        async with ludus.connect(server.url) as client:
            session = client.make_async(ENV)
            await session.reset()
            with pytest.raises(SequenceConflict) as conflict:
                await client.replicas.members[0].client.post(
                    f"/v1/sessions/{session.name}/step", {"seq": 9, "action": "x"}, dict
                )
            named = conflict.value.__dict__["fault"].request_id
    ids = [line["request_id"] for line in lines(path)]
    assert len(set(ids)) == len(ids) > 6
    assert named in ids
    assert ids[0] == "mine-1"


async def test_a_trace_goes_through_the_worker_and_is_sent_on() -> None:
    async with serving() as server:
        await ask(server, f"/v1/envs/{ENV}/sessions", {"session": "a", "reset": {}})
        step = "/v1/sessions/a/step"
        _, reply, _ = await ask(server, step, {"seq": 1, "action": ""}, traceparent=PARENT)
        assert reply["observation"] == PARENT
        _, reply, _ = await ask(server, step, {"seq": 2, "action": ""}, traceparent="00-x")
        assert reply["observation"] == ""
        trace_parent.set(PARENT)  # as while a request is answered
        async with ludus.connect(server.url, stream=False) as client:
            session = client.make_async(ENV)
            await session.reset()
            assert (await session.step(""))[0] == PARENT


@pytest.mark.parametrize("stream", [True, False])
async def test_refusals_are_counted_by_their_cause(stream: bool) -> None:
    async with serving() as server, ludus.connect(server.url, stream=stream, timeout_s=0.3) as own:
        sessions = [own.make_async(ENV) for _ in range(3)]
        done = await asyncio.gather(*(one.reset() for one in sessions), return_exceptions=True)
        refused = [error for error in done if isinstance(error, Exception)]
        assert [error.__dict__["fault"].cause for error in refused] == ["sessions"]
        async with aiohttp.ClientSession(server.url) as http, http.get("/metrics") as reply:
            counted = re.findall(r'ludus_refused_total\{cause="(\w+)"\} (\S+)', await reply.text())
        assert [cause for cause, number in counted if float(number) > 0] == ["sessions"]
    assert {"queue", "rate", "bytes", "sandbox"} <= set(CAUSES)


def test_a_full_disk_is_told_once_and_lines_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.jsonl"
    path.symlink_to("/dev/full")
    log = AccessLog(str(path))
    log.start(ServerMetrics())
    line = AccessLine(method="GET", route="/", status=200, ms=1.0)
    for _ in range(3):
        log.write(line)
        waits_until(lambda: log._queue.empty())
        time.sleep(0.05)
    waits_until(lambda: log.dropped == 3)
    path.unlink()
    log.reopen()  # the operator has made room
    log.write(line)
    waits_until(lambda: path.exists() and len(lines(path)) == 1)
    log.close()
    files = [Path(link) for link in Path("/proc/self/fd").iterdir()]
    assert path not in [link.readlink() for link in files if link.is_symlink()]
    messages = [record.getMessage() for record in caplog.records]
    assert [("loses lines" in text, "written again" in text) for text in messages] == [
        (True, False),
        (False, True),
    ]


def test_a_log_that_cannot_be_opened_again_goes_on_trying(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = AccessLog(str(folder / "access.jsonl"))
    log.start(ServerMetrics())
    line = AccessLine(method="GET", route="/", status=200, ms=1.0)
    folder.rename(tmp_path / "moved")
    log.reopen()
    log.write(line)
    waits_until(lambda: log.dropped == 1)
    folder.mkdir()
    log.write(line)
    log.close()
    assert len(lines(folder / "access.jsonl")) == 1
    assert not lines(tmp_path / "moved" / "access.jsonl")


def test_a_path_that_is_no_text_does_not_end_the_log(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "access.jsonl"))
    log.start(ServerMetrics())
    for session in ("a\udcff", "b"):
        log.write(AccessLine(method="GET", route="/", status=200, ms=1.0, session=session))
    log.close()
    written = (tmp_path / "access.jsonl").read_text().splitlines()
    assert [json.loads(each)["session"] for each in written] == ["a\udcff", "b"]


def test_a_log_that_is_behind_drops_lines_and_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_QUEUED", 10)
    log = AccessLog(str(tmp_path / "access.jsonl"))  # its writer is not started, as if it hung
    for _ in range(25):
        log.write(AccessLine(method="GET", route="/", status=200, ms=1.0))
    assert log.dropped == 15
    with pytest.raises(ConfigError, match="cannot write the access log"):
        AccessLog(str(tmp_path / "nowhere" / "access.jsonl")).start(ServerMetrics())


def waits_until(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_strangers_learn_nothing_of_what_is_served() -> None:
    async with serving(token="secret") as server, aiohttp.ClientSession(server.url) as http:
        for path in ("/healthz", "/readyz", "/metrics", "/", "/nowhere", "/v1/envs", "/v1/score"):
            async with http.get(path) as reply:
                text = await reply.text()
                assert reply.status == (200 if path in ("/healthz", "/readyz") else 401), path
            for secret in (ENV, "exact", "verifiers", "queue_depth", "sessions"):
                assert secret not in text, path


async def test_a_step_is_a_span_and_its_verdict_an_event() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received: list[Any] = []
    inside = ""

    async def collect(request: web.Request) -> web.Response:
        body = ExportTraceServiceRequest.FromString(await request.read())
        received.extend(s for r in body.resource_spans for c in r.scope_spans for s in c.spans)
        return web.Response(content_type="application/x-protobuf")

    collector = web.Application()
    collector.router.add_post("/v1/traces", collect)
    runner = web.AppRunner(collector)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with serving(tracer=Tracer(url)) as server:
        async with aiohttp.ClientSession(server.url, headers={"traceparent": PARENT}) as http:
            create = {"session": "a", "reset": {}}
            await (await http.post(f"/v1/envs/{ENV}/sessions", json=create)).read()
            for seq, action in ((1, "judged"), (1, "judged"), (2, "where"), (3, "unjudged")):
                step = {"seq": seq, "action": action}
                reply = await (await http.post("/v1/sessions/a/step", json=step)).json()
                inside = reply["observation"] if action == "where" else inside
        async with ludus.connect(server.url) as client:
            await client.verifier("exact").score(Sample(response="a", gold="a"))
    await runner.cleanup()
    names = [span.name for span in received]
    assert names == [f"reset {ENV}", *[f"step {ENV}"] * 3, "score exact"]
    reset, judged, where, unjudged, score = received
    assert {span.trace_id.hex() for span in received[:4]} == {PARENT[3:35]}
    assert {span.parent_span_id.hex() for span in received[:4]} == {PARENT[36:52]}
    assert inside == f"00-{PARENT[3:35]}-{where.span_id.hex()}-01"
    assert attributes(judged)["gen_ai.conversation.id"] == "a"
    assert [attributes(event) for event in judged.events] == [
        {"gen_ai.evaluation.name": ENV, "gen_ai.evaluation.score.value": 0.25}
    ]
    assert attributes(unjudged)["error.type"] == "reward_unavailable"
    failed = {"gen_ai.evaluation.name": ENV, "error.type": "unavailable"}
    assert [attributes(event) for event in unjudged.events] == [failed]
    assert attributes(score.events[0])["gen_ai.evaluation.score.value"] == 1.0
    assert score.events[0].name == "gen_ai.evaluation.result"
    assert not reset.events
    assert "secret" not in str(received)


@ludus.verifier("test/asks")
class AsksToo:
    """Tells the trace that its calls would belong to; in a worker process."""

    def score(self, sample: Sample) -> Verdict:
        """Tell it."""
        return Verdict.of(0.5, trace_headers().get("traceparent", ""))


@pytest.mark.parametrize("way", ["stream", "batches"])
async def test_each_operation_is_a_span_of_its_callers_trace(way: str, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import SpanContext

    received, log = InMemorySpanExporter(), tmp_path / "log"
    rollouts = TracerProvider().get_tracer("rollouts")
    inside: dict[str, str] = {}
    roots: dict[str, SpanContext] = {}

    async def roll(server: Any, name: str) -> None:
        with rollouts.start_as_current_span(name) as root:
            roots[name] = root.get_span_context()
            env = server.make_async(ENV)
            await env.reset()
            for turn in range(3):
                observation, *_ = await env.step("where")
                inside[f"{name} step {turn}"] = str(observation)
            await env.step("judged")
            verdict = await server.verifier("test/asks").score(Sample(response="a"))
            inside[f"{name} score"] = verdict.detail
            await env.close()

    tracer = Tracer("http://127.0.0.1:9", exporter=received)
    services: list[Service] = [
        EnvService([ServedEnv(ENV, factory=Asks)]),
        ScoreService(["test/asks"]),
    ]
    async with (
        HttpServer(services, tracer=tracer, access_log=AccessLog(str(log))) as server,
        ludus.connect(server.url, stream=way == "stream") as client,
    ):
        # In step with each other, so that one frame carries operations of many traces.
        await asyncio.gather(*(roll(client, f"rollout {number}") for number in range(6)))
        await client.make_async(ENV).reset()  # outside any trace
    spans = received.get_finished_spans()
    assert len(spans) == 6 * 6 + 1
    assert len({span.context.span_id for span in spans}) == len(spans)
    by_id = {f"{span.context.span_id:016x}": span for span in spans}
    # A server's span has a rollout for its parent, and no other operation.
    parents = Counter(span.parent.span_id for span in spans if span.parent is not None)
    if way == "stream":
        assert parents == {root.span_id: 6 for root in roots.values()}
        assert sum(span.parent is None for span in spans) == 1
    else:  # a batch of many callers is one request
        assert parents.keys() <= {root.span_id for root in roots.values()}
    for told, parent in inside.items():
        trace_id, span_id = parent.split("-")[1:3]
        span = by_id[span_id]
        assert span.name.startswith("score" if told.endswith("score") else "step"), told
        if way == "stream":
            assert int(trace_id, 16) == roots[told[: len("rollout 0")]].trace_id, told
    assert len(set(inside.values())) == len(inside)
    judged = [span for span in spans if span.events]
    assert len(judged) == 12
    for span in judged:
        (event,) = span.events
        assert event.name == "gen_ai.evaluation.result"
        score = 0.5 if span.name.startswith("score") else 0.25
        assert event.attributes is not None
        assert event.attributes["gen_ai.evaluation.score.value"] == score
    if way == "stream":
        logged = {line.get("trace", "") for line in lines(log) if line["route"] == "step"}
        assert logged == {f"{root.trace_id:032x}" for root in roots.values()}


async def test_a_stream_takes_a_trace_with_each_operation() -> None:
    """As a foreign client sends it: with a trace, without one, and with what is none."""
    async with (
        serving() as server,
        aiohttp.ClientSession(server.url, headers={"traceparent": PARENT}) as http,
        http.ws_connect("/v1/stream") as stream,
    ):
        hello = await stream.receive_json()
        assert hello["takes_traces"]
        other = f"00-{'a' * 32}-{'b' * 16}-01"
        steps = [(1, other), (2, None), (3, "00-x"), (4, ""), (5, other)]
        create = {"op": "create", "env": ENV, "session": "a", "reset": {}}
        await stream.send_json([[0, create]])
        await stream.receive_json()
        told = []
        for seq, trace in steps:
            step = {"op": "step", "session": "a", "seq": seq, "action": "where"}
            await stream.send_json([[seq, step, *([] if trace is None else [trace])]])
            ((_, status, body),) = await stream.receive_json()
            assert status == 200
            told.append(body["observation"])
        assert told == [other, PARENT, PARENT, PARENT, other]
        await stream.send_json([[6, {"op": "delete", "session": "a"}, other, "more"]])
        assert (await stream.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_a_server_that_takes_no_traces_is_sent_none() -> None:
    frames: list[Any] = []

    async def converse(request: web.Request) -> web.WebSocketResponse:
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        assert "traceparent" not in request.headers
        await stream.send_json({"instance": "old", "max_bytes": 1 << 20})
        async for message in stream:
            frames.extend(msgspec.msgpack.decode(message.data))
            answers = [(number, 200, Verdict.of(1.0)) for number, *_ in frames[-1:]]
            await stream.send_bytes(msgspec.msgpack.encode(answers))
        return stream

    old = web.Application()
    old.router.add_get("/v1/stream", converse)
    runner = web.AppRunner(old)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    trace_parent.set(PARENT)
    async with ludus.connect(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
        verdict = await client.verifier("exact").score(Sample(response="a", gold="a"))
    await runner.cleanup()
    assert verdict.ok
    assert [len(item) for item in frames] == [2]


def attributes(holder: Any) -> dict[str, Any]:
    values = {}
    for pair in holder.attributes:
        kind = pair.value.WhichOneof("value")
        values[pair.key] = getattr(pair.value, kind)
    return values


def test_an_address_of_a_collector_is_checked() -> None:
    for address in (
        "127.0.0.1:4318",
        "http://[::1",
        "http://h:99999",
        "http://h:abc",
        "http://h:0",
    ):
        with pytest.raises(ConfigError, match="looks like http://"):
            Tracer(address)
