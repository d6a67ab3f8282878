"""What an update costs through the Tinker API, beside the same update by `ludus train`'s learner.

    python benchmarks/tinker_overhead.py

Server and client are this process, with HTTP between them on the loopback. Each pair of updates
learns from the same rows, with weights and learning rate alike; CPU seconds of all threads count,
so that other work on the machine does not. The last lines are the medians, their ratio, and the
largest difference of log-probabilities afterwards.

`train --learner tinker://` computes a recipe's loss from log-probabilities that the server tells,
and needs one more forward pass for it: `recipe` is the ratio of that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ludus.background import run_on_loop
from ludus.secret import Secret
from ludus.trainer.config import ModelConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner, Predicted
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
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
    here = Learner(load_model(path), CONFIG)
    clients = [TinkerClient(url, Secret("tml-key")) for _ in range(2)]
    for client in clients:
        run_on_loop(client.open("m"))
        run_on_loop(client.create("m", None))
    remote = RemoteLearner(clients[1], TrainConfig(env="", learner=url, trainer=CONFIG))

    def served(batch: Batch) -> None:
        run_on_loop(clients[0].passed(weighted_rows(batch, batch.mask), "cross_entropy"))
        run_on_loop(clients[0].step(STEP))

    found: dict[str, list[float]] = {"train": [], "served": [], "recipe": []}
    for pair in range(PAIRS + 1):
        batch, rows = batch_of(pair), torch.arange(ROWS)
        seconds = {
            "train": cpu_of(partial(here.update, batch, rows, loss)),
            "served": cpu_of(partial(served, batch)),
            "recipe": cpu_of(partial(remote.update, batch, rows, loss)),
        }
        print(json.dumps({name: round(value, 3) for name, value in seconds.items()}), flush=True)
        for name, value in seconds.items():
            found[name] += [value] if pair else []  # the first pair warms up
    probe = batch_of(99)
    passed = run_on_loop(
        clients[0].passed(weighted_rows(probe, probe.mask), "cross_entropy", forward_only=True)
    )
    there = torch.tensor(np.array([[0.0, *each] for each in passed.logprobs]))
    apart = ((here.score(probe) - there) * probe.mask).abs().max()
    for client in clients:
        run_on_loop(client.close())
    medians = {name: statistics.median(values) for name, values in found.items()}
    print(
        json.dumps(
            {
                **{name: round(value, 3) for name, value in medians.items()},
                "served_over_train": round(medians["served"] / medians["train"], 3),
                "recipe_over_train": round(medians["recipe"] / medians["train"], 3),
                "apart": float(apart),
            }
        )
    )


if __name__ == "__main__":
    main()
