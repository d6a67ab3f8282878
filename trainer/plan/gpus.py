"""How fast GPUs train and sample a model, predicted from their data sheets, not measured.

    training    F t / (s C) seconds for t tokens of a rank, F = 6 A FLOPs a token forward and back
                in each epoch, with 12 L H c of attention over c tokens, and 2 A for each pass
                without gradient; but at least the time in which FSDP moves 8 P bytes for each pass
                with one: the weights in bfloat16 twice, the gradient in float32 once (arXiv
                2304.11277, section 3)
    sampling    a step of n rows takes 2 P / (g d B) + n (k c / (g d B) + 2 A / (g s C)) seconds:
                the weights are read once, keys and values of each row, and each row is computed

for P weights, A of them active, in L layers of size H; a GPU of C FLOP/s and B bytes/s, of which
the shares s and d are reached; g GPUs of an engine; k bytes of keys and values of a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ludus.errors import ConfigError

from ..models.capacity import cached_bytes
from ..settings.plan import GpuName, PlanConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

GB = 10**9
FREE = 0.94
"""Share of a GPU's memory that is left beside CUDA contexts and libraries."""
ENGINE_SHARE = 0.9
"""Share of the free memory that an engine takes, alone on its GPU; vLLM's own default."""
MOST_ROWS = 256
"""The most rows that an engine samples at a time."""
FEWEST_ROWS = 8
"""The fewest rows for which an engine must have room, or else be spread over more GPUs."""


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A kind of GPU, by its data sheet."""

    memory: float
    """Bytes."""
    flops: float
    """FLOP/s in bfloat16, dense."""
    bandwidth: float
    """Bytes/s of its memory."""
    link: float
    """Bytes/s to its neighbours in one direction."""


KINDS: dict[GpuName, GpuKind] = {
    "h100": GpuKind(80 * GB, 989e12, 3350 * GB, 450 * GB),
    "h200": GpuKind(141 * GB, 989e12, 4800 * GB, 450 * GB),
    "b200": GpuKind(180 * GB, 2250e12, 7700 * GB, 900 * GB),
    "a100-80": GpuKind(80 * GB, 312e12, 2039 * GB, 300 * GB),
    "a100-40": GpuKind(40 * GB, 312e12, 1555 * GB, 300 * GB),
    "l40s": GpuKind(48 * GB, 362e12, 864 * GB, 32 * GB),
    "rtx-4090": GpuKind(24 * GB, 165e12, 1008 * GB, 32 * GB),
}


@dataclass(frozen=True, slots=True)
class EngineRate:
    """How fast an engine samples."""

    gpus: int
    """Number of GPUs that the engine is spread over."""
    slots: int
    """Rows that are sampled at a time, by the room for keys and values."""
    base_s: float
    """Seconds of a step without rows."""
    row_s: float
    """Seconds that each row adds."""


@dataclass(frozen=True, slots=True)
class ModelRates:
    """A model on a kind of GPU.

    Args:
        config: the plan's settings.
        total: number of weights.
        active: number of weights that a token is computed with.
        layers: number of layers.
        hidden: the hidden size.
        cached: bytes of keys and values of a token.
    """

    config: PlanConfig
    total: int
    active: int
    layers: int
    hidden: int
    cached: int

    @staticmethod
    def of(outline: PreTrainedModel, config: PlanConfig) -> ModelRates:
        """Read the sizes off a model without weights."""
        text: Any = outline.config.get_text_config()
        total = sum(weight.numel() for weight in outline.parameters())
        return ModelRates(
            config=config,
            total=total,
            active=_active(outline, text, total),
            layers=int(text.num_hidden_layers),
            hidden=int(text.hidden_size),
            cached=cached_bytes(outline.config, torch.bfloat16),
        )

    @property
    def gpu(self) -> GpuKind:
        """The kind of GPU."""
        return KINDS[self.config.gpu]

    @property
    def free(self) -> int:
        """Bytes of a GPU that the run may take."""
        return int(self.config.memory_gb * GB or FREE * self.gpu.memory)

    @property
    def answer(self) -> int:
        """Mean number of sampled tokens of a rollout."""
        return self.config.answer_tokens or max(1, self.config.rollout.max_tokens // 2)

    @property
    def row(self) -> int:
        """Mean number of tokens of a finished row."""
        return self.config.prompt_tokens + self.answer

    def training(
        self, ranks: int, tokens_per_pass: int, *, scored: int = 0, epochs: int = 1
    ) -> float:
        """Return how many sampled tokens ranks train per second.

        Args:
            ranks: number of ranks, with one GPU each.
            tokens_per_pass: tokens of a forward and backward pass of a rank.
            scored: number of further passes without gradient over the same tokens, such as those of
                a reference model.
            epochs: how often a step uses every token.
        """
        learned: float = (6 + 2 * self.config.trainer.checkpoint_layers) * self.active
        learned += 12 * self.layers * self.hidden * self.row / 2
        per_token = epochs * learned + 2 * scored * self.active
        computing_s = tokens_per_pass * per_token / (self.config.training_share * self.gpu.flops)
        within = ranks <= self.config.gpus_per_node
        link = self.gpu.link if within else min(self.gpu.link, self.config.node_gb_s * GB)
        moved_s = epochs * 8 * self.total * (ranks - 1) / ranks / link
        # A row is computed with its prompt, which the rows of a group share.
        share = self.answer / (self.answer + self.config.prompt_tokens / self._group)
        return ranks * tokens_per_pass * share / max(computing_s, moved_s)

    def engine(self) -> EngineRate:
        """Return the rate of an engine on the fewest GPUs that have room for the model.

        Raises:
            ConfigError: the model does not fit on the GPUs of a node.
        """
        gpus = 1
        while gpus <= self.config.gpus_per_node:
            room = ENGINE_SHARE * self.free * gpus - 2 * self.total
            slots = min(MOST_ROWS, int(room / (self.cached * self.row)))
            if slots >= FEWEST_ROWS:
                return self.sampling(gpus, slots)
            gpus *= 2
        raise ConfigError(
            f"an engine of {self.config.gpus_per_node} x {self.config.gpu} has no room for "
            f"{2 * self.total / GB:.0f} GB of weights and {FEWEST_ROWS} rows of {self.row:,} tokens"
        )

    def sampling(self, gpus: int, slots: int) -> EngineRate:
        """Return the rate of an engine on `gpus` GPUs with `slots` rows at a time."""
        config = self.config
        bytes_s = gpus * config.decode_share * self.gpu.bandwidth
        flops = gpus * config.training_share * self.gpu.flops
        context = config.prompt_tokens + self.answer / 2
        # A group's prompt is computed once; this is its share in each sampled token.
        prompt = config.prompt_tokens / self._group / self.answer
        row_s = self.cached * context / bytes_s + 2 * self.active * (1 + prompt) / flops
        return EngineRate(gpus, slots, 2 * self.total / bytes_s, row_s)

    @property
    def _group(self) -> int:
        return max(1, self.config.rollout.group_size)


def _active(outline: PreTrainedModel, text: Any, total: int) -> int:
    """Return how many weights a token is computed with: of the experts, only the chosen experts."""
    experts = int(getattr(text, "num_experts", 0) or getattr(text, "num_local_experts", 0) or 0)
    if not experts:
        return total
    inside = sum(
        weight.numel() for name, weight in outline.named_parameters() if ".experts." in name
    )
    return total - inside + inside * int(text.num_experts_per_tok) // experts
