"""A run on two vLLM servers that somebody else started, one of which is killed and comes back.

Needs vLLM; see test_vllm_engine.py.
"""

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from ludus.metrics import read_metrics
from ludus.rewards import registry
from ludus.trainer.config import (
    AsyncConfig,
    EvalConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
    VLLMConfig,
)
from ludus.trainer.engines.vllm.server import required_arguments
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.stream.accounts import count_rollouts, read_rollouts
from ludus.trainer.train import run_training

PYTHON = os.environ.get("LUDUS_VLLM_PYTHON", "")
INSTALLED = bool(PYTHON) or importlib.util.find_spec("vllm") is not None

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(
        not INSTALLED, reason="vLLM is not installed; LUDUS_VLLM_PYTHON may name where it is"
    ),
]

START_S = 400.0
"""Time limit for a server to start, on a busy machine."""


class ByHand:
    """A server started as the error message about unsuitable servers says."""

    def __init__(self, model, log):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.model, self.log = model, log
        self.start()

    def start(self):
        command = [
            *(PYTHON or sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", self.model, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--dtype", "float32", "--max-model-len", "512", "--enforce-eager"),
            *("--kv-cache-memory-bytes", str(1 << 28)),
            *required_arguments(),
        ]
        known = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **known},
                process_group=0,
            )

    def kill(self):
        """Kill the server and its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def until_ready(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=60):
                    return
            except OSError:
                time.sleep(0.5)
        raise AssertionError(f"{self.url} was not ready: {self.log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    # The CPU attention of vLLM 0.32 knows no heads below 32 channels.
    return str(write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=128, layers=2, heads=4))


@pytest.fixture(scope="module")
def servers(model, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    made = [ByHand(model, logs / f"server-{n}.log") for n in range(2)]
    try:
        for one in made:
            one.until_ready()
        yield made
    finally:
        for one in made:
            if one.process.poll() is None:
                one.kill()


def letters(sample):
    """Share of the answer that is lower case: a random policy gets something now and then."""
    return sum(map(str.islower, sample.text)) / max(1, len(sample.text))


class KillsOne:
    """Kills the second server after step 3, starts it again at step 6, and ends the run some steps
    after it has come back.
    """

    def __init__(self, server):
        self.server = server
        self.run = asyncio.Future()
        self.rows = []
        self.back = 0

    def on_episode(self, episode): ...

    def on_evaluation(self, step, evaluation): ...

    def on_step(self, step, metrics):
        self.rows.append(metrics)
        if step == 3:
            self.server.kill()
        if step == 6:
            self.server.start()
        if step > 6 and metrics["engine/serving"] == 2:
            self.back += 1
        if self.back == 5:
            self.run.cancel()


async def test_a_run_on_two_servers_outlives_one_and_takes_it_back(
    model, servers, tmp_path, monkeypatch
):
    monkeypatch.setattr(registry._VERIFIERS, "registered", {})
    registry.register_verifier("test/letters", letters)
    config = TrainConfig(
        env="ludus/arithmetic-v0",
        engine="vllm",
        steps=3000,
        model=ModelConfig(path=model),
        rollout=RolloutConfig(tasks_per_step=4, group_size=4, max_tokens=24, max_turns=2),
        overlap=AsyncConfig(max_staleness=2),
        trainer=TrainerConfig(lr=1e-3),
        eval=EvalConfig(tasks=2),
        reward=[RewardConfig("test/letters")],
        run=RunConfig(
            folder=str(tmp_path / "run"), tensorboard=False, save_every=0, episodes_every=0
        ),
        vllm=VLLMConfig(
            url=",".join(one.url for one in servers), probe_every=1, startup_timeout_s=START_S
        ),
    )
    watcher = KillsOne(servers[1])
    watcher.run = asyncio.ensure_future(run_training(config, watcher=watcher))
    result = await asyncio.wait_for(watcher.run, START_S + 200)
    rows = [row for row in read_metrics(result.folder / "metrics.jsonl") if "engine/serving" in row]
    assert [row["step"] for row in rows] == list(range(1, result.step + 1))
    serving = [row["engine/serving"] for row in rows]
    assert serving[:2] == [2, 2]
    assert 1 in serving
    assert serving[-1] == 2
    assert rows[-1]["engine/lost"] == 1
    assert all(row["engine/probe_gap"] < 1e-4 for row in rows)
    for row in rows:
        assert row["rollouts/issued"] == sum(
            row[f"rollouts/{term}"] for term in ("trained", "masked", "waiting", "in_flight")
        )
    found = count_rollouts(result.folder)
    assert (found.masked, found.doubled) == ({}, ())
    records = read_rollouts(result.folder / "rollouts.jsonl")
    final = {(one.step, one.ordinal) for one in records}
    assert len(final) == 16 * result.step == rows[-1]["rollouts/trained"]
    print(f"{result.step} steps; one server from step {serving.index(1) + 1}: {serving.count(1)}")
