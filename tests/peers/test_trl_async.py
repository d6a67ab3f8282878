"""TRL's `AsyncGRPOTrainer` trains a checkpoint of ludus on an environment of ludus, without a GPU.

Everything is real (its rollout process, a vLLM server, adapters that it loads) but two things that
ask for CUDA: the attention kernel that TRL fetches from a hub is written in torch here, and the
device has no name of which TRL would know the speed.
"""

from __future__ import annotations

import importlib.util
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.integrations.trl import TrlBridge

from . import games

if not (importlib.util.find_spec("vllm") and importlib.util.find_spec("trl")):
    pytest.skip("scripts/peers.sh trl_async installs TRL and vLLM", allow_module_level=True)
torch: Any = pytest.importorskip("torch")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 8
RANK = 8
START_S = 300.0


def attention(
    query: Any, key: Any, value: Any, query_ends: Any, key_ends: Any, *_: int, **options: Any
) -> Any:
    """Causal attention of each segment to the end of its own keys, (tokens, heads, channels)."""
    segments = []
    for index in range(len(query_ends) - 1):
        asked = query[query_ends[index] : query_ends[index + 1]].transpose(0, 1)
        keys, values = (
            tensor[key_ends[index] : key_ends[index + 1]]
            .transpose(0, 1)
            .repeat_interleave(query.shape[1] // key.shape[1], 0)
            for tensor in (key, value)
        )
        before = keys.shape[1] - asked.shape[1]
        seen = torch.ones(asked.shape[1], keys.shape[1]).tril(before).bool()
        segments.append(
            torch.nn.functional.scaled_dot_product_attention(
                asked, keys, values, attn_mask=seen, scale=options["softmax_scale"]
            ).transpose(0, 1)
        )
    return torch.cat(segments)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that `ludus sft` has taught to call the tool, and not yet which digit."""
    run = tmp_path_factory.mktemp("sft") / "run"
    command = ["--import", games.__file__, "sft", "--env", "peers/digits-v0"]
    command += ["--model.path", "tiny", "--steps", "14", "--trainer.lr", "2e-3"]
    command += ["--run.folder", str(run)]
    subprocess.run([sys.executable, "-m", "ludus", *command], check=True, timeout=START_S)
    return run / "checkpoints" / "step-000014"


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of vLLM's own server, started as TRL's page says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    # vLLM 0.32 fails on the CPU where a prompt with a seed of its own is read in pieces.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port)]
    command += ["--model", str(checkpoint), "--dtype", "float32", "--max-model-len", "512"]
    command += ["--enable-lora", "--max-lora-rank", str(RANK), "--max-loras", "6"]
    command += ["--enforce-eager", "--no-enable-chunked-prefill"]
    command += ["--max-num-batched-tokens", "16384", "--logprobs-mode", "processed_logprobs"]
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    settings |= {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("w") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env=os.environ | settings, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(url + "/health", timeout=5):
                    break
            except OSError:
                time.sleep(1)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def test_async_grpo_trains_a_checkpoint_of_ludus(
    checkpoint: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import LoraConfig
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, packing

    kernel = SimpleNamespace(flash_attn_varlen_func=attention)
    monkeypatch.setattr(packing, "_flash_attn", lambda: kernel)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "cpu")
    bridge = TrlBridge(games.Digits, scored_by="environment")
    trainer: Any = AsyncGRPOTrainer(
        model=str(checkpoint),
        args=AsyncGRPOConfig(
            output_dir=str(tmp_path),
            max_steps=STEPS,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            num_generations=8,
            max_completion_length=120,
            learning_rate=1e-3,
            dtype="float32",
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            vllm_server_base_url=server,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
        ),
        train_dataset=bridge.dataset(2000),
        environment_factory=bridge.environment_factory,
        reward_funcs=bridge.reward_funcs,
        peft_config=LoraConfig(r=RANK, lora_alpha=32, target_modules="all-linear"),
    )
    trainer.train()
    bridge.close()
    steps = [row for row in trainer.state.log_history if "rewards/LudusEnvironment" in row]
    assert len(steps) == STEPS
    rewards = [row["rewards/LudusEnvironment"] for row in steps]
    assert all(0 <= reward <= 1 for reward in rewards)
    assert max(rewards) > 0
    # what vLLM sampled from the checkpoint is, to the learner, what its own weights would say
    assert abs(steps[0]["kl"]) < 1e-6
    assert all(math.isfinite(row["loss"]) and row["grad_norm"] > 0 for row in steps)
    assert all(row["tools/call_frequency"] > 0.5 for row in steps)
    # the server holds an adapter that the trainer sent after its last step
    assert trainer.model_version > STEPS
    with urllib.request.urlopen(server + "/v1/models", timeout=30) as reply:
        assert f"trl-policy-v{trainer.model_version}" in reply.read().decode()
