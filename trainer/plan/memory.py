"""A model of the memory of a run: sizes of the model, what each rank holds, and whether that fits.

The parts and their sizes, for P weights (T of them trained), W ranks and t tokens per pass:

    weights 4P/W, gradient 4T/W, moments 8T/W      float32; the gradient stays until the next pass
    activations, logits, a layer's gradient        of a pass, by `pass_trace.py`; the formula of
                                                   `training_bytes` where that cannot be traced
    gathered weights                               of two layers and of what is outside the layers
    or, where that is more, the end of a pass      the gradient outside the layers, being reduced
    the engine's weights, keys and values          rank 0 alone

Against the peaks of 1, 2 and 4 ranks on a CPU the learner's part was within 10 % for three shapes
(`benchmarks/plan.py`). An allocator may keep more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ludus.errors import ConfigError

from ..config import LoraConfig, TrainConfig
from ..learning.readings import LOGITS_AT_ONCE
from ..models.capacity import (
    MIN_PASS,
    cached_bytes,
    fitting_cache,
    fitting_pass,
    free_bytes,
    prefill_bytes,
    training_bytes,
)
from ..models.devices import DTYPES, pick_device, settled_dtype
from ..models.images import reads_images
from ..run.best import candidate_steps
from .pass_trace import PassKind, trace_pass

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The parameters of a model."""

    total: int
    trained: int
    """Fewer than `total` with LoRA."""

    @staticmethod
    def of(outline: PreTrainedModel, config: TrainConfig) -> ModelSize:
        """Count the parameters of a model without weights; tied weights count once."""
        total = sum(weight.numel() for weight in outline.parameters())
        lora = config.trainer.lora
        if not lora.rank:
            return ModelSize(total, total)
        names = {name.strip() for name in lora.targets.split(",")}
        matrices = sum(
            lora.rank * (layer.in_features + layer.out_features)
            for name, layer in outline.named_modules()
            if isinstance(layer, torch.nn.Linear)
            and not name.endswith("lm_head")
            and (lora.targets == "all" or name.rpartition(".")[2] in names)
        )
        return ModelSize(total + matrices, matrices)


def checkpoint_bytes(config: TrainConfig, size: ModelSize) -> int:
    """Return about how many bytes a checkpoint takes: float32 weights and the two moments."""
    lora = config.trainer.lora
    weights = size.trained if lora.rank and lora.save == "adapter" else size.total
    return 4 * weights + 8 * size.trained


def checkpoints_written(config: TrainConfig) -> int:
    """Return the most checkpoints that a whole run writes; with `eval.keep_best` each evaluation
    before the end may be the best, or each candidate of a run without evaluations on the way.
    """
    steps = {config.steps}
    if config.run.save_every:
        steps |= set(range(config.run.save_every, config.steps, config.run.save_every))
    if config.eval.keep_best:
        every = config.eval.every or candidate_steps(config.steps, config.run.save_every)
        steps |= set(range(every, config.steps, every))
    return len(steps)


def checkpoints_kept(config: TrainConfig) -> int:
    """Return how many checkpoints are on the disk at the same time, with one that is being
    written.
    """
    best = config.eval.keep_best and config.eval.every < config.steps
    return min(config.run.keep + best + 1, checkpoints_written(config))


def checkpoints_bytes(config: TrainConfig, size: ModelSize, ranks: int) -> int:
    """Return about how many bytes all checkpoints take at most. Those of several ranks hold the
    weights in their shards, and the last and the best of a run hold the whole model besides.
    """
    kept, lora = checkpoints_kept(config), config.trainer.lora
    if ranks == 1:
        return kept * checkpoint_bytes(config, size)
    whole = kept if config.run.whole == "always" else min(kept, 1 + config.eval.keep_best)
    if lora.rank and lora.save == "adapter":
        whole = 0
    # An adapter is a file besides. The frozen weights below it are in no shard.
    shards = (16 if lora.rank else 12) * size.trained
    return kept * shards + whole * 4 * size.total


LOGIT_COPIES = 3
"""Copies of a slice of logits that are held at once: the logits, their log-softmax, a gradient."""
MAX_RANKS = 64
LORA_RANK = 16
"""The rank of the adapter that is proposed where all weights do not fit."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """The memory that a purpose takes on a rank."""

    name: str
    bytes: int
    lasting: bool = True
    """Whether the memory is held through the whole run, or only during an update or sampling."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """The memory of rank 0, which holds the most."""

    parts: tuple[MemoryPart, ...]
    sampling: tuple[MemoryPart, ...]
    """What sampling takes in the place of the parts that do not last."""
    free: int
    """Bytes that are free on the rank's device."""
    tokens_per_pass: int
    ranks: int

    @property
    def total(self) -> int:
        """The bytes at the peak: of an update, or of sampling."""
        lasting = sum(part.bytes for part in self.parts if part.lasting)
        update = sum(part.bytes for part in self.parts if not part.lasting)
        return lasting + max(update, sum(part.bytes for part in self.sampling))

    @property
    def fits(self) -> bool:
        """Whether the peak is less than what is free."""
        return self.total <= self.free

    def rows(self) -> list[tuple[str, int]]:
        """Return names and bytes for a table; the sum may be more than the peak."""
        return [(part.name, part.bytes) for part in (*self.parts, *self.sampling) if part.bytes]


def estimate_memory(
    config: TrainConfig,
    outline: PreTrainedModel,
    *,
    reference: bool = False,
    ranks: int = 1,
    free: int | None = None,
    device: str = "",
) -> MemoryEstimate:
    """Estimate what rank 0 of a run holds.

    Args:
        config: the settings; a number of tokens that is None is what the run would choose.
        outline: the model, whose tensors may be on the meta device.
        reference: whether the recipe needs the weights of a reference model.
        ranks: the number of processes that share the learner's weights.
        free: bytes that each rank has; None measures this machine.
        device: the device of a run elsewhere, whose `free` is given and whose type is settled;
            empty is that of this machine.
    """
    device = device or pick_device(config.model.device)
    shared_host = ranks if device == "cpu" else 1
    free = free_bytes(device) // shared_host if free is None else free
    kind, size = _kind(config), ModelSize.of(outline, config)
    tokens = pass_tokens(config, outline, ranks=ranks, free=free, device=device)
    parts = [
        MemoryPart("the learner's weights", 4 * size.total // ranks),
        MemoryPart("gradient", 4 * size.trained // ranks),
        MemoryPart("the optimizer's moments", 8 * size.trained // ranks),
    ]
    if config.ranks.offload and device != "cpu":
        parts = []
    if reference and not config.trainer.lora.rank:
        parts.append(MemoryPart("the reference's weights", 4 * size.total // ranks))
    parts += _engine(config, outline, kind, size, free)
    update = _update(config, outline, tokens, ranks=ranks, trained=size.trained)
    reduced = _reduction(config, outline, ranks, size.trained / size.total, on_cpu=device == "cpu")
    parts += max(update, reduced, key=lambda moment: sum(part.bytes for part in moment))
    return MemoryEstimate(
        parts=tuple(parts),
        sampling=tuple(_sampling(config, outline, kind, free)),
        free=free,
        tokens_per_pass=tokens,
        ranks=ranks,
    )


def pass_tokens(
    config: TrainConfig, outline: PreTrainedModel, *, ranks: int, free: int, device: str
) -> int:
    """Return the tokens of a pass: as set, or as a run chooses once its weights are there."""
    return config.trainer.tokens_per_pass or fitting_pass(
        outline,
        _kind(config),
        max(0, free - 4 * sum(weight.numel() for weight in outline.parameters()) // ranks),
        checkpointed=config.trainer.checkpoint_layers,
        ranks=ranks,
        engine_copy=config.engine == "local",
        device=device,
        float32_head=config.model.float32_head,
    )


def require_fit(config: TrainConfig, outline: PreTrainedModel, **known: Any) -> MemoryEstimate:
    """Return the estimate of a run that fits; a learner elsewhere takes nothing here.

    Args:
        config: the settings.
        outline: the model.
        known: the other arguments of `estimate_memory`.

    Raises:
        ConfigError: the run does not fit; the message names a setting with which it would.
    """
    estimate = estimate_memory(config, outline, **known)
    if estimate.fits or config.learner:
        return estimate
    largest = sorted(estimate.rows(), key=lambda row: -row[1])[:3]
    parts = ", ".join(f"{name} {_gigabytes(count)}" for name, count in largest)
    raise ConfigError(
        f"the run needs about {_gigabytes(estimate.total)} of memory"
        f"{f' on rank 0 of {estimate.ranks}' if estimate.ranks > 1 else ''} and "
        f"{_gigabytes(estimate.free)} are free (most of it: {parts}); "
        f"{_advice(config, outline, estimate, known)}"
    )


def _kind(config: TrainConfig) -> torch.dtype:
    return DTYPES[settled_dtype(config.model.dtype, pick_device(config.model.device))]


def _engine(
    config: TrainConfig, outline: PreTrainedModel, kind: torch.dtype, size: ModelSize, free: int
) -> list[MemoryPart]:
    if config.engine != "local":
        return []
    copies = max(1, config.local.engines) + (config.eval.beside == "own")
    kept_tokens = config.local.kept_tokens
    if kept_tokens is None:
        # The engine's own copy computes in `kind`, whatever type the outline has.
        engines_model: Any = _Computing(outline.config, kind, outline.device)
        kept_tokens = fitting_cache(engines_model, free)
    per_token = cached_bytes(outline.config, kind)
    whole = size.total if not config.trainer.lora.rank else size.total - size.trained
    return [
        MemoryPart("the engine's weights", copies * kind.itemsize * whole),
        MemoryPart(
            f"keys and values of {kept_tokens:,} kept tokens, at most",
            copies * kept_tokens * per_token,
        ),
    ]


def _sampling(
    config: TrainConfig, outline: PreTrainedModel, kind: torch.dtype, free: int
) -> list[MemoryPart]:
    if config.engine != "local":
        return []
    text = outline.config.get_text_config()
    rollouts = config.rollout.tasks_per_step * max(1, config.rollout.group_size)
    rows = min(config.rollout.concurrency, rollouts)
    length = min(
        config.rollout.window or text.max_position_embeddings, text.max_position_embeddings
    )
    # Without a window, rows are seldom as long as the model allows.
    likely = length if config.rollout.window else min(length, 4 * config.rollout.max_tokens)
    prefill = config.local.prefill_tokens or MIN_PASS
    return [
        MemoryPart(
            f"keys and values of {rows:,} running rows of {likely:,} tokens",
            rows * likely * cached_bytes(outline.config, kind),
            lasting=False,
        ),
        MemoryPart(
            f"a prompt pass of {prefill:,} tokens",
            prefill * prefill_bytes(outline.config, kind),
            lasting=False,
        ),
    ]


def _update(
    config: TrainConfig, outline: PreTrainedModel, tokens: int, *, ranks: int, trained: int
) -> list[MemoryPart]:
    kind, lora = _kind(config), config.trainer.lora
    trace = trace_pass(
        outline,
        PassKind(
            tokens=tokens,
            dtype=kind,
            gathered=ranks > 1 and kind is not torch.float32,
            checkpointed=config.trainer.checkpoint_layers,
            float32_head=config.model.float32_head,
            lora=replace(lora, adapter=""),
        ),
    )
    outside = torch.float32 if config.model.float32_head else kind
    gathered, unreduced = _gathered(outline, (kind, outside), trained, ranks)
    if trace is None:
        return _by_formula(config, outline, tokens, gathered + unreduced)
    # The weights that ranks put together are held in both peaks; their gradient, which is yet to be
    # reduced, in that of the layers.
    in_head = trace.head > trace.layers + unreduced
    then = (
        ("logits, and their gradients", trace.head)
        if in_head
        else ("the backward pass of a layer", max(0, trace.layers) + unreduced)
    )
    held = "" if kind is torch.float32 or ranks > 1 else f", and weights in {config.model.dtype}"
    # How many images a row has, and of what size, a config does not say.
    held += ", its images not counted" if reads_images(outline.config) else ""
    return [
        MemoryPart(f"activations of a pass of {tokens:,} tokens{held}", trace.saved, lasting=False),
        MemoryPart(*then, lasting=False),
        MemoryPart("gathered weights", gathered, lasting=False),
    ]


def _gathered(
    outline: PreTrainedModel, kinds: tuple[torch.dtype, torch.dtype], trained: int, ranks: int
) -> tuple[int, int]:
    """Return the bytes of the weights that a rank holds whole at a time (two layers, of which one
    is fetched ahead, and what is outside of the layers, each in its type), and of their gradient
    before it is reduced.
    """
    if ranks == 1:
        return 0, 0
    layers = _layers(outline)
    total = sum(weight.numel() for weight in outline.parameters())
    inside = sum(weight.numel() for layer in layers for weight in layer.parameters())
    largest = 2 * inside // max(1, len(layers))
    outside, share = total - inside, trained / max(1, total)
    of_layer, of_outside = (kind.itemsize for kind in kinds)
    return of_layer * largest + of_outside * outside, int(4 * share * (largest + outside))


def _reduction(
    config: TrainConfig, outline: PreTrainedModel, ranks: int, share: float, *, on_cpu: bool
) -> list[MemoryPart]:
    """Return the parts of the end of a backward pass, where the gradient of what is outside of the
    layers is reduced: as it came, in one float32 buffer, and as this rank's share of the sum. Of
    how it came torch keeps the last weight's; between CPUs, gloo copies the buffer.

    Args:
        config: the settings.
        outline: the model.
        ranks: the number of ranks.
        share: the part of the weights that is trained.
        on_cpu: whether the ranks compute on CPUs.
    """
    if ranks == 1:
        return []
    inside = {id(weight) for layer in _layers(outline) for weight in layer.parameters()}
    weights = [weight.numel() for weight in outline.parameters() if id(weight) not in inside]
    kind = (torch.float32 if config.model.float32_head else _kind(config)).itemsize
    buffer, came = 4 * sum(weights), kind * sum(weights)
    summed = buffer * (1 + on_cpu) + buffer // ranks + kind * weights[-1]
    name = "the gradient outside of the layers while it is reduced"
    return [MemoryPart(name, int(share * max(came + buffer, summed)), lasting=False)]


def _layers(outline: PreTrainedModel) -> tuple[torch.nn.Module, ...]:
    decoder = getattr(outline.base_model, "language_model", outline.base_model)
    return tuple(getattr(decoder, "layers", ()))


def _by_formula(
    config: TrainConfig, outline: PreTrainedModel, tokens: int, gathered: int
) -> list[MemoryPart]:
    """Return the parts of an update of a model whose pass cannot be traced."""
    text, kind = outline.config.get_text_config(), _kind(config)
    checkpointed = config.trainer.checkpoint_layers
    kept = tokens * training_bytes(outline.config, kind, checkpointed=checkpointed)
    logits = LOGIT_COPIES * 4 * min(tokens * int(text.vocab_size), LOGITS_AT_ONCE)
    return [
        MemoryPart(f"activations of a pass of {tokens:,} tokens, by formula", kept, lasting=False),
        MemoryPart("logits", logits, lasting=False),
        MemoryPart("gathered weights", gathered, lasting=False),
    ]


def _advice(
    config: TrainConfig, outline: PreTrainedModel, estimate: MemoryEstimate, known: dict[str, Any]
) -> str:
    """Return the mildest change of settings with which the run would fit."""
    trainer = config.trainer
    small = replace(trainer, tokens_per_pass=min(estimate.tokens_per_pass, MIN_PASS))
    again = replace(small, checkpoint_layers=True)
    adapter = replace(again, lora=LoraConfig(rank=LORA_RANK))
    none_kept = replace(config.local, kept_tokens=0)
    choices = {
        "--local.kept-tokens 0": replace(config, local=none_kept),
        f"--trainer.tokens-per-pass {small.tokens_per_pass}": replace(config, trainer=small),
        "--trainer.checkpoint-layers": replace(
            config, trainer=replace(trainer, checkpoint_layers=True)
        ),
        f"--trainer.checkpoint-layers --trainer.tokens-per-pass {small.tokens_per_pass} "
        "--local.kept-tokens 0": replace(config, trainer=again, local=none_kept),
        f"--trainer.lora.rank {LORA_RANK} --trainer.checkpoint-layers "
        f"--trainer.tokens-per-pass {small.tokens_per_pass} --local.kept-tokens 0": replace(
            config, trainer=adapter, local=none_kept
        ),
    }
    for options, changed in choices.items():
        if estimate_memory(changed, outline, **known).fits:
            return f"it would fit with {options}"
    least = replace(config, trainer=again, local=none_kept)
    for ranks in range(estimate.ranks + 1, MAX_RANKS + 1):
        on_ranks: dict[str, Any] = {**known, "free": estimate.free, "ranks": ranks}
        if estimate_memory(least, outline, **on_ranks).fits:
            return (
                f"it would fit on {ranks} devices like this one: torchrun --nproc_per_node {ranks} "
                f"-m ludus train ..., with --trainer.checkpoint-layers --trainer.tokens-per-pass "
                f"{small.tokens_per_pass} --local.kept-tokens 0"
            )
    return (
        f"no setting makes it fit, nor do {MAX_RANKS} devices like this one; take a smaller model"
    )


@dataclass(frozen=True, slots=True)
class _Computing:
    config: PretrainedConfig
    dtype: torch.dtype
    device: torch.device


def _gigabytes(count: float) -> str:
    """Write a number of bytes.

    >>> _gigabytes(3 * 2**30)
    '3.00 GB'
    """
    return f"{count / 2**30:.{max(0, 2 - int(math.log10(max(1.0, count / 2**30))))}f} GB"
