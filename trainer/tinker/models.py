"""The models of a server: one base model, what is trained beside it, and what is sampled from.

The frozen weights are held once. An adapter's matrices stand in a copy of the modules that shares
them, so that several models are trained, and several snapshots sampled from, at the cost of their
own matrices. A model without an adapter is a whole copy.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from ludus.errors import ConfigError, UnknownName
from ludus.wire.faults import QueueFull, Refused

from ..config import LoraConfig, ModelConfig, TrainerConfig
from ..engines.local import EngineLimits, LocalEngine
from ..learning.reader import ReadingOptions
from ..models.adapters import add_adapter, decoder_layers, load_adapter, save_adapter
from ..models.devices import DTYPES, autocast_of, pick_device, refuse_unsupported, settled_dtype
from ..models.loading import CausalLM, load_model, load_stop_ids, load_tokenizer
from ..models.tiny import find_model
from ..models.weights import MemoryWeights, adapter_tensors
from ..ranks.launch import restore_learner
from .futures import OrderedJobs
from .stepwise import StepwiseLearner
from .store import RunCard
from .wire import LoraSpec

T = TypeVar("T")
ALPHA = 32.0
"""LoRA's alpha, which the API does not send: what Tinker documents for its own adapters."""
STATE_FILE, ADAPTER = "trainer.pt", "adapter"
KEPT_TOKENS = 32_768
"""How many tokens of keys and values each engine keeps between turns."""


class UnknownBase(UnknownName):
    """No base model has this name."""

    kind = "base model"


@dataclass(frozen=True, kw_only=True)
class ServedLimits:
    """What a server of models holds at a time."""

    models: int = 8
    """The most models in training."""
    engines: int = 8
    """The most sets of weights that are sampled from. Of snapshots without a name the oldest are
    dropped, and whoever samples from one is told so.
    """
    rows: int = 64
    """The most answers of an engine that are sampled together."""


@dataclass(eq=False)
class ServedModel:
    """A model in training."""

    card: RunCard
    session: str
    jobs: OrderedJobs
    learner: StepwiseLearner | None = None
    """None until it is made."""
    torn: str = ""
    """Why the gradient so far is not that of what was submitted; empty while it is."""

    def made(self) -> StepwiseLearner:
        """Return the learner.

        Raises:
            ConfigError: the model could not be made.
        """
        if self.learner is None:
            raise ConfigError(f"the model {self.card.training_run_id} could not be made")
        return self.learner


@dataclass(eq=False)
class OpenedEngine:
    """An engine of some weights."""

    engine: LocalEngine
    sampling: int = 0
    """How many requests are at it."""


@dataclass(frozen=True)
class BaseModel:
    """The model that others start from, frozen."""

    name: str
    """What clients call it."""
    path: str
    model: CausalLM
    tokenizer: Any
    stop_ids: tuple[int, ...]
    """The tokens that end an answer where a request names none."""
    autocast: torch.dtype | None

    @classmethod
    def load(cls, settings: ModelConfig, name: str) -> BaseModel:
        """Load the model that `settings` name.

        Raises:
            ConfigError: nothing is found, or the type cannot be computed in.
        """
        device = pick_device(settings.device)
        dtype = settled_dtype(settings.dtype, device)
        refuse_unsupported(dtype, device)
        if dtype == "float16":
            raise ConfigError("model.dtype is 'float16', in which clients' losses overflow")
        path = find_model(settings.path)
        model = load_model(path, dtype=DTYPES[settings.weights], device=device)
        tokenizer: Any = load_tokenizer(path)
        ends = {*load_stop_ids(path), tokenizer.eos_token_id} - {None}
        autocast = autocast_of(dtype)
        frozen = model.requires_grad_(requires_grad=False)
        return cls(name, path, frozen, tokenizer, tuple(sorted(ends)), autocast)

    def refuse_other(self, name: str) -> None:
        """Refuse the name of another base model: clients name models, never files.

        Raises:
            Refused: with the name of this one (404).
        """
        if name != self.name:
            raise Refused(str(UnknownBase.near(name, [self.name])), "not_found")

    def trainable(self, spec: LoraSpec | None) -> CausalLM:
        """Return a copy to train: whole, or frozen with an adapter that changes nothing yet.

        Raises:
            ConfigError: the rank is not positive, or nothing is to be adapted.
            MissingExtra: peft is not installed.
        """
        if spec is None:
            return copy.deepcopy(self.model).requires_grad_(requires_grad=True)
        if spec.rank < 1:
            raise ConfigError(f"lora_config.rank must be at least 1, got {spec.rank}")
        model = sharing_copy(self.model)
        # Linear layers of the decoder get matrices.
        names = set[str]()
        for name, module in decoder_layers(self.model)[0].named_modules():
            wanted = spec.train_attn if "attn" in name.partition(".")[0] else spec.train_mlp
            if wanted and isinstance(module, torch.nn.Linear):
                names.add(name.rpartition(".")[2])
        if not names:
            raise ConfigError(
                "nothing is to be trained: set train_attn or train_mlp (the unembedding is not "
                "adapted here)"
            )
        settings = LoraConfig(rank=spec.rank, alpha=ALPHA, targets=",".join(sorted(names)))
        add_adapter(model, settings, base=self.path, seed=spec.seed or 0)
        return model


def sharing_copy(model: CausalLM) -> CausalLM:
    """Copy a model's modules and trained weights; what is frozen is shared and not copied."""
    shared: dict[int, Any] = {
        id(weight): weight
        for weight in (*model.parameters(), *model.buffers())
        if not weight.requires_grad
    }
    return copy.deepcopy(model, shared)


@dataclass
class ModelHouse:
    """Makes and keeps models and engines.

    One thread computes for all models, one request at a time; engines have threads of their own.

    Args:
        base: the base model.
        limits: how much is held.
    """

    base: BaseModel
    limits: ServedLimits = field(default_factory=ServedLimits)

    def __post_init__(self) -> None:
        self.models: dict[str, ServedModel] = {}
        self._engines: OrderedDict[str, OpenedEngine] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ludus-learner")
        self._versions = 0

    async def compute(self, work: Callable[[], T]) -> T:
        """Do work on the thread of the learners."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def admit(self, model: ServedModel, most: int) -> None:
        """Give a model its place, before the model is made.

        Args:
            model: the model.
            most: how many its owner may have; 0 for no limit.

        Raises:
            QueueFull: there is none (429).
        """
        owner = model.card.model_owner
        mine = sum(each.card.model_owner == owner for each in self.models.values())
        for depth, limit in ((len(self.models), self.limits.models), (mine, most)):
            if limit and depth >= limit:
                raise QueueFull(f"{depth} models are in training", depth=depth, limit=limit)
        self.models[model.card.training_run_id] = model

    def make(self, spec: LoraSpec | None) -> StepwiseLearner:
        """Make a learner at the weights of the base model."""
        return StepwiseLearner(
            self.base.trainable(spec), TrainerConfig(), ReadingOptions(autocast=self.base.autocast)
        )

    def write(self, learner: StepwiseLearner, folder: Path, *, optimizer: bool) -> None:
        """Write a checkpoint of a learner."""
        if adapter_tensors(learner.model):
            save_adapter(learner.model, folder / ADAPTER)
        else:
            learner.model.save_pretrained(str(folder))
        if optimizer:
            torch.save(learner.state(), folder / STATE_FILE)

    def read(self, learner: StepwiseLearner, folder: Path, *, optimizer: bool) -> None:
        """Load a checkpoint into a learner of the same kind.

        Raises:
            ConfigError: it is of another kind of model.
        """
        if adapter_tensors(learner.model):
            load_adapter(learner.model, folder / ADAPTER)
        elif (folder / ADAPTER).is_dir():
            raise ConfigError("the checkpoint is an adapter, and this model trains all weights")
        else:
            self._load_whole(learner.model, folder)
        if optimizer:
            # `weights_only` never runs pickled code, whoever wrote the file.
            state = torch.load(folder / STATE_FILE, weights_only=True)
            restore_learner(learner, state, folder)
        learner.forget()

    async def release(self, session: str) -> None:
        """Forget the models of a session."""
        for name, model in list(self.models.items()):
            if model.session == session:
                await self.drop(name)

    async def drop(self, name: str) -> None:
        """Forget a model in training; one that is forgotten already stays so."""
        model = self.models.pop(name, None)
        if model is None:
            return
        await model.jobs.close()
        if model.learner is not None:
            await self.compute(partial(self._drop, model.learner))

    def _drop(self, learner: StepwiseLearner) -> None:
        """Forget a learner where its weights are."""

    async def close(self) -> None:
        """End every model and engine."""
        while self.models:
            await self.models.popitem()[1].jobs.close()
        while self._engines:
            await self._engines.popitem()[1].engine.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # --- engines --------------------------------------------------------------------------------

    async def snapshot(self, learner: StepwiseLearner, key: str) -> None:
        """Open an engine of a learner's present weights, or give these to the engine of the key.

        Must not run while the learner's weights change.
        """
        is_new = key not in self._engines
        if is_new:
            self._open(key, await self._model_now(learner))
        async with self._taken(key) as engine:
            if not is_new:
                self._versions += 1
                await engine.set_weights(await self._weights_of(learner), self._versions)

    async def _model_now(self, learner: StepwiseLearner) -> CausalLM:
        """Return a frozen copy of a learner's model."""
        return await self.compute(partial(_frozen_copy, learner.model))

    async def _weights_of(self, learner: StepwiseLearner) -> MemoryWeights:
        """Return what changes of a learner's model, not copied."""
        tensors = adapter_tensors(learner.model)
        return MemoryWeights(tensors) if tensors else MemoryWeights.of(learner.model)

    @asynccontextmanager
    async def engine(
        self, key: str, folder: Path | None, spec: LoraSpec | None
    ) -> AsyncGenerator[LocalEngine]:
        """Give the engine of some weights, opened if need be, which is kept during the block.

        Args:
            key: the weights: a snapshot's name, a checkpoint's path, or "" for the base model.
            folder: where they are on disk; None for a snapshot.
            spec: their adapter.

        Raises:
            Refused: they are a snapshot that was dropped (410).
        """
        if key not in self._engines:
            if key and folder is None:
                raise Refused(
                    f"the snapshot {key} was dropped: {self.limits.engines} newer ones were made "
                    "(--engines); save it under a name to keep it",
                    "session_gone",
                )
            model = await self.compute(partial(self._model_of, folder, spec))
            if key not in self._engines:  # another request may have opened it meanwhile
                self._open(key, model)
        async with self._taken(key) as engine:
            yield engine

    def _open(self, key: str, model: CausalLM) -> None:
        limits = EngineLimits(max_rows=self.limits.rows, kept_tokens=KEPT_TOKENS)
        self._engines[key] = OpenedEngine(LocalEngine(model, limits))

    @asynccontextmanager
    async def _taken(self, key: str) -> AsyncGenerator[LocalEngine]:
        """Keep an engine during the block; the oldest that nobody uses make room."""
        opened = self._engines[key]
        self._engines.move_to_end(key)
        opened.sampling += 1
        try:
            while len(self._engines) > self.limits.engines:
                # Looked for again after each wait, in which others take engines and drop them.
                idle = [name for name, each in self._engines.items() if not each.sampling]
                if not idle:
                    break
                await self._engines.pop(idle[0]).engine.close()
            yield opened.engine
        finally:
            opened.sampling -= 1

    def _model_of(self, folder: Path | None, spec: LoraSpec | None) -> CausalLM:
        if folder is None:
            return self.base.model
        model = self.base.trainable(spec)
        if spec is None:
            self._load_whole(model, folder)
        else:
            load_adapter(model, folder / ADAPTER)
        return model.requires_grad_(requires_grad=False)

    @torch.no_grad()
    def _load_whole(self, model: CausalLM, folder: Path) -> None:
        loaded = load_model(folder, dtype=model.dtype, device=str(model.device))
        model.load_state_dict(loaded.state_dict())


def _frozen_copy(model: CausalLM) -> CausalLM:
    return sharing_copy(model).requires_grad_(requires_grad=False)
