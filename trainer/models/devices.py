"""Devices, and the numeric types of a model's computation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ludus.errors import ConfigError
from ludus.rewards.learned.devices import chosen_device


def pick_device(name: str) -> str:
    """Return the device of `model.device`: "cpu", "cuda" or "cuda:N".

    Raises:
        ConfigError: the name is another word, or torch sees no such device.
    """
    return chosen_device(name, option="model.device")


def cuda_devices() -> list[str]:
    """Return the names of the CUDA devices that torch sees."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def engine_gpus(visible: Sequence[str], learners: int, wanted: str = "") -> str:
    """Return the devices of an engine that is started beside the ranks of a learner.

    Args:
        visible: the names of this host's devices, of which each rank has one, in order.
        learners: the number of ranks on this host; 0 is a learner in one process, which shares.
        wanted: names separated by commas; empty takes what the ranks leave.

    Raises:
        ConfigError: a device is named twice, does not exist, or is a rank's; or none is left.

    >>> engine_gpus(["0", "1", "2", "3"], 2)
    '2,3'
    """
    names = [name.strip() for name in wanted.split(",")] if wanted else []
    ranks = set(visible[:learners])
    if unknown := [name for name in names if name not in visible]:
        raise ConfigError(
            f"vllm.gpus names {unknown[0]!r}, which is not among the visible devices "
            f"({', '.join(visible) or 'none'})"
        )
    if len(set(names)) < len(names) or ranks & set(names):
        raise ConfigError(
            f"vllm.gpus is {wanted!r}, and the {learners} ranks of the learner have "
            f"{', '.join(visible[:learners]) or 'none'}: name each device once, and none of a rank"
        )
    if learners and not names:
        names = list(visible[learners:])
        if visible and not names:
            raise ConfigError(
                f"the learner's {learners} ranks take all {len(visible)} devices, and the server "
                "needs one: start fewer ranks (torchrun --nproc_per_node), or name a running "
                "server by vllm.url"
            )
    return ",".join(names)


def chosen_precision(asked: str, settled: str) -> tuple[str, ...]:
    """Return a note, if any, that `auto` has chosen half precision.

    >>> chosen_precision("auto", "float32")
    ()
    """
    if asked != "auto" or settled == "float32":
        return ()
    return (
        f"computes in {settled} on this GPU, with weights, gradient and moments in float32 "
        "(model.dtype = auto); float32 is exact and several times slower",
    )


def settled_dtype(name: str, device: str) -> str:
    """Return the type to compute in where `auto` was asked for: bfloat16 on a CUDA device that
    computes in it, float32 elsewhere.

    >>> settled_dtype("auto", "cpu")
    'float32'
    """
    if name != "auto":
        return name
    capable = device.startswith("cuda") and (
        torch.cuda.get_device_capability(device) >= FIRST_WITH_BFLOAT16
    )
    return "bfloat16" if capable else "float32"


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def autocast_of(dtype: str) -> torch.dtype | None:
    """Return the type that a learner's passes are cast to; None for float32, the type of the
    weights.
    """
    return None if dtype == "float32" else DTYPES[dtype]


FIRST_WITH_BFLOAT16 = (8, 0)
"""Compute capability (Ampere) from which CUDA devices compute in bfloat16."""


def refuse_unsupported(dtype: str, device: str) -> None:
    """Refuse a type that a device does not compute in.

    Raises:
        ConfigError: with a type that the device has.
    """
    capability = torch.cuda.get_device_capability(device) if device.startswith("cuda") else None
    if why := unsupported(dtype, capability):
        raise ConfigError(why)


def unsupported(dtype: str, capability: tuple[int, int] | None) -> str:
    """Return why a device cannot compute in a type; empty for a supported type.

    Args:
        dtype: name of the type.
        capability: of a CUDA device; None for a CPU, which computes in any type, if slowly.

    >>> unsupported("bfloat16", (7, 5)).partition(":")[0]
    "model.dtype is 'bfloat16', which this CUDA device (compute capability 7.5) does not have"
    """
    if dtype != "bfloat16" or capability is None or capability >= FIRST_WITH_BFLOAT16:
        return ""
    named = ".".join(map(str, capability))
    return (
        f"model.dtype is 'bfloat16', which this CUDA device (compute capability {named}) does not "
        "have: set float16, whose loss is scaled, or float32"
    )


def at_least_float32(values: Tensor) -> Tensor:
    """Convert half precision to float32; float64 stays float64.

    >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return values if values.dtype == torch.float64 else values.float()


class LogitHead:
    """The logits of a model after hidden states, in float32.

    Args:
        model: a causal LM, whose head is a linear map.
        exact: whether the product is computed in float32, whatever the types of states and weights;
            otherwise in theirs, and then converted.
        fixed: whether the weights change only before `renew`, so that a float32 copy of the head
            may be kept; for an engine that holds its weights in half precision.
    """

    def __init__(self, model: Any, *, exact: bool = False, fixed: bool = False) -> None:
        self.model, self.exact, self.fixed = model, exact, fixed
        self._copy: Tensor | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V] after hidden states [..., D]."""
        if not self.exact:
            return at_least_float32(self.model.lm_head(hidden))
        linear = self.model.lm_head
        weight = at_least_float32(linear.weight) if self._copy is None else self._copy
        if self.fixed and weight is not linear.weight:
            self._copy = weight
        bias = None if linear.bias is None else at_least_float32(linear.bias)
        with torch.autocast(hidden.device.type, enabled=False):
            return torch.nn.functional.linear(at_least_float32(hidden), weight, bias)

    def renew(self) -> None:
        """Note that the weights have changed."""
        self._copy = None


SLOWER = 1.2
"""Slowdown from which a type is said to be slower."""
SIDE, ROUNDS = 512, 5
"""Size of the layer that is measured, and how often; 10 to 60 ms in all."""
SAMPLED_ROWS, PASS_ROWS = 16, 512
"""Tokens in the layer at a time while rollouts are sampled, and in a pass of the learner."""


def slowdown(dtype: str, rows: int) -> float:
    """Return how many times as long as in float32 a linear layer takes for `rows` tokens on this
    CPU.
    """
    times_s: dict[str, list[float]] = {"float32": [], dtype: []}
    layers = {
        name: (
            torch.ones(rows, SIDE, dtype=DTYPES[name]),
            torch.ones(SIDE, SIDE, dtype=DTYPES[name]),
        )
        for name in times_s
    }
    for _ in range(ROUNDS + 1):
        for name, (tokens, weight) in layers.items():
            started = time.perf_counter()
            torch.nn.functional.linear(tokens, weight)
            times_s[name].append(time.perf_counter() - started)
    # The first round also loads and prepares kernels, and is left out.
    return median(times_s[dtype][1:]) / median(times_s["float32"][1:])


def slow_precision(dtype: str, device: str) -> tuple[str, ...]:
    """Return a note, if any, that a type is slower than float32 on this machine: many CPUs have no
    instructions for bfloat16 or float16.
    """
    if dtype == "float32" or device != "cpu":
        return ()
    sampling, passing = slowdown(dtype, SAMPLED_ROWS), slowdown(dtype, PASS_ROWS)
    if max(sampling, passing) < SLOWER:
        return ()
    return (
        f"model.dtype is {dtype!r}, in which a linear layer takes {sampling:.1f} times as long as "
        f"in float32 on this CPU while sampling, and {passing:.1f} times in passes of the learner "
        "(measured now): float32 is the faster choice here",
    )
