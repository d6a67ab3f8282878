"""The settings of what learns: the model, the optimizer, adapters and ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ludus.errors import ConfigError

from .run import not_negative, positive, refuse_unproven

Decay = Literal["constant", "linear", "cosine"]
"""The course of the learning rate after its rise."""


@dataclass(frozen=True)
class ModelConfig:
    """The model that is trained."""

    path: str = ""
    """A transformers causal-LM folder with a chat template, a run folder (its best checkpoint), a
    .gguf file, a released model such as smollm2 (ludus model get), a hub id, or "tiny", a small
    model from random weights.
    """
    reference: str = ""
    """Model whose log-probabilities recipes read as `ref_logp`: what a KL pulls towards, or the
    teacher of `--sampling distill`. A folder with the same vocabulary; empty takes the model at the
    start of the run.
    """
    device: str = "auto"
    """Device of the learner; auto takes CUDA where there is a CUDA device."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type in which the learner computes and the engine samples; auto takes bfloat16 on a CUDA
    device that has it, with the weights in float32, and float32 elsewhere. In float16 the loss is
    scaled, so that small gradients are not rounded to 0.
    """
    weights: Literal["float32", "bfloat16"] = "float32"
    """Type in which the learner holds its weights. With bfloat16, which needs that dtype too, the
    optimizer moves float32 copies, and weights that an adapter leaves frozen take half the memory.
    """
    float32_head: bool = False
    """Whether the product of the language-model head is computed in float32 where dtype is another,
    by the learner and the local engine; a recipe may ask for it too. vLLM computes it in its type.
    """
    tool_format: str = "auto"
    """Format in which the model writes tool calls; auto takes the one that reads calls as the chat
    template writes them, and hermes where the template shows none.
    """
    template: str = "auto"
    """The chat template: stock is the model's own, repaired where it loses something; training is
    the project's template for that model, which keeps thoughts of earlier turns; training:NAME
    names one; a path names a .jinja file. auto takes stock if it loses nothing and rewrites no
    turn, else training where there is one.
    """
    max_image_pixels: int = 0
    """Largest number of pixels of an image as the model sees it; larger images are made smaller, at
    about one token for 1,024 pixels (Qwen3-VL). 0 leaves the bound of the model's processor.
    """

    def __post_init__(self) -> None:
        if self.weights != "float32" and self.weights != self.dtype:
            raise ConfigError(
                f"model.weights is {self.weights!r}, but model.dtype is {self.dtype!r}: weights "
                "in half precision are computed with as they are; set both"
            )
        not_negative("model.max_image_pixels", self.max_image_pixels)

    def require_path(self, models: str = "a transformers folder, a run, smollm2 or tiny") -> None:
        """Raise ConfigError, which says what may be named, unless a model is named."""
        if not self.path:
            raise ConfigError(f"no model named; add --model.path with {models}")


@dataclass(frozen=True)
class LoraConfig:
    """Settings of LoRA, which trains two small matrices beside each frozen weight (needs the extra
    lora).
    """

    rank: int = 0
    """Rank of the matrices; 0 trains all weights."""
    alpha: float = 0.0
    """What a pair of matrices adds is multiplied by alpha / rank; 0 takes twice the rank."""
    targets: str = "all"
    """Names of the linear layers that get matrices, such as q_proj,v_proj; all takes every linear
    layer of the decoder.
    """
    adapter: str = ""
    """Folder of a saved adapter to start from; empty starts a new one, which changes nothing yet.
    """
    publish: Literal["merged", "adapter"] = "merged"
    """What the engine is given after an update: whole merged weights, which any engine takes, or
    the matrices alone, which takes the local engine and costs it the two small products.
    """
    save: Literal["merged", "adapter"] = "merged"
    """What a checkpoint holds beside the adapter: the merged model, which any program loads, or
    nothing more than the name of the base model.
    """

    def __post_init__(self) -> None:
        not_negative("trainer.lora.rank", self.rank)
        not_negative("trainer.lora.alpha", self.alpha)
        if not self.targets.strip():
            raise ConfigError("trainer.lora.targets names no layer; leave it out to take all")
        changed = [name for name in ("alpha", "adapter") if getattr(self, name)]
        if changed and not self.rank:
            raise ConfigError(
                f"trainer.lora.{changed[0]} is set, but trainer.lora.rank is 0, which trains all "
                "weights; set the rank"
            )


@dataclass(frozen=True)
class TrainerConfig:
    """Settings of the optimizer and of updates."""

    lr: float = 1e-6
    """Learning rate at its highest, after the warm-up and before the decay."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    beta1: float = 0.9
    """Decay of AdamW's mean of gradients."""
    beta2: float = 0.99
    """Decay of AdamW's mean of squared gradients."""
    warmup_steps: int = 0
    """Number of updates over which the learning rate rises linearly."""
    lr_decay: Decay = "constant"
    """Course of the learning rate after the warm-up: linear and cosine end near 0."""
    max_grad_norm: float = 1.0
    """Norm to which a longer gradient is shortened before an update."""
    updates_per_step: int = 0
    """Optimizer updates on each batch of rollouts, which share its groups; 0 takes the recipe's
    value (ludus recipes), with no more mini-batches than rollout.tasks_per_step.
    """
    max_kl: float = 0.2
    """Largest divergence from the policy before the step, in nats per token (k3); 0 bounds nothing.
    An update beyond it is scaled back, and the step makes no further one. Good runs seldom reach it
    (benchmarks/planted_runs.py); Spinning Up's PPO stops at 0.015.
    """
    max_refused: int = 3
    """Number of refused updates in a row that ends the run. An update is refused if its loss or
    gradient is not finite.
    """
    tokens_per_pass: int | None = None
    """Largest number of tokens in one forward pass, counted as they are computed: without padding,
    and a shared beginning once. A smaller value needs less memory; the gradient is the same up to
    rounding. None follows the model's size and the free memory, up to 16,384.
    """
    packing: Literal["shared", "rows", "none"] = "shared"
    """How the rows of a pass are computed: one after the other without padding, where rows that
    begin alike (the rollouts of a prompt) compute that beginning once; without padding alone; or
    padded to the longest. The gradient is the same up to rounding. Rows with images, and models
    whose attention cannot be packed, are padded.
    """
    checkpoint_layers: bool = False
    """Whether a decoder layer keeps only its input for the backward pass and computes the rest once
    more there: much less memory for about a third more time, and the same gradient.
    """
    kernels: Literal["torch", "liger"] = "torch"
    """Kernels of norms, rotary positions and feed-forward products: torch's own, or the fused ones
    of liger-kernel (extra liger, CUDA alone; unmeasured).
    """
    compile: bool = False
    """Whether decoder layers are compiled by torch.compile, at the first passes. On a CPU it gained
    1 % of the time and 9 % of the memory of an update (docs/learner.md); unmeasured on a GPU.
    """
    critic: Literal["shared", "separate"] = "shared"
    """For recipes with values: whether the value head reads the policy's hidden states, or those of
    a copy of the policy that is trained for values alone.
    """
    critic_lr: float = 0.0
    """Learning rate of critic and value head; 0 takes trainer.lr."""
    value_updates: int = 0
    """Number of updates at the start of a run that train values alone, before the policy moves."""
    ema_decay: float = 0.0
    """Decay of a moving average of the policy's weights, such as 0.99; 0 keeps none."""
    ema_use: Literal["export", "evaluate"] = "export"
    """What the average is for: a folder `average` beside each checkpoint's model, or that and the
    weights that evaluations play with.
    """
    reference_every: int = 0
    """Steps after which the reference that a recipe pulls towards is reset to the policy, each
    time; 0 keeps the first. Useful where a long run has moved far, and its KL holds it back.
    """
    lora: LoraConfig = field(default_factory=LoraConfig)

    def __post_init__(self) -> None:
        for name in ("lr", "max_grad_norm", "max_refused"):
            positive(f"trainer.{name}", getattr(self, name))
        if self.tokens_per_pass is not None:
            positive("trainer.tokens_per_pass", self.tokens_per_pass)
        for name in (
            "weight_decay",
            "warmup_steps",
            "updates_per_step",
            "critic_lr",
            "value_updates",
            "max_kl",
            "reference_every",
        ):
            not_negative(f"trainer.{name}", getattr(self, name))
        if not 0 <= self.ema_decay < 1:
            raise ConfigError(f"trainer.ema_decay must be in [0, 1), got {self.ema_decay}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"trainer.{name} must be in [0, 1), got {getattr(self, name)}")


@dataclass(frozen=True)
class RanksConfig:
    """Settings of a learner whose weights several processes share (torchrun)."""

    timeout_s: float = 120.0
    """Seconds after which a collective call that a rank has not joined fails. A rank that dies is
    known within a second, whatever this is.
    """
    offload: bool = False
    """Whether weights, gradients and moments stay in the memory of the CPU between their uses on a
    GPU.
    """
    sequence: int = 1
    """Number of ranks that share the tokens of a row (sequence parallelism). Refused beyond 1 until
    it has been run on GPUs.
    """

    def __post_init__(self) -> None:
        positive("ranks.timeout_s", self.timeout_s)
        positive("ranks.sequence", self.sequence)
        refuse_unproven(
            "ranks.sequence",
            self.sequence if self.sequence != 1 else 0,
            "leave it at 1; longer rows fit with trainer.checkpoint_layers, ranks.offload, or more "
            "ranks",
        )
