"""One rank of the test of checkpoints: rank 0 drives, the others follow.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python checkpoints.py FOLDER

With two ranks, a step is made and saved to FOLDER/sharded, as shards alone, a save that rank 1 has
no room for is tried, and another step is made; the plain checkpoint in FOLDER/plain is continued
too, and an adapter and a model that reads images are saved. With another number of ranks,
FOLDER/sharded is continued.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.errors import SaveFailed
from ludus.trainer.config import LoraConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.policy_model import MovingReference
from ludus.trainer.learning.reader import PolicyReader, ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.adapters import add_adapter
from ludus.trainer.models.checkpoint import SavedModel, load_state, save_checkpoint
from ludus.trainer.models.checkpoint_folders import Retention, checkpoints
from ludus.trainer.models.loading import load_model, load_shell
from ludus.trainer.models.model_paths import shards_alone
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.ranks.group import Ranks, place_of
from ludus.trainer.ranks.launch import restore_learner
from ludus.trainer.ranks.learner import ShardedLearner
from ludus.trainer.ranks.sharding import whole
from ludus.trainer.ranks.shards import named_weights
from ludus.trainer.ranks.updater import LeadUpdater, follow, obey
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.recipes.resolution import resolve

SETTINGS = TrainerConfig(
    lr=1e-4, tokens_per_pass=96, critic="separate", critic_lr=2e-4, ema_decay=0.5, reference_every=1
)
PULL: dict[str, Any] = {"algorithm": {"kl": {"place": "loss", "coefficient": 2.0}}}
SHAPE: dict[str, Any] = {"hidden": 16, "layers": 2, "heads": 2, "max_length": 128}


def updater(ranks: Ranks | None, start: Path | None = None, *, half: bool = False) -> Updater:
    """Make a PPO updater, whose learner has a critic, an average and a moving reference, which is
    another model at first, from scratch or from a checkpoint.
    """
    algorithm = resolve(load_recipe("ppo", PULL), max_tokens=20)
    if start is None:
        model = build_model(len(build_tokenizer()), **SHAPE)
    elif shards_alone(start):  # its weights follow when the learner is restored
        model = load_shell(start, dtype=torch.float32, device="cpu").requires_grad_(True)
    else:
        model = load_model(start)
    if half and ranks is None:
        model = model.bfloat16()
    reading = ReadingOptions(values=True, autocast=torch.bfloat16 if half else None)
    learner: Learner = (
        Learner(model, SETTINGS, reading)
        if ranks is None
        else ShardedLearner(model, SETTINGS, reading, ranks=ranks)
    )
    other = build_model(len(build_tokenizer()), seed=1, **SHAPE)
    reference = MovingReference(
        learner,
        PolicyReader(other, SETTINGS, ReadingOptions())
        if ranks is None
        else ShardedLearner(other, TrainerConfig(tokens_per_pass=96), ranks=ranks),
    )
    if start is not None:
        restore_learner(learner, load_state(start)["learner"], start)
    if ranks is None or ranks.rank:
        return Updater(algorithm, learner, reference=reference)
    return LeadUpdater(algorithm, learner, reference=reference, ranks=ranks)


def step(made: Updater, seed: int) -> None:
    made.step(EXPERIENCE(), generator=torch.Generator().manual_seed(seed))


def save(made: Updater, folder: Path, number: int, *, whole: bool = True) -> Path:
    learner, tokenizer = made.learner, build_tokenizer()
    return save_checkpoint(
        folder,
        number,
        SavedModel(learner.model, tokenizer, writer=learner.writer(tokenizer, whole=whole)),
        {"learner": learner.state()},
        Retention(2),
    )


def weights(made: Updater) -> dict[str, Tensor]:
    """Return what an engine is given, and the same of the moving average."""

    def published(kind: str) -> dict[str, Tensor]:
        pieces: Any = made.learner.source().pieces()
        return {f"{kind}/{name}": one.clone() for piece in pieces for name, one in piece.items()}

    found = published("trained")
    with made.learner.averaged():
        return found | published("average")


def save_others(ranks: Ranks, folder: Path) -> None:
    """Save an adapter that has learned, whole, and a model that reads images, as shards alone."""
    settings = replace(SETTINGS, critic="shared", reference_every=0, lora=LoraConfig(rank=4))
    model = load_model(folder / "base")
    add_adapter(model, settings.lora, base=str(folder / "base"))
    algorithm = resolve(load_recipe("grpo"), max_tokens=20)
    made = Updater(algorithm, ShardedLearner(model, settings, ranks=ranks))
    step(made, 0)
    if not ranks.rank:
        (folder / "adapter").mkdir()
    ranks.gather(0)
    weights_now = weights(made)
    write_of_all(made.learner, folder / "adapter", whole=True)
    if not ranks.rank:
        torch.save(weights_now, folder / "adapter.pt")
    images = ShardedLearner(load_model(folder / "vision"), TrainerConfig(), ranks=ranks)
    if not ranks.rank:
        (folder / "images").mkdir()
    ranks.gather(0)
    write_of_all(images, folder / "images", whole=False)


def write_of_all(learner: Any, folder: Path, *, whole: bool) -> None:
    """Write a checkpoint as every rank does by itself, where rank 0 gives no orders."""
    writer = learner.writer(build_tokenizer(), whole=whole)
    if learner.ranks.rank:
        writer.write_shards(folder)
    else:
        writer.write(folder)
        torch.save({"learner": learner.state()}, folder / "trainer.pt")


def _experience() -> Any:
    spec = spec_from_file_location("equality", Path(__file__).parent / "equality.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["equality"] = module
    spec.loader.exec_module(module)
    return module.experience


EXPERIENCE = _experience()


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    place = place_of()
    assert place is not None
    ranks = Ranks(place, timeout_s=60)
    found: dict[str, Any] = {}
    if place.world == 2:
        # what one process held in bfloat16 beside float32 copies
        half = updater(ranks, folder / "half" / "step-000001", half=True)
        held = [whole(one) for one in named_weights(half.learner).values()]
        found["moments"] = len(half.learner.optimizer.state)
        save_others(ranks, folder)
        if not place.rank:
            torch.save(held, folder / "half.pt")
    ranks.connect()
    if place.world == 2:
        made = updater(ranks)
        if place.rank:
            # room for the second save is missing on this rank: the system refuses larger files
            orders = ranks.control.receive  # type: ignore[union-attr]
            saves = 0

            def limited() -> Any:
                nonlocal saves
                order = orders()
                saves += order is not None and order.name == "shards"
                most = 4096 if saves == 2 else resource.RLIM_INFINITY
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
                return order

            ranks.control.receive = limited  # type: ignore[union-attr, method-assign]
            follow(ranks, partial(obey, made))
        else:
            step(made, 0)
            save(made, folder / "sharded", 1, whole=False)
            torch.save(weights(made), folder / "saved.pt")
            try:
                save(made, folder / "sharded", 2, whole=False)
            except SaveFailed as error:
                found["full"] = str(error)
            found["left"] = [one.name for one in checkpoints(folder / "sharded")]
            found["partial"] = [one.name for one in (folder / "sharded").glob(".*")]
            step(made, 1)
            torch.save(weights(made), folder / "two.pt")
            ranks.control.close()  # type: ignore[union-attr]
        ranks.connect()  # the run is over, the group begins another
        again = updater(ranks, folder / "plain" / "step-000001")
    else:
        again = updater(ranks, folder / "sharded" / "step-000001")
    if place.rank:
        follow(ranks, partial(obey, again))
    else:
        step(again, 1)
        torch.save(weights(again), folder / f"continued-{place.world}.pt")
        (folder / f"found-{place.world}.json").write_text(json.dumps(found))
        ranks.control.close()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
