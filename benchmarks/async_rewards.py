"""The same small policies trained synchronously and four versions ahead, to the same number of
steps of equally many rollouts: what reward each ends with.

The warm starts are those of the learning table (`algorithms.py`): policies whose most likely
behaviour is wrong. What is finished under the output folder is found again.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from algorithms_runs import Plan, place_of, warm_start
from algorithms_worlds import world_of

ENVIRONMENTS = (
    "ludus/arithmetic-v0?max_operations=2&max_number=9&operators=%2B*",
    "ludus/tally-v0",
    "ludus/ledger-v0",
)
STEPS, GROUPS, GROUP = 32, 16, 8
HELD_OUT = 192
AHEAD = 4


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    reward: float
    """Mean greedy reward on held-out tasks."""
    tokens: float
    """Sampled tokens in all."""
    age: float
    """Mean age of the trained tokens, in versions."""
    oldest: float


def compare_rewards(out: Path, *, seeds: int) -> None:
    """Train every environment and seed both ways, and print a table."""
    print("| environment | seed | before | synchronous | ahead | tokens | mean age | oldest |")
    print("|---|---|---|---|---|---|---|---|")
    gaps: list[float] = []
    for seed in range(seeds):
        for environment in ENVIRONMENTS:
            plan = Plan(out.resolve(), STEPS, HELD_OUT, 0)
            start = warm_start(plan, environment, seed)
            before, endings = 0.0, list[Ended]()
            for eta in (0, AHEAD):
                before, ended = _trained(plan, environment, seed, start, eta)
                endings.append(ended)
            sync, ahead = endings
            gaps.append(ahead.reward - sync.reward)
            print(
                f"| {environment} | {seed} | {before:.3f} | {sync.reward:.3f} | "
                f"{ahead.reward:.3f} | {sync.tokens:.0f}, {ahead.tokens:.0f} | {ahead.age:.2f} | "
                f"{ahead.oldest:.0f} |",
                flush=True,
            )
    mean = statistics.fmean(gaps)
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    print(f"\nahead - synchronous: {mean:+.4f} ± {error:.4f} (standard error, {len(gaps)} pairs)")


def _trained(plan: Plan, environment: str, seed: int, start: Path, eta: int) -> tuple[float, Ended]:
    """Train once; returns the reward before, and how the run ended."""
    from ludus.agent.context import ContextSettings
    from ludus.trainer.config import (
        AsyncConfig,
        EvalConfig,
        ModelConfig,
        RolloutConfig,
        RunConfig,
        TrainConfig,
        TrainerConfig,
    )
    from ludus.trainer.train import run_training

    world = world_of(environment)
    folder = place_of(plan, environment, seed) / f"eta-{eta}-{STEPS}"
    log = folder / "metrics.jsonl"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        config = TrainConfig(
            env=environment,
            recipe="grpo",
            steps=STEPS,
            seed=seed,
            model=ModelConfig(path=str(start), device="cpu"),
            rollout=RolloutConfig(
                tasks_per_step=GROUPS,
                group_size=GROUP,
                max_tokens=world.max_tokens,
                window=world.window,
                concurrency=GROUPS * GROUP,
            ),
            context=ContextSettings(**world.context),
            overlap=AsyncConfig(max_staleness=eta, deadline=eta),
            trainer=TrainerConfig(lr=world.lr),
            eval=EvalConfig(tasks=HELD_OUT),
            run=RunConfig(folder=str(folder), tensorboard=False, episodes_every=0, save_every=0),
        )
        asyncio.run(run_training(config))
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (folder / "done").touch()
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    scores = [row["eval/mean"] for row in rows if "eval/mean" in row]
    steps = [row for row in rows if "episode/tokens" in row]
    ended = Ended(
        reward=scores[-1],
        tokens=sum(row["episode/tokens"] * row["episode/count"] for row in steps),
        age=statistics.fmean(row.get("staleness/mean", 0.0) for row in steps),
        oldest=max(row.get("staleness/max", 0.0) for row in steps),
    )
    return scores[0], ended
