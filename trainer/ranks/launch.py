"""Starting and ending the ranks of a training run under torchrun.

    torchrun --standalone --nproc_per_node 2 -m ludus train FILE.toml

Rank 0 drives: environments, engine, rollouts, files. The others hold a part of the weights and take
part in every update.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ludus import __version__
from ludus.errors import ConfigError

from ..config import TrainConfig
from ..learning.learner import Learner
from ..learning.update import Updater
from ..models.devices import pick_device
from ..models.layer_files import LayerFiles
from ..run.folder import referring
from .group import DEFAULT_TIMEOUT_S, SHARDS, Ranks, place_of

_opened: list[Ranks] = []


def current_ranks() -> Ranks | None:
    """Return the group of this process; None for a learner in a single process."""
    return _opened[-1] if _opened else None


def follows() -> bool:
    """Whether torchrun has started this process as another rank than the first."""
    place = place_of()
    return place is not None and place.rank > 0


@contextmanager
def open_ranks(config: TrainConfig) -> Generator[Ranks | None]:
    """Join torchrun's group, if any, until the end of the block.

    An exception in the block is told to the other ranks, which end too.

    Raises:
        ConfigError: the ranks have different settings or versions, or an engine that cannot be
            used with several; or settings of ranks are given without torchrun.
        RankLost: a rank did not start.
    """
    place = place_of()
    if (place is None or place.world == 1) and config.ranks.offload:
        raise ConfigError(
            "ranks.offload is for weights that ranks share; start the run by torchrun "
            "--nproc_per_node 2 -m ludus train ..., with as many processes as devices"
        )
    settings = {"settings": referring(config)}
    with open_group(config.model.device, settings, timeout_s=config.ranks.timeout_s) as ranks:
        yield ranks


@contextmanager
def open_group(
    device: str, settings: dict[str, Any], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Generator[Ranks | None]:
    """Join torchrun's group, if any; see `open_ranks`.

    Args:
        device: where the weights are, as `model.device` has it.
        settings: what must be the same on all ranks.
        timeout_s: as of `Ranks`.
    """
    place = place_of()
    if place is None or place.world == 1:
        yield None
        return
    kind = "cuda" if pick_device(device).startswith("cuda") else "cpu"
    ranks = Ranks(place, device=kind, timeout_s=timeout_s)
    try:
        _refuse_unequal(ranks, settings)
        ranks.connect()
    except BaseException:
        ranks.close()
        raise
    _opened.append(ranks)
    try:
        yield ranks
    except BaseException as error:
        lost = ranks.lost_by(error)
        ranks.fail(lost or error)
        if lost is not None:
            raise lost from error
        raise
    else:
        ranks.close()
    finally:
        _opened.remove(ranks)


def make_learner(
    *given: Any, offload: bool = False, files: LayerFiles | None = None, **options: Any
) -> Learner:
    """Make a `Learner`, sharded where this process is a rank; a rank's model may come without
    weights, which are read from `files`.
    """
    ranks = current_ranks()
    if ranks is None:
        return Learner(*given, **options)
    from .learner import ShardedLearner  # torch's sharding takes a second to import

    return ShardedLearner(*given, ranks=ranks, offload=offload, files=files, **options)


def make_updater(*given: Any, **options: Any) -> Updater:
    """Make an `Updater`, on rank 0 one whose steps are made by all ranks."""
    ranks = current_ranks()
    if ranks is None or ranks.rank:
        return Updater(*given, **options)
    from .updater import LeadUpdater

    return LeadUpdater(*given, ranks=ranks, **options)


def restore_learner(learner: Learner, state: Mapping[str, Any], checkpoint: Path) -> None:
    """Continue from what a checkpoint of one process, or of any number of ranks, has kept.

    Args:
        learner: the learner of this process, of one process or of a rank.
        state: what `Learner.state` has returned.
        checkpoint: the checkpoint's folder, in which ranks have written beside the state.

    Raises:
        ConfigError: the checkpoint was written by another model, or with other settings.
    """
    if SHARDS not in state:
        learner.restore(state)
        return
    from .shards import read_shards  # torch's distributed checkpoints take a second to import

    learner.updates = int(state["updates"])
    learner.scale.restore(state.get("loss_scale", {}))
    learner.anchor.restore(state.get("anchor", {}))
    read_shards(checkpoint, learner)


@contextmanager
def opening(model_path: str, start: Path | None) -> Generator[None]:
    """Let the other ranks load and restore the same model while rank 0 does."""
    ranks = current_ranks()
    if ranks is None:
        yield
        return
    with ranks.together("open", model=model_path, start=str(start or "")):
        yield


@contextmanager
def ending_with_ranks() -> Generator[None]:
    """Cancel the current task when a rank is lost.

    Raises:
        RankLost: in the place of the cancellation.
    """
    ranks, task = current_ranks(), asyncio.current_task()
    if ranks is None or ranks.control is None or task is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def cancel(why: str) -> None:
        loop.call_soon_threadsafe(task.cancel)

    ranks.control.watch(cancel)
    try:
        yield
    except asyncio.CancelledError:
        ranks.control.refuse_lost()
        raise


def _refuse_unequal(ranks: Ranks, settings: dict[str, Any]) -> None:
    """Refuse ranks whose settings or versions differ from rank 0."""
    mine = _flat(settings)
    mine |= {"version of ludus-rl": __version__, "version of torch": torch.__version__}
    every = ranks.gather({name: repr(value) for name, value in mine.items()})
    for member, theirs in zip(ranks.members, every, strict=True):
        for name in sorted({*every[0], *theirs}):
            if every[0].get(name) != theirs.get(name):
                raise ConfigError(
                    f"{name.removeprefix('settings.')} is {every[0].get(name)} on "
                    f"{ranks.members[0]} and {theirs.get(name)} on {member}; start all ranks with "
                    "the same settings and versions"
                )


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in table.items():
        values |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return values
