"""A reward model that is trained on preferences, served, and drives a policy: the true worth rises.

    python benchmarks/text_reward.py [--pairs 1000] [--steps 30] [--seeds 1] [--svg FILE]

A policy writes eight letters. What they are worth is planted (0.8 for each `a`, and -1.6 for each
letter too many or too few), and neither the policy nor the trainer is told: people who are made up
prefer one of two texts by Bradley and Terry's model. `ludus train reward` learns from their pairs,
`ludus serve` scores with the result, and `ludus train grpo` learns against that server; the
environment itself pays nothing. The true worth of what the policy writes is read from the recorded
episodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import ludus
from ludus.agent.episodes import INDEX, read_episodes
from ludus.envs import GeneratedTasks, TaskSet, TextEnv
from ludus.messages import Message
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RewardConfig,
    RewardModelConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.reward_models.training import run_reward
from ludus.trainer.sft import run_sft
from ludus.trainer.train import run_training

LETTERS, WORTH = 8, 0.8
QUESTION = "Write eight letters."
ENV = "taste/letters-v0"


@ludus.register(ENV)
class Letters(TextEnv):
    """Asks for letters, and pays nothing."""

    never_blocks = True
    max_turns = 1

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set."""
        return GeneratedTasks(split)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Ask; every task asks the same."""
        return QUESTION, {}

    def step(self, action: str | Message) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """End the episode without a reward of its own."""
        return "", 0.0, True, False, {}


def main() -> None:
    """Train all three, and print the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    curves: list[list[tuple[float, float]]] = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            curves.append(driven(Path(folder), pairs=options.pairs, steps=options.steps, seed=seed))
        first, last = curves[-1][0], fmean(true for true, _ in curves[-1][-5:])
        print(f"seed {seed}: true worth {first[0]:.2f} at first, {last:.2f} in the last five steps")
        for step, (true, scored) in enumerate(curves[-1], 1):
            if step == 1 or step % 5 == 0:
                print(f"  step {step:>3}  true worth {true:5.2f}  score {scored:6.2f}")
    print(f"the most is {WORTH * LETTERS:.1f}; letters at random have {WORTH * LETTERS / 2:.1f}")
    if options.svg:
        options.svg.write_text(drawn(curves), encoding="utf-8")


def worth(text: str) -> float:
    """What a text is worth in truth."""
    return WORTH * (text.count("a") - 2 * abs(len(text) - LETTERS))


def driven(place: Path, *, pairs: int, steps: int, seed: int) -> list[tuple[float, float]]:
    """Train a reward model and a policy; return the mean true worth and the mean score a step."""
    rng = random.Random(seed)
    shape: dict[str, Any] = {"hidden": 32, "layers": 1, "heads": 2}
    model = write_tiny_policy(place / "model", seed=seed, **shape)
    policy = asyncio.run(warm_start(place, model, rng, seed))
    reward = asyncio.run(reward_model(place, model, pairs, rng, seed))
    with served(reward) as url:
        run = place / "grpo"
        config = TrainConfig(
            env=ENV,
            steps=steps,
            seed=seed,
            model=ModelConfig(path=str(policy), device="cpu"),
            rollout=RolloutConfig(tasks_per_step=4, group_size=16, max_tokens=16),
            trainer=TrainerConfig(lr=3e-3),
            eval=EvalConfig(tasks=4),
            run=RunConfig(
                folder=str(run), tensorboard=False, episodes_every=1, episodes_kept=0, save_every=0
            ),
            reward=[RewardConfig(name=f"{url}#reward-model")],
        )
        asyncio.run(run_training(config))
    return curve_of(run)


async def warm_start(place: Path, model: Path, rng: random.Random, seed: int) -> Path:
    """Train the policy to write eight letters at random, and return its checkpoint."""
    rows = [{"prompt": QUESTION, "completion": letters(rng)} for _ in range(255)]
    return await run_sft(
        SFTConfig(
            data=lines(place / "letters.jsonl", rows),
            steps=120,
            batch_size=32,
            held_out=0.0,
            seed=seed,
            model=ModelConfig(path=str(model), device="cpu"),
            trainer=TrainerConfig(lr=5e-3, warmup_steps=5, lr_decay="linear"),
            run=RunConfig(folder=str(place / "warm"), tensorboard=False, save_every=0),
        )
    )


async def reward_model(place: Path, model: Path, pairs: int, rng: random.Random, seed: int) -> Path:
    """Train the reward model on noisy preferences, and return its checkpoint."""
    rows: list[dict[str, str]] = []
    while len(rows) < pairs:
        first, second = (letters(rng, rng.randint(4, 12)) for _ in range(2))
        if first == second:
            continue
        if rng.random() > 1 / (1 + math.exp(worth(second) - worth(first))):
            first, second = second, first
        rows.append({"prompt": QUESTION, "chosen": first, "rejected": second})
    trained = await run_reward(
        RewardModelConfig(
            data=lines(place / "pairs.jsonl", rows),
            epochs=2.0,
            batch_size=16,
            held_out=0.0,
            seed=seed,
            model=ModelConfig(path=str(model), device="cpu"),
            trainer=TrainerConfig(lr=3e-3, warmup_steps=5),
            run=RunConfig(folder=str(place / "reward"), tensorboard=False, save_every=0),
        )
    )
    return trained.checkpoint


def letters(rng: random.Random, count: int = LETTERS) -> str:
    """Letters at random."""
    return "".join(rng.choice("ab") for _ in range(count))


def lines(path: Path, rows: list[dict[str, str]]) -> str:
    """Write rows, a line each."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@contextmanager
def served(checkpoint: Path) -> Iterator[str]:
    """Serve a reward model by `ludus serve`, and yield the address."""
    command = [sys.executable, "-m", "ludus", "serve", f"reward-model?model={checkpoint}"]
    process = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if address := re.search(r"http://[\d.]+:\d+", line):
                yield address[0]
                return
        raise RuntimeError(f"ludus serve ended: {said}")
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def curve_of(run: Path) -> list[tuple[float, float]]:
    """The mean true worth and the mean score of each step's rollouts."""
    curve: list[tuple[float, float]] = []
    for path in sorted((run / "episodes").glob("step-*.jsonl")):
        if path.name == INDEX:
            continue
        played = [episode.trajectories[0] for episode in read_episodes(path)]
        texts = [each.turns[-1].message.text for each in played if each.turns[-1].message]
        scores = [each.verdict.reward for each in played if each.verdict.reward is not None]
        curve.append((fmean(map(worth, texts)), fmean(scores)))
    return curve


def drawn(curves: list[list[tuple[float, float]]]) -> str:
    """Draw the true worth by step, a line for each seed, between random letters and the most."""
    width, height, most = 640, 260, WORTH * LETTERS
    steps = max(map(len, curves))

    def point(step: int, value: float) -> str:
        x = 50 + (width - 70) * step / max(1, steps - 1)
        return f"{x:.1f},{height - 40 - (height - 70) * max(0.0, value) / most:.1f}"

    paths = [
        f'<polyline fill="none" stroke="#2a7" stroke-width="2" points="'
        f'{" ".join(point(step, true) for step, (true, _) in enumerate(curve))}"/>'
        for curve in curves
    ]
    marks = [
        f'<polyline stroke="#8886" stroke-dasharray="4" points="{point(0, value)} '
        f'{point(steps - 1, value)}"/><text x="4" y="{float(point(0, value).split(",")[1]) + 4}" '
        f'font-size="12" fill="#888">{value:.1f}</text>'
        for value in (0.0, most / 2, most)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
    captions = (
        f'<text x="50" y="18" font-size="13" fill="#888">True worth of what the policy writes, '
        f"by step; dashed: nothing, letters at random, the most</text>"
        f'<text x="{width - 20}" y="{height - 12}" font-size="12" fill="#888" text-anchor="end">'
        f"step {steps}</text>"
    )
    return "\n".join([head, captions, *marks, *paths, "</svg>", ""])


if __name__ == "__main__":
    main()
