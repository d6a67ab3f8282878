"""Models that stay in memory on a server. The server refuses to start if they do not fit together.

Nothing is evicted to make room: a model that has to be read again would cost its first callers
seconds, at a time nobody chose.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from ludus.errors import ConfigError

SHARE = 0.8
"""Share of the machine's memory that is used where no budget is given."""
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def default_budget() -> int:
    """Return the most bytes for the weights of all models together: 80 % of the memory of this
    machine, or of the container that this process is in.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Without a limit there is no such file, or it says "max".
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(GROUP_LIMIT.read_text("ascii")))
    return int(SHARE * total)


def refuse_beyond(budget: int, memory_of: Mapping[str, int]) -> None:
    """Refuse models whose weights need more than `budget` bytes together.

    Args:
        budget: the most bytes.
        memory_of: the bytes that each verifier keeps, by its name.

    Raises:
        ConfigError: the models need more; the message gives the size of each, the largest first.
    """
    total = sum(memory_of.values())
    if total <= budget:
        return
    sizes = sorted(((size, name) for name, size in memory_of.items() if size), reverse=True)
    sizes_text = ", ".join(f"{name} {_readable(size)}" for size, name in sizes)
    raise ConfigError(
        f"these models do not fit together: {sizes_text}; that is {_readable(total)} of "
        f"{_readable(budget)}. Serve them by servers on several machines, raise --model-memory-mb, "
        "or load them with dtype=bfloat16"
    )


def _readable(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.2f} MB"
