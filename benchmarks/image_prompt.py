"""Train a small policy to write image prompts, on several seeds, and hold it against the expert.

python benchmarks/image_prompt.py --seeds 3

A policy from random weights is warmed up on a demonstrator who, more often than not, copies the
colours of the request, which the generator does not know. GRPO then trains it against
`ludus/image-prompt-v0`; the reward is what the pictures show. The table holds greedy play on
held-out scenes before and after, and the expert's. The episode viewer's page of the last
evaluation, with its pictures, is written beside each run.
"""

import argparse
import asyncio
import json
import resource
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ludus.agent.episodes import read_episodes
from ludus.agent.viewer import PageHead, RunReader, page_of
from ludus.envs import make_async
from ludus.envs.families.image_prompt.scenes import (
    COLOURS,
    PLACES,
    SAID_COLOURS,
    SAID_COUNTS,
    SAID_PLACES,
    SAID_SHAPES,
    SHAPES,
)
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.demos.calculator import accuracy
from ludus.trainer.models.tiny import briefing_phrases, write_tiny_policy
from ludus.trainer.sft import run_sft
from ludus.trainer.train import run_training
from ludus.wire.address import parse_served

ENV = "ludus/image-prompt-v0"
SETTING = "clusters=2&max_count=3"
FAULT = "demo_fault=copied-colours&demo_fault_rate=0.6"


def main() -> None:
    """Print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--warm-start", type=int, default=300)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--held-out", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=Path("runs/image-prompt"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [measure(seed, options) for seed in range(options.seeds)]
    table = Table("seed", "expert", "before", "after", "of the expert", "wall s", "CPU s")
    for row in rows:
        numbers = [f"{row[name]:.3f}" for name in ("expert", "before", "after", "share")]
        table.add_row(f"{row['seed']:g}", *numbers, f"{row['wall_s']:.0f}", f"{row['cpu_s']:.0f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def measure(seed: int, options: argparse.Namespace) -> dict[str, float]:
    """One warm start and one training run."""
    started, used = time.perf_counter(), cpu_seconds()
    before, after = asyncio.run(learn(seed, options))
    expert = asyncio.run(expert_mean(options.held_out))
    return {
        "seed": seed,
        "expert": expert,
        "before": before,
        "after": after,
        "share": after / expert,
        "wall_s": time.perf_counter() - started,
        "cpu_s": cpu_seconds() - used,
    }


async def learn(seed: int, options: argparse.Namespace) -> tuple[float, float]:
    """Mean greedy reward on held-out scenes before and after training."""
    folder = options.folder / f"seed-{seed}"
    phrases = [*briefing_phrases(make_async(ENV).env.briefing()), *vocabulary()]
    model = write_tiny_policy(folder / "model", phrases=phrases, seed=seed)
    warm = await run_sft(
        SFTConfig(
            env=f"{ENV}?{SETTING}&{FAULT}",
            steps=options.warm_start,
            batch_size=32,
            seed=seed,
            model=ModelConfig(path=str(model)),
            trainer=TrainerConfig(lr=2e-3, warmup_steps=10, lr_decay="linear"),
            run=RunConfig(folder=str(folder / "warm-start"), tensorboard=False),
        )
    )
    run = folder / "grpo"
    await run_training(
        TrainConfig(
            env=f"{ENV}?{SETTING}",
            steps=options.steps,
            seed=seed,
            model=ModelConfig(path=str(warm)),
            rollout=RolloutConfig(tasks_per_step=16, group_size=8, max_tokens=48),
            trainer=TrainerConfig(lr=3e-4),
            eval=EvalConfig(tasks=options.held_out),
            run=RunConfig(folder=str(run), tensorboard=False),
        )
    )
    played = [read_episodes(path) for path in sorted((run / "episodes").glob("eval-*.jsonl"))]
    head = PageHead(title="ludus/image-prompt-v0", first="episodes")
    (run / "pictures.html").write_text(page_of([RunReader(run, "grpo", None)], head))
    return accuracy(played[0]), accuracy(played[-1])


def vocabulary() -> list[str]:
    """The words of requests and prompts, one token each, so that episodes are short."""
    said = [*SAID_COLOURS.values(), *SAID_SHAPES.values(), *SAID_PLACES.values()]
    texts = [*COLOURS, *SHAPES, *PLACES, *(text for texts in said for text in texts)]
    texts += [text for counts in SAID_COUNTS.values() for text in counts]
    return [*sorted({text if text.startswith("a ") else f" {text}" for text in texts}), ", "]


async def expert_mean(tasks: int) -> float:
    """The expert's mean reward on the held-out scenes."""
    env_id, options = parse_served(f"{ENV}?{SETTING}")
    session = make_async(env_id, **options)
    rewards: list[float] = []
    for index in range(tasks):
        await session.reset(seed=0, options={"task": f"test/{index}", "split": "test"})
        _, reward, *_ = await session.step(session.env.demonstrate())
        rewards.append(float(reward))
    await session.close()
    return statistics.fmean(rewards)


def cpu_seconds() -> float:
    """User and system time of this process and the children it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


if __name__ == "__main__":
    main()
