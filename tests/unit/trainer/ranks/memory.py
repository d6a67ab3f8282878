"""One rank of the test of memory: rank 1 may allocate less than a pass takes.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python memory.py OUT

Both ranks make two updates, of which the first runs out of memory on rank 1, and score the rows.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.tiny import build_model
from ludus.trainer.ranks.group import Ranks, place_of
from ludus.trainer.ranks.learner import ShardedLearner
from ludus.trainer.ranks.sharding import whole
from ludus.trainer.rollout.batch import Row, pad
from ludus.trainer.sft import negative_log_likelihood

TOKENS, LENGTH, ROWS = 4096, 256, 64
ROOM = 170 << 20
"""Bytes that rank 1 may allocate more; a pass of 4,096 tokens keeps 218 MB."""


def data_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmData:")[2].split()[0]) * 1024


def main() -> None:
    torch.set_num_threads(1)
    place = place_of()
    assert place is not None
    ranks = Ranks(place)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 64, (ROWS, LENGTH), generator=draw).tolist()
    batch = pad([Row(one, [0] + [1] * (LENGTH - 1), [0.0] * LENGTH) for one in ids])
    settings = TrainerConfig(tokens_per_pass=TOKENS, lr=1e-4)

    def model() -> Any:
        return build_model(64, hidden=128, layers=4, heads=4, max_length=LENGTH)

    learner = ShardedLearner(model(), settings, ranks=ranks)
    learner.score_ids([3, 4, 5], 1.0)  # loads libraries
    ranks.gather(0)
    if place.rank == 1:
        limit = data_bytes() + ROOM
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    numbers = [learner.update(batch, torch.arange(ROWS), negative_log_likelihood) for _ in range(2)]
    scores = learner.score(batch)
    bounds = ranks.gather(learner.tokens_per_pass)
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    weights = [whole(weight) for weight in learner.model.parameters()]
    if not place.rank:
        alone = Learner(model(), settings)
        expected = [
            alone.update(batch, torch.arange(ROWS), negative_log_likelihood) for _ in range(2)
        ]
        pairs = zip(weights, alone.model.parameters(), strict=True)
        found = {
            "bounds": bounds,
            "shortages": [one.get("out_of_memory", 0.0) for one in numbers],
            "losses": max(
                abs(a["loss"] - b["loss"]) for a, b in zip(numbers, expected, strict=True)
            ),
            "weights": max(float((a - b).abs().max()) for a, b in pairs),
            "scores": float((scores - alone.score(batch)).abs().max()),
        }
        Path(sys.argv[1]).write_text(json.dumps(found))
    ranks.close()


if __name__ == "__main__":
    main()
