# pyright: basic
"""Weights and the optimizer's state in a checkpoint, one file per rank
(torch.distributed.checkpoint).

    step-000050/    config.json, tokenizer files, trainer.pt
    step-000050/ranks/    .metadata, __0_0.distcp, __1_0.distcp, ...
    step-000100/    the same, with model.safetensors: the last checkpoint of a run is a whole model

The files say which part of which tensor they hold, so that any number of ranks, and a learner in
one process, can read them, and one process can put the whole model together (`whole.py`). Beside an
adapter the frozen weights stay where they came from.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from ludus.errors import ConfigError, SaveFailed

from ..learning.learner import Learner
from ..models.adapters import has_adapter
from ..models.model_paths import SHARDS_FOLDER
from .group import Ranks

WEIGHT = "weight"
"""Name of a weight itself, beside its moments."""
AVERAGE = "average"
"""Name of the moving average of a weight, beside its moments."""
ANCHOR = "anchor"
"""Name of a weight of the moving reference, beside its moments."""


def write_shards(folder: Path, learner: Learner, ranks: Ranks, *, weights: bool = True) -> None:
    """Write this rank's shards into `folder`, which all ranks see; collective.

    Args:
        folder: the checkpoint.
        learner: whose shards are written.
        ranks: the group.
        weights: whether the model's weights are written too; False where a whole model, or an
            adapter, is written in any case.

    Raises:
        SaveFailed: on all ranks, if one could not write; the message names that rank and gives the
            system's reason.
    """
    unseen = [
        str(member)
        for member, sees in zip(ranks.members, ranks.gather(folder.is_dir()), strict=True)
        if not sees
    ]
    if unseen:
        raise SaveFailed(
            errno.ENOENT,
            f"{', '.join(unseen)} cannot see {str(folder)!r}; put run.folder on a file system "
            "that all ranks share",
        )
    try:
        save(_state(learner, weights=weights), checkpoint_id=folder / SHARDS_FOLDER)
    except CheckpointException as error:
        rank, failure = next(iter(error.failures.items()))
        cause = failure[0]
        code = cause.errno if isinstance(cause, OSError) and cause.errno else errno.EIO
        # Where torch's own writer of tensors fails, its error does not have the system's reason,
        # such as a full disk.
        reason = (
            cause.strerror
            if isinstance(cause, OSError)
            else f"a file could not be written whole; is there room left? ({cause})"
        )
        raise SaveFailed(code, f"{ranks.members[rank]}: {reason}") from error


def read_shards(folder: Path, learner: Learner) -> None:
    """Read what `write_shards` has written, with any number of ranks; collective on ranks.

    Raises:
        ConfigError: the files are missing or damaged, or are of another model, or the learner
            holds its weights in half precision, which the ranks do not.
    """
    if learner.masters.state():
        raise ConfigError(
            f"{str(folder)!r} is a checkpoint of ranks, which keep weights and optimizer in "
            'float32; model.weights = "bfloat16" would start without the optimizer\'s state; '
            'continue with model.weights = "float32"'
        )
    place = folder / SHARDS_FOLDER
    try:
        metadata = FileSystemReader(place).read_metadata().state_dict_metadata
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError(f"{str(folder)!r} holds no readable shards of ranks: {error}") from error
    sizes = {name: tuple(getattr(entry, "size", ())) for name, entry in metadata.items()}
    named = held_tensors(learner)
    _refuse_other_model(folder, sizes, named, learner)
    if any(key.endswith(f"/{ANCHOR}") for key in sizes):
        learner.anchor.reset()
    copies = _copies(learner, named_weights(learner))
    # `load` writes into the tensors that it is given. Weights and their copies are therefore read
    # in place; moments are read into new tensors, sharded like their weights.
    state: dict[str, Tensor] = {}
    for key, size in sizes.items():
        name, _, what = key.rpartition("/")
        weight = named[name]
        if what in copies:
            if name in copies[what]:
                state[key] = copies[what][name]
            continue
        if what == WEIGHT:
            state[key] = weight.detach()
        elif size:
            state[key] = torch.zeros_like(weight.detach())
        else:
            state[key] = torch.zeros(())
    try:
        with warnings.catch_warnings():
            # A learner in one process reads without torch.distributed, which torch warns of.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(state, checkpoint_id=place, no_dist=not dist.is_initialized())
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise ConfigError(
            f"the shards of ranks in {str(place)!r} cannot be read: {cause}"
        ) from error
    if not any(key.endswith(f"/{AVERAGE}") for key in state):
        learner.average.restore(())  # begins as the weights, which are there now
    learner.optimizer.state.clear()
    for key, tensor in state.items():
        name, _, what = key.rpartition("/")
        if what not in (WEIGHT, AVERAGE, ANCHOR):
            learner.optimizer.state[named[name]][what] = tensor


def placed(full: Tensor, like: Tensor) -> Tensor:
    """Return the part of a whole tensor that this rank holds, sharded like another tensor."""
    if not isinstance(like, DTensor) or full.dim() == 0:
        return full
    return distribute_tensor(
        full.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


def named_weights(learner: Learner) -> dict[str, nn.Parameter]:
    """Return the trained weights by name, equal for a learner in one process and on ranks."""
    of_model = {f"model.{name}": weight for name, weight in learner.model.named_parameters()}
    return {
        name: weight
        for name, weight in (of_model | outside_model(learner)).items()
        if weight.requires_grad
    }


def held_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return by name what a checkpoint of ranks holds: the trained weights and, without an adapter,
    what a model has besides, such as the frozen weights of a vision tower.
    """
    trained: dict[str, Tensor] = dict(named_weights(learner))
    if has_adapter(learner.model):
        return trained
    weights = {f"model.{name}": weight for name, weight in learner.model.named_parameters()}
    files = {f"model.{name}" for name in learner.model.state_dict(keep_vars=True)}
    buffers = {f"model.{name}": buffer for name, buffer in learner.model.named_buffers()}
    return {**weights, **{name: buffers[name] for name in buffers if name in files}, **trained}


def outside_model(learner: Learner) -> dict[str, nn.Parameter]:
    """Return the trained weights that the model's own files do not hold: those of the critic and
    of the value head.
    """
    modules = {"critic": learner.critic, "value_head": learner.value_head}
    return {
        f"{owner}.{name}": weight
        for owner, module in modules.items()
        if module is not None
        for name, weight in module.named_parameters()
        if weight.requires_grad
    }


def _copies(learner: Learner, named: Mapping[str, nn.Parameter]) -> dict[str, dict[str, Tensor]]:
    """Return the copies of the policy's trained weights by kind and name: the moving average and
    the moving reference, each empty without one.
    """
    policy = [name for name in named if name.startswith("model.")]
    kinds: dict[str, list[Tensor]] = {
        AVERAGE: learner.average.state(),
        ANCHOR: learner.anchor.state().get("values", []),
    }
    return {
        kind: dict(zip(policy, values, strict=True)) if values else {}
        for kind, values in kinds.items()
    }


def _state(learner: Learner, *, weights: bool) -> dict[str, Tensor]:
    named, state = named_weights(learner), dict[str, Tensor]()
    for name, tensor in (held_tensors(learner) if weights else outside_model(learner)).items():
        state[f"{name}/{WEIGHT}"] = tensor.detach()
    for kind, values in _copies(learner, named).items():
        state |= {f"{name}/{kind}": value for name, value in values.items()}
    for name, weight in named.items():
        for what, value in learner.optimizer.state.get(weight, {}).items():
            state[f"{name}/{what}"] = torch.as_tensor(value)
    return state


def _refuse_other_model(
    folder: Path,
    sizes: Mapping[str, tuple[int, ...]],
    named: Mapping[str, Tensor],
    learner: Learner,
) -> None:
    outside, trained = set(outside_model(learner)), set(named_weights(learner))
    kept = {key.rpartition("/")[0] for key in sizes}
    # Before the first update there are no moments. A checkpoint without an average then has nothing
    # of the model's weights in these files, and lacks nothing.
    of_model = kept - outside
    unknown = sorted(kept - set(named))
    missing = sorted((trained if of_model else outside) - kept)
    for which, names, here in (("holds", unknown, "has none"), ("lacks", missing, "trains one")):
        owners = {name.partition(".")[0] for name in names}
        if owners and owners <= {"critic", "value_head"}:
            separate = 'separate critic (trainer.critic = "separate")'
            what = separate if "critic" in owners else "value head"
            raise ConfigError(
                f"{str(folder)!r} {which} the state of a {what}, and this run {here}: go on with "
                "the recipe and the settings of the checkpoint"
            )
    if unknown or missing:
        which, names = ("holds", unknown) if unknown else ("lacks", missing)
        raise ConfigError(
            f"{str(folder)!r} was written by another model: it {which} the state of "
            f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        )
    for key, size in sizes.items():
        shape = tuple(named[key.rpartition("/")[0]].shape)
        if size and size != shape:
            raise ConfigError(
                f"{str(folder)!r} was written by a model of another shape: "
                f"{key.rpartition('/')[0]} is {list(size)} there and {list(shape)} here"
            )
