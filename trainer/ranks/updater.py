"""The updater of ranks; messages are structs with tensors as msgpack, never pickle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

from ludus.errors import LudusError

from ..learning.experience import Experience
from ..learning.update import Updater
from .control import Follower, Order
from .group import Ranks
from .learner import ShardedLearner, ShardWriter
from .sharding import ShardedWeights

T = TypeVar("T")


class PackedTensor(msgspec.Struct, array_like=True, frozen=True):
    """A tensor as type, shape and bytes."""

    dtype: str
    shape: list[int]
    data: bytes


def encode(value: object) -> bytes:
    """Return a struct or dataclass as bytes, its tensors included."""
    return msgspec.msgpack.encode(value, enc_hook=_packed)


def decode(data: bytes, kind: type[T]) -> T:
    """Return what `encode` was given.

    Raises:
        msgspec.ValidationError: the bytes are of another struct.
    """
    hashable: Any = kind  # as type[T] is, which mypy does not know
    decoded: T = _decoder(hashable).decode(data)
    return decoded


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_unpacked)


def _packed(value: Any) -> PackedTensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{type(value).__name__} has no form in bytes")
    flat = value.detach().cpu().contiguous()
    data = flat.flatten().view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return PackedTensor(str(flat.dtype).removeprefix("torch."), list(flat.shape), data)


def _unpacked(kind: type[Any], given: Any) -> Any:
    if kind is not Tensor:
        raise TypeError(f"{kind.__name__} has no form in bytes")
    packed = msgspec.convert(given, PackedTensor)
    dtype = getattr(torch, packed.dtype)
    if not packed.data:
        return torch.empty(packed.shape, dtype=dtype)
    return torch.frombuffer(bytearray(packed.data), dtype=dtype).reshape(packed.shape)


class StepData(msgspec.Struct, frozen=True):
    """What all ranks need for a step."""

    experience: Experience
    generator: Tensor
    """The state of the generator that draws mini-batches."""
    tracked: dict[str, Any] | None
    """The state of the success tracker, where the recipe has one."""
    entropy_coefficient: float
    """The state of the entropy's controller before the step."""
    numbers: dict[str, float] = {}
    """The numbers of the recipe that move, by path."""


class LeadUpdater(Updater):
    """An `Updater` that sends each step to all ranks first.

    Advantages, filters and the order of mini-batches are computed alike on every rank; only the
    passes are shared out.

    Args:
        ranks: the group, whose rank 0 this is.
        options: as of `Updater`.
    """

    def __init__(self, *given: Any, ranks: Ranks, **options: Any) -> None:
        super().__init__(*given, **options)
        self.ranks = ranks

    def step(self, experience: Experience, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from the experience of a step; see `Updater.step`."""
        # The other ranks need the names of episodes only, for refused updates.
        named = [
            msgspec.structs.replace(episode, trajectories=[]) for episode in experience.episodes
        ]
        tracked = None if self.tracker is None else self.tracker.state()
        data = StepData(
            experience=replace(experience, episodes=tuple(named)),
            generator=generator.get_state(),
            tracked=tracked,
            entropy_coefficient=self.entropy.coefficient,
            numbers=self.values,
        )
        with self.ranks.together("step", encode(data)):
            return super().step(experience, generator=generator)


def follow_step(updater: Updater, payload: bytes) -> None:
    """Make the step that rank 0 has sent."""
    data = decode(payload, StepData)
    if updater.tracker is not None and data.tracked is not None:
        updater.tracker.restore(data.tracked)
    updater.adopt(data.numbers)
    updater.entropy.coefficient = data.entropy_coefficient
    generator = torch.Generator()
    generator.set_state(data.generator)
    updater.step(data.experience, generator=generator)


logger = logging.getLogger(__name__)


def follow(ranks: Ranks, obey: Callable[[Order, bytes], None]) -> None:
    """Take part in every order of rank 0; returns at the end of the run.

    Args:
        ranks: the connected group.
        obey: does what an order with its payload asks of this rank.

    Raises:
        RankLost: a rank died or failed.
    """
    control = ranks.control
    assert isinstance(control, Follower), "rank 0 leads, and groups are connected first"
    while (order := control.receive()) is not None:
        payload = ranks.broadcast(None)
        try:
            obey(order, payload)
        except LudusError as error:
            # rank 0 came to the same end, tells it, and decides whether the run goes on
            logger.debug("%s: %s: %s", ranks.me, order.name, error)


def obey(updater: Updater, order: Order, payload: bytes) -> None:
    """Do what an order of a training run asks of a rank.

    Args:
        updater: the same as on rank 0, with this rank's learner.
        order: the order.
        payload: its data.
    """
    learner = updater.learner
    assert isinstance(learner, ShardedLearner), "ranks hold shards"
    given = order.arguments
    match order.name:
        case "step":
            follow_step(updater, payload)
        case "piece":
            source = ShardedWeights(learner.model, learner.ranks, adapter=given["adapter"])
            source.gather(given["first"], given["last"])
        case "broken":
            ShardWriter(learner).broken()
        case "score":
            learner.score_ids(given["ids"], given["temperature"])
        case "average":
            learner.exchange_average(put_in=given["put_in"])
        case "shards":
            ShardWriter(learner).write_shards(Path(given["folder"]))
        case _:
            raise ValueError(f"no order named {order.name!r}")
