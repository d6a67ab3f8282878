"""Serves models on ranks as `ludus serve learner` does, and makes the same updates in one process.

    served.py FOLDER

Rank 0 writes FOLDER/found.json: for each model the largest difference of log-probabilities, of
weights after two updates, and after a checkpoint was read into a model that was made anew.
"""

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from ludus.errors import LudusError
from ludus.trainer.config import ModelConfig
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.models.weights import adapter_tensors
from ludus.trainer.ranks.launch import follows, open_group
from ludus.trainer.tinker.models import BaseModel, ModelHouse
from ludus.trainer.tinker.shared import SharedHouse, SharedStepwise, follow_served
from ludus.trainer.tinker.stepwise import StepwiseLearner
from ludus.trainer.tinker.wire import AdamParams, Datum, ForwardBackward, LoraSpec

SPECS = {"a": LoraSpec(rank=4, seed=1), "b": LoraSpec(rank=2, seed=2, train_mlp=False), "c": None}
# With the usual eps Adam's step of a weight whose gradient is nearly 0 is rounding, which differs
# between processors.
STEP = AdamParams(learning_rate=1e-3, eps=1e-4, grad_clip_norm=0.5)


def rows(seed: int, lengths: list[int], loss: str = "cross_entropy") -> ForwardBackward:
    drawn = np.random.default_rng(seed)
    data = []
    for length in lengths:
        ids = drawn.integers(0, 90, length + 1)
        inputs = {"target_tokens": ids[1:], "weights": drawn.normal(size=length).astype("f4")}
        if loss != "cross_entropy":
            inputs = {
                "target_tokens": ids[1:],
                "logprobs": -drawn.random(length).astype("f4") - 4,
                "advantages": drawn.normal(size=length).astype("f4"),
            }
        data.append(Datum(ids[:-1], inputs))
    return ForwardBackward("", 0, data, loss)


def tensors(learner: StepwiseLearner) -> dict[str, torch.Tensor]:
    if isinstance(learner, SharedStepwise):
        return learner.whole()
    held = adapter_tensors(learner.model) or dict(learner.model.named_parameters())
    return {name: weight.detach().clone() for name, weight in held.items()}


def worked(house: ModelHouse, folder: Path) -> dict[str, list[torch.Tensor]]:
    """Two updates of three models in turns, with one pass that is refused between them, then a
    checkpoint, and a third update in the model and in one that was made of it.
    """
    learners = {name: house.make(spec) for name, spec in SPECS.items()}
    told: dict[str, list[torch.Tensor]] = {name: [] for name in SPECS}
    for step in range(2):
        for name, learner in learners.items():
            for request in (
                rows(step, [5, 9, 3], "ppo"),  # more rows than ranks
                rows(step + 7, [6]),  # a rank without a row
            ):
                passed = learner.accumulate(request)
                told[name] += [torch.from_numpy(one) for one in passed.logprobs]
            with suppress(LudusError):
                learner.accumulate(rows(1, [4], "no_loss"))
            learner.step(STEP)
    for name, learner in learners.items():
        house.write(learner, folder / name, optimizer=True)
        again = house.make(SPECS[name])
        house.read(again, folder / name, optimizer=True)
        for each in (learner, again):
            each.accumulate(rows(11, [7, 4]))
            each.step(STEP)
            told[name] += tensors(each).values()
    return told


async def sampled(house: ModelHouse) -> list[list[float]]:
    """Scores by engines of a snapshot at two versions."""
    learner = house.make(SPECS["a"])
    scores = []
    for seed in (3, 4):
        learner.accumulate(rows(seed, [8, 8]))
        learner.step(STEP)
        await house.snapshot(learner, "now")
        async with house.engine("now", None, SPECS["a"]) as engine:
            scores.append(await engine.logprobs(list(range(20))))
    await house.close()
    return scores


def main(folder: Path) -> None:
    settings = ModelConfig(path=str(folder / "model"), device="cpu")
    with open_group("cpu", {}) as ranks:
        assert ranks is not None
        if follows():
            follow_served(ranks, settings, "m")
            return
        shared = SharedHouse(BaseModel.load(settings, "m"), ranks=ranks)
        here = worked(shared, folder / "shared")
        scores = asyncio.run(sampled(shared))
    plain = ModelHouse(BaseModel.load(settings, "m"))
    alone = worked(plain, folder / "alone")
    # a checkpoint of ranks is read in one process
    crossed = plain.make(SPECS["a"])
    plain.read(crossed, folder / "shared" / "a", optimizer=True)
    crossed.accumulate(rows(11, [7, 4]))
    crossed.step(STEP)
    # Scores of 4 to 8 nats are known to 5e-7 in float32: their difference is told as a share.
    found = {
        name: max(
            float(((a - b).abs() / b.abs().clamp(min=1.0)).max())
            for a, b in zip(here[name], alone[name], strict=True)
        )
        for name in SPECS
    }
    count = len(tensors(crossed))
    found["crossed"] = max(
        float((a - b).abs().max())
        for a, b in zip(tensors(crossed).values(), alone["a"][-count:], strict=True)
    )
    expected = asyncio.run(sampled(plain))
    apart = np.abs(np.array(scores) - np.array(expected))
    found["sampled"] = float((apart / np.maximum(1.0, np.abs(expected))).max())
    found["moved"] = float(np.abs(np.array(scores[0]) - np.array(scores[1])).max())
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not (place / "model").exists() and not follows():
        write_tiny_policy(place / "model", hidden=32, layers=2, heads=2)
    main(place)
