"""The law of capture over engines that are not in this process: several agents that fork, edit,
repeat and compact call a pool of processes, of which one is killed, and a vLLM server. Each row is
computed again by the model whose version it names.

LUDUS_GATEWAY_CALLS=170 has each of the six agents make as many calls; LUDUS_VLLM_PYTHON names an
interpreter with vLLM.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ludus.agent import Segment, Stop
from ludus.trainer.config import VLLMConfig
from ludus.trainer.engines.pool import EnginePool
from ludus.trainer.engines.process import EngineSpec, ProcessEngine
from ludus.trainer.engines.vllm import ServerSite, VLLMEngine, start_vllm
from ludus.trainer.engines.vllm.served import scorer_of
from ludus.trainer.models.loading import load_model, write_shell
from ludus.trainer.models.tiny import build_model, write_tiny_policy
from ludus.trainer.models.weights import MemoryWeights
from ludus.verdict import Verdict
from tests.unit.agent.gateway_engine import (
    LoggingEngine,
    WildAgent,
    ask,
    chat_format,
    check_capture,
    serving,
)

AGENTS = 6
CALLS = int(os.environ.get("LUDUS_GATEWAY_CALLS", "12"))
PYTHON = os.environ.get("LUDUS_VLLM_PYTHON", "")
LENGTH = 4096
SIZES = {"hidden": 128, "layers": 2, "heads": 4, "max_length": LENGTH}

pytestmark = pytest.mark.slow


async def play(
    engine: Any, meanwhile: Callable[[], Any]
) -> tuple[list[list[Segment]], dict[str, float]]:
    """Let six agents play at once, each with a rollout of its own, and hold them to the law."""
    logging = LoggingEngine(engine, chat_format())
    async with serving(logging, max_tokens=12) as (gateway, http):
        rollouts = [gateway.open(seed=seed) for seed in range(AGENTS)]
        agents = [WildAgent(seed, http, rollout) for seed, rollout in enumerate(rollouts)]
        await asyncio.gather(*(agent.run(CALLS) for agent in agents), meanwhile())
        rows, counts = list[list[Segment]](), dict[str, float]()
        for rollout in rollouts:
            rollout.end(Stop.TERMINATED)
            counts["calls"] = counts.get("calls", 0) + rollout.counts["calls"]
            rows.append(rollout.trajectory(Verdict.of(1.0)).segments)
        together = [row for segments in rows for row in segments]
        check_capture(logging, _Together(rollouts), together)
        return rows, counts


class _Together:
    """Several rollouts as one, for the check of capture."""

    def __init__(self, rollouts: Sequence[Any]) -> None:
        self.tree = self
        self._rollouts = rollouts

    def untrained(self) -> dict[str, int]:
        listed: dict[str, int] = {}
        for number, rollout in enumerate(self._rollouts):
            for reason, tokens in rollout.tree.untrained().items():
                listed[f"{number} {reason}"] = tokens
        return listed


def check_log_probabilities(
    rows: Sequence[Sequence[Segment]], score: dict[int, Any], within: float
) -> tuple[int, float]:
    """Compute every row again by the models of its versions; return the spans whose tokens have one
    version, and the largest difference in nats.
    """
    largest, spans = 0.0, 0
    for row in (row for segments in rows for row in segments):
        again = {version: scorer(row.ids(), 1.0) for version, scorer in score.items()}
        for start, turn in row.spans():
            assert set(turn.versions) <= set(score)
            # An engine in flight computes earlier tokens again by the newer weights.
            for place, (logprob, version) in enumerate(
                zip(turn.logprobs, turn.versions, strict=True)
            ):
                largest = max(largest, abs(logprob - again[version][start + place]))
            spans += 1
    assert largest <= within
    return spans, largest


async def test_agents_over_a_pool_whose_process_is_killed_and_whose_weights_change(
    tmp_path: Path,
) -> None:
    size = len(chat_format().tokenizer)  # type: ignore[arg-type]
    models = [build_model(size, **SIZES, seed=seed).eval() for seed in range(2)]
    write_shell(tmp_path, "", models[0])
    engines = [
        ProcessEngine(EngineSpec(folder=str(tmp_path)), name=f"engine {n}", log=tmp_path / f"{n}")
        for n in range(2)
    ]
    pool = EnginePool(engines)
    try:
        await asyncio.gather(*(engine.revive() for engine in engines))
        await pool.set_weights(MemoryWeights.of(models[0]), 0)

        async def harm() -> None:
            while not pool.fleet.members[0].running:
                await asyncio.sleep(0.01)
            assert engines[0].pid is not None
            os.kill(engines[0].pid, signal.SIGKILL)
            await pool.set_weights(MemoryWeights.of(models[1]), 1)

        rows, counts = await play(pool, harm)
        score = {version: scorer_of(model) for version, model in enumerate(models)}
        spans, largest = check_log_probabilities(rows, score, within=1e-5)
        assert counts["calls"] >= AGENTS * CALLS
        assert spans
        print(f"{counts['calls']:.0f} calls, {spans} spans, largest difference {largest:.1g} nats")
    finally:
        await pool.close()


@contextlib.asynccontextmanager
async def vllm(tmp_path: Path) -> AsyncGenerator[tuple[VLLMEngine, Any]]:
    folder = write_tiny_policy(tmp_path / "model", **SIZES)
    learner = load_model(folder)
    site = ServerSite(folder=str(folder), dtype="float32", cpu=True, log=tmp_path / "vllm.log")
    engine = await start_vllm(VLLMConfig(python=PYTHON), site, learner)
    try:
        await engine.set_weights(MemoryWeights.of(learner), 0)
        yield engine, learner
    finally:
        await engine.close()


SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2, 3]}, "sure": {"type": "boolean"}},
    "required": ["n", "sure"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}


@pytest.mark.vllm
@pytest.mark.skipif(
    not PYTHON and importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed; LUDUS_VLLM_PYTHON may name where it is",
)
async def test_agents_over_a_vllm_server_whose_weights_change(tmp_path: Path) -> None:
    async with vllm(tmp_path) as (engine, learner):
        newer = build_model(learner.config.vocab_size, **SIZES, seed=1).eval()

        async def publish() -> None:
            await asyncio.sleep(1.0)
            probe, engine.probe = engine.probe, None  # it compares with the learner's own weights
            await engine.set_weights(MemoryWeights.of(newer), 1)
            engine.probe = probe

        rows, counts = await play(engine, publish)
        score = {0: scorer_of(learner), 1: scorer_of(newer)}
        spans, largest = check_log_probabilities(rows, score, within=1e-3)
        versions = {version for each in rows for row in each for _, turn in row.spans()
                    for version in turn.versions}  # fmt: skip
        assert versions == {0, 1}
        print(f"{counts['calls']:.0f} calls, {spans} spans, largest difference {largest:.1g} nats")

        logging = LoggingEngine(engine, chat_format())
        async with serving(logging, max_tokens=200) as (gateway, http):
            rollout = gateway.open()
            body = {"messages": [{"role": "user", "content": "a number?"}], "response_format": FORM}
            answers = await asyncio.gather(*(ask(http, rollout, body) for _ in range(4)))
            for answer in answers:
                given = json.loads(answer["choices"][0]["message"]["content"])
                assert set(given) == {"n", "sure"}
                assert given["n"] in (1, 2, 3)
            assert set(rollout.tree.untrained()) == {"constrained"}
