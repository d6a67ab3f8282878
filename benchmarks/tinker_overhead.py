"""What an update costs through the Tinker API, beside the same update by `ludus train`'s learner.

    python benchmarks/tinker_overhead.py

Server and client are this process, with HTTP between them on the loopback. Each pair of updates
learns from the same rows, with weights and learning rate alike; CPU seconds of all threads count,
so that other work on the machine does not. The last line has the medians, their ratios, and the
largest difference of log-probabilities afterwards.

`dapo` is an update of that recipe here, after the first of a step, and `named` the same by `train
--learner tinker://`, which asks the server for its loss by name. A recipe that the API has no loss
for is computed from log-probabilities that the server tells, with one more forward pass: `computed`
is what `dapo` takes in that way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ludus.background import run_on_loop
from ludus.secret import Secret
from ludus.trainer.config import ModelConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.credit import Credited
from ludus.trainer.learning.learner import Learner, Predicted
from ludus.trainer.learning.update import PassLoss
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.batch import Batch, Row, pad
from ludus.trainer.tinker.client import TinkerClient
from ludus.trainer.tinker.models import BaseModel, ModelHouse
from ludus.trainer.tinker.remote import RemoteLearner, weighted_rows
from ludus.trainer.tinker.service import TinkerService
from ludus.trainer.tinker.store import CheckpointStore
from ludus.trainer.tinker.wire import AdamParams
from ludus.wire.server import BackgroundServer, HttpServer

ROWS, TOKENS, PAIRS, LR = 16, 128, 8, 1e-4
CONFIG = TrainerConfig(lr=LR, weight_decay=0.0, max_grad_norm=1.0, beta1=0.9, beta2=0.95)
STEP = AdamParams(learning_rate=LR, eps=1e-8, grad_clip_norm=1.0)


def batch_of(seed: int) -> Batch:
    """Return rows of random tokens, whose second half is trained."""
    drawn = np.random.default_rng(seed)
    ids = drawn.integers(1, 90, (ROWS, TOKENS)).tolist()
    half = TOKENS // 2
    return pad([Row(each, [0] * half + [1] * half, [0.0] * TOKENS) for each in ids])


def dapo_of(batch: Batch, old_logp: torch.Tensor) -> tuple[Batch, PassLoss]:
    """Return the rows as dapo credits them, and its loss after the first update of a step.

    Args:
        batch: the rows.
        old_logp: [B, T], of the policy before the step.
    """
    rows = torch.arange(ROWS)
    inputs = Inputs(
        advantages=batch.mask * torch.linspace(-1, 1, ROWS).unsqueeze(1),
        old_logp=old_logp,
        groups=rows // 4,
        rollouts=rows,
    )
    credited = replace(batch, inputs=inputs)
    step = Credited(credited, torch.zeros(ROWS), torch.ones(ROWS) > 0, None, 1.0)
    passes = PassLoss(resolve(load_recipe("dapo"), max_tokens=TOKENS), step)
    passes.made = 1
    return credited, passes


def loss(batch: Batch, predicted: Predicted) -> tuple[torch.Tensor, torch.Tensor]:
    """The negative log-likelihood, summed; the weights of all passes of an update add up to 1."""
    return -(predicted.logp * batch.mask).sum(), torch.tensor(len(batch) / ROWS)


def cpu_of(work: Callable[[], object]) -> float:
    """Return the CPU seconds of all threads of this process in which work is done."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Print a line for each pair, and the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny_policy(
            Path(folder) / "model", hidden=given.hidden, layers=given.layers, heads=4
        )
        base = BaseModel.load(ModelConfig(path=str(path), device="cpu"), "m")
        service = TinkerService(ModelHouse(base), CheckpointStore(Path(folder) / "kept"))
        with BackgroundServer(HttpServer([service], token="tml-key")) as url:
            measure(Path(path), url.replace("http://", "tinker://"))


def measure(path: Path, url: str) -> None:
    """Make updates here and through a server, in turns."""
    here, dapo = (Learner(load_model(path), CONFIG) for _ in range(2))
    clients = [TinkerClient(url, Secret("tml-key")) for _ in range(3)]
    for client in clients:
        run_on_loop(client.open("m"))
        run_on_loop(client.create("m", None))
    config = TrainConfig(env="", learner=url, trainer=CONFIG)
    named, computed = (RemoteLearner(client, config) for client in clients[1:])

    def served(batch: Batch) -> None:
        run_on_loop(clients[0].passed(weighted_rows(batch, batch.mask), "cross_entropy"))
        run_on_loop(clients[0].step(STEP))

    costs: dict[str, list[float]] = {}
    for pair in range(PAIRS + 1):
        batch, rows = batch_of(pair), torch.arange(ROWS)
        credited, dapo_loss = dapo_of(batch, dapo.score(batch))
        # Nothing is known of a plain function but that it reads log-probabilities.
        plain = partial(PassLoss.__call__, dapo_loss)
        seconds = {
            "train": cpu_of(partial(here.update, batch, rows, loss)),
            "served": cpu_of(partial(served, batch)),
            "dapo": cpu_of(partial(dapo.update, credited, rows, dapo_loss)),
            "named": cpu_of(partial(named.update, credited, rows, dapo_loss)),
            "computed": cpu_of(partial(computed.update, credited, rows, plain)),
        }
        print(json.dumps({name: round(value, 3) for name, value in seconds.items()}), flush=True)
        for name, value in seconds.items():
            costs.setdefault(name, []).extend([value] if pair else [])  # the first warms up
    probe = batch_of(99)
    apart = [
        float((mine.score(probe) - RemoteLearner(client, config).score(probe)).abs().max())
        for mine, client in zip((here, dapo, dapo), clients, strict=True)
    ]
    for client in clients:
        run_on_loop(client.close())
    medians = {name: statistics.median(values) for name, values in costs.items()}
    print(
        json.dumps(
            {
                **{name: round(value, 3) for name, value in medians.items()},
                "served_over_train": round(medians["served"] / medians["train"], 3),
                "named_over_dapo": round(medians["named"] / medians["dapo"], 3),
                "computed_over_dapo": round(medians["computed"] / medians["dapo"], 3),
                "apart": apart,
            }
        )
    )


if __name__ == "__main__":
    main()
