# pyright: basic
"""The memory of a pass: what decoder layers keep for the backward pass, what the system gets back,
and what is done when memory runs out.

The gradient of a sum does not depend on how rows are split, so an update that ran out of memory is
computed again from its first pass, in passes of half the size, which stay for the rest of the run.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as checkpoint_module

from ludus.errors import ConfigError, MissingExtra, TrainingFailed

from ..models.adapters import decoder_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

MARK = "_ludus_prepared"
"""Attribute of a decoder layer: the set of preparations that were made."""
TRIM = "malloc_trim"
"""glibc's function; other C libraries have none."""
UNBOUND = 1 << 62
ALLOCATOR = re.compile(r"DefaultCPUAllocator|not enough memory|std::bad_alloc|out of memory", re.I)
"""What torch says, as a plain RuntimeError, where memory of the CPU is refused."""

Result = TypeVar("Result")


def trimmer() -> Callable[[], None]:
    """Return a function that gives the system the pages of the heap that nothing uses.

    glibc does so by itself at the end of the heap alone. The inputs that checkpointed layers keep
    stand between blocks that are computed and freed, and neither the next layer nor the system can
    use the pieces: SmolLM2-135M held 470 MB after a forward pass that keeps 40.

    Returns:
        A function that does nothing where the C library cannot do it.
    """
    trim = getattr(ctypes.CDLL(None), TRIM, None)
    return (lambda: None) if trim is None else (lambda: trim(0))


def prepare_layers(model: PreTrainedModel, *, checkpoint: bool, compiled: bool) -> None:
    """Prepare each decoder layer as the settings ask; names and gradients stay the same.

    Args:
        model: a causal LM; a second call for the same model changes nothing.
        checkpoint: whether a layer keeps only its input, and computes the rest once more in the
            backward pass. transformers' own `gradient_checkpointing_enable` would do nothing here,
            since it acts in training mode alone and a learner's model is in evaluation mode.
        compiled: whether a layer is compiled by `torch.compile`, for any number of tokens.

    Raises:
        ConfigError: the model has no list of decoder layers.
    """
    for layer in decoder_layers(model) if checkpoint or compiled else ():
        done: set[str] = getattr(layer, MARK, set())
        if compiled and "compiled" not in done:
            layer.compile(dynamic=True)
        if checkpoint and "checkpoint" not in done:
            checkpoint_module(layer)
            if model.device.type == "cpu":
                layer.register_forward_hook(_after_a_layer)
        asked = {"compiled": compiled, "checkpoint": checkpoint}
        setattr(layer, MARK, done | {name for name, wanted in asked.items() if wanted})


_trim = trimmer()


def _after_a_layer(layer: Any, *_: Any) -> None:
    """Give the memory that a layer has freed back to the system (decision 0654). A pass without
    gradient keeps no inputs of layers, between which freed memory would be lost.
    """
    if torch.is_grad_enabled():
        _trim()


def use_liger(model: PreTrainedModel) -> None:
    """Replace norms, rotary positions and feed-forward products by the fused kernels of
    liger-kernel, in place. Unmeasured: no GPU was there when this was written.

    Raises:
        ConfigError: the model is not on a CUDA device, or liger-kernel does not know its kind.
        MissingExtra: liger-kernel is not installed.
    """
    if model.device.type != "cuda":
        raise ConfigError(
            f"trainer.kernels is 'liger', whose kernels need a CUDA device; the model is on "
            f"{model.device.type!r}; leave trainer.kernels at torch"
        )
    try:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance as apply  # pyright: ignore[reportMissingImports]
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN as known  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtra.of("liger", needed_for="trainer.kernels = liger") from None
    if model.config.model_type not in known:
        raise ConfigError(
            f"trainer.kernels is 'liger', which has no kernels for {model.config.model_type!r}; "
            "leave trainer.kernels at torch"
        )
    apply(model=model)


class OutOfMemory(TrainingFailed):
    """Memory ran out in a pass.

    Args:
        message: what was tried.
        rows: number of rows of the pass.
        tokens: number of tokens that the pass computes.
    """

    def __init__(self, message: str, *, rows: int, tokens: int) -> None:
        super().__init__(message)
        self.rows, self.tokens = rows, tokens

    def __reduce__(self) -> tuple[Callable[[str], OutOfMemory], tuple[str]]:
        """Pickle the message and the sizes, as an error that crosses processes must be."""
        return partial(type(self), rows=self.rows, tokens=self.tokens), (str(self),)


class Shortage:
    """Remembers how large a pass may be since memory last ran out."""

    def __init__(self) -> None:
        self.bound = UNBOUND
        """Largest number of tokens of a pass."""
        self.count = 0
        """How often memory has run out."""

    @contextmanager
    def watching(self, size: Callable[[], tuple[int, int]]) -> Generator[None]:
        """Turn a refused allocation inside the block into `OutOfMemory`.

        Args:
            size: returns rows and tokens of the pass; called only if memory runs out.
        """
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, TrainingFailed) or not ran_out(error):
                raise
            rows, tokens = size()
            raise OutOfMemory(
                f"memory ran out in a pass of {tokens} tokens ({rows} rows); lower "
                "trainer.tokens_per_pass",
                rows=rows,
                tokens=tokens,
            ) from None

    def retrying(self, work: Callable[[], Result], bound: Callable[[], int]) -> Result:
        """Do `work`, and again in passes of half the size as often as memory runs out.

        Args:
            work: computes from its beginning each time.
            bound: returns the largest number of tokens of a pass.

        Raises:
            OutOfMemory: a pass that cannot be split does not fit.
        """
        while True:
            try:
                return work()
            except OutOfMemory as error:
                rows, tokens = error.rows, error.tokens
            # out of the block, so that no traceback holds the tensors of the failed pass
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.count += 1
            if rows == 1 or tokens > bound():
                raise OutOfMemory(
                    f"a pass of {tokens} tokens does not fit into memory, and its {rows} row(s) "
                    "cannot be split further. Set trainer.checkpoint_layers, train a small adapter "
                    "(trainer.lora.rank), or allow shorter rows (rollout.max_tokens, "
                    "rollout.window)",
                    rows=rows,
                    tokens=tokens,
                )
            self.bound = max(1, tokens // 2)
            logger.warning(
                "memory ran out in a pass of %d tokens; passes have at most %d from now on, and "
                "the update is computed again (set trainer.tokens_per_pass to start there)",
                tokens,
                self.bound,
            )


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory was refused.

    >>> ran_out(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    >>> ran_out(RuntimeError("shapes cannot be multiplied"))
    False
    """
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return ALLOCATOR.search(str(error)) is not None
