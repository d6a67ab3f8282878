"""Prints the bytes that a process holds more of after a forward pass with checkpointed layers.

python kept_by_layers.py
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.pass_memory import trimmer
from ludus.trainer.models.tiny import build_model
from ludus.trainer.rollout.batch import Row, pad

ROWS, LENGTH, HIDDEN, LAYERS = 8, 256, 256, 12


def private() -> int:
    """Return the bytes that are the process's own, and not pages of a file."""
    found = re.search(r"^Anonymous:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)
    assert found, "Linux tells it"
    return int(found[1]) * 1024


def main() -> None:
    torch.set_num_threads(1)
    model = build_model(64, hidden=HIDDEN, layers=LAYERS, heads=4, max_length=LENGTH)
    learner = Learner(model, TrainerConfig(checkpoint_layers=True, packing="rows"))
    ids = torch.randint(3, 64, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0)).tolist()
    given = pad([Row(one, [0, *([1] * (LENGTH - 1))], [0.0] * LENGTH) for one in ids])
    with torch.no_grad():
        learner.predict(given)  # libraries, and what the allocator learns from large blocks
    trimmer()()
    before = private()
    said = learner.predict(given)
    after = private()
    assert said.logp.requires_grad  # so that the inputs are held
    print(after - before)


if __name__ == "__main__":
    main()
