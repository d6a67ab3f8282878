"""Weights by vLLM's own transfer: what can be checked without a GPU.

The classes of vLLM itself are checked where vLLM is installed: here, or in the environment of the
interpreter that LUDUS_VLLM_PYTHON names.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from aiohttp import web
from aiohttp.test_utils import TestServer

from ludus.errors import ConfigError, ServerFault
from ludus.trainer.config import TrainConfig, VLLMConfig
from ludus.trainer.engines.vllm.client import VllmClient
from ludus.trainer.engines.vllm.server import Launch, command, environment
from ludus.trainer.engines.vllm.transfer import (
    PACKAGE,
    ControlCalls,
    WeightTransfer,
    refuse_without_gpu,
)
from ludus.trainer.models.weights import MemoryWeights
from ludus.trainer.recipes.effects import idle_settings

PYTHON = os.environ.get("LUDUS_VLLM_PYTHON", "") or sys.executable
INSTALLED = sys.executable != PYTHON or importlib.util.find_spec("vllm") is not None
LAUNCH = Launch(model="m", dtype="float32", max_model_len=9, log=Path("log"))
WITH_VLLM = """
import torch
from ludus.trainer.engines.vllm.transfer import PACKAGE, ControlCalls, source_class
from ludus.trainer.models.weights import MemoryWeights
from vllm.distributed.weight_transfer import base, ipc_engine, nccl_engine

held = source_class()()
assert isinstance(held, base.WeightSource)
tensors = {"a.0.w": torch.ones(2, 3), "a.1.w": torch.ones(4, dtype=torch.bfloat16)}
for _ in range(2):  # each publish is a pass of its own
    held.hold(MemoryWeights(tensors))
    found = dict(nccl_engine.NCCLTrainerWeightTransferEngine._checked_iter(held, held.metadata()))
    assert found.keys() == tensors.keys()
assert held.groups() == [["a.0.w"], ["a.1.w"]]
held.hold(None)
try:
    held.metadata()
except ValueError as error:
    assert "no weights are being published" in str(error)
else:
    raise AssertionError
info = nccl_engine.NCCLTrainerInitInfo(
    master_address="127.0.0.1", master_port=1, world_size=3, rank=0
)
assert info.is_sender and info.backend == "nccl"
assert ipc_engine.IPCTrainerInitInfo(rank=0).backend == "ipc"
for engine in (
    nccl_engine.NCCLTrainerWeightTransferEngine, ipc_engine.IPCTrainerWeightTransferEngine
):
    assert callable(engine.trainer_init) and callable(engine.send_weights)
wanted = {name for name in vars(base.VLLMWeightSyncClient) if not name.startswith("_")}
assert wanted and wanted <= set(vars(ControlCalls)), wanted
print("as vLLM wants it")
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("backend", ["nccl", "ipc"])
def test_a_transfer_without_a_gpu_is_refused_with_what_to_set(backend: str) -> None:
    with pytest.raises(ConfigError, match=f'vllm.transfer = "{backend}" needs a CUDA device'):
        refuse_without_gpu(backend)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_server_of_ours_is_started_for_the_transfer() -> None:
    assert "--weight-transfer-config" not in command(LAUNCH, 1)
    line = command(replace(LAUNCH, transfer="nccl"), 1)
    assert line[line.index("--weight-transfer-config") + 1] == '{"backend": "nccl"}'
    pickles = "VLLM_ALLOW_INSECURE_SERIALIZATION"
    assert pickles not in environment({}, transfer="nccl")
    assert environment({}, transfer="ipc")[pickles] == "1"


def test_a_folder_for_weights_is_told_to_be_idle_beside_a_transfer() -> None:
    config = TrainConfig(engine="vllm", vllm=VLLMConfig(transfer="nccl", weights_folder="/dev/shm"))
    told = idle_settings(config, updates=1)
    assert "vllm.weights_folder is set, but vllm.transfer is 'nccl': no file is written" in told


async def test_the_calls_of_vllms_threads_are_ours_with_key_and_limit() -> None:
    seen: list[tuple[str, object, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path, await request.json(), request.headers["Authorization"]))
        if request.path == "/start_weight_update":
            await asyncio.sleep(30)
        return web.json_response({"message": "done"})

    app = web.Application()
    app.router.add_post("/{path}", answer)
    async with TestServer(app) as server:
        client = VllmClient(str(server.make_url("")), api_key="key")
        calls = ControlCalls(client, asyncio.get_running_loop(), 10.0)
        await asyncio.to_thread(calls.init_weight_transfer_engine, {"packed": True})
        await asyncio.to_thread(calls.finish_weight_update)
        await asyncio.to_thread(calls.shutdown_weight_transfer_engine)
        late = ControlCalls(client, asyncio.get_running_loop(), 0.2)
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(late.start_weight_update)
        await client.close()
    assert seen == [
        ("/init_weight_transfer_engine", {"init_info": {"packed": True}}, "Bearer key"),
        ("/finish_weight_update", {}, "Bearer key"),
        ("/shutdown_weight_transfer_engine", {}, "Bearer key"),
        ("/start_weight_update", {}, "Bearer key"),
    ]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
async def test_a_transfer_that_fails_is_a_fault_that_names_the_way_out() -> None:
    client = VllmClient("http://127.0.0.1:9")
    transfer = WeightTransfer(client, "nccl", timeout_s=5.0)
    with pytest.raises(ServerFault, match=r'by nccl: .*vllm\.transfer = "file" needs no GPU'):
        await transfer.send(MemoryWeights({"w": torch.ones(1)}))
    await client.close()


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
async def test_an_engine_whose_transfer_was_cancelled_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, over = threading.Event(), threading.Event()

    class Engine:  # as vLLM's, with a transfer whose other side is gone
        opened = 0

        @classmethod
        def trainer_init(cls, info: object, **_: object) -> Engine:
            cls.opened += 1
            return cls()

        def send_weights(self) -> None:
            if Engine.opened == 1:
                begun.set()
                over.wait(60)

    parts: dict[str, dict[str, object]] = {
        "base": {"WeightSource": object},
        "ipc_engine": {
            "IPCTrainerWeightTransferEngine": Engine,
            "IPCTrainerInitInfo": SimpleNamespace,
        },
    }
    for name, contents in parts.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, f"{PACKAGE}.{name}", module)
    client = VllmClient("http://127.0.0.1:9")
    transfer, weights = WeightTransfer(client, "ipc", timeout_s=60.0), MemoryWeights({})
    sending = asyncio.create_task(transfer.send(weights))
    await asyncio.to_thread(begun.wait, 60)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    over.set()
    await transfer.send(weights)
    assert Engine.opened == 2
    await client.close()


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="vLLM is not installed; LUDUS_VLLM_PYTHON may name it")
def test_the_source_and_the_calls_are_what_vllm_itself_wants() -> None:
    done = subprocess.run(
        [PYTHON, "-c", WITH_VLLM], capture_output=True, text=True, timeout=300, check=False
    )
    assert "as vLLM wants it" in done.stdout, done.stderr[-2000:]
