"""Write docs/algorithms_index.md from what `ludus.trainer.algorithms` exports.

    python docs/algorithms_index.py

Every function by kind: its first sentence, and the source its docstring names.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

from ludus.trainer import algorithms

PAGE = Path(__file__).with_name("algorithms_index.md")
KINDS = {
    "advantages": "Advantages",
    "surrogates": "Surrogate losses",
    "corrections": "Corrections and filters",
    "aggregation": "Aggregation",
    "kl": "KL divergence",
    "entropy": "Entropy",
    "value": "Value head",
    "sampling": "Sampling",
    "shaping": "Reward shaping",
    "groups": "Group statistics",
    "masked": "Masked statistics",
    "experimental": "Experimental: as read, in no recipe",
}
HEAD = """\
# Index of the algorithm library

Written by `python docs/algorithms_index.py` from the docstrings; the pictures are in
[algorithms.md](algorithms.md).
"""


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for kind, title in KINDS.items():
        found = [name for name in sorted(algorithms.__all__) if _kind(name) == kind]
        if found:
            rows = "\n".join(_row(name) for name in found)
            parts.append(
                f"## {title}\n\n| function | what it is | source |\n|---|---|---|\n{rows}\n"
            )
    return "\n".join(parts)


def _functions() -> dict[str, Callable[..., object]]:
    every = {name: getattr(algorithms, name) for name in algorithms.__all__}
    return {name: each for name, each in every.items() if isinstance(each, FunctionType)}


def _kind(name: str) -> str:
    function = _functions().get(name)
    if function is None:
        return ""
    return function.__module__.removeprefix(algorithms.__name__ + ".").partition(".")[0]


def _row(name: str) -> str:
    text = inspect.getdoc(_functions()[name]) or ""
    summary = " ".join(text.split("\n\n")[0].split())
    source = re.search(r"^Source: (.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    cited = " ".join(source[1].split()) if source else ""
    return f"| `{name}` | {_cell(summary)} | {_cell(cited)} |"


def _cell(text: str) -> str:
    # a bar would end the cell, and KL(pi || ref) has two
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
