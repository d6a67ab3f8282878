"""The models of a server whose weights are shared out over ranks.

Rank 0 answers clients, samples, and orders the other ranks to do with their shards what it does
with its own. Each model in training has shards of its own of the base model, so that several LoRA
models take several times 1/W of it on each of W ranks. Rank 0 holds the base model besides, since
it samples from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from ludus.errors import ConfigError

from ..config import ModelConfig, TrainerConfig
from ..learning.reader import ReadingOptions
from ..models.adapters import has_adapter, load_adapter, save_adapter
from ..models.loading import load_model
from ..models.weights import MemoryWeights, adapter_tensors
from ..ranks.control import Order
from ..ranks.group import Ranks
from ..ranks.launch import restore_learner
from ..ranks.learner import ShardedLearner
from ..ranks.sharding import ShardedWeights, local
from ..ranks.shards import placed, write_shards
from ..ranks.updater import decode, encode, follow
from .models import ADAPTER, STATE_FILE, BaseModel, ModelHouse
from .stepwise import StepwiseLearner, TargetRows
from .wire import AdamParams, Datum, ForwardBackward, LoraSpec, Passed


class PassData(msgspec.Struct, frozen=True):
    """What all ranks need for a pass."""

    rows: list[dict[str, Tensor]]
    """The inputs of each row by name; its tokens have the empty name."""
    loss_fn: str
    config: dict[str, float | str]
    forward_only: bool

    @classmethod
    def of(cls, request: ForwardBackward) -> PassData:
        """Return what a request asks for."""
        rows = [
            {name: torch.tensor(values) for name, values in {"": row.tokens, **row.inputs}.items()}
            for row in request.data
        ]
        return cls(rows, request.loss_fn, dict(request.config), request.forward_only)

    def request(self) -> ForwardBackward:
        """Return the request."""
        data = [
            Datum(row[""].numpy(), {name: each.numpy() for name, each in row.items() if name})
            for row in self.rows
        ]
        return ForwardBackward("", 0, data, self.loss_fn, self.config, self.forward_only)


class SharedStepwise(StepwiseLearner, ShardedLearner):
    """A `StepwiseLearner` whose weights, gradient and moments are shared out over ranks.

    Every method is collective; on rank 0 it orders the others to make the same call.

    Args:
        given: as of `ShardedLearner`.
        key: the name of the model among the ranks.
        spec: its adapter; None trains all weights.
        options: as of `ShardedLearner`.
    """

    def __init__(self, *given: Any, key: str, spec: LoraSpec | None, **options: Any) -> None:
        super().__init__(*given, **options)
        self.key, self.spec = key, spec

    def accumulate(self, request: ForwardBackward) -> Passed:
        """Add the gradient of a loss over some rows; see `StepwiseLearner.accumulate`."""
        with self.ranks.together("pass", encode(PassData.of(request)), model=self.key):
            return super().accumulate(request)

    def step(self, settings: AdamParams) -> dict[str, float]:
        """Make an update; see `StepwiseLearner.step`."""
        with self.ranks.together("update", msgspec.msgpack.encode(settings), model=self.key):
            return super().step(settings)

    def forget(self) -> None:
        """Drop the gradient so far."""
        with self.ranks.together("forget", model=self.key):
            super().forget()

    def whole(self) -> dict[str, Tensor]:
        """Return, on rank 0, the matrices of the adapter, or all weights where there is none."""
        source = ShardedWeights(self.model, self.ranks, adapter=has_adapter(self.model))
        tensors: dict[str, Tensor] = {}
        with self.ranks.together("whole", model=self.key):
            for piece in source.pieces():
                if self.ranks.rank == 0:
                    tensors |= piece
        return tensors

    def write(self, folder: Path, *, optimizer: bool) -> None:
        """Write a checkpoint: the weights by rank 0, the optimizer's state by every rank."""
        with self.ranks.together("write", model=self.key, folder=str(folder), optimizer=optimizer):
            if self.ranks.rank == 0:  # before a collective call, after which the others look for it
                folder.mkdir(parents=True, exist_ok=True)
            tensors = self.whole()
            if self.ranks.rank == 0 and self.spec is not None:
                save_adapter(self.model, folder / ADAPTER, tensors)
            elif self.ranks.rank == 0:
                self.model.save_pretrained(str(folder), state_dict=tensors)
            if optimizer:
                write_shards(folder, self, self.ranks, weights=False)
            if optimizer and self.ranks.rank == 0:
                torch.save(self.state(), folder / STATE_FILE)

    def read(self, folder: Path, *, optimizer: bool) -> None:
        """Load a checkpoint of any number of ranks.

        Raises:
            ConfigError: it is of another kind of model.
        """
        with self.ranks.together("read", model=self.key, folder=str(folder), optimizer=optimizer):
            if self.spec is not None:
                load_adapter(self.model, folder / ADAPTER, write=_place)
            elif (folder / ADAPTER).is_dir():
                raise ConfigError("the checkpoint is an adapter, and this model trains all weights")
            else:
                loaded = dict(load_model(folder, dtype=self.model.dtype).named_parameters())
                for name, weight in self.model.named_parameters():
                    _place(weight, loaded[name])
            if optimizer:
                state = torch.load(folder / STATE_FILE, weights_only=True)
                restore_learner(self, state, folder)
            self.forget()

    def _target_logp(self, rows: TargetRows) -> Tensor:
        return self._within(lambda: super(SharedStepwise, self)._target_logp(rows))

    def _add_gradient(self, part_sum: Tensor, logp: Tensor) -> None:
        # An empty sum connects a loss that reads nothing to the pass, whose reductions are those of
        # the other ranks.
        if torch.is_grad_enabled():
            (part_sum + logp[:, :0].sum()).backward()

    def _summed(self, tensor: Tensor) -> Tensor:
        return self.ranks.summed(tensor)


@torch.no_grad()
def _place(weight: Tensor, whole: Tensor) -> None:
    local(weight).copy_(local(placed(whole, weight)))


@dataclass
class SharedHouse(ModelHouse):
    """The models of a server on ranks, as rank 0 has them.

    Args:
        base: the base model, whole.
        limits: how much is held.
        ranks: the group, which is connected.
    """

    ranks: Ranks | None = None

    def make(self, spec: LoraSpec | None) -> StepwiseLearner:
        """Make a learner at the weights of the base model, sharded."""
        assert self.ranks is not None
        self._versions += 1
        key = str(self._versions)
        with self.ranks.together("make", msgspec.msgpack.encode(spec), model=key):
            return _new_learner(self.base, self.ranks, key, spec)

    def write(self, learner: StepwiseLearner, folder: Path, *, optimizer: bool) -> None:
        """Write a checkpoint of a learner."""
        assert isinstance(learner, SharedStepwise)
        learner.write(folder, optimizer=optimizer)

    def read(self, learner: StepwiseLearner, folder: Path, *, optimizer: bool) -> None:
        """Load a checkpoint into a learner of the same kind."""
        assert isinstance(learner, SharedStepwise)
        learner.read(folder, optimizer=optimizer)

    def _drop(self, learner: StepwiseLearner) -> None:
        assert self.ranks is not None
        assert isinstance(learner, SharedStepwise)
        with self.ranks.together("drop", model=learner.key):
            pass

    async def _weights_of(self, learner: StepwiseLearner) -> MemoryWeights:
        assert isinstance(learner, SharedStepwise)
        return MemoryWeights(await self.compute(learner.whole))

    async def _model_now(self, learner: StepwiseLearner) -> Any:
        assert isinstance(learner, SharedStepwise)
        tensors = (await self._weights_of(learner)).tensors
        model = await self.compute(partial(self.base.trainable, learner.spec))
        here = adapter_tensors(model) or dict(model.named_parameters())
        with torch.no_grad():
            for name, weight in here.items():
                weight.copy_(tensors[name])
        return model.requires_grad_(requires_grad=False)


def _new_learner(base: BaseModel, ranks: Ranks, key: str, spec: LoraSpec | None) -> SharedStepwise:
    return SharedStepwise(
        base.trainable(spec),
        TrainerConfig(),
        ReadingOptions(autocast=base.autocast),
        ranks=ranks,
        key=key,
        spec=spec,
    )


def follow_served(ranks: Ranks, settings: ModelConfig, name: str) -> None:
    """Take part in every order of rank 0; returns when the server ends.

    Args:
        ranks: the connected group.
        settings: of the base model, which is read for each model that is made and not kept.
        name: what clients call it.

    Raises:
        RankLost: a rank died or failed.
    """
    learners: dict[str, SharedStepwise] = {}

    def obey(order: Order, payload: bytes) -> None:
        given: Mapping[str, Any] = order.arguments
        key = str(given["model"])
        if order.name == "make":
            spec = msgspec.msgpack.decode(payload, type=LoraSpec | None)
            learners[key] = _new_learner(BaseModel.load(settings, name), ranks, key, spec)
            return
        learner = learners[key]
        match order.name:
            case "pass":
                learner.accumulate(decode(payload, PassData).request())
            case "update":
                learner.step(msgspec.msgpack.decode(payload, type=AdamParams))
            case "forget":
                learner.forget()
            case "whole":
                learner.whole()
            case "write" | "read":
                act = learner.write if order.name == "write" else learner.read
                act(Path(given["folder"]), optimizer=bool(given["optimizer"]))
            case "drop":
                del learners[key]
            case _:
                raise ValueError(f"no order named {order.name!r}")

    follow(ranks, obey)
