"""One rank of the test of loading: part by part, and whole, under the same limit of memory.

RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python loads.py FOLDER OUT
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.layer_files import layer_files
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import build_model
from ludus.trainer.ranks.group import Ranks, place_of
from ludus.trainer.ranks.learner import ShardedLearner
from ludus.trainer.ranks.sharding import local
from ludus.trainer.ranks.shards import write_shards
from ludus.trainer.ranks.whole import write_whole

SLACK = 80 << 20
"""Room for a layer that is read and shared out, and for threads of torch."""


def data_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmData:")[2].split()[0]) * 1024


def main() -> None:
    folder, out = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    place = place_of()
    assert place is not None
    ranks = Ranks(place)
    settings, reading = TrainerConfig(tokens_per_pass=64), ReadingOptions(values=True)
    small: Any = build_model(64, hidden=16, layers=1, heads=2)
    ShardedLearner(small, settings, reading, ranks=ranks).score_ids([3, 4, 5], 1.0)  # libraries
    files = layer_files(folder)
    assert files is not None
    share = (folder / "model.safetensors").stat().st_size // ranks.world
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + share + SLACK, resource.RLIM_INFINITY))
    learner = ShardedLearner(files.outline(), settings, reading, ranks=ranks, files=files)
    parts = {name: local(one).clone() for name, one in list(learner.model.named_parameters())[:2]}
    # A checkpoint's shards, and its whole model, are written under the same limit.
    kept = folder / "kept"
    if ranks.rank == 0:
        kept.mkdir()
    ranks.gather(0)
    write_shards(kept, learner, ranks)
    if ranks.rank == 0:
        write_whole(kept, plain=learner.plain)
    learner.root = learner.model = None  # type: ignore[assignment]
    try:
        load_model(folder)
        whole = "loaded"
    except (MemoryError, RuntimeError, OSError) as error:
        whole = type(error).__name__
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    saved = load_file(folder / "model.safetensors")
    mine = {name: saved[name].chunk(ranks.world)[ranks.rank] for name in parts}
    if ranks.rank == 0:
        written = load_file(kept / "model.safetensors")
        assert saved.keys() == written.keys()
        assert all(torch.equal(saved[name], written[name]) for name in saved)
    same = all(torch.equal(part, mine[name]) for name, part in parts.items())
    found = ranks.gather({"whole": whole, "same": same, "packed": not learner.unpacked})
    if not place.rank:
        out.write_text(json.dumps(found))
    ranks.close()


if __name__ == "__main__":
    main()
