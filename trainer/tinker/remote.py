"""A learner and an engine whose weights stand elsewhere: `ludus train --learner tinker://HOST`.

Environments, agents, recipes, accounts and checkpoints are those of any run. A recipe whose loss is
one of the API's own is asked for by that name, in a single pass (see `one_pass`). Any other loss is
a function of log-probabilities; the server computes these in a pass without gradient, the loss and
its derivative `d` by each of them are computed here, and a pass with the loss `sum -w log pi` and
`w = -d` brings the very gradient to the weights. So any loss that reads nothing else of the model
is trained exactly, at the cost of one more forward pass.

Axes: B rows, T tokens.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.agent import Finish, Generation, Sampling, WeightSource
from ludus.agent.engine import TensorMeta
from ludus.agent.images import PlacedImage
from ludus.background import on_background, run_on_loop
from ludus.errors import ConfigError, UpdateRefused

from ..algorithms.masked import blank
from ..config import TrainConfig
from ..learning.credit import Asked
from ..learning.guard import told
from ..learning.learner import Loss, Predicted, UpdatePasses, learning_rate
from ..models.weights import SteadyWeights
from ..recipes.algorithm import Algorithm
from ..recipes.recipe import UpdateSettings
from ..rollout.batch import Batch, Row, pad
from .client import TinkerClient
from .one_pass import CROSS_ENTROPY, NamedPass, named_pass, scored_before
from .wire import AdamParams, Array, Datum

EPSILON = 1e-8
"""The epsilon of AdamW, that of the learner in this process."""
FILE = "tinker.json"
"""File of a checkpoint that says where the weights are."""
UNKNOWN_LENGTH = 32_768
"""The most tokens of a row where the server does not say."""


def refuse_local(config: TrainConfig, algorithm: Algorithm, updates: UpdateSettings) -> None:
    """Refuse what a learner elsewhere cannot do, before anything is spent.

    Raises:
        ConfigError: with the recipe or setting, and what it asks for.
    """
    asked = Asked.of(algorithm, updates, tracked=algorithm.recipe.sampling.tracker is not None)
    reads = {
        "entropies": asked.entropy or asked.entropy_in_pass,
        "the norms of scores": asked.proxies,
        "probabilities without unlikely tokens": asked.proxy,
        "values of states": asked.values or asked.bootstrap or "values" in algorithm.needs,
        "a frozen reference policy": "ref_logp" in algorithm.needs,
    }
    if unmet := [what for what, needed in reads.items() if needed]:
        raise ConfigError(
            f"recipe {algorithm.recipe.name!r} reads {' and '.join(unmet)}, and a learner "
            f"elsewhere ({config.learner}) computes log-probabilities alone: take one that reads "
            "no more, such as grpo, dapo, cispo, gspo or rloo"
        )
    trainer, lora = config.trainer, config.trainer.lora
    settings = {
        "rollout.temperature": config.rollout.temperature != 1,
        "engine": config.engine != "local",
        "local.engines": bool(config.local.engines),
        "cluster.engines": bool(config.cluster.engines),
        "trainer.ema_decay": bool(trainer.ema_decay),
        "trainer.reference_every": bool(trainer.reference_every),
        "trainer.lora.alpha": bool(lora.alpha),  # the API does not send it
        "trainer.lora.adapter": bool(lora.adapter),
        "trainer.lora.targets": lora.targets != "all",
        "trainer.lora.publish": lora.publish != "merged",
        "eval.beside": config.eval.beside == "own",
    }
    if wrong := [name for name, set_otherwise in settings.items() if set_otherwise]:
        raise ConfigError(
            f"{wrong[0]} is a setting of a learner or engine here, and learner is "
            f"{config.learner!r}: leave it at its default (rollout.temperature at 1)"
        )
    if trainer.max_kl:
        raise ConfigError(
            f"trainer.max_kl is {trainer.max_kl:g}: it takes a part of an update back, which a "
            f"learner elsewhere ({config.learner}) cannot be told to do; leave the bound out with "
            "--trainer.max-kl 0, and watch `moved_far` among the findings"
        )


@dataclass(frozen=True)
class WeightsElsewhere:
    """The weights of a learner elsewhere, as a source that brings nothing."""

    def metadata(self) -> list[TensorMeta]:
        """Return nothing."""
        return []

    def pieces(self) -> Iterator[Mapping[str, object]]:
        """Return nothing."""
        return iter(())


class RemoteLearner:
    """Trains weights through a client, in the place of a `Learner`.

    Args:
        client: open, and not yet with a model.
        config: the settings of the run.
        planned_updates: as for `Learner`.
    """

    def __init__(
        self, client: TinkerClient, config: TrainConfig, *, planned_updates: int = 0
    ) -> None:
        self.client = client
        self.config = config.trainer
        self.base_model = config.learner_model or config.model.path
        self.planned_updates = planned_updates
        self.updates = 0
        self.steady = SteadyWeights()
        self.model: Any = None
        self.images = None
        self.mask = None
        self.value_head = None
        self._first = config.model.path
        self._kept = ""
        """The path of the checkpoint that is about to be written."""

    @classmethod
    async def open(cls, config: TrainConfig, *, planned_updates: int) -> RemoteLearner:
        """Begin a session, and make the model.

        Raises:
            ConfigError: the server does not have the base model.
            RemoteError: it does not answer, or refuses.
        """
        client = TinkerClient(config.learner, config.learner_token)
        learner = cls(client, config, planned_updates=planned_updates)
        rank = config.trainer.lora.rank
        try:
            await on_background(client.open(learner.base_model))
            lora = {"rank": rank, "seed": config.seed, "train_unembed": False} if rank else None
            await on_background(client.create(learner.base_model, lora))
        except BaseException:
            await on_background(client.close())
            raise
        return learner

    async def close(self) -> None:
        """End the session together with its model."""
        await on_background(self.client.close())

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return learning_rate(
            self.updates,
            peak=self.config.lr,
            warmup=self.config.warmup_steps,
            decay=self.config.lr_decay,
            total=self.planned_updates,
        )

    def update(
        self, batch: Batch, rows: Tensor, loss: Loss, how: UpdatePasses | None = None
    ) -> dict[str, float]:
        """Make an update from the given rows; see `Learner.update`."""
        how = how or UpdatePasses()
        idle = torch.zeros(len(batch), dtype=torch.bool) if how.idle is None else how.idle
        how.afresh()
        some = {leaf: rows[idle[rows] != leaf] for leaf in (True, False)}
        sums = [
            self._gradient(batch.take(each.sort().values), loss, how, leaf=leaf)
            for leaf, each in some.items()
            if len(each)
        ]
        total = sum(float(each.total) for each in sums)
        weight = sum(float(each.weight) for each in sums)
        metrics = {"tokens": float(batch.mask[rows].sum()), "lr": self.lr}
        if weight == 0:
            return {"loss": 0.0, "grad_norm": 0.0, **metrics}
        trained = next((each for each in sums if each.gradient is not None), None)
        size = 0.0 if trained is None else float(trained.needed.abs().sum()) / weight
        if fault := told(total / weight, size):
            raise UpdateRefused(fault, [int(row) for row in rows])
        norm = 0.0
        if trained is not None:
            total += self._passed(trained, weight, loss, how)
            settings = AdamParams(
                learning_rate=self.lr,
                beta1=self.config.beta1,
                beta2=self.config.beta2,
                eps=EPSILON,
                weight_decay=self.config.weight_decay,
                grad_clip_norm=self.config.max_grad_norm,
            )
            answered = run_on_loop(self.client.step(settings))
            # Other servers name the norm otherwise, or do not tell it.
            norm = next((value for name, value in answered.items() if "grad_norm" in name), 0.0)
        self.updates += 1
        return {"loss": total / weight, "grad_norm": norm, **metrics}

    def _passed(self, rows: RowsGradient, weight: float, loss: Loss, how: UpdatePasses) -> float:
        """Bring the gradient of rows, divided by `weight`, to the weights.

        Returns:
            what is to be added to the total of the loss, which was taken at other log-probabilities
            than the model's where the server computes the loss.
        """
        batch, named, gradient = rows.batch, rows.named, rows.needed / weight
        if named is None:
            run_on_loop(self.client.passed(weighted_rows(batch, -gradient), CROSS_ENTROPY))
            return 0.0
        data = loss_rows(batch, named.tensors(gradient))
        passed = run_on_loop(self.client.passed(data, named.loss, named.config))
        # What the loss measures of a pass is measured again, at the model's log-probabilities.
        how.afresh()
        logp = _spread(batch, passed.logprobs).requires_grad_()
        return float((loss(batch, Predicted(logp, None))[0] - rows.total).detach())

    def score(self, batch: Batch) -> Tensor:
        """Return log-probabilities [B, T] of the whole batch."""
        data = weighted_rows(batch, torch.zeros_like(batch.mask))
        passed = run_on_loop(self.client.passed(data, CROSS_ENTROPY, forward_only=True))
        return _spread(batch, passed.logprobs)

    def score_values(self, batch: Batch) -> Tensor:
        """Refuse: `refuse_local` lets no recipe ask."""
        raise ConfigError("a learner elsewhere has no value head")

    score_entropy = score_norms = score_values

    def score_proxy(self, batch: Batch, ratio: float) -> Tensor:
        """Refuse, like `score_values`."""
        raise ConfigError("a learner elsewhere computes log-probabilities of whole vocabularies")

    def _gradient(self, batch: Batch, loss: Loss, how: UpdatePasses, *, leaf: bool) -> RowsGradient:
        """Compute the loss over rows here, and its derivative by each log-probability: at those of
        the model, or where the server has the loss by name at those that its ratio is taken to.

        Args:
            batch: the rows.
            loss: the recipe's.
            how: how the passes of the update are made.
            leaf: whether the rows have a gradient; those without are not scored.
        """
        if not leaf:
            total, weight = loss(batch, Predicted(torch.zeros_like(batch.mask), None))
            return RowsGradient(batch, total, weight, None)
        if (named := named_pass(loss, batch)) is not None:
            computed = _derived(batch, loss, named.at, named)
            if computed.gradient is None or named.carries(computed.gradient, batch):
                return computed
            how.afresh()
        known = scored_before(loss, batch)
        return _derived(batch, loss, self.score(batch) if known is None else known)

    def gathered(self, items: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        """Return `items`: there is one learner."""
        return items

    def source(self) -> WeightSource:
        """Return a source that brings nothing: `RemoteEngine` samples where the weights are."""
        return WeightsElsewhere()

    evaluated = source

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Change nothing: no average is kept."""
        yield

    def score_ids(self, ids: Sequence[int], temperature: float) -> list[float]:
        """Return the log-probability of each of `ids` at temperature 1."""
        row = Row(list(ids), [0] + [1] * (len(ids) - 1), [0.0] * len(ids))
        scores: list[float] = self.score(pad([row]))[0].tolist()
        return scores

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: where the weights will be."""
        name = f"ludus-{self.updates:06d}-{secrets.token_hex(4)}"
        self._kept = f"tinker://{self.client.model}/weights/{name}"
        return {"tinker": self._kept, "updates": self.updates}

    def writer(self, tokenizer: object, *, whole: bool = True) -> RemoteWriter:
        """Return what lets the server write a checkpoint, and notes the checkpoint's place."""
        return RemoteWriter(self, tokenizer, Path(self._first))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint.

        Raises:
            ConfigError: the checkpoint holds weights of its own.
        """
        if "tinker" not in state:
            raise ConfigError("the checkpoint was written by a learner in the run's own process")
        run_on_loop(self.client.load(str(state["tinker"])))
        self.updates = int(state["updates"])

    def notes(self) -> tuple[str, ...]:
        """Return nothing that a user should know about how this model is trained."""
        return ()


@dataclass(frozen=True)
class RowsGradient:
    """The loss over some rows."""

    batch: Batch
    total: Tensor
    weight: Tensor
    gradient: Tensor | None
    """[B, T], the derivative by each log-probability; None where there is none."""
    named: NamedPass | None = None
    """The server's own loss that has this gradient; None where it has none."""

    @property
    def needed(self) -> Tensor:
        """The derivative of rows that have one."""
        assert self.gradient is not None, "rows with a gradient"
        return self.gradient


@dataclass(frozen=True)
class RemoteWriter:
    """Lets the server write a checkpoint."""

    learner: RemoteLearner
    tokenizer: Any
    first: Path
    """The folder of the model that the run began with."""

    def broken(self) -> list[str]:
        """Return nothing: a server makes no update that is not finite."""
        return []

    def write(self, folder: Path) -> None:
        """Write where the weights are, and the tokenizer beside that file."""
        kept = self.learner._kept
        path = run_on_loop(self.learner.client.save(kept.rpartition("/")[2]))
        if path != kept:
            raise OSError(f"the server has written {path}, not {kept}")
        weights = {"path": path, "base_model": self.learner.base_model}
        (folder / FILE).write_text(json.dumps(weights), encoding="utf-8")
        self.tokenizer.save_pretrained(str(folder))
        if (self.first / "config.json").is_file():
            shutil.copy(self.first / "config.json", folder)


class RemoteEngine:
    """Samples where the weights of a `RemoteLearner` are; see `Engine`.

    Args:
        client: of the learner.
        version: the version of the weights.
    """

    def __init__(self, client: TinkerClient, version: int) -> None:
        self.client = client
        self._version = version
        self._sampler = ""
        self._going = asyncio.Event()
        self._going.set()
        self._running: set[asyncio.Future[Any]] = set()

    @property
    def version(self) -> int:
        """The version of the weights."""
        return self._version

    @property
    def max_length(self) -> int:
        """The most tokens of prompt and answer together."""
        return self.client.max_length or UNKNOWN_LENGTH

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Sample a continuation of `ids`."""
        if images or sampling.drawn or sampling.schema:
            raise ConfigError(
                "an engine elsewhere takes no images and no schema, and continues no answer"
            )
        settings = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": sampling.seed,
            "stop": list(sampling.stop_token_ids),
        }
        await self._going.wait()
        version = self._version
        work = asyncio.ensure_future(
            on_background(self.client.sample(self._sampler, ids, settings))
        )
        self._running.add(work)
        try:
            sample, _ = await work
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                work.cancel()
                raise
            return Generation(ids=[], logprobs=[], finish=Finish.ABORT, versions=[])
        finally:
            self._running.discard(work)
        tokens = list(sample.tokens)
        finish = Finish.STOP if sample.stopped else Finish.LENGTH
        return Generation(
            ids=tokens,
            logprobs=list(sample.logprobs),
            finish=finish,
            versions=[version] * len(tokens),
        )

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Return the log-probability of each of `ids` given the ids before; the first is 0."""
        settings = {"max_tokens": 1, "seed": 0}
        asked = self.client.sample(self._sampler, ids, settings, prompt_logprobs=True)
        _, scored = await on_background(asked)
        return [0.0 if math.isnan(value) else value for value in scored or []]

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Sample from the learner's present weights."""
        self._sampler = await on_background(self.client.snapshot())
        self._version = version

    async def pause(self) -> None:
        """Begin nothing until `resume`."""
        self._going.clear()

    async def resume(self) -> None:
        """Go on."""
        self._going.set()

    async def abort(self) -> None:
        """End every request."""
        for work in list(self._running):
            work.cancel()

    async def close(self) -> None:
        """Do nothing: the session is the learner's."""


def weighted_rows(batch: Batch, weights: Tensor) -> list[Datum]:
    """Return the rows of a batch with a weight for each token, as the loss `cross_entropy` reads
    them.
    """
    return loss_rows(batch, {"weights": weights})


def loss_rows(batch: Batch, tensors: Mapping[str, Tensor]) -> list[Datum]:
    """Return the rows of a batch in the form that a loss of the server reads.

    Args:
        batch: the rows.
        tensors: [B, T] by name, what the loss reads of each token.
    """
    data = list[Datum]()
    for row, length in enumerate(batch.lengths.tolist()):
        tokens = batch.ids[row, :length].cpu().numpy()
        read = {name: each[row, 1:length].cpu().numpy() for name, each in tensors.items()}
        data.append(Datum(tokens[:-1], {"target_tokens": tokens[1:], **read}))
    return data


def _spread(batch: Batch, logprobs: Sequence[Array]) -> Tensor:
    """Return what a server tells of each row's tokens as [B, T], 0 where nothing is trained."""
    logp = torch.zeros_like(batch.mask)
    for row, values in enumerate(logprobs):
        logp[row, 1 : len(values) + 1] = torch.from_numpy(np.array(values))
    return blank(logp, batch.mask)


def _derived(
    batch: Batch, loss: Loss, logp: Tensor, named: NamedPass | None = None
) -> RowsGradient:
    """Return a loss and its derivative at given log-probabilities, [B, T]."""
    logp = logp.detach().clone().requires_grad_()
    total, weight = loss(batch, Predicted(logp, None))
    if total.requires_grad:
        total.backward()
    gradient = logp.grad * batch.mask if logp.grad is not None else None
    return RowsGradient(batch, total.detach(), weight, gradient, named)
