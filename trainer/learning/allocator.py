"""Gives memory back to the system where layers are computed again."""

from __future__ import annotations

import ctypes
import os

LARGE_BLOCK = 1 << 20
"""Size in bytes from which a block is mapped alone, and goes back to the system when it is freed.
Tensors of a layer are larger; Python's objects are smaller, and stay as quick as they were.
"""

CHOSEN_OUTSIDE = "MALLOC_MMAP_THRESHOLD_"
"""Environment variable with which a user chooses that size; then nothing is changed."""

_M_MMAP_THRESHOLD = -3  # from glibc's malloc.h


def return_large_blocks() -> bool:
    """Have the C library map each block of `LARGE_BLOCK` and more alone, for the whole process.

    By default glibc raises this size, up to 32 MB, to that of the largest block that was freed.
    The inputs that checkpointed layers keep then stand between the blocks of what is computed and
    freed, and neither the next layer nor the system can use the pieces: SmolLM2-135M held 470 MB
    after a forward pass that keeps 40.

    Returns:
        Whether it was done: False where the C library is another one, or where the environment
        variable `MALLOC_MMAP_THRESHOLD_` has chosen a size.
    """
    if CHOSEN_OUTSIDE in os.environ:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK))
