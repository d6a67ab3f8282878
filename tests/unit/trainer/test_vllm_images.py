"""Images in requests to vLLM: the body that is sent, and what vLLM's own decoder reads in it."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from aiohttp import web
from aiohttp.test_utils import TestServer
from PIL import Image

from ludus.agent import Sampling
from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError
from ludus.messages import ImagePart
from ludus.trainer.engines.vllm import LearnerSide, VLLMEngine
from ludus.trainer.engines.vllm.calls import encoded
from ludus.trainer.engines.vllm.client import VllmClient
from ludus.trainer.engines.vllm.served import Served
from ludus.trainer.models.images import Pixels
from ludus.trainer.models.tiny import build_image_reader

PYTHON = os.environ.get("LUDUS_VLLM_PYTHON", "")
IMAGE_ID = 4


def picture(width: int, height: int) -> ImagePart:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "PNG")
    return ImagePart(data=file.getvalue())


def read_tensor(written: list[Any]) -> np.ndarray[Any, Any]:
    kind, shape, raw = written
    assert raw.code == 3
    return np.frombuffer(raw.data, dtype=kind).reshape(shape)


async def test_a_request_carries_pixels_and_where_they_stand() -> None:
    bodies: list[dict[str, Any]] = []

    async def generate(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        ids = bodies[-1]["token_ids"]
        scores = [None, *({str(one): {"logprob": -1.0}} for one in ids[1:])]
        choice = {
            "finish_reason": "length",
            "token_ids": [9],
            "logprobs": {"content": [{"logprob": -0.5}]},
            "weight_versions": [{"version": "0", "start": 0, "end": 1}],
        }
        return web.json_response({"choices": [choice], "prompt_logprobs": scores})

    app = web.Application()
    app.add_routes([web.post("/inference/v1/generate", generate)])
    reader = build_image_reader(IMAGE_ID)
    small, wide = picture(64, 64), picture(96, 64)
    ids = [7, *[IMAGE_ID] * 4, 8, *[IMAGE_ID] * 6, 9]
    images = [PlacedImage(small, 1, 4), PlacedImage(wide, 6, 6)]
    async with TestServer(app) as server:
        client = VllmClient(str(server.make_url("/")).rstrip("/"))
        served = Served("served", 64, 0, "float32")
        engine = VLLMEngine(client, served, learner=LearnerSide(images=reader))
        await engine.generate(ids, Sampling(max_tokens=1), images=images)
        await engine.logprobs(ids, images=images)
        await engine.generate([7, 8], Sampling(max_tokens=1))
        blind = VLLMEngine(client, served)
        with pytest.raises(ConfigError, match="reads none"):
            await blind.generate(ids, Sampling(max_tokens=1), images=images)
        await client.close()
    assert len(bodies) == 3
    sampled, scored, plain = bodies
    assert plain.get("features") is None
    assert sampled["features"] == scored["features"]
    features = sampled["features"]
    assert sampled["token_ids"] == ids
    assert features["mm_placeholders"] == {
        "image": [{"offset": 1, "length": 4}, {"offset": 6, "length": 6}]
    }
    assert len(set(features["mm_hashes"]["image"])) == 2
    for image, data in zip((small, wide), features["kwargs_data"]["image"], strict=True):
        item: Any = msgspec.msgpack.decode(base64.b64decode(data))
        pixels = reader.pixels(image)
        patches = len(pixels.values)
        assert np.array_equal(read_tensor(item["pixel_values"]["data"]), pixels.values.numpy())
        assert np.array_equal(read_tensor(item["image_grid_thw"]["data"]), pixels.grid.numpy())
        field = {"keep_on_cpu": False, "slices": [[0, patches, None]], "dim": 0}
        assert item["pixel_values"]["field"] == ["flat", field]
        assert item["image_grid_thw"]["field"] == ["batched", {"keep_on_cpu": True}]


READ = """
import sys, torch
from vllm.entrypoints.scale_out.token_in_token_out.mm_serde import (
    decode_mm_kwargs_item, encode_mm_kwargs_item)
written = open(sys.argv[1]).read()
values, grid = torch.load(sys.argv[2])
item = decode_mm_kwargs_item(written)
assert torch.equal(item["pixel_values"].data, values)
assert torch.equal(item["image_grid_thw"].data, grid)
assert encode_mm_kwargs_item(item) == written
"""


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.skipif(
    not PYTHON and find_spec("vllm") is None,
    reason="vLLM is not installed; LUDUS_VLLM_PYTHON may name where it is",
)
def test_vllm_reads_and_writes_the_same_bytes(tmp_path: Path) -> None:
    values, grid = torch.randn(16, 1536), torch.tensor([1, 4, 4])
    (tmp_path / "item").write_text(encoded(Pixels(values, grid)))
    torch.save((values, grid), tmp_path / "tensors")
    command = [PYTHON or sys.executable, "-c", READ, tmp_path / "item", tmp_path / "tensors"]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
