"""The local engine and the learner on a CUDA device."""

import asyncio
from typing import Any

import pytest
import torch

from ludus.agent import Sampling, Segment, Turn
from ludus.trainer.config import TrainerConfig
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.tiny import build_model
from ludus.trainer.rollout.batch import Row, as_row, pad
from ludus.trainer.sft import negative_log_likelihood

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def model() -> Any:
    made: Any = build_model(300, hidden=64, layers=2, heads=4, max_length=256)
    return made.to("cuda")


async def test_engine_and_learner_agree_on_cuda() -> None:
    engine = LocalEngine(model())
    learner = Learner(model(), TrainerConfig(), ReadingOptions(temperature=0.8))
    prompts = [[5 + n] * (4 + n) for n in range(8)]
    sampling = [Sampling(max_tokens=32, temperature=0.8, seed=n) for n in range(8)]
    got = await asyncio.gather(*map(engine.generate, prompts, sampling))
    await engine.close()
    for prompt, one in zip(prompts, got, strict=True):
        row = as_row(Segment(prompt_ids=prompt, turns=[Turn(out_ids=one.ids)]))
        assert row is not None
        logp = learner.score(pad([row]))[0, len(prompt) :]
        assert torch.allclose(logp, torch.tensor(one.logprobs), atol=1e-4)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16])
def test_packed_rows_agree_with_padded_rows_on_cuda(autocast: torch.dtype | None) -> None:
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(3, 300, (40,), generator=generator).tolist()
    rows: list[Row] = []
    for length in (5, 60, 17, 33):
        ids = [*prompt, *torch.randint(3, 300, (length,), generator=generator).tolist()]
        rows.append(Row(ids, [*([0] * 40), *([1] * length)], [0.0] * len(ids)))
    batch, found = pad(rows), list[dict[str, float]]()
    for packing in ("none", "rows", "shared"):
        made = Learner(model(), TrainerConfig(packing=packing), ReadingOptions(autocast=autocast))
        assert not made.unpacked or packing == "none"
        found.append(made.update(batch, torch.arange(4), negative_log_likelihood))
    for one in found[1:]:
        assert one == pytest.approx(found[0], rel=1e-4 if autocast is None else 2e-2)
