"""How each environment of the learning table is warmed up in and trained in: the same for every
recipe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SHAPE = {"hidden": 56, "heads": 4, "layers": 2, "max_length": 4096}
"""About 115 thousand parameters."""


@dataclass(frozen=True)
class Stage:
    """A stretch of the supervised warm start."""

    demo: str
    """Arguments of the environment that say how the demonstrator errs."""
    steps: int
    batch: int = 32


@dataclass(frozen=True)
class World:
    """An environment's own settings."""

    stages: tuple[Stage, ...]
    max_tokens: int
    """Most tokens of a turn."""
    rollouts: int = 256
    """A step: 16 groups of 16, so that a recipe of 16 updates has a group for each."""
    lr: float = 5e-4
    warm_lr: float = 2e-3
    window: int = 0
    context: dict[str, str | int | float] = field(default_factory=dict[str, str | int | float])
    phrases: tuple[str, ...] = ()
    """What every episode repeats besides the briefing, one token each."""
    evals: int = 1
    """Held-out episodes cost so many times as much as elsewhere; evaluations are rarer."""


WORLDS = {
    "ludus/arithmetic-v0": World(
        # the first operator is mistaken seven times out of ten: greedily, always
        stages=(Stage("demo_fault=wrong-operator&demo_fault_rate=0.7", 400),),
        max_tokens=40,
    ),
    "ludus/tally-v0": World(
        # one more pass three times out of four: greedily, without end
        stages=(Stage("demo_recheck=0.75&demo_slip=0.6", 350),),
        max_tokens=64,
    ),
    "ludus/ledger-v0": World(
        # clean summaries are what copying is learned from; then mostly wrong ones
        stages=(Stage("demo=clean", 700, 16), Stage("demo=recency", 120, 16)),
        max_tokens=2,
        lr=1e-3,
        warm_lr=3e-3,
        window=56,
        context={
            "manager": "summarize",
            "threshold": 0.79,
            "max_summaries": 16,
            "summary_tokens": 8,
            "last_pair": "carry",
            "instruction": "Sum up.",
            "continuation": "Summary: {summary}",
        },
        phrases=(
            "go",
            "\n<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>assistant\n",
            "Sum up.",
            "\n\nSummary: ",
        ),
        evals=3,
    ),
}


def world_of(environment: str) -> World:
    """The settings of an environment, whatever its arguments."""
    return WORLDS[environment.partition("?")[0]]
