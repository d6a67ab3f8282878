"""Trees against groups at equal sampled tokens, in two worlds that are learned in minutes.

    python benchmarks/trees.py [--seeds 5] [--steps 30]

A policy of random weights says one token a turn for five turns; a turn is right if the first
character of what it said has an even code. In `all` the last turn earns 1 if all turns were right,
in `each` every right turn earns 0.2. Both arms are GRPO's loss, with 12 tasks a step: groups of 8,
and `--sampling tree` (4 roots that fork after the turns 1 and 4, so up to 16 leaves).

A run's figure is its mean reward over the tokens that the cheaper arm of its seed sampled: the area
under the learning curve. The interval is that of the seeds' paired differences (Student's t, 95 %).
Rewards of a step are of what it was learned from; leaves of a tree are an unbiased sample too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from ludus.envs import TextEnv, register
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.train import run_training

TURNS = 5
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
"""Student's quantile by the number of pairs."""
WORLDS = {"all": "bench/all-even-v0", "each": "bench/each-even-v0"}


class Even(TextEnv):
    """Asks for a word with an even first character, five times."""

    forks = "copy"
    never_blocks = True
    whole = True
    """Whether all must be right."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.turn, self.right = 0, 0
        return "go", {}

    def step(self, action: str) -> Any:
        self.turn += 1
        even = bool(action) and ord(action[0]) % 2 == 0
        self.right += even
        ended = self.turn == TURNS
        earned = float(ended and self.right == TURNS) if self.whole else even / TURNS
        return str(self.turn), earned, ended, False, {}


@register(WORLDS["all"])
class AllEven(Even):
    """Five words, all of which must be right."""


@register(WORLDS["each"])
class EachEven(Even):
    """Five words that earn a fifth each."""

    whole = False


def curve(folder: Path) -> list[tuple[float, float]]:
    """(tokens sampled before a step, mean reward of the step)."""
    points: list[tuple[float, float]] = []
    tokens = 0.0
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "reward/mean" in row:
            points.append((tokens, row["reward/mean"]))
            tokens += row["episode/tokens"] * row["episode/count"]
    return points


def area(points: list[tuple[float, float]], budget: float) -> float:
    """The mean reward over the first tokens, by the trapezoid rule."""
    total = 0.0
    for (t0, r0), (t1, r1) in pairwise(points):
        end = min(t1, budget)
        if end > t0:
            at_end = r0 + (r1 - r0) * (end - t0) / (t1 - t0)
            total += (r0 + at_end) / 2 * (end - t0)
    return total / budget


def train(world: str, sampling: str, seed: int, steps: int, folder: Path) -> Path:
    """Train an arm."""
    model = write_tiny_policy(
        folder / f"model-{seed}", hidden=32, layers=2, heads=2, seed=seed, max_length=512
    )
    config = TrainConfig(
        env=WORLDS[world],
        recipe="grpo",
        sampling=sampling,
        steps=steps,
        seed=seed,
        model=ModelConfig(path=str(model), device="cpu"),
        rollout=RolloutConfig(tasks_per_step=12, group_size=8, max_tokens=1, max_turns=TURNS),
        trainer=TrainerConfig(lr=3e-4),
        eval=EvalConfig(tasks=2, every=1000),
        run=RunConfig(
            folder=str(folder / f"{world}-{sampling or 'group'}-{seed}"),
            tensorboard=False,
            episodes_every=0,
            save_every=0,
        ),
    )
    return asyncio.run(run_training(config)).folder


def main() -> None:
    """Run both arms in both worlds, and print a line for each world."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| world | groups | trees | difference, 95 % |\n|---|---|---|---|", flush=True)
    for world in WORLDS:
        pairs: list[tuple[float, float]] = []
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as place:
                curves = [
                    curve(train(world, sampling, seed, options.steps, Path(place)))
                    for sampling in ("", "tree")
                ]
            budget = min(points[-1][0] for points in curves)
            pairs.append((area(curves[0], budget), area(curves[1], budget)))
        gaps = [tree - group for group, tree in pairs]
        mean = statistics.fmean(gaps)
        half = T_95[len(gaps)] * statistics.stdev(gaps) / math.sqrt(len(gaps))
        group, tree = (statistics.fmean(side) for side in zip(*pairs, strict=True))
        print(
            f"| `{world}` | {group:.3f} | {tree:.3f} | {mean:+.3f} [{mean - half:+.3f}, "
            f"{mean + half:+.3f}] |",
            flush=True,
        )


if __name__ == "__main__":
    main()
