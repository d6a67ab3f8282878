"""The Tinker API: bytes against Google's own protobuf, results against our learner, and a client
that loses requests and replies."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings, strategies as st

from ludus.agent import Sampling
from ludus.errors import BrokenGeneration, ConfigError
from ludus.trainer.config import ModelConfig, TrainerConfig
from ludus.trainer.engines.local import EngineClosed, EngineLimits, LocalEngine
from ludus.trainer.learning.learner import Learner, Predicted
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.rollout.batch import Batch, Row, pad
from ludus.trainer.sft import negative_log_likelihood
from ludus.trainer.tinker import futures, service, wire
from ludus.trainer.tinker.models import BaseModel, ModelHouse, ServedLimits, ServedModel
from ludus.trainer.tinker.sampling import answer, draw, refuse_unserved
from ludus.trainer.tinker.service import TinkerService
from ludus.trainer.tinker.store import CheckpointStore, RunCard
from ludus.wire.chaos import Chaos
from ludus.wire.faults import Refused
from ludus.wire.principals import Principals
from ludus.wire.protobuf import ProtoWriter
from ludus.wire.server import HttpServer

FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "double": FIELD.TYPE_DOUBLE,
    "int32": FIELD.TYPE_INT32,
    "int64": FIELD.TYPE_INT64,
    "bool": FIELD.TYPE_BOOL,
    "string": FIELD.TYPE_STRING,
    "bytes": FIELD.TYPE_BYTES,
}
# The part of tinker.proto (SDK 0.38) that is spoken here: number, name, type; * is repeated.
SCHEMA = {
    "Text": ["1 tokens bytes"],
    "Chunk": ["1 encoded_text Text"],
    "Tensor": ["1 dense bytes", "3 dtype int32", "4 shape int64*"],
    "Inputs": ["1 key string", "2 value Tensor"],
    "Datum": ["1 model_input Chunk*", "2 loss_fn_inputs Inputs*"],
    "Value": ["1 number double", "2 text string"],
    "Config": ["1 key string", "2 value Value"],
    "Request": [
        "1 model_id string",
        "2 seq_id int32",
        "3 data Datum*",
        "4 loss_fn string",
        "6 forward_only bool",
        "7 config Config*",
    ],
    "Batched": ["1 data bytes", "2 offsets bytes", "3 dtype int32", "4 trailing int64*"],
    "Field": ["1 key string", "2 value Batched"],
    "Record": ["2 fields Field*", "3 num_datums int64"],
    "Metric": ["1 key string", "2 value double"],
    "Output": ["1 kind string", "2 records Record*", "3 metrics Metric*"],
}


def schema() -> dict[str, Any]:
    """The messages as classes of Google's protobuf, with which the SDK reads and writes."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    for name, lines in SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, field, kind in (line.split() for line in lines):
            plain = kind.rstrip("*")
            message.field.add(
                name=field,
                number=int(number),
                label=FIELD.LABEL_REPEATED if kind.endswith("*") else FIELD.LABEL_OPTIONAL,
                type=TYPES.get(plain, FIELD.TYPE_MESSAGE),
                type_name=None if plain in TYPES else f".t.{plain}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{n}")) for n in SCHEMA
    }


GOOGLE = schema()
FLOATS = st.floats(-1e6, 1e6, width=32)


@st.composite
def requests(draw: Any) -> wire.ForwardBackward:
    data = []
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.integers(1, 5))
        ids = np.array(draw(st.lists(st.integers(0, 2**31 - 1), min_size=size, max_size=size)))
        weights = np.array(draw(st.lists(FLOATS, min_size=2 * size, max_size=2 * size)), np.float32)
        inputs = {"target_tokens": ids + 1, "weights": weights.reshape(size, 2)}
        data.append(wire.Datum(ids, inputs))
    return wire.ForwardBackward(
        draw(st.text(max_size=5)),
        draw(st.integers(-(2**31), 2**31 - 1)),
        data,
        draw(st.text(max_size=5)),
        draw(st.dictionaries(st.text(min_size=1, max_size=3), FLOATS | st.text(min_size=1))),
        draw(st.booleans()),
    )


@settings(max_examples=25, deadline=None)
@given(requests())
def test_googles_protobuf_reads_a_request_as_it_was_written(request: wire.ForwardBackward) -> None:
    data = wire.write_forward_backward(request)
    read = GOOGLE["Request"].FromString(data)
    assert (read.model_id, read.seq_id, read.loss_fn) == (
        request.model_id,
        request.seq_id,
        request.loss_fn,
    )
    config = {e.key: e.value.text or e.value.number for e in read.config}
    assert config == pytest.approx(request.config) if config else not request.config
    for written, got in zip(request.data, read.data, strict=True):
        ids = np.frombuffer(got.model_input[0].encoded_text.tokens, "<i4")
        assert ids.tolist() == written.tokens.tolist()
        weights = next(e.value for e in got.loss_fn_inputs if e.key == "weights")
        assert list(weights.shape) == list(written.inputs["weights"].shape)
    again = wire.read_forward_backward(read.SerializeToString())
    assert (again.seq_id, again.forward_only) == (request.seq_id, request.forward_only)
    for written, got in zip(request.data, again.data, strict=True):
        assert np.array_equal(got.inputs["weights"], written.inputs["weights"])
        assert np.array_equal(got.inputs["target_tokens"], written.inputs["target_tokens"])


def test_googles_protobuf_reads_a_result_with_rows_of_different_shapes() -> None:
    rows = [np.ones(2, np.float32), np.zeros((2, 3), np.float32), np.full((1, 3), 2, np.float32)]
    data = wire.write_passed(wire.Passed(rows, {"loss:sum": -0.5}))
    read = GOOGLE["Output"].FromString(data)
    assert [(r.num_datums, list(r.fields[0].value.trailing)) for r in read.records] == [
        (1, []),
        (2, [3]),
    ]
    offsets = np.frombuffer(read.records[1].fields[0].value.offsets, "<i8")
    assert offsets.tolist() == [0, 24, 36]
    back = wire.read_passed(data)
    assert all(np.array_equal(a, b) for a, b in zip(back.logprobs, rows, strict=True))
    assert back.metrics == {"loss:sum": -0.5}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for read in (wire.read_forward_backward, wire.read_passed, wire.read_samples):
        with suppress(Refused):  # any other error fails
            read(data)


# --- a server and a client of our own -----------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=2, heads=2)


@pytest.fixture(scope="module")
def base(tiny: Path) -> BaseModel:
    return BaseModel.load(ModelConfig(path=str(tiny), device="cpu"), "demo")


TOKENS = """
[ann]
token = "tml-ann"
scopes = ["train:demo"]
sessions = 2
[bob]
token = "tml-bob"
scopes = ["train:*"]
[cy]
token = "tml-cy"
scopes = ["env:*"]
[dee]
token = "tml-dee"
scopes = ["train:*"]
rate = 1
"""


@asynccontextmanager
async def serving(
    base: BaseModel, folder: Path, *, chaos: str = "", limits: ServedLimits | None = None
) -> AsyncGenerator[HttpServer]:
    (folder / "tokens.toml").write_text(TOKENS)
    house = ModelHouse(base, limits or ServedLimits())
    server = HttpServer(
        [TinkerService(house, CheckpointStore(folder / "served"))],
        principals=Principals("", folder / "tokens.toml"),
        chaos=Chaos.parse(chaos),
    )
    async with server:
        yield server


class Client:
    """Asks as the SDK does: retries what may be retried, and polls promises."""

    def __init__(self, url: str, http: aiohttp.ClientSession, key: str = "tml-ann") -> None:
        self.url, self.http, self.key = url, http, key
        self.numbers: dict[str, int] = {}

    async def send(self, path: str, body: Any, *, protobuf: bool = False) -> tuple[int, str, bytes]:
        headers = {"X-API-Key": self.key, "Accept": wire.PROTOBUF}
        if protobuf:
            headers["Content-Type"] = wire.PROTOBUF
        sent: Any = {"data": body} if protobuf else {"json": body}
        for _ in range(30):
            try:
                url = f"{self.url}/api/v1/{path}"
                async with self.http.post(url, headers=headers, **sent) as reply:
                    data = await reply.read()
                    if reply.status < 500 and reply.status != 429:
                        return reply.status, reply.content_type, data
            except aiohttp.ClientError:
                pass
        raise AssertionError(f"{path} was not answered 30 times")

    async def ask(self, path: str, body: Any, **how: Any) -> Any:
        status, kind, data = await self.send(path, body, **how)
        assert status == 200, data
        return data if kind == wire.PROTOBUF else json.loads(data)

    async def result(self, promise: Any) -> Any:
        while True:
            got = await self.ask("retrieve_future", {"request_id": promise["request_id"]})
            if not isinstance(got, dict) or got.get("type") != "try_again":
                return got

    async def do(self, path: str, body: Any, **how: Any) -> Any:
        return await self.result(await self.ask(path, body, **how))

    async def model(self, lora: dict[str, Any] | None = None, number: int = 0) -> str:
        session = (await self.ask("create_session", {"sdk_version": "0.38.0"}))["session_id"]
        body = {"session_id": session, "model_seq_id": number, "base_model": "demo"}
        made = await self.do("create_model", {**body, **({"lora_config": lora} if lora else {})})
        return str(made["model_id"])

    def number(self, model: str) -> int:
        self.numbers[model] = self.numbers.get(model, 0) + 1
        return self.numbers[model]

    def passing(self, model: str, data: list[wire.Datum], loss: str, **how: Any) -> bytes:
        number = how.pop("seq", None) or self.number(model)
        return wire.write_forward_backward(wire.ForwardBackward(model, number, data, loss, **how))

    async def forward_backward(
        self, model: str, data: list[wire.Datum], loss: str = "cross_entropy", **how: Any
    ) -> Any:
        body = self.passing(model, data, loss, **how)
        got = await self.do("forward_backward", body, protobuf=True)
        return wire.read_passed(got) if isinstance(got, bytes) else got

    async def step(self, model: str, **adam: Any) -> Any:
        body = {"model_id": model, "seq_id": self.number(model), "adam_params": adam}
        return await self.do("optim_step", body)


@asynccontextmanager
async def connected(server: HttpServer, key: str = "tml-ann") -> AsyncGenerator[Client]:
    async with aiohttp.ClientSession() as http:
        yield Client(server.url, http, key)


def rows(count: int, seed: int = 0, **more: Any) -> list[wire.Datum]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        ids = rng.integers(3, 90, rng.integers(3, 12))
        size = len(ids) - 1
        inputs = {"target_tokens": ids[1:], "weights": rng.random(size).round().astype("f4")}
        inputs |= {name: make(rng, size) for name, make in more.items()}
        made.append(wire.Datum(ids[:-1], inputs))
    return made


def as_row(datum: wire.Datum, mask: Any) -> Row:
    """The row of our own learner that trains the same targets."""
    ids = [*datum.tokens.tolist(), int(datum.inputs["target_tokens"][-1])]
    return Row(ids, [0, *map(int, mask)], [0.0] * len(ids))


def summed(part: Batch, predicted: Predicted) -> tuple[Any, Any]:
    """The sum over six rows: the weights of their passes add up to 1, so nothing is divided."""
    return negative_log_likelihood(part, predicted)[0], torch.tensor(len(part) / 6)


ADAM = {"learning_rate": 1e-2, "beta2": 0.999, "eps": 1e-8, "grad_clip_norm": 1.0}


async def test_steps_over_the_wire_equal_those_of_our_learner(
    base: BaseModel, tiny: Path, tmp_path: Path
) -> None:
    """The sum over rows cut into two passes, then AdamW with a clip: the same weights to 1e-6."""
    learner = Learner(
        load_model(tiny), TrainerConfig(lr=1e-2, beta2=0.999, weight_decay=0.0, max_grad_norm=1.0)
    )
    async with serving(base, tmp_path) as server, connected(server) as client:
        model = await client.model()
        for step in range(3):
            data = rows(6, seed=step)
            parts = [await client.forward_backward(model, part) for part in (data[:4], data[4:])]
            told = await client.step(model, **ADAM)
            batch = pad([as_row(datum, datum.inputs["weights"]) for datum in data])

            expected = learner.update(batch, torch.arange(6), summed)
            assert sum(p.metrics["loss:sum"] for p in parts) == pytest.approx(
                expected["loss"], rel=1e-5
            )
            assert told["metrics"]["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)
        after = await client.forward_backward(model, rows(3, 9), forward_only=True)
    every = [as_row(datum, np.ones(len(datum.tokens))) for datum in rows(3, 9)]
    scored = learner.score(pad(every))
    for row, got in enumerate(after.logprobs):
        assert got == pytest.approx(scored[row, 1 : len(got) + 1].numpy(), abs=1e-5)


async def test_losses_have_the_published_values(base: BaseModel, tmp_path: Path) -> None:
    """Each against its formula in plain Python, from the log-probabilities that the pass told."""
    more = {
        "logprobs": lambda rng, n: -rng.random(n).astype("f4") * 8,
        "advantages": lambda rng, n: rng.normal(size=n).astype("f4"),
    }
    data = rows(4, **more)

    def expected(loss: str, logp: float, old: float, advantage: float) -> float:
        ratio = math.exp(logp - old)
        clipped = min(max(ratio, 0.7), 1.5)
        if loss == "importance_sampling":
            return -ratio * advantage
        if loss == "ppo":
            return -min(ratio * advantage, clipped * advantage)
        return -clipped * logp * advantage

    async with serving(base, tmp_path) as server, connected(server) as client:
        model = await client.model({"rank": 2})
        for loss in ("importance_sampling", "ppo", "cispo"):
            config = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.5}
            how = {} if loss == "importance_sampling" else {"config": config}
            got = await client.forward_backward(model, data, loss, **how)
            total = sum(
                expected(loss, *map(float, each))
                for datum, logp in zip(data, got.logprobs, strict=True)
                for each in zip(
                    logp, datum.inputs["logprobs"], datum.inputs["advantages"], strict=True
                )
            )
            assert got.metrics["loss:sum"] == pytest.approx(total, rel=1e-4)
            if loss == "ppo":  # the same bounds as tensors
                bounds = {
                    "clip_low_threshold": np.float32(0.7),
                    "clip_high_threshold": np.float32(1.5),
                }
                told = [
                    wire.Datum(
                        d.tokens,
                        {**d.inputs, **{k: np.full(len(d.tokens), v) for k, v in bounds.items()}},
                    )
                    for d in data
                ]
                again = await client.forward_backward(model, told, loss)
                assert again.metrics["loss:sum"] == pytest.approx(total, rel=1e-4)


async def test_several_targets_of_a_position_are_weighed_each(
    base: BaseModel, tmp_path: Path
) -> None:
    ids = np.arange(5, 11)
    targets = np.stack([ids + 1, ids + 7], 1)
    weights = np.stack([np.full(6, 0.25), np.full(6, -2.0)], 1).astype("f4")
    async with serving(base, tmp_path) as server, connected(server) as client:
        model = await client.model({"rank": 2})
        datum = wire.Datum(ids, {"target_tokens": targets, "weights": weights})
        both = await client.forward_backward(model, [datum])
        singles = []
        for column in (0, 1):
            inputs = {"target_tokens": targets[:, column], "weights": weights[:, column]}
            one = await client.forward_backward(model, [wire.Datum(ids, inputs)])
            assert both.logprobs[0][:, column] == pytest.approx(one.logprobs[0], abs=1e-5)
            singles.append(one.metrics["loss:sum"])
    assert both.metrics["loss:sum"] == pytest.approx(sum(singles), rel=1e-5)


@pytest.mark.parametrize("steps", [2, pytest.param(50, marks=pytest.mark.slow)])
async def test_promises_under_faults_are_kept_once(
    base: BaseModel, tmp_path: Path, steps: int
) -> None:
    """One request in twenty is cut off before or after its work, another one is answered 500, and
    pieces of a pass arrive in any order, each twice. Afterwards the models are what the same steps
    give without a fault. With 50 steps these are 1,000 promises.
    """
    plan = [(step, piece) for step in range(steps) for piece in range(9)]

    async def play(server: HttpServer, *, shuffled: bool) -> list[Any]:
        async with connected(server) as client:
            names = [await client.model({"rank": 1, "seed": n}) for n in range(2)]
            sent = list[Any]()
            for name in names:
                for step, piece in plan:
                    data = rows(1, seed=100 * step + piece)
                    body = client.passing(name, data, "cross_entropy")
                    sent.append(("forward_backward", body, True))
                    if piece == 8:
                        numbers = {"model_id": name, "seq_id": client.number(name)}
                        sent.append(("optim_step", {**numbers, "adam_params": ADAM}, False))
            order = (
                np.random.default_rng(0).permutation(len(sent)) if shuffled else range(len(sent))
            )

            async def submit(index: int) -> tuple[int, Any]:
                path, body, protobuf = sent[index]
                twice = [await client.ask(path, body, protobuf=protobuf) for _ in range(2)]
                assert twice[0]["request_id"] == twice[1]["request_id"]
                return index, twice[0]

            promised = dict(await asyncio.gather(*(submit(int(index)) for index in order)))
            results = await asyncio.gather(*(client.result(promised[n]) for n in range(len(sent))))
            assert not [each for each in results if isinstance(each, dict) and "error" in each]
            finals = [
                await client.forward_backward(name, rows(2, 7), forward_only=True) for name in names
            ]
            return [each for final in finals for each in final.logprobs] + [len(results)]

    async with serving(base, tmp_path) as server:
        expected = await play(server, shuffled=False)
    async with serving(base, tmp_path, chaos="drop=0.05,error=0.05") as server:
        got = await play(server, shuffled=True)
    assert got[-1] == 20 * steps
    for one, other in zip(expected[:-1], got[:-1], strict=True):
        assert one == pytest.approx(other, abs=1e-6)


async def test_checkpoints_continue_and_samplers_stay_as_they_were(
    base: BaseModel, tmp_path: Path
) -> None:
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7]}]}

    async def sample(client: Client, sampler: str, number: int, **params: Any) -> Any:
        body = {
            "sampling_session_id": sampler,
            "seq_id": number,
            "prompt": prompt,
            "sampling_params": {"max_tokens": 6, "seed": 4, **params},
            "prompt_logprobs": True,
        }
        return wire.read_samples(await client.do("asample", body))

    async with serving(base, tmp_path) as server, connected(server) as client:
        model = await client.model({"rank": 2, "seed": 1})
        session = model.partition(":")[0]
        await client.forward_backward(model, rows(2))
        await client.step(model, **ADAM)
        body = {"model_id": model, "seq_id": client.number(model)}
        kept = await client.do("save_weights", {**body, "path": "one", "ttl_seconds": 3600})
        assert kept["path"] == f"tinker://{model}/weights/one"
        body["seq_id"] = client.number(model)
        named = await client.do("save_weights_for_sampler", {**body, "path": "one"})
        body = {"model_id": model, "seq_id": client.number(model), "sampling_session_seq_id": 0}
        opened = await client.do("save_weights_for_sampler", body)
        snapshot = opened["sampling_session_id"]
        before = await sample(client, snapshot, 0)
        for _ in range(2):
            await client.forward_backward(model, rows(2, 1))
            await client.step(model, **ADAM)
        # The snapshot did not move with the model, and the checkpoint has the same weights.
        again = await sample(client, snapshot, 1)
        assert [s.tokens for s in again[0]] == [s.tokens for s in before[0]]
        body = {"session_id": session, "sampling_session_seq_id": 1, "model_path": named["path"]}
        loaded = (await client.ask("create_sampling_session", body))["sampling_session_id"]
        other = await sample(client, loaded, 0)
        assert [s.tokens for s in other[0]] == [s.tokens for s in before[0]]
        assert other[1][1:] == pytest.approx(before[1][1:], abs=1e-5)
        assert math.isnan(before[1][0])
        # A stop that is a text ends the answer with the token that completes it; [] ends nothing.
        first = base.tokenizer.decode(before[0][0].tokens[:2])
        stopped = await sample(client, snapshot, 2, stop=[first])
        assert stopped[0][0].stopped
        assert stopped[0][0].tokens == before[0][0].tokens[:2]
        # A model that is made of the checkpoint makes the steps that the first has made.
        body = {"session_id": session, "model_seq_id": 1, "path": kept["path"], "optimizer": True}
        second = (await client.do("load_weights", body))["model_id"]
        for _ in range(2):
            await client.forward_backward(second, rows(2, 1))
            await client.step(second, **ADAM)
        scores = [
            await client.forward_backward(name, rows(2, 5), forward_only=True)
            for name in (model, second)
        ]
        for one, two in zip(scores[0].logprobs, scores[1].logprobs, strict=True):
            assert one == pytest.approx(two, abs=1e-6)
        info = await client.ask("weights_info", {"tinker_path": kept["path"]})
        assert (info["base_model"], info["is_lora"], info["lora_rank"]) == ("demo", True, 2)


async def test_a_stop_of_text_ends_an_answer_wherever_the_text_begins(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LocalEngine(base.model, EngineLimits())
    whole = await engine.generate([5, 6, 7], Sampling(max_tokens=60, seed=4))
    decode, longest = base.tokenizer.decode, [0]

    def noted(ids: list[int]) -> str:
        longest[0] = max(longest[0], len(ids))
        return decode(ids)

    monkeypatch.setattr(base.tokenizer, "decode", noted)
    sampling = Sampling(max_tokens=60, seed=4)
    for text in set(re.findall(r"[ -~]+", decode(whole.ids))):
        end = next(end for end in range(61) if text in decode(whole.ids[:end]))
        found = await draw(engine, base, [5, 6, 7], sampling, [text, "nowhere at all"])
        assert (found.tokens, found.stopped) == (whole.ids[:end], True)
    longest[0] = 0
    found = await draw(engine, base, [5, 6, 7], sampling, ["never"])
    assert (found.tokens, found.stopped) == (whole.ids, False)
    assert longest[0] < 40, "what was decoded before is not decoded again"
    await engine.close()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"prompt_logprobs_last_n": -1}, "prompt_logprobs_last_n must be at least 1, got -1"),
        ({"prompt_logprobs_last_n": 0}, "prompt_logprobs_last_n must be at least 1, got 0"),
        ({"prompt_logprobs": None, "prompt_logprobs_last_n": 1}, "ask for these too"),
        ({"sampling_params": {"top_k": 1 << 63}}, "top_k must be -1, for all tokens, or a count"),
        ({"sampling_params": {"top_k": -2}}, "top_k must be -1, for all tokens, or a count"),
        ({"sampling_params": {"top_k": 0}}, "top_k must be -1, for all tokens, or a count"),
        ({"sampling_params": {"max_tokens": 10_000, "stop": "END"}}, "exceed the engine's"),
    ],
)
async def test_a_request_for_samples_that_cannot_be_served_is_refused_at_once(
    base: BaseModel, asked: dict[str, Any], told: str
) -> None:
    prompt = {"chunks": [{"tokens": [5, 6, 7]}]}
    body = {"prompt": prompt, "sampling_params": {}, "prompt_logprobs": True, **asked}
    request = msgspec.convert(body, wire.AskSamples)
    engine = LocalEngine(base.model, EngineLimits())

    async def ask() -> None:
        refuse_unserved(request)
        await answer(engine, base, request)

    with pytest.raises(ConfigError, match=told):
        await ask()
    await engine.close()


@pytest.mark.parametrize("texts", [[], ["never"]], ids=["whole", "in pieces"])
async def test_an_answer_that_the_engine_dropped_is_no_answer(
    base: BaseModel, texts: list[str]
) -> None:
    engine = LocalEngine(base.model, EngineLimits())
    drawn = draw(engine, base, [5, 6, 7], Sampling(max_tokens=100, seed=4), texts)
    drawing = asyncio.ensure_future(drawn)
    await asyncio.sleep(0)
    await engine.abort()
    with pytest.raises(BrokenGeneration):
        await drawing
    await engine.close()


async def test_a_request_draws_what_no_request_of_a_neighbouring_seed_draws(
    base: BaseModel,
) -> None:
    engine = LocalEngine(base.model, EngineLimits())

    async def drawn(seed: int) -> list[list[int]]:
        settings = {"max_tokens": 30, "seed": seed}
        body = {"prompt": {"chunks": [{"tokens": [5, 6, 7]}]}, "sampling_params": settings}
        request = msgspec.convert({**body, "num_samples": 3}, wire.AskSamples)
        samples = wire.read_samples(await answer(engine, base, request))[0]
        return [list(sample.tokens) for sample in samples]

    (first, *others), neighbour = await drawn(4), await drawn(5)
    assert await drawn(4) == [first, *others]
    assert first == (await engine.generate([5, 6, 7], Sampling(max_tokens=30, seed=4))).ids
    assert not [each for each in others if each in neighbour]
    await engine.close()


class FailsOnce(LocalEngine):
    """An engine that drops the first request of several, and notes which others were given up."""

    seeds, given_up = 0, 0

    async def generate(self, *given: Any, **more: Any) -> Any:
        self.seeds += 1
        if self.seeds == 1:
            raise BrokenGeneration("dropped")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.given_up += 1
            raise


async def test_where_one_sample_fails_the_others_are_given_up(base: BaseModel) -> None:
    engine = FailsOnce(base.model, EngineLimits())
    body = {"prompt": {"chunks": [{"tokens": [5]}]}, "sampling_params": {"max_tokens": 3}}
    request = msgspec.convert({**body, "num_samples": 3}, wire.AskSamples)
    with pytest.raises(BrokenGeneration):
        await answer(engine, base, request)
    await asyncio.sleep(0)
    assert (engine.seeds, engine.given_up) == (3, 2)
    await engine.close()


async def test_an_engine_that_is_taken_while_others_make_room_is_kept(base: BaseModel) -> None:
    house = ModelHouse(base, ServedLimits(engines=1))
    learner = house.make(wire.LoraSpec(rank=1))
    async with house.engine("", None, None) as oldest:
        await house.snapshot(learner, "one")  # both are held now, one more than there should be

    async def taken() -> list[float]:
        with suppress(EngineClosed):
            while True:
                await oldest.logprobs([5])
        async with house.engine("one", None, None) as engine:
            await asyncio.sleep(0.2)
            return await engine.logprobs([5, 6, 7])

    scores, _ = await asyncio.gather(taken(), house.snapshot(learner, "two"))
    assert len(scores) == 3
    await house.close()


async def test_a_model_that_two_drop_at_once_is_dropped(base: BaseModel) -> None:
    house = ModelHouse(base)
    for number in range(2):
        card = RunCard(
            training_run_id=f"m{number}",
            base_model="demo",
            model_owner="ann",
            lora=None,
            begun=datetime.now(UTC),
        )
        house.admit(ServedModel(card, "s", futures.OrderedJobs(futures.Promises())), 0)
        house.models[f"m{number}"].learner = house.make(wire.LoraSpec(rank=1))
    await asyncio.gather(house.release("s"), house.drop("m1"))
    assert not house.models
    await house.close()


async def test_what_is_somebody_elses_does_not_exist(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(base, tmp_path) as server, connected(server) as ann:
        model = await ann.model({"rank": 1})
        promise = await ann.ask(
            "forward_backward", ann.passing(model, rows(1), "cross_entropy"), protobuf=True
        )
        body = {"model_id": model, "seq_id": ann.number(model), "path": "mine"}
        path = (await ann.do("save_weights", body))["path"]
        await ann.model({"rank": 1})
        async with connected(server, "tml-bob") as bob:
            asked = {"request_id": promise["request_id"]}
            assert (await bob.send("retrieve_future", asked))[0] == 410
            assert (await bob.send("get_info", {"model_id": model}))[0] == 404
            assert (await bob.send("weights_info", {"tinker_path": path}))[0] == 404
        # Her own she may ask for twice, and not for ever.
        assert await ann.result(promise) == await ann.result(promise)
        monkeypatch.setattr(futures, "KEPT_S", 0.0)
        assert (await ann.send("retrieve_future", asked))[0] == 410
        monkeypatch.undo()
        # Two models are all that she may have.
        async with aiohttp.ClientSession() as http:
            session = (await ann.ask("create_session", {}))["session_id"]
            body = {"session_id": session, "model_seq_id": 0, "base_model": "demo"}
            url, headers = f"{server.url}/api/v1/create_model", {"X-API-Key": "tml-ann"}
            async with http.post(url, json=body, headers=headers) as reply:
                assert reply.status == 429
        for key, status in (("tml-cy", 403), ("tml-nobody", 401)):
            async with connected(server, key) as other:
                assert (await other.send("create_session", {}))[0] == status


async def test_a_request_refused_for_its_rate_is_done_when_it_is_sent_again(
    base: BaseModel, tmp_path: Path
) -> None:
    async with serving(base, tmp_path) as server, connected(server, "tml-dee") as dee:
        session = (await dee.ask("create_session", {}))["session_id"]
        body = {"session_id": session, "base_model": "demo", "lora_config": {"rank": 1}}
        url, headers = f"{server.url}/api/v1/create_model", {"X-API-Key": dee.key}
        statuses: list[int] = []
        async with asyncio.timeout(60):
            promises = list[dict[str, Any]]()
            for number in range(3):  # at once, whatever the time that a model takes
                promise: dict[str, Any] = {}
                while "request_id" not in promise:
                    numbered = {**body, "model_seq_id": number}
                    async with dee.http.post(url, json=numbered, headers=headers) as reply:
                        statuses.append(reply.status)
                        promise = await reply.json() if reply.status == 200 else {}
                    await asyncio.sleep(0.05)
                promises.append(promise)
            for promise in promises:
                assert "model_id" in await dee.result(promise)
        assert set(statuses) == {200, 429}


async def test_bad_requests_are_refused_by_name(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(base, tmp_path) as server, connected(server) as client:

        async def refusal(path: str, body: Any, **how: Any) -> tuple[int, str]:
            status, _, data = await client.send(path, body, **how)
            return status, json.loads(data)["error"]["message"]

        status, said = await refusal("client/config", {"sdk_version": "0.16.1"})
        assert status == 422
        assert "tinker>=0.25" in said
        session = (await client.ask("create_session", {}))["session_id"]
        body = {"session_id": session, "model_seq_id": 0, "base_model": "../../etc/passwd"}
        assert await refusal("create_model", body) == (
            404,
            "no base model named '../../etc/passwd'; known: demo",
        )
        model = await client.model({"rank": 1})
        assert (await refusal("forward_backward", {"model_id": model}))[0] == 415
        assert (await refusal("retrieve_future", {"request_id": "req-0"}))[0] == 410
        path = f"tinker://{model}/weights/../../x"
        assert (await refusal("weights_info", {"tinker_path": path}))[0] == 400
        body = {"model_id": model, "seq_id": client.number(model), "path": "../x"}
        assert "no name of a checkpoint" in (await client.do("save_weights", body))["error"]

        # A pass that fails takes the step that was to follow with it, and the next ones go on.
        faults = {
            "grpo": "no loss_fn named 'grpo'",
            "stable_reinforce": "its formula is not published",
            "ppo": "needs 'logprobs'",
        }
        for loss, why in faults.items():
            failed = await client.forward_backward(model, rows(1), loss)
            assert why in failed["error"]
            assert failed["category"] == "user"
            await client.forward_backward(model, rows(1))
            assert "no step was made" in (await client.step(model, **ADAM))["error"]
        await client.forward_backward(model, rows(1))
        assert "metrics" in await client.step(model, **ADAM)
        assert "no gradient" in (await client.step(model, **ADAM))["error"]
        for bad in ({"learning_rate": -1.0}, {"beta1": 1.0}):
            await client.forward_backward(model, rows(1))
            assert next(iter(bad)) in (await client.step(model, **bad))["error"]

        # The same number with another request, and a number that was done.
        same = client.passing(model, rows(1, 1), "cross_entropy", seq=1)
        assert (await refusal("forward_backward", same, protobuf=True))[0] == 400
        # A number whose predecessors never come.
        monkeypatch.setattr(futures, "GAP_S", 0.05)
        late = client.passing(model, rows(1), "cross_entropy", seq=900)
        lost = await client.do("forward_backward", late, protobuf=True)
        assert "has not come within" in lost["error"]


async def test_a_session_nobody_uses_ends_with_its_models(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SWEEP_S", 0.02)
    async with serving(base, tmp_path) as server, connected(server) as client:
        model = await client.model({"rank": 1})
        monkeypatch.setattr(service, "SESSION_S", 0.0)
        await asyncio.sleep(0.2)
        beat = {"session_id": model.partition(":")[0]}
        assert (await client.send("session_heartbeat", beat))[0] == 410
        assert (await client.send("get_info", {"model_id": model}))[0] == 404


def test_a_model_in_half_precision_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="float16"):
        BaseModel.load(ModelConfig(path=str(tiny), device="cpu", dtype="float16"), "demo")


def test_every_column_of_a_sparse_matrix_is_put_back() -> None:
    values = np.array([1.5, -2.0], "<f4").tobytes()
    crow, col = np.array([0, 1, 1, 2], "<i8").tobytes(), np.array([2, 0], "<i8").tobytes()
    dense = wire._dense({1: values, 2: crow, 3: col}, wire.FLOAT32, [3, 3])
    assert dense.tolist() == [[0, 0, 1.5], [0, 0, 0], [-2, 0, 0]]
    with pytest.raises(Refused, match="add up"):
        wire._dense({1: values, 2: crow, 3: col}, wire.FLOAT32, [3, 2])


LAST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("offsets", "shape"),
    [
        ([0, LAST, -2, 0], [3, 1]),  # the sum of the differences is 0 in 64 bits: a crash once
        ([0], [0, 1 << 62]),
        ([5, 5], [1, 1]),
    ],
)
def test_a_sparse_matrix_that_does_not_add_up_is_refused(
    offsets: list[int], shape: list[int]
) -> None:
    with pytest.raises(Refused, match="add up"):
        wire._dense({2: np.array(offsets, "<i8").tobytes()}, wire.FLOAT32, shape)


def _row(data: bytes, offsets: list[int], trailing: list[int]) -> bytes:
    ends = np.array(offsets, "<i8").tobytes()
    batch = ProtoWriter().data(1, data).data(2, ends).integers(4, trailing)
    entry = ProtoWriter().text(1, "logprobs").message(2, batch)
    return ProtoWriter().message(2, ProtoWriter().message(2, entry)).done()


@pytest.mark.parametrize("shape", [[1 << 32, 1 << 32], [0, 1 << 62], [1] * 70, [-1]])
def test_a_shape_that_no_tensor_has_is_refused(shape: list[int]) -> None:
    with pytest.raises(Refused, match="of shape"):
        wire._read_tensor(ProtoWriter().integer(3, wire.FLOAT32).integers(4, shape).done())


@pytest.mark.parametrize("trailing", [[0], [-1], [3]])
def test_rows_of_another_shape_than_told_are_refused(trailing: list[int]) -> None:
    assert wire.read_passed(_row(bytes(8), [0, 8], [2])).logprobs[0].shape == (1, 2)
    with pytest.raises(Refused, match="of shape"):
        wire.read_passed(_row(bytes(8), [0, 8], trailing))
    with pytest.raises(Refused, match="within a number"):
        wire.read_samples(ProtoWriter().data(2, bytes(3)).done())


def test_fields_of_a_later_sdk_are_no_tokens() -> None:
    ids = np.array([7, 8], "<i4").tobytes()
    text = ProtoWriter().data(1, ids).data(2, ids)
    datum = ProtoWriter().message(1, ProtoWriter().message(1, text)).done()
    assert wire._read_datum(datum).tokens.tolist() == [7, 8]
