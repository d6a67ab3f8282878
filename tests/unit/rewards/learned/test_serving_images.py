"""Image verifiers over HTTP, on the command line and in `ludus.score`."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image
from seeded_image_reward import PROMPTS, images

import ludus
from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.messages import ImagePart
from ludus.rewards import Sample, Status
from ludus.rewards.checks import check_verifier
from ludus.rewards.learned.images import ImageVerifier, PreparedImage
from ludus.rewards.learned.missing import MissingWeights
from ludus.rewards.score import close_verifier
from ludus.rewards.serving.placement import refuse_beyond
from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import HttpServer

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "image_reward_scores.json").read_text("utf-8")
)
EXPECTED: dict[str, list[float]] = RECORDED["tiny"]


def png(name: str = "wide") -> bytes:
    buffer = io.BytesIO()
    images()[name].save(buffer, "PNG")
    return buffer.getvalue()


class Redness(ImageVerifier):
    """The mean of the red channel, in [0, 1]."""

    needs_prompt = False

    def score_images(self, images: Sequence[PreparedImage]) -> Sequence[float]:
        if len(images) > 2:
            raise MemoryError
        return [one.image.convert("RGB").resize((1, 1)).getpixel((0, 0))[0] / 255 for one in images]  # type: ignore[index]


@pytest.fixture
def models(tiny_image_reward: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUDUS_MODELS", str(tiny_image_reward))
    return tiny_image_reward


@pytest.mark.slow
async def test_a_served_model_scores_bytes_base64_and_paths(models: Path, tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(png())
    written = base64.b64encode(png()).decode()
    service = ScoreService([f"image-reward?any_size=true&image_root={tmp_path}"])
    async with HttpServer([service]) as http, aiohttp.ClientSession(http.url) as client:
        for image in (
            {"type": "image", "data": written},
            {"type": "image", "url": f"data:image/png;base64,{written}"},
            {"type": "image", "url": "file:wide.png"},
        ):
            sample = {"response": "", "prompt": PROMPTS[0], "images": [image]}
            body = {"verifier": "image-reward", "sample": sample}
            async with client.post("/v1/score", json=body) as reply:
                verdict = await reply.json()
            assert verdict["status"] == "ok"
            assert verdict["reward"] == pytest.approx(EXPECTED["wide"][0], abs=1e-4)
        for url, words in (
            ("http://127.0.0.1:1/a.png", "fetches no URL"),
            ("file:../a.png", "leads out"),
        ):
            sample = {"response": "", "prompt": "a", "images": [{"type": "image", "url": url}]}
            async with client.post(
                "/v1/score", json={"verifier": "image-reward", "sample": sample}
            ) as reply:
                verdict = await reply.json()
            assert verdict["status"] == "invalid"
            assert "reward" not in verdict
            assert words in verdict["detail"]
        async with client.get("/v1/verifiers") as reply:
            card = (await reply.json())["verifiers"][0]["card"]
    assert card["weights"]["checkpoint"].startswith("sha256:")
    assert card["device"] in ("cpu", "cuda")
    assert card["max_batch"] == 16


async def test_many_callers_share_batches_and_bad_samples_cost_only_themselves(
    models: Path,
) -> None:
    service = ScoreService(["image-reward?any_size=true&threads=1"])
    async with HttpServer([service]) as http, ludus.connect(http.url) as server:
        verifier = server.verifier("image-reward")
        names = [name for name in EXPECTED if name != "cmyk"]  # which PNG cannot hold
        samples = [
            Sample(response="", prompt=PROMPTS[0], images=[ImagePart(data=png(name))])
            for name in names
        ]
        bad = Sample(response="", prompt=PROMPTS[0], images=[ImagePart(data=png()[:200])])
        verdicts = await asyncio.gather(*map(verifier.score, [bad, *samples, bad]))
    assert [verdict.status for verdict in (verdicts[0], verdicts[-1])] == [Status.INVALID] * 2
    rewards = [verdict.reward for verdict in verdicts[1:-1]]
    assert rewards == pytest.approx([EXPECTED[name][0] for name in names], abs=1e-4)


async def test_out_of_memory_halves_batches_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    service = ScoreService(verifiers={"redness": Redness(max_wait_ms=200)})
    red = io.BytesIO()
    Image.new("RGB", (9, 9), "red").save(red, "PNG")
    async with HttpServer([service]) as http, ludus.connect(http.url) as server:
        verifier = server.verifier("redness")
        sample = Sample(response="", images=[ImagePart(data=red.getvalue())])
        verdicts = await asyncio.gather(*(verifier.score(sample) for _ in range(8)))
    assert [verdict.reward for verdict in verdicts] == [1.0] * 8


@pytest.mark.slow
async def test_two_models_that_do_not_fit_together_are_refused_with_their_sizes(
    models: Path,
) -> None:
    size = (models / "image-reward" / "ImageReward.pt").stat().st_size

    class Second(Redness):
        memory_bytes = size

    service = ScoreService(
        ["image-reward?any_size=true"],
        verifiers={"second": Second()},
        model_memory_bytes=size + 1000,
    )
    server = HttpServer([service])
    with pytest.raises(
        ConfigError, match=r"do not fit together: .*second .*image-reward|image-rew"
    ):
        await server.start()
    await server.stop()


def test_sizes_are_told_the_largest_first() -> None:
    refuse_beyond(3_000_000_000, {"a": 1_000_000_000, "b": 2_000_000_000, "rule": 0})
    with pytest.raises(ConfigError, match=r"together: b 2.00 GB, a 1.00 GB; that is 3.00 GB of"):
        refuse_beyond(2_999_999_999, {"a": 1_000_000_000, "b": 2_000_000_000, "rule": 0})


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("image-reward", "hf.co/zai-org/ImageReward"),
        ("clip-score", "hf.co/openai/clip-vit-large-patch14"),
        ("pick-score", "hf.co/yuvalkirstain/PickScore_v1"),
        ("hps-v2", "hf.co/xswu/HPSv2"),
        ("aesthetic-score", "hf.co/openai/clip-vit-large-patch14"),
    ],
)
def test_a_model_without_weights_says_where_to_get_them(
    name: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_MODELS", str(tmp_path))
    with pytest.raises(MissingWeights, match=f"get .*{source}.* into '{tmp_path}/{name}'"):
        ludus.make_verifier(name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 3}, "takes no option size"),
        ({"dtype": "int8"}, "dtype must be one of float32"),
        ({"device": "tpu"}, "device must be auto, cpu, cuda or cuda:N"),
        ({"device": "cuda:"}, "device must be auto, cpu, cuda or cuda:N"),
        ({"max_batch": 0}, "max_batch must be at least 1"),
        ({"threads": -1}, "threads must be at least 0"),
    ],
)
def test_options_that_cannot_work_are_refused(
    models: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        ludus.make_verifier("image-reward", any_size=True, **options)


def test_a_model_keeps_the_contract_of_verifiers(models: Path) -> None:
    verifier = ludus.make_verifier("image-reward", any_size=True)
    check_verifier(verifier, cases=[])
    close_verifier(verifier)


def test_a_script_scores_an_image(models: Path) -> None:
    verdict = ludus.score("image-reward", prompt=PROMPTS[0], images=[png()], any_size=True)
    assert verdict.reward == pytest.approx(EXPECTED["wide"][0], abs=1e-4)
    empty = ludus.score("image-reward", prompt="", images=[png()], any_size=True)
    assert empty.status is Status.INVALID
    long = ludus.score("image-reward", prompt="very " * 10_000, images=[png()], any_size=True)
    assert long.ok


def test_the_command_line_scores_and_ranks_images(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths: list[str] = []
    for name in ("wide", "tall", "enlarged"):
        (tmp_path / f"{name}.png").write_bytes(png(name))
        paths.append(str(tmp_path / f"{name}.png"))
    asked = ["--image", *paths, "--prompt", PROMPTS[0], "--set", "any_size=true", "--json"]
    assert main(["score", "image-reward", *asked]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [EXPECTED[name][0] for name in ("wide", "tall", "enlarged")]
    assert [row["reward"] for row in rows] == pytest.approx(expected, abs=1e-4)
    best_first = sorted(expected, reverse=True)
    assert [row["rank"] for row in rows] == [best_first.index(one) + 1 for one in expected]
    (tmp_path / "text.png").write_text("no image")
    assert main(["score", "image-reward", "--image", str(tmp_path / "text.png"), *asked[4:]]) == 1
