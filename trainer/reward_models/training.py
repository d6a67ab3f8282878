"""The run of `ludus train reward`: losses over scores, updates, and what is held out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ludus.errors import ConfigError, UpdateRefused

from .. import algorithms
from ..algorithms.aggregation import Sum
from ..data.supervised import Progress, SupervisedRun, claimed_folder
from ..learning.learner import learning_rate
from ..models.checkpoint import SavedModel, load_state
from ..rollout.batch import passes
from ..run.claim import settled_resume
from ..run.folder import RunFolder
from ..settings.data import RewardModelConfig
from .heads import RewardHead, open_head, serving_name
from .measures import groups_of, held_out_numbers, write_card
from .rankings import RewardData, ScoredExample, load_data

TOKENS_PER_PASS = 16_384


@dataclass(frozen=True)
class TrainedReward:
    """What a run leaves."""

    checkpoint: Path
    serve: str
    """The name under which `ludus serve` scores with it."""


async def run_reward(
    config: RewardModelConfig, *, progress: Progress | None = None
) -> TrainedReward:
    """Train and measure a reward model.

    Args:
        config: the settings.
        progress: called after each update with its number and metrics.

    Raises:
        ConfigError: something the run needs is missing or cannot work.
    """
    config.require_complete()
    config = replace(config, run=settled_resume(config.run, folder_of(config)))
    async with AsyncExitStack() as stack:
        folder, start, step = claimed_folder(config, folder_of(config), stack)
        torch.manual_seed(config.seed)  # the new head's weights
        head = open_head(config, str(start) if start else config.model.path)
        data = load_data(config, head)
        run = RewardRun(config, folder, head, data, start=start, step=step)
        checkpoint = await run.to_end(progress)
        await asyncio.to_thread(write_card, checkpoint, config, data)
    return TrainedReward(checkpoint, serving_name(config, checkpoint))


def folder_of(config: RewardModelConfig) -> Path:
    """Return the run folder."""
    return Path(config.run.folder or "runs/reward")


class RewardRun(SupervisedRun[RewardModelConfig, ScoredExample]):
    """A run that trains a reward model.

    Args:
        config: the settings.
        folder: the run folder.
        head: what is trained.
        data: the examples.
        start: the checkpoint that the run goes on from.
        step: number of finished steps.
    """

    def __init__(
        self,
        config: RewardModelConfig,
        folder: RunFolder,
        head: RewardHead,
        data: RewardData,
        *,
        start: Path | None,
        step: int,
    ) -> None:
        super().__init__(config, folder, step, data)
        self.head = head
        self.length = torch.zeros(1, requires_grad=config.length_control)
        """How much preferences owe to a length of a standard deviation; no part of the score."""
        self.scale = _Scale.of(data.train)
        trained = [weight for weight in head.model.parameters() if weight.requires_grad]
        self.trained = [*trained, *([self.length] if config.length_control else [])]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": trained, "factor": 1.0},
                # a number among weights: at their rate it would not move
                *([{"params": [self.length], "factor": 100.0}] if config.length_control else []),
            ],
            lr=config.trainer.lr,
            betas=(config.trainer.beta1, config.trainer.beta2),
            weight_decay=config.trainer.weight_decay,
        )
        if start is not None:
            state = load_state(start)
            if "reward_optimizer" not in state:
                raise ConfigError(f"{str(start)!r} was not written by ludus train reward")
            self.optimizer.load_state_dict(state["reward_optimizer"])
            with torch.no_grad():
                self.length.copy_(state["length"])

    async def learn(self) -> dict[str, float]:
        """Make an update on the next examples."""
        return await asyncio.to_thread(self._learn, self.drawn())

    def _learn(self, drawn: Sequence[ScoredExample]) -> dict[str, float]:
        self.optimizer.zero_grad(set_to_none=True)
        total = weight = 0.0
        for part in self._parts(drawn):
            part_sum, part_weight = self._loss(part, self._scores(part))
            if part_sum.requires_grad:
                part_sum.backward()
            total, weight = total + float(part_sum.detach()), weight + float(part_weight)
        if not weight:
            return {"loss": 0.0, "grad_norm": 0.0, "lr": self.lr, "tokens": 0.0}
        for parameter in self.trained:
            if parameter.grad is not None:
                parameter.grad /= weight
        norm = float(
            torch.nn.utils.clip_grad_norm_(self.trained, self.config.trainer.max_grad_norm)
        )
        if not np.isfinite([total, norm]).all():
            raise UpdateRefused(
                f"the loss is {total / weight} and its gradient {norm}; lower trainer.lr"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * group["factor"]
        self.optimizer.step()
        metrics = {"loss": total / weight, "grad_norm": norm, "lr": self.lr}
        metrics["tokens"] = float(sum(map(self._size, drawn)))
        if self.config.length_control:
            metrics["reward_model/length"] = float(self.length.detach())
        return metrics

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        trainer = self.config.trainer
        return learning_rate(
            self.step,
            peak=trainer.lr,
            warmup=trainer.warmup_steps,
            decay=trainer.lr_decay,
            total=self.steps,
        )

    @torch.no_grad()
    def measured(self) -> dict[str, float]:
        """Measure the loss, the agreement and the calibration on what is held out."""
        total = weight = 0.0
        scores: list[Tensor] = []
        held_out: list[ScoredExample] = []
        for part in self._parts(self.examples.held_out):
            part_scores = self._scores(part)
            part_sum, part_weight = self._loss(part, part_scores)
            total, weight = total + float(part_sum), weight + float(part_weight)
            scores.append(part_scores.cpu())
            held_out += part
        numbers = {"held_out/loss": total / weight if weight else 0.0}
        return numbers | held_out_numbers(held_out, torch.cat(scores), self.config)

    def saved(self) -> SavedModel:
        """Return what a checkpoint holds: a folder that the verifier loads."""
        return SavedModel(None, None, writer=self.head)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps besides the model."""
        return {"reward_optimizer": self.optimizer.state_dict(), "length": self.length.detach()}

    def _parts(self, drawn: Sequence[ScoredExample]) -> list[list[ScoredExample]]:
        """Split examples into passes; the answers of a ranking stay together."""
        most = self.config.trainer.tokens_per_pass or TOKENS_PER_PASS
        sizes = torch.tensor([self._size(example) for example in drawn])
        parts = passes(sizes, torch.arange(len(drawn)), most)
        return [[drawn[number] for number in part.tolist()] for part in parts]

    def _size(self, example: ScoredExample) -> int:
        return len(example.inputs) * max(map(self.head.size, example.inputs))

    def _scores(self, part: Sequence[ScoredExample]) -> Tensor:
        return self.head.scores([each for example in part for each in example.inputs])

    def _loss(self, part: Sequence[ScoredExample], scores: Tensor) -> Sum:
        given = [target for example in part for target in example.targets]
        targets = torch.tensor(given, dtype=scores.dtype, device=scores.device)
        if self.config.objective == "steps":
            losses = binary_cross_entropy_with_logits(scores, targets, reduction="sum")
            return losses, scores.new_tensor(float(len(targets)))
        if self.config.length_control:  # what people owe to the length is no part of the score
            lengths = torch.tensor([n for example in part for n in example.lengths])
            scores = scores + (self.length * self.scale.lengths(lengths)).to(scores.device)
        if self.config.objective == "rating":
            return algorithms.rating_loss(scores, self.scale.ratings(targets))
        groups = groups_of(part).to(scores.device)
        if self.config.objective == "plackett-luce":
            return algorithms.plackett_luce_loss(scores, groups, targets)
        example_margins = [example.margin for example in part for _ in example.inputs]
        margins = (
            torch.tensor(example_margins, device=scores.device) if self.config.margins else None
        )
        return algorithms.bradley_terry_loss(scores, groups, targets, margins)


@dataclass(frozen=True)
class _Scale:
    """Mean and spread of lengths and ratings over the training data."""

    length: tuple[float, float]
    rating: tuple[float, float]

    @classmethod
    def of(cls, examples: Sequence[ScoredExample]) -> _Scale:
        lengths = [n for example in examples for n in example.lengths]
        targets = [t for example in examples for t in example.targets]
        spread = float(np.std(lengths)) or 1.0, float(np.std(targets)) or 1.0
        return cls((float(np.mean(lengths)), spread[0]), (float(np.mean(targets)), spread[1]))

    def lengths(self, values: Tensor) -> Tensor:
        """Return lengths with mean 0 and spread 1."""
        return (values - self.length[0]) / self.length[1]

    def ratings(self, values: Tensor) -> Tensor:
        """Return ratings with mean 0 and spread 1, which heads learn at the same rate."""
        return (values - self.rating[0]) / self.rating[1]
