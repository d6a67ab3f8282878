"""What is done when memory runs out in a pass: smaller passes, then a refusal that says what helps.

The gradient of a sum does not depend on how rows are split, so an update that ran out of memory is
computed again from its first pass, in passes of half the size, which stay for the rest of the run.
"""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import torch

from ludus.errors import TrainingFailed

logger = logging.getLogger(__name__)

UNBOUND = 1 << 62
ALLOCATOR = re.compile(r"DefaultCPUAllocator|not enough memory|std::bad_alloc|out of memory", re.I)
"""What torch says, as a plain RuntimeError, where memory of the CPU is refused."""

Result = TypeVar("Result")


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
