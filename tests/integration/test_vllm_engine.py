"""The vLLM engine on a real server, on CPU.

Needs vLLM, in this environment or in that of the interpreter that LUDUS_VLLM_PYTHON names, which
needs ludus too.
"""

import asyncio
import contextlib
import importlib.util
import os
import signal
import statistics
import time
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from ludus.agent import Finish, Sampling
from ludus.agent.episodes import read_episodes
from ludus.errors import ServerFault, StaleWeights
from ludus.metrics import read_metrics
from ludus.rewards import registry
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
    VLLMConfig,
)
from ludus.trainer.engines.pool import EnginePool
from ludus.trainer.engines.vllm import ServerSite, VLLMEngine, start_vllm
from ludus.trainer.engines.vllm.engine import Ignored
from ludus.trainer.engines.vllm.served import mean_difference, scorer_of
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import build_model, write_tiny_policy
from ludus.trainer.models.weights import MemoryWeights
from ludus.trainer.train import run_training

PYTHON = os.environ.get("LUDUS_VLLM_PYTHON", "")
INSTALLED = bool(PYTHON) or importlib.util.find_spec("vllm") is not None

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not INSTALLED, reason="vLLM is not installed; LUDUS_VLLM_PYTHON may name where it is"
    ),
]

PROMPT = [(7 * i) % 250 + 5 for i in range(96)]
EXACT = 1e-5
"""Largest difference in nats between this process and the server, both in float32."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # The CPU attention of vLLM 0.32 knows no heads below 32 channels.
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=128, layers=2, heads=4)


@pytest.fixture(scope="module")
def settings():
    return VLLMConfig(python=PYTHON)


@pytest.fixture(scope="module")
def learner(folder):
    return load_model(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(folder, learner, settings, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "vllm.log"
    made = await start_vllm(
        settings, ServerSite(folder=str(folder), dtype="float32", cpu=True, log=log), learner
    )
    yield made
    await made.close()


def weights(model):
    return MemoryWeights.of(model)


def moved(model, seed, by=0.3):
    """A copy with every weight moved."""
    made = build_model(
        model.config.vocab_size, hidden=128, layers=2, heads=4, max_length=1024, seed=seed
    )
    made.load_state_dict(model.state_dict())
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += by * parameter.std() * torch.randn(parameter.shape, generator=rng)
    return made.eval()


def largest(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


async def republish(engine, learner, version):
    """Put the learner's own weights back, whatever a test before this one did."""
    await engine.set_weights(weights(learner), version)


async def test_the_first_publish_replaces_random_weights_by_the_learners(engine, learner):
    before = await engine.logprobs(PROMPT)
    mine = scorer_of(learner)(PROMPT, 1.0)
    assert largest(before, mine) > 0.5
    await republish(engine, learner, 0)
    assert engine.probed is not None
    assert engine.probed < EXACT
    assert largest(await engine.logprobs(PROMPT), mine) < EXACT


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
async def test_logprobs_are_those_of_transformers_at_the_temperature(engine, learner, temperature):
    await republish(engine, learner, 1)
    sampling = Sampling(max_tokens=48, temperature=temperature)
    answers = await asyncio.gather(*(engine.generate(PROMPT[: 40 + i], sampling) for i in range(8)))
    for i, answer in enumerate(answers):
        ids = PROMPT[: 40 + i] + answer.ids
        mine = scorer_of(learner)(ids, temperature or 1.0)[40 + i :]
        assert largest(answer.logprobs, mine) < EXACT
        assert (answer.finish, set(answer.versions)) == (Finish.LENGTH, {1})
    assert len({tuple(one.ids) for one in answers}) > 1


async def test_a_stop_token_ends_the_answer_and_is_kept(engine, learner):
    await republish(engine, learner, 2)
    every = tuple(range(learner.config.vocab_size))
    answer = await engine.generate(PROMPT, Sampling(max_tokens=9, stop_token_ids=every))
    assert (answer.finish, len(answer.ids)) == (Finish.STOP, 1)
    # 2 ends a turn by the model's folder; only what the policy names ends one here
    forced = await engine.generate(PROMPT, Sampling(max_tokens=400))
    assert (forced.finish, len(forced.ids)) == (Finish.LENGTH, 400)


async def test_weights_pushed_in_the_middle_of_generation(engine, learner):
    await republish(engine, learner, 3)
    new = moved(learner, seed=1)
    engine.probe, probe = None, engine.probe
    running = [
        asyncio.create_task(engine.generate(PROMPT[: 64 + i], Sampling(max_tokens=900)))
        for i in range(8)
    ]
    await asyncio.sleep(0.8)
    started = time.perf_counter()
    await engine.set_weights(weights(new), 4)
    took = time.perf_counter() - started
    answers = await asyncio.gather(*running)
    engine.probe = probe
    cuts = []
    for i, answer in enumerate(answers):
        ids, start = PROMPT[: 64 + i] + answer.ids, 64 + i
        cut = answer.versions.index(4)
        assert 0 < cut < 900
        assert answer.versions == [3] * cut + [4] * (900 - cut)
        old_rule, new_rule = (scorer_of(model)(ids, 1.0)[start:] for model in (learner, new))
        assert largest(answer.logprobs[:cut], old_rule[:cut]) < EXACT
        # keys and values were computed again, so the rest is the new policy's to the bit
        assert largest(answer.logprobs[cut:], new_rule[cut:]) < EXACT
        assert mean_difference(answer.logprobs[cut:], old_rule[cut:]) > 0.1
        cuts.append(cut)
    print(f"published in {took * 1e3:.0f} ms at tokens {cuts}")


async def test_no_cached_prefix_survives_a_publish(engine, learner):
    long = (PROMPT * 7)[:600]
    new = moved(learner, seed=2)
    engine.keep_cache = True  # so that nothing but the salt keeps old and new apart
    await republish(engine, learner, 5)
    await engine.generate(long, Sampling(max_tokens=1))
    engine.probe, probe = None, engine.probe
    await engine.set_weights(weights(new), 6)
    answer = await engine.generate(long, Sampling(max_tokens=8))
    engine.keep_cache, engine.probe = False, probe
    assert largest(answer.logprobs, scorer_of(new)(long + answer.ids, 1.0)[600:]) < EXACT


async def test_held_requests_wait_and_aborted_ones_answer(engine, learner):
    await republish(engine, learner, 7)
    await engine.pause()
    waiting = asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=4)))
    await asyncio.sleep(1.0)
    assert not waiting.done()
    await engine.resume()
    assert len((await waiting).ids) == 4
    running = [
        asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=900))) for _ in range(4)
    ]
    await asyncio.sleep(0.5)
    await engine.abort()
    for answer in await asyncio.gather(*running):
        assert answer.finish is Finish.ABORT
        assert len(answer.ids) == len(answer.logprobs) == len(answer.versions) < 900


@pytest.mark.parametrize("fault", ["nobody.weight", "model.norm.weight"])
async def test_weights_the_server_cannot_load_are_a_typed_error_and_it_goes_on(
    engine, learner, fault
):
    await republish(engine, learner, 8)
    wrong = MemoryWeights({**weights(learner).tensors, fault: torch.zeros(3)})
    with pytest.raises(ServerFault, match="could not load"):
        await engine.set_weights(wrong, 9)
    assert engine.version == 8
    await republish(engine, learner, 10)
    assert largest(await engine.logprobs(PROMPT), scorer_of(learner)(PROMPT, 1.0)) < EXACT


async def test_the_probe_finds_other_weights_than_the_learners(engine, learner):
    engine.publishes = 0
    with pytest.raises(StaleWeights, match="does not sample from the weights"):
        await engine.set_weights(weights(moved(learner, seed=3)), 11)


async def test_throughput_and_publish_time(engine, learner):
    """No limits: the machine may be busy. Printed for the record (pytest -s)."""
    await republish(engine, learner, 12)
    engine.probe, probe = None, engine.probe
    started = time.perf_counter()
    answers = await asyncio.gather(
        *(engine.generate(PROMPT[: 32 + i % 8], Sampling(max_tokens=64)) for i in range(64))
    )
    took = time.perf_counter() - started
    print(f"64 requests x 64 tokens: {sum(len(one.ids) for one in answers) / took:.0f} tokens/s")
    times = []
    for version in range(13, 23):
        started = time.perf_counter()
        await engine.set_weights(weights(learner), version)
        times.append(time.perf_counter() - started)
    print(f"10 publishes while idle: median {statistics.median(times) * 1e3:.0f} ms")
    engine.probe = probe
    assert engine.version == 22


class StockReload(VLLMEngine):
    """Publishes as vLLM does without our extension: the trap the probe is for."""

    folder = ""

    async def _load(self, path):
        await self.client.post(
            "/collective_rpc",
            {"method": "reload_weights", "kwargs": {"weights_path": self.folder}},
            Ignored,
        )


async def test_the_probe_finds_a_head_that_was_left_behind(folder, learner, tmp_path):
    """vLLM 0.32 on CPU keeps a packed copy of a tied head over its own reload."""
    settings = VLLMConfig(python=PYTHON, arguments="--load-format auto")
    new = moved(learner, seed=4)
    new.save_pretrained(tmp_path / "new")
    stock = await start_vllm(
        settings,
        ServerSite(folder=str(folder), dtype="float32", cpu=True, log=tmp_path / "log"),
        new,
    )
    try:
        stock.__class__, StockReload.folder = StockReload, str(tmp_path / "new")
        with pytest.raises(StaleWeights) as found:
            await stock.set_weights(weights(new), 1)
        print(found.value)
        stock.__class__ = VLLMEngine
        stock.publishes = 0
        await stock.set_weights(weights(new), 2)
        assert stock.probed is not None
        assert stock.probed < EXACT
    finally:
        await stock.close()


@pytest.fixture
def reward(monkeypatch):
    """A verifier that a random policy gets something from now and then."""
    monkeypatch.setattr(registry._VERIFIERS, "registered", {})
    registry.register_verifier("test/letters", letters)


def letters(sample):
    """Share of the answer that is lower case."""
    return sum(map(str.islower, sample.text)) / max(1, len(sample.text))


async def test_a_short_run_of_grpo(folder, tmp_path, reward):
    config = TrainConfig(
        env="ludus/arithmetic-v0",
        engine="vllm",
        steps=3,
        model=ModelConfig(path=str(folder)),
        rollout=RolloutConfig(tasks_per_step=4, group_size=4, max_tokens=24, max_turns=2),
        trainer=TrainerConfig(lr=1e-3),
        eval=EvalConfig(tasks=4),
        reward=[RewardConfig("test/letters")],
        run=RunConfig(folder=str(tmp_path / "run"), tensorboard=False, episodes_every=1),
        vllm=VLLMConfig(python=PYTHON, probe_every=1),
    )
    result = await run_training(config)
    rows = [row for row in read_metrics(result.folder / "metrics.jsonl") if "reward/mean" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["update/grad_norm"] > 0 for row in rows)  # so each publish moved the weights
    for step in (1, 2, 3):
        episodes = read_episodes(result.folder / "episodes" / f"step-{step:06d}.jsonl")
        versions = {
            version
            for episode in episodes
            for segment in episode.trajectories[0].segments
            for turn in segment.turns
            for version in turn.versions
        }
        assert versions == {step - 1}
        assert not any(episode.trajectories[0].exclude_from_loss for episode in episodes)
    print({name: round(value, 4) for name, value in rows[-1].items()})


def server_process(port):
    """The process of the server at a port, below its guard."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_text().split("\0")
            guard = any(word.endswith("guard.py") for word in words)
            if str(port) in words and "vllm.entrypoints.openai.api_server" in words and not guard:
                return int(entry.name)
    raise AssertionError(f"no server at port {port}")


async def test_a_killed_server_comes_back_with_todays_weights(folder, learner, settings, tmp_path):
    made = await start_vllm(
        settings,
        ServerSite(folder=str(folder), dtype="float32", cpu=True, log=tmp_path / "log"),
        learner,
    )
    pool = EnginePool([made])
    try:
        await pool.set_weights(weights(learner), 2)
        asked = [
            asyncio.create_task(pool.generate(PROMPT[: 40 + i], Sampling(max_tokens=600)))
            for i in range(4)
        ]
        await asyncio.sleep(0.5)
        port = int(made.client.url.rpartition(":")[2])
        os.kill(server_process(port), signal.SIGKILL)
        started = time.perf_counter()
        answers = await asyncio.gather(*asked)
        print(f"answered {time.perf_counter() - started:.0f} s after the kill")
        for i, answer in enumerate(answers):
            assert (answer.finish, set(answer.versions)) == (Finish.LENGTH, {2})
            ids = PROMPT[: 40 + i] + answer.ids
            assert largest(answer.logprobs, scorer_of(learner)(ids, 1.0)[40 + i :]) < EXACT
        assert pool.counters()["engine/lost"] == 1
        assert pool.probed is not None
        assert pool.probed < EXACT
    finally:
        await pool.close()
