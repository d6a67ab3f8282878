"""The settings of `ludus plan`: the settings of a run, and the machines to plan with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ludus.errors import ConfigError

from ..config import TrainConfig
from .run import not_negative, positive

GpuName = Literal["h100", "h200", "b200", "a100-80", "a100-40", "l40s", "rtx-4090"]
MAX_GPUS = 1024
"""The most GPUs that a plan is made for."""


@dataclass(frozen=True)
class PlanConfig(TrainConfig):
    """The settings of a plan: the settings of a run, and machines and lengths to plan with."""

    gpus: int = 8
    """Number of GPUs. The plan gives the best split between training and sampling for 1, 2, 4, ...
    GPUs, up to this number.
    """
    gpu: GpuName = "h100"
    """Kind of GPU, by its data sheet."""
    memory_gb: float = 0.0
    """Memory of a GPU in GB (10^9 bytes) that is free for the run; 0 takes 94 % of the data
    sheet's.
    """
    gpus_per_node: int = 8
    """Number of GPUs of a machine, which a fast link connects."""
    node_gb_s: float = 50.0
    """GB/s between machines for each GPU; 50 is 400 Gbit/s, as in a usual cluster."""
    prompt_tokens: int = 512
    """Mean number of tokens of a prompt."""
    answer_tokens: int = 0
    """Mean number of sampled tokens of a rollout; 0 is half of rollout.max_tokens."""
    spread: float = 0.8
    """Standard deviation of the logarithm of the lengths of rollouts."""
    training_share: float = 0.4
    """Share of the data sheet's bfloat16 FLOP/s that training reaches (its MFU). The default is an
    assumption, which benchmarks/gpu.sh checks.
    """
    decode_share: float = 0.6
    """Share of the data sheet's memory bandwidth that sampling reaches; also an assumption."""

    def __post_init__(self) -> None:
        TrainConfig.__post_init__(self)
        for name in ("gpus", "gpus_per_node", "node_gb_s", "training_share", "decode_share"):
            positive(name, getattr(self, name))
        for name in ("memory_gb", "prompt_tokens", "answer_tokens", "spread"):
            not_negative(name, getattr(self, name))
        if self.gpus > MAX_GPUS:
            raise ConfigError(f"gpus is {self.gpus}; a plan is made for at most {MAX_GPUS:,}")
