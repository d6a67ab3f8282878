"""The vLLM engine against a server that answers as vLLM documents, over real HTTP."""

import asyncio
import contextlib
import dataclasses
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from aiohttp import web
from aiohttp.test_utils import TestServer
from safetensors.torch import load_file

from ludus.agent import Finish, Generation, Sampling
from ludus.config import build
from ludus.errors import (
    ConfigError,
    EngineLost,
    MissingExtra,
    Overloaded,
    RequestRejected,
    RequestTimeout,
    ServerFault,
    ServerUnreachable,
    StaleWeights,
    Unauthorized,
)
from ludus.trainer.config import VLLMConfig
from ludus.trainer.engines.pool import EnginePool
from ludus.trainer.engines.vllm import LearnerSide, VLLMEngine
from ludus.trainer.engines.vllm.calls import GenerateReply, read_generation, sampling_body
from ludus.trainer.engines.vllm.client import VllmClient
from ludus.trainer.engines.vllm.served import Probe, inspect
from ludus.trainer.engines.vllm.server import GUARD, Launch, VllmServer, command, environment
from ludus.trainer.engines.vllm.worker import EXTENSION
from ludus.trainer.models.devices import engine_gpus
from ludus.trainer.models.weight_files import write_weights
from ludus.trainer.models.weights import MemoryWeights, SteadyWeights


class Documented:
    """A server with the routes, bodies and traps of vLLM 0.32.

    Token n of an answer is n, its log-probability -n / 10; a tensor `bias` is added to every
    log-probability, so that weights can be seen in what is sampled.
    """

    def __init__(self):
        self.calls = []
        self.salts = []
        self.bodies = []
        self.version = "default"
        self.bias = 0.0
        self.paused = False
        self.running = {}
        self.load_error = ""
        self.apply = True
        self.token_s = 0.0
        self.extension = EXTENSION
        self.mode = "processed_logprobs"
        self.answer: Callable[[web.Request], web.Response] | None = None
        self.files = []

    def routes(self):
        app = web.Application(middlewares=[self.note])
        app.add_routes(
            [
                web.post("/inference/v1/generate", self.generate),
                web.post("/abort_requests", self.abort),
                web.post("/pause", self.pause),
                web.post("/resume", self.resume),
                web.post("/collective_rpc", self.collective_rpc),
                web.post("/update_weight_version", self.label),
                web.get("/weight_info", self.weight_info),
                web.get("/v1/models", self.models),
                web.get("/server_info", self.server_info),
                web.get("/health", self.health),
            ]
        )
        return app

    @web.middleware
    async def note(self, request, handler):
        self.calls.append(request.path_qs)
        if self.answer is not None:
            return self.answer(request)
        return await handler(request)

    async def generate(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.salts.append(body["cache_salt"])
        sampling = body["sampling_params"]
        if sampling.get("seed") is not None:
            raise web.HTTPInternalServerError(text="CPU Generator does not use offset")
        name = "generate-tokens-" + body["request_id"]
        self.running[name] = ended = asyncio.Event()
        ids, content, spans = [], [], []
        reason = "length"
        for n in range(sampling["max_tokens"]):
            await asyncio.sleep(self.token_s)
            while self.paused and not ended.is_set():  # a token is sampled whole or not at all
                await asyncio.sleep(0.005)
            if ended.is_set():
                reason = "abort"
                break
            if not spans or spans[-1]["version"] != self.version:
                spans.append({"version": self.version, "start": n, "end": n})
            spans[-1]["end"] = n + 1
            ids.append(n)
            content.append({"token_id": n, "logprob": -n / 10 + self.bias, "top_logprobs": []})
            if n in sampling["stop_token_ids"]:
                reason = "stop"
                break
        del self.running[name]
        choice = {
            "index": 0,
            "finish_reason": reason,
            "stop_reason": None,
            "token_ids": ids,
            "logprobs": {"content": content} if ids else None,
            "weight_versions": spans,
        }
        scores = None
        if sampling["prompt_logprobs"] is not None:
            later = [{str(i): {"logprob": -i / 10 + self.bias}} for i in body["token_ids"][1:]]
            scores = [None, *later]
        return web.json_response({"choices": [choice], "prompt_logprobs": scores, "usage": {}})

    async def abort(self, request):
        named = (await request.json())["request_ids"]
        for name in named or list(self.running):
            if name in self.running:
                self.running[name].set()
        return web.json_response({"status": "aborted", "aborted": len(named)})

    async def pause(self, request):
        self.paused = True
        return web.json_response({"status": "paused"})

    async def resume(self, request):
        self.paused = False
        return web.json_response({"status": "resumed"})

    async def collective_rpc(self, request):
        body = await request.json()
        assert body["method"] == "ludus_load"
        if self.load_error:
            return web.json_response({"results": [{"error": self.load_error}]})
        weights = load_file(body["kwargs"]["path"])
        self.files.append(body["kwargs"]["path"])
        if self.apply:
            self.bias = float(weights["bias"])
        return web.json_response({"results": [{"tensors": 1, "repacked_heads": 0}]})

    async def label(self, request):
        self.version = (await request.json())["new_version"]
        return web.json_response({"success": True, "new_version": self.version})

    async def weight_info(self, request):
        return web.json_response({"weight_version": self.version})

    async def models(self, request):
        card = {"id": "served", "object": "model", "max_model_len": 201}
        return web.json_response({"object": "list", "data": [card]})

    async def server_info(self, request):
        settings = {
            "model_config": {"dtype": "torch.float32", "logprobs_mode": self.mode},
            "parallel_config": {"worker_extension_cls": self.extension},
        }
        return web.json_response({"vllm_config": settings, "vllm_env": {}})

    async def health(self, request):
        return web.Response()


@contextlib.asynccontextmanager
async def serving(documented=None, probe=None, **settings):
    documented = documented or Documented()
    server = TestServer(documented.routes())
    await server.start_server()
    client = VllmClient(str(server.make_url("")))
    try:
        engine = VLLMEngine(
            client, await inspect(client), VLLMConfig(**settings), learner=LearnerSide(probe=probe)
        )
        documented.calls.clear()
        yield engine, documented
    finally:
        await client.close()
        await server.close()


def bias(value):
    return MemoryWeights({"bias": torch.tensor(value)})


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def learner(offset=0.0):
    """What a learner with `bias` at `offset` makes of the server's rule."""

    def score(ids, temperature):
        return [0.0, *(-i / 10 + offset for i in ids[1:])]

    return score


async def test_tokens_logprobs_and_versions_come_back_as_sampled():
    async with serving() as (engine, documented):
        got = await engine.generate([7, 8], Sampling(max_tokens=3, temperature=0.5, seed=9))
        assert got == Generation(
            ids=[0, 1, 2], logprobs=[0.0, -0.1, -0.2], finish=Finish.LENGTH, versions=[0, 0, 0]
        )
        sent = documented.bodies[0]
        assert (sent["model"], sent["token_ids"]) == ("served", [7, 8])
        assert sent["sampling_params"] == {
            "max_tokens": 3,
            "temperature": 0.5,
            "stop_token_ids": [],
            "ignore_eos": True,
            "top_p": 1.0,
            "top_k": -1,
            "logprobs": 0,
            "prompt_logprobs": None,
            "detokenize": False,
            "structured_outputs": None,
        }


async def test_a_stop_token_ends_the_answer_and_is_kept():
    async with serving() as (engine, _):
        got = await engine.generate([7], Sampling(max_tokens=9, stop_token_ids=(2,)))
        assert (got.finish, got.ids) == (Finish.STOP, [0, 1, 2])


async def test_scores_are_of_the_given_ids_and_the_first_reads_zero():
    async with serving() as (engine, _):
        assert await engine.logprobs([7, 3, 5]) == pytest.approx([0.0, -0.3, -0.5])
        assert await engine.logprobs([7]) == [0.0]


async def test_weights_are_loaded_and_labelled_inside_a_pause():
    async with serving() as (engine, documented):
        await engine.set_weights(bias(-1.0), 5)
        assert documented.calls == [
            "/pause?mode=keep&clear_cache=true",
            "/collective_rpc",
            "/update_weight_version",
            "/resume",
        ]
        assert engine.version == 5
        got = await engine.generate([7], Sampling(max_tokens=1))
        assert (got.logprobs, got.versions) == ([-1.0], [5])


async def test_running_requests_go_on_with_new_weights_and_say_which():
    async with serving() as (engine, documented):
        documented.token_s = 0.005
        running = asyncio.create_task(engine.generate([7], Sampling(max_tokens=60)))
        await until(lambda: documented.running)
        await asyncio.sleep(0.05)
        await engine.set_weights(bias(-1.0), 4)
        got = await running
        cut = got.versions.index(4)
        assert 0 < cut < 60
        assert got.versions == [0] * cut + [4] * (60 - cut)
        expected = [-n / 10 - (n >= cut) for n in range(60)]
        assert got.logprobs == pytest.approx(expected)


async def test_each_publish_has_a_salt_of_its_own_even_under_the_same_version():
    async with serving() as (engine, documented):
        for version in (1, 2, 2):
            await engine.set_weights(bias(0.0), version)
            await engine.generate([7], Sampling(max_tokens=1))
        assert len(set(documented.salts)) == 3
        assert [salt.rpartition("-")[2] for salt in documented.salts] == ["1", "2", "2"]


async def test_a_load_that_fails_is_reported_and_the_server_is_not_left_paused():
    async with serving() as (engine, documented):
        documented.load_error = "FileNotFoundError: weights-3"
        with pytest.raises(ServerFault, match=r"FileNotFoundError.*vllm\.weights_folder"):
            await engine.set_weights(bias(0.0), 3)
        assert documented.calls[-1] == "/resume"
        assert not documented.paused
        assert engine.version == 0


async def test_a_publish_that_is_cancelled_resumes_the_server():
    documented = Documented()
    loading = asyncio.Event()
    load = documented.collective_rpc

    async def slow(request):
        loading.set()
        await asyncio.sleep(0.2)
        return await load(request)

    documented.collective_rpc = slow
    async with serving(documented) as (engine, _):
        publishing = asyncio.create_task(engine.set_weights(bias(0.0), 3))
        await loading.wait()
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert documented.calls[-1] == "/resume"
        assert not documented.paused


async def test_held_sampling_stays_held_over_a_publish():
    async with serving() as (engine, documented):
        await engine.pause()
        waiting = asyncio.create_task(engine.generate([7], Sampling(max_tokens=2)))
        await until(lambda: documented.running)
        await engine.set_weights(bias(0.0), 1)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await engine.resume()
        assert (await waiting).versions == [1, 1]


async def test_caches_are_kept_only_on_request():
    async with serving(keep_cache=True) as (engine, documented):
        await engine.set_weights(bias(0.0), 1)
        assert documented.calls[0] == "/pause?mode=keep&clear_cache=false"


async def test_abort_ends_ours_with_what_there_is_and_leaves_others_alone():
    async with serving() as (engine, documented):
        documented.token_s = 0.02
        sampling = Sampling(max_tokens=190)
        ours = [asyncio.create_task(engine.generate([7], sampling)) for _ in range(3)]
        await until(lambda: len(documented.running) == 3)
        documented.running["generate-tokens-of-somebody-else"] = other = asyncio.Event()
        await engine.abort()
        got = await asyncio.gather(*ours)
        assert {one.finish for one in got} == {Finish.ABORT}
        assert all(len(one.ids) == len(one.logprobs) == len(one.versions) < 190 for one in got)
        assert not other.is_set()


async def test_abort_reaches_requests_that_are_held_and_does_nothing_when_idle():
    async with serving() as (engine, documented):
        await engine.abort()
        assert documented.calls == []
        await engine.pause()
        waiting = asyncio.create_task(engine.generate([7], Sampling(max_tokens=5)))
        await asyncio.sleep(0)  # on its way, not yet there
        await engine.abort()
        assert (await waiting).finish is Finish.ABORT


async def test_a_probe_passes_when_the_weights_arrived():
    probe = Probe(learner=learner(-1.0), prompt=[3, 4], tolerance=1e-3)
    async with serving(probe=probe) as (engine, _):
        await engine.set_weights(bias(-1.0), 1)
        assert engine.probed == pytest.approx(0.0, abs=1e-6)


async def test_a_probe_finds_weights_that_did_not_arrive():
    probe = Probe(learner=learner(-1.0), prompt=[3, 4], tolerance=1e-3)
    async with serving(probe=probe) as (engine, documented):
        documented.apply = False
        with pytest.raises(StaleWeights, match=r"version 1.* differ .* by 1 nats"):
            await engine.set_weights(bias(-1.0), 1)


async def test_a_server_that_comes_back_beside_an_update_is_not_compared_with_half_new_weights():
    """It is given the version before the update, and is compared at the next publish."""
    now = [-1.0]
    steady = SteadyWeights()
    probe = Probe(
        learner=lambda ids, temperature: learner(now[0])(ids, temperature),
        prompt=[3, 4],
        tolerance=1e-3,
        every=100,
        steady=steady,
    )
    async with serving(probe=probe) as (engine, documented):
        with steady.changing(to=2):
            now[0] = -1.5
            await engine.set_weights(bias(-1.0), 1)
        assert engine.probed is None
        await engine.set_weights(bias(-1.0), 1)  # version 2 is not published yet
        assert engine.probed is None
        await engine.set_weights(bias(-1.5), 2)
        assert engine.probed == pytest.approx(0.0, abs=1e-6)
        engine.publishes, documented.apply = 0, False
        with steady.changing(to=3):
            now[0] = 0.5
            await engine.set_weights(bias(-1.5), 2)
        with pytest.raises(StaleWeights, match="version 3"):
            await engine.set_weights(bias(0.5), 3)


async def test_a_probe_does_not_take_nan_for_equal():
    probe = Probe(learner=learner(float("nan")), prompt=[3, 4], tolerance=1e9)
    async with serving(probe=probe) as (engine, _):
        with pytest.raises(StaleWeights):
            await engine.set_weights(bias(0.0), 1)


def test_a_probe_is_due_after_the_first_publish_and_every_so_many():
    probe = Probe(learner=learner(), prompt=[3], tolerance=1.0, every=3)
    assert [n for n in range(1, 9) if probe.due(n)] == [1, 4, 7]


async def test_a_probe_that_is_due_while_sampling_is_held_comes_with_the_next_publish():
    probe = Probe(learner=learner(-1.0), prompt=[3, 4], tolerance=1e-3, every=100)
    async with serving(probe=probe) as (engine, documented):
        documented.apply = False
        await engine.pause()
        await engine.set_weights(bias(-1.0), 1)
        await engine.resume()
        with pytest.raises(StaleWeights):
            await engine.set_weights(bias(-1.0), 2)


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (400, {"error": {"message": "too long"}}, RequestRejected, "answered 400: too long"),
        (404, {"detail": "Not Found"}, RequestRejected, "Not Found"),
        (401, {"error": "Unauthorized"}, Unauthorized, "Unauthorized"),
        (403, {"error": {"message": "endpoints are disabled"}}, Unauthorized, "are disabled"),
        (429, {}, Overloaded, "429"),
        (500, {"error": {"message": "EngineCore died"}}, ServerFault, "EngineCore died"),
    ],
)
async def test_a_refusal_is_a_typed_error_with_the_servers_words(status, body, error, message):
    async with serving() as (engine, documented):
        documented.answer = lambda request: web.json_response(body, status=status)
        with pytest.raises(error, match=message):
            await engine.generate([7], Sampling(max_tokens=1))


async def test_a_server_that_is_silent_times_out():
    async with serving(request_timeout_s=0.2) as (engine, documented):
        documented.paused = True
        with pytest.raises(RequestTimeout, match=r"within 0\.2 s"):
            await engine.generate([7], Sampling(max_tokens=1))


async def test_a_server_that_is_gone_is_unreachable():
    client = VllmClient("http://127.0.0.1:9")
    for _ in range(2):  # the second time after its connections were closed
        with pytest.raises(ServerUnreachable, match=r"nothing answers at http://127\.0\.0\.1:9"):
            await client.healthy()
        await client.close()


async def test_requests_that_cannot_be_served_are_refused_here():
    async with serving() as (engine, documented):
        assert engine.max_length == 200
        with pytest.raises(ConfigError, match=r"190 prompt tokens and 11 to sample exceed.*200"):
            await engine.generate([5] * 190, Sampling(max_tokens=11))
        with pytest.raises(ConfigError, match="empty prompt"):
            await engine.generate([], Sampling(max_tokens=1))
        with pytest.raises(ConfigError, match="201 tokens"):
            await engine.logprobs([5] * 201)
        with pytest.raises(ConfigError, match=r"top_p=0\.9"):
            await engine.generate([5], Sampling(max_tokens=1, top_p=0.9))
        assert documented.calls == []


async def test_a_server_started_otherwise_is_refused_with_the_way_to_start_it():
    for changes, why in (
        ({"mode": "raw_logprobs"}, "reports raw_logprobs, not processed_logprobs"),
        ({"extension": ""}, "cannot load published weights"),
    ):
        documented = Documented()
        for name, value in changes.items():
            setattr(documented, name, value)
        with pytest.raises(ConfigError, match=f"{why}.*--enable-scale-out"):
            async with serving(documented):
                pass


async def test_a_server_without_the_routes_for_weights_is_refused():
    documented = Documented()
    documented.answer = lambda request: web.json_response({"detail": "Not Found"}, status=404)
    with pytest.raises(ConfigError, match="VLLM_SERVER_DEV_MODE=1"):
        async with serving(documented):
            pass


async def test_a_server_that_was_trained_with_before_goes_on_from_its_version():
    documented = Documented()
    documented.version = "17"
    async with serving(documented) as (engine, _):
        assert engine.version == 17
        assert (await engine.generate([7], Sampling(max_tokens=1))).versions == [17]


def reply(**choice):
    sound = {
        "token_ids": [5, 6],
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -0.25}]},
        "finish_reason": "length",
        "weight_versions": [{"version": "3", "start": 0, "end": 2}],
    }
    return msgspec.convert({"choices": [{**sound, **choice}]}, GenerateReply)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"logprobs": None}, "2 tokens with 0 log-probabilities"),
        ({"weight_versions": None}, "0 weight versions"),
        ({"finish_reason": "repetition"}, "'repetition'; known are stop, length, abort"),
        ({"finish_reason": None}, "None"),
    ],
)
def test_replies_that_contradict_themselves_are_faults(choice, message):
    with pytest.raises(ServerFault, match=message):
        read_generation(reply(**choice), unlabelled=0)


def test_an_answer_aborted_before_its_first_token_is_empty():
    nothing = reply(token_ids=[], logprobs=None, weight_versions=[], finish_reason="abort")
    got = read_generation(nothing, unlabelled=0)
    assert got == Generation(ids=[], logprobs=[], finish=Finish.ABORT, versions=[])


def test_a_seed_is_never_sent():
    assert "seed" not in msgspec.to_builtins(sampling_body(Sampling(seed=1234)))


def test_weights_are_written_whole(tmp_path):
    weights = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.ones(2, dtype=torch.bfloat16)}
    path = write_weights(MemoryWeights(weights), folder=str(tmp_path / "new")).path
    read = load_file(path)
    assert torch.equal(read["a"], weights["a"])
    assert torch.equal(read["b"], weights["b"])
    assert list(path.parent.iterdir()) == [path]


def test_weights_in_a_common_folder_are_for_this_user_alone():
    path = write_weights(MemoryWeights({"a": torch.ones(1)})).path
    try:
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        path.unlink()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cannot write .*weights-folder"):
        write_weights(MemoryWeights({"a": torch.ones(1)}), folder=str(tmp_path / "file"))


async def test_a_published_file_does_not_stay(tmp_path):
    async with serving(weights_folder=str(tmp_path)) as (engine, documented):
        await engine.set_weights(bias(0.0), 1)
        documented.load_error = "no"
        with pytest.raises(ServerFault):
            await engine.set_weights(bias(0.0), 2)
        assert len(documented.files) == 1
        assert list(tmp_path.iterdir()) == []


def test_settings_that_would_change_nothing_are_refused():
    for extra in ({"python": "python3"}, {"arguments": "--enforce-eager"}):
        with pytest.raises(ConfigError, match="runs already"):
            build(VLLMConfig, {"url": "http://127.0.0.1:8000", **extra})


async def test_a_server_that_was_started_again_is_found_before_its_tokens_are_used():
    async with serving() as (engine, documented):
        await engine.set_weights(bias(0.0), 3)
        await engine.check()
        documented.version = "default"
        with pytest.raises(EngineLost, match="started again"):
            await engine.generate([7], Sampling(max_tokens=1))
        with pytest.raises(EngineLost, match="started again"):
            await engine.check()
        await engine.revive()
        await engine.check()
        await engine.set_weights(bias(0.0), 4)
        assert (await engine.generate([7], Sampling(max_tokens=2))).versions == [4, 4]


async def test_tokens_of_weights_older_than_the_request_are_refused():
    async with serving() as (engine, documented):
        await engine.set_weights(bias(0.0), 3)
        documented.version = "2"
        with pytest.raises(StaleWeights, match="version 2 although version 3"):
            await engine.generate([7], Sampling(max_tokens=1))
        # a publish under a lower number is no reason
        documented.version, documented.token_s = "3", 0.01
        running = asyncio.create_task(engine.generate([7], Sampling(max_tokens=20)))
        await until(lambda: documented.running)
        await asyncio.sleep(0.03)
        await engine.set_weights(bias(0.0), 1)
        assert set((await running).versions) == {3, 1}


@contextlib.asynccontextmanager
async def pool_of_servers(count, **probing):
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            probe = Probe(learner=learner(-1.0), prompt=[3, 4], tolerance=1e-3, **probing)
            found.append(await stack.enter_async_context(serving(probe=probe)))
        pool = EnginePool([engine for engine, _ in found], patience_s=5.0)
        stack.push_async_callback(pool.close)
        await pool.set_weights(bias(-1.0), 1)
        yield pool, [documented for _, documented in found]


async def test_a_pool_of_servers_gets_one_file_and_answers_with_all():
    async with pool_of_servers(2) as (pool, servers):
        assert servers[0].files == servers[1].files
        prompts = [[100 * n + 3] * 40 for n in range(6)]
        got = await asyncio.gather(*(pool.generate(p, Sampling(max_tokens=2)) for p in prompts))
        assert all(one.logprobs == [-1.0, -1.1] and one.versions == [1, 1] for one in got)
        played = [[b for b in one.bodies if len(b["token_ids"]) == 40] for one in servers]
        assert [len(one) for one in played] == [3, 3]
        assert pool.probed == pytest.approx(0.0, abs=1e-6)


async def test_a_server_of_a_pool_that_was_started_again_gets_todays_weights_first(monkeypatch):
    monkeypatch.setattr("ludus.trainer.engines.pool.publisher.CHECK_S", 0.02)
    async with pool_of_servers(2) as (pool, servers):
        servers[0].version, servers[0].bias = "default", 5.0
        prompts = [[100 * n + 3] * 40 for n in range(8)]
        got = await asyncio.gather(*(pool.generate(p, Sampling(max_tokens=2)) for p in prompts))
        assert all(one.logprobs == [-1.0, -1.1] and one.versions == [1, 1] for one in got)
        await until(lambda: len(servers[0].files) == 2)
        assert pool.counters()["engine/lost"] == 1
        await until(lambda: pool.counters()["engine/serving"] == 2)


@pytest.mark.parametrize("culprit", [0, 1])
async def test_the_probe_of_each_server_of_a_pool_finds_the_one_that_keeps_old_weights(culprit):
    async with pool_of_servers(2, every=2) as (pool, servers):
        for engine in (seat.engine for seat in pool.fleet.members):
            assert isinstance(engine, VLLMEngine)
            assert engine.probe is not None
            engine.probe = dataclasses.replace(engine.probe, learner=learner(-2.0))
        servers[culprit].apply = False
        await pool.set_weights(bias(-2.0), 2)  # not probed
        with pytest.raises(StaleWeights, match=r"version 3.* by 1 nats"):
            await pool.set_weights(bias(-2.0), 3)
        # nobody is given tokens of the stale server any more
        for n in range(4):
            answer = await pool.generate([50 * n + 3] * 40, Sampling(max_tokens=1))
            assert answer.logprobs == [-2.0]


def test_addresses_of_servers_are_separated_by_commas():
    assert VLLMConfig().urls == ()
    assert VLLMConfig(url="http://a:1").urls == ("http://a:1",)
    assert VLLMConfig(url="http://a:1, http://b:2").urls == ("http://a:1", "http://b:2")
    for wrong in ("http://a:1,http://a:1", "http://a:1,,http://b:2"):
        with pytest.raises(ConfigError, match="names a server twice, or none"):
            VLLMConfig(url=wrong)


GUARD_AND_LOOP = """
import subprocess, sys, time
from ludus.trainer.models.devices import engine_gpus
from ludus.trainer.engines.vllm.server import GUARD
program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
command = [sys.executable, "-P", str(GUARD), sys.executable, "-c", program]
subprocess.Popen(command, stdin=subprocess.PIPE)
time.sleep(60)
"""


def alive(pid):
    try:
        os.kill(pid, 0)
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):  # it may end between the two looks
        return False


@pytest.mark.slow
def test_a_server_does_not_outlive_a_trainer_that_was_killed():
    trainer = subprocess.Popen([sys.executable, "-c", GUARD_AND_LOOP], stdout=subprocess.PIPE)
    assert trainer.stdout is not None
    server = int(trainer.stdout.readline())
    assert alive(server)
    trainer.kill()
    trainer.wait(60)
    trainer.stdout.close()
    deadline = time.monotonic() + 60
    while alive(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(server)


def test_the_guard_hands_on_the_exit_code():
    command = [sys.executable, "-P", str(GUARD), sys.executable, "-c", "raise SystemExit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
        assert guard.wait(20) == 7


def launch(**changes):
    settings = {"model": "folder", "dtype": "bfloat16", "max_model_len": 512, "log": Path("log")}
    return Launch(**{**settings, **changes})


def option(line, name):
    return line[line.index(name) + 1]


def test_the_command_line_of_a_server():
    line = command(launch(gpu_memory_utilization=0.4), 8123)
    assert line[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    expected = {
        "--model": "folder",
        "--host": "127.0.0.1",
        "--port": "8123",
        "--dtype": "bfloat16",
        "--max-model-len": "512",
        "--gpu-memory-utilization": "0.4",
        "--logprobs-mode": "processed_logprobs",
        "--load-format": "dummy",
        "--worker-extension-cls": "ludus.trainer.engines.vllm.worker.WeightLoader",
    }
    assert {name: option(line, name) for name in expected} == expected
    assert "--enable-scale-out" in line
    assert "--disable-cascade-attn" in line
    assert "--enforce-eager" not in line


def test_without_a_gpu_the_cache_has_a_size():
    line = command(launch(cpu=True, python="/other/python", arguments="--seed 3 --a 'b c'"), 1)
    assert line[0] == "/other/python"
    assert option(line, "--kv-cache-memory-bytes") == "1073741824"
    assert line[-4:] == ["--seed", "3", "--a", "b c"]


def test_routes_for_weights_are_on_whatever_the_environment_says():
    assert environment({"VLLM_SERVER_DEV_MODE": "0", "HOME": "h"}) == {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONSAFEPATH": "1",
        "HOME": "h",
    }


def test_a_server_inherits_what_is_named_and_nothing_of_a_rank():
    kept = {
        "PATH": "p",
        "NCCL_DEBUG": "INFO",
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "OMP_NUM_THREADS": "8",
    }
    rank = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1", "MINE": "m"}
    found = environment({**kept, **rank, "LUDUS_TOKEN": "secret"}, gpus="2,3", more="MINE")
    assert found.items() >= {**kept, "MINE": "m", "CUDA_VISIBLE_DEVICES": "2,3"}.items()
    assert not set(found) & {*rank, "LUDUS_TOKEN"} - {"MINE"}
    secrets = dict.fromkeys(["HF_TOKEN", "VLLM_API_KEY", "RAY_SECRET", "XDG_PASSWORD"], "secret")
    assert not set(environment(secrets)) & set(secrets)
    assert set(environment(secrets, more="HF_TOKEN, RAY_SECRET")) >= {"HF_TOKEN", "RAY_SECRET"}
    assert "OMP_NUM_THREADS" not in environment({**kept, "TORCHELASTIC_RUN_ID": "r"})


@pytest.mark.parametrize(
    ("ranks", "wanted", "message"),
    [
        (2, "1,2", "the 2 ranks of the learner have 0, 1"),
        (2, "2,2", "name each device once"),
        (2, "2,9", "names '9', which is not among"),
        (4, "", "take all 4 devices"),
    ],
)
def test_devices_that_a_server_cannot_have_are_refused(ranks, wanted, message):
    with pytest.raises(ConfigError, match=message):
        engine_gpus(list("0123"), ranks, wanted)


def test_the_extension_is_where_its_name_says():
    module, _, name = EXTENSION.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name).ludus_load)


def test_a_server_that_cannot_start_says_why(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"vllm\.python is '/no/such/python'"):
        VllmServer(launch(python="/no/such/python"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"ludus-rl\[vllm\]"):
        VllmServer(launch())


async def test_a_server_that_ends_at_once_is_reported_with_its_first_error(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'vllm'\"\nexit 3\n")
    program.chmod(0o755)
    server = VllmServer(launch(python=str(program), log=tmp_path / "vllm.log"))
    client = VllmClient(server.url, hint=server.hint)
    with pytest.raises(ConfigError, match=r"exit code 3\).*vllm\.log.*No module named 'vllm'"):
        await server.ready(client, 30.0)
    await server.restart()  # what the lost server has said is kept beside the log of the new one
    assert "No module named 'vllm'" in (tmp_path / "vllm.log.before").read_text()
    await client.close()
    await server.close()


async def test_a_server_that_never_serves_runs_out_of_time_and_is_ended(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    server = VllmServer(launch(python=str(program), log=tmp_path / "vllm.log"))
    client = VllmClient(server.url, hint=server.hint)
    with pytest.raises(RequestTimeout, match=r"not ready within 0\.5 s"):
        await server.ready(client, 0.5)
    await client.close()
    await server.close()
