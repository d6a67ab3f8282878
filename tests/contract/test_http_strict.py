"""Every struct of ludus's own wire refuses a field that nobody reads, at every level, and names the
one that was probably meant. Other projects' protocols keep their own rules.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import inspect

import ludus
from ludus.cli.check import read_cases
from ludus.envs.serving.env_wire import EnvList, Operation, Step, StepReply
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError
from ludus.messages import assistant
from ludus.rewards import Sample
from ludus.rewards.rows import read_rows
from ludus.rewards.serving.reward_wire import Score
from ludus.rewards.serving.server import ScoreService
from ludus.sandboxes.fusion.routes import FusionService
from ludus.sandboxes.serving.sandbox_wire import ExecuteBody
from ludus.sandboxes.serving.server import SandboxService
from ludus.wire.codec import Format, decode, encode
from ludus.wire.faults import Refused
from ludus.wire.routes import Route
from ludus.wire.server import HttpServer
from ludus.wire.strict import decode_request, read_fields, read_item, read_query

ENV = "ludus/arithmetic-v0"


def routes() -> list[Route]:
    services: list[Any] = [EnvService([ENV]), ScoreService(["exact"]), *_sandbox_services()]
    return [route for service in services for route in service.routes()]


def _sandbox_services() -> list[Any]:
    from ludus.sandboxes.serving.server import sandbox_services

    return list(sandbox_services())


def valid(kind: inspect.Type) -> Any:
    """Some value of a type, with all its fields."""
    match kind:
        case inspect.Metadata():
            return valid(kind.type)
        case inspect.StructType():
            fields = {field.encode_name: valid(field.type) for field in kind.fields}
            return fields | ({kind.tag_field: kind.tag} if kind.tag_field else {})
        case inspect.UnionType():  # the richest of them
            ranked = sorted(kind.types, key=_riches)
            return valid(ranked[-1])
        case inspect.ListType() | inspect.VarTupleType():
            return [valid(kind.item_type)]
        case inspect.DictType():
            return {"key": valid(kind.value_type)}
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.BoolType():
            return True
        case inspect.BytesType():
            return "aGk="
        case inspect.NoneType():
            return None
        case _:
            return "text"


def _riches(kind: inspect.Type) -> int:
    order = (inspect.NoneType, inspect.StrType, inspect.ListType, inspect.StructType)
    return next((n for n, one in enumerate(order) if isinstance(kind, one)), 1)


def places(kind: inspect.Type, value: Any, path: str = "$") -> Iterator[tuple[dict[str, Any], str]]:
    """Every struct inside a value, with its path."""
    match kind:
        case inspect.Metadata():
            yield from places(kind.type, value, path)
        case inspect.StructType() if isinstance(value, dict):
            yield value, path
            for field in kind.fields:
                yield from places(field.type, value.get(field.encode_name), f"{path}.{field.name}")
        case inspect.UnionType():
            ranked = sorted(kind.types, key=_riches)
            yield from places(ranked[-1], value, path)
        case inspect.ListType() if isinstance(value, list):
            yield from places(kind.item_type, value[0], f"{path}[0]")
        case inspect.DictType() if isinstance(value, dict):
            yield from places(kind.value_type, value.get("key"), f"{path}.key")
        case _:
            return


def misspelt(as_type: Any) -> Iterator[tuple[Any, str, str]]:
    """Values of a type with one field misspelt: the value, the path, the right name."""
    kind = inspect.type_info(as_type)
    for number, _ in enumerate(list(places(kind, valid(kind)))):
        value = valid(kind)
        place, path = list(places(kind, value))[number]
        names = [name for name in place if name not in ("op", "type")]
        if not names:
            continue
        name = max(names, key=len)
        wrong = name[1] + name[0] + name[2:] if len(name) > 3 else name + "s"
        place[wrong] = place.pop(name)
        yield value, path, name


OWN = [route for route in routes() if not route.dialect]
BODIES = list(dict.fromkeys(route.payload for route in OWN if route.in_body))
QUERIES = list(dict.fromkeys(route.payload for route in OWN if not route.in_body))
ITEMS: list[Any] = [*getattr(Operation, "__args__"), Score, ExecuteBody, Sample]  # noqa: B009


@pytest.mark.parametrize("as_type", [*BODIES, *ITEMS], ids=lambda one: one.__name__)
@pytest.mark.parametrize("format", list(Format))
def test_a_misspelt_field_is_refused_with_its_path_and_the_near_name(
    as_type: Any, format: Format
) -> None:
    cases = list(misspelt(as_type))
    assert cases
    for value, path, name in cases:
        data, _ = encode(value, format)
        with pytest.raises(Refused) as whole:
            decode_request(data, as_type, format)
        with pytest.raises(Refused) as item:
            read_item(value, as_type)
        at = "" if path == "$" else f" at {path}"
        for caught in (whole, item):
            assert caught.value.code == "invalid"
            assert str(caught.value).endswith(f"{at}; did you mean {name!r}?")


@pytest.mark.parametrize("as_type", QUERIES, ids=lambda one: one.__name__)
def test_a_query_with_an_unknown_field_is_refused(as_type: Any) -> None:
    with pytest.raises(Refused, match="unknown field 'ofset'"):
        read_query({"ofset": "1"}, as_type)


PATH = {"session": "one"}


@pytest.mark.parametrize("format", list(Format))
def test_a_field_that_the_path_names_is_read_from_there_alone(format: Format) -> None:
    def read(body: object) -> Step:
        return read_fields(encode(body, format)[0], PATH, Step, format)

    rest = {"seq": 1, "action": "left", "instance": ""}
    assert read(rest) == Step(session="one", seq=1, action="left")
    assert read({**rest, "op": "step"}) == read(rest)
    for wrong, told in (
        ({**rest, "session": "one"}, "unknown field 'session'"),
        ({**rest, "acton": "left"}, "unknown field 'acton'; did you mean 'action'"),
        ({**rest, "op": "reset"}, "op"),
        ({"seq": 1}, "action"),
        ({**rest, "seq": -1}, r"\$\.seq"),
        ([rest], "object"),
    ):
        with pytest.raises(Refused, match=told) as refused:
            read(wrong)
        assert refused.value.code == "invalid"


def test_the_walk_sees_every_level() -> None:
    """The control: where misspelt fields are put."""
    paths = {path for _, path, _ in misspelt(Score)}
    assert {"$", "$.sample", "$.sample.response[0]", "$.sample.images[0]"} <= paths
    assert len(OWN) > 20


def test_what_is_the_business_of_others_stays_open() -> None:
    sample = {"response": "a", "info": {"glod": 1}, "gold": {"anything": {"x": 1}}}
    data = json.dumps({"verifier": "exact", "sample": sample}).encode()
    assert decode_request(data, Score).sample.info == {"glod": 1}


def test_other_protocols_keep_their_own_rules() -> None:
    foreign = [route for route in routes() if route.dialect]
    assert {route.path for route in foreign} == {
        "/v1/ping", "/run_code", "/run_jupyter", "/submit", "/execute_batch",
    }  # fmt: skip
    assert all(isinstance(one, (SandboxService, FusionService)) for one in _sandbox_services())


def test_replies_of_a_newer_server_are_read() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "hi", "new": 1}], "new": 2}
    reply = {
        "kind": "step", "session": "s", "seq": 1, "observation": [message], "reward": 1.0,
        "terminated": False, "truncated": False, "new": 3,
        "verdict": {"status": "ok", "reward": 1.0, "new": 4},
    }  # fmt: skip
    read: Any = decode(msgspec.json.encode(reply), StepReply)
    assert read.observation[0].text == "hi"
    assert decode(b'{"instance": "i", "envs": [], "new": 5}', EnvList).envs == []


@asynccontextmanager
async def serving() -> AsyncGenerator[aiohttp.ClientSession]:
    async with (
        HttpServer([EnvService([ENV]), ScoreService(["exact"])]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        yield http


async def test_a_misspelt_gold_is_422_and_never_a_zero() -> None:
    right = {"verifier": "exact", "sample": {"response": "a", "gold": "a"}}
    wrong = {"verifier": "exact", "sample": {"response": "a", "glod": "a"}}
    said = "unknown field 'glod' at $.sample; did you mean 'gold'?"
    async with serving() as http:
        async with http.post("/v1/score", json=wrong) as reply:
            assert reply.status == 422
            assert (await reply.json())["error"]["message"] == said
        async with http.post("/v1/score_batch", json={"items": [wrong, right]}) as reply:
            items = (await reply.json())["items"]
        assert [item["status"] for item in items] == [422, 200]
        assert items[0]["error"]["message"] == said
        async with http.ws_connect("/v1/stream") as socket:
            await socket.receive_json()
            await socket.send_json([[1, {"op": "score", **wrong}], [2, {"op": "score", **right}]])
            answers: dict[int, Any] = {}
            async with asyncio.timeout(60):
                while len(answers) < 2:
                    answers |= {n: (code, body) for n, code, body in await socket.receive_json()}
        assert (answers[1][0], answers[2][0]) == (422, 200)
        assert answers[1][1]["message"] == said
        async with http.get(f"/v1/envs/{ENV}/tasks?splt=test") as reply:
            assert (await reply.json())["error"]["message"].endswith("did you mean 'split'?")


async def test_a_misspelt_field_inside_an_action_is_refused_and_uses_no_seq() -> None:
    async with serving() as http, http.ws_connect("/v1/stream") as socket:
        await socket.receive_json()
        create = {"op": "create", "env": ENV, "session": "s", "reset": {}}
        await socket.send_json([[1, create]])
        await socket.receive_json()
        step = {"op": "step", "session": "s", "seq": 1}
        wrong = step | {"action": {"role": "assistant", "contnt": "5"}}
        await socket.send_json([[2, wrong]])
        ((_, status, body),) = await socket.receive_json()
        assert (status, body["message"]) == (
            422,
            "unknown field 'contnt' at $.action; did you mean 'content'?",
        )
        right = step | {"action": {"role": "assistant", "content": "5"}}
        await socket.send_json([[3, right]])
        assert (await socket.receive_json())[0][1] == 200


def test_files_of_samples_and_rows_name_the_field_too(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text('{"response": "a", "gold": "a"}\n{"response": "a", "glod": "a"}\n')
    with pytest.raises(ConfigError, match=r"line 2: unknown field 'glod'; did you mean 'gold'\?"):
        read_cases(file)
    with pytest.raises(ConfigError, match=r":2: unknown field 'glod'; did you mean 'gold'\?"):
        read_rows(file)
    file.write_text('{"response": "a", "gold": "a", "source": "x", "idx": 3}\n')
    assert len(read_rows(file)) == 1  # columns of data sets are let pass


async def test_the_python_client_plays_with_messages_as_before() -> None:
    async with HttpServer([EnvService([ENV])]) as server, ludus.connect(server.url) as client:
        session = client.make_async(ENV)
        await session.reset(seed=1)
        assert (await session.step(assistant("no number")))[2] is True
        await session.close()
