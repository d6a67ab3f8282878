"""Rubrics that evolve while a policy learns to write reports.

python examples/07_evolving_rubrics.py                        some minutes of one core
python examples/07_evolving_rubrics.py --steps 32 --folder runs/rubrics

A tiny policy searches a fictional world and writes reports (`ludus/research-v0`). It begins from a
demonstrator that leaves facts out and gets others wrong. The reward of a report comes from a judge
whose criteria nobody wrote: for each group of reports the generator is shown what they say and
which pages were found, and proposes what tells them apart. The judge's model is `ludus
mock-judge`, which goes by words; put the address of a real one in its place.

As training goes on, the newest version of rubrics is printed: criteria are born (`+` merit, `-`
flaw), and are set aside (`o`) once they no longer tell reports apart. The world's facts are known,
so each step also tells the true score, which neither generator nor judge has seen.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ludus.agent import Episode
from ludus.envs import EnvSession, make_async
from ludus.envs.families.fiction import build_world
from ludus.messages import Message
from ludus.rewards.judge.evolving import RubricBuffer, State
from ludus.rewards.judge.evolving.snapshots import SnapshotStore
from ludus.rewards.judge.mock import MockJudge
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.tiny import briefing_phrases, write_tiny_policy
from ludus.trainer.rollout.evaluate import HeldOutScores
from ludus.trainer.sft import run_sft
from ludus.trainer.train import run_training
from ludus.wire.address import format_served, parse_served

PEOPLE = 60
ENV = f"ludus/research-v0?pages=1&topk=2&people={PEOPLE}"
MARKS = {State.ACTIVE: {True: "-", False: "+"}, State.INACTIVE: {True: "o", False: "o"}}


async def recurring_phrases(demonstrations: int) -> list[str]:
    """Names, and the text between names: one token each keeps a tiny policy's reports short."""
    name, arguments = parse_served(ENV)
    env: Any = make_async(name, **arguments).env
    session = EnvSession(env)
    names = sorted(build_world(0, PEOPLE).entities, key=len, reverse=True)
    between = re.compile("|".join(map(re.escape, names)) + r"|\d+|(?<=[.\n]) ?")
    texts: list[str] = []
    for seed in range(demonstrations):
        shown, _ = await session.reset(seed=seed)
        said: Message | str = Message(role="assistant")
        while isinstance(said, Message):
            texts.append(shown if isinstance(shown, str) else "\n".join(m.text for m in shown))
            said = env.demonstrate()
            shown, *_ = await session.step(said)
        texts.append(said)
    phrases = {part for text in texts for part in between.split(text) if len(part) > 1}
    return [*briefing_phrases(env.briefing()), *sorted(phrases), *names]


def warm_start(folder: Path, *, steps: int, seed: int) -> Path:
    """A policy that searches and writes careless reports."""
    phrases = asyncio.run(recurring_phrases(200))
    shape = {"hidden": 64, "layers": 2, "heads": 4, "max_length": 512}
    model = write_tiny_policy(folder / "model", phrases=phrases, seed=seed, **shape)
    return asyncio.run(
        run_sft(
            SFTConfig(
                env=f"{ENV}&demo_fault_rate=0.6",
                steps=steps,
                batch_size=32,
                seed=seed,
                model=ModelConfig(path=str(model), device="cpu"),
                trainer=TrainerConfig(lr=4e-3, warmup_steps=20, lr_decay="linear"),
                run=RunConfig(folder=str(folder / "warm"), tensorboard=False),
            )
        )
    )


@dataclass
class Printer:
    """Prints each step's scores and the rubrics that changed."""

    rubrics: Path
    shown: int = 1
    """Rubrics to print a step."""
    known: dict[str, int] = field(default_factory=dict[str, int])
    truths: list[float] = field(default_factory=list[float])

    def on_episode(self, episode: Episode) -> None:
        """Nothing to tell of one episode."""

    def on_step(self, step: int, numbers: Mapping[str, float]) -> None:
        """What the step's reports were worth, and one rubric that has a new version."""
        self.truths.append(numbers.get("reward/metric/truth", 0.0))
        reward = numbers.get("reward/mean", float("nan"))
        print(f"step {step}: reward {reward:.2f}, true score {self.truths[-1]:.2f}")
        store = SnapshotStore(self.rubrics)
        changed = store.newer(self.known)
        store.close()
        newest = sorted(changed, key=lambda buffer: -buffer.version)
        for buffer in newest[: self.shown]:
            print(told(buffer))
        self.known |= {buffer.question: buffer.version for buffer in changed}

    def on_evaluation(self, step: int, evaluation: HeldOutScores) -> None:
        """What reports are worth before and after training."""
        truth = evaluation.numbers.get("eval/metric/truth", float("nan"))
        print(f"after step {step}: true score {truth:.2f} ({len(evaluation.episodes)} reports)")


def told(buffer: RubricBuffer) -> str:
    """A version of a rubric in lines."""
    lines = [
        f"    {MARKS[criterion.state][criterion.item.is_flaw]} {criterion.item.text}"
        f"  (born in version {criterion.born})"
        for criterion in buffer.criteria
    ]
    return "\n".join([f"  rubric {buffer.question[:8]}, version {buffer.version}", *lines])


async def evolve(folder: Path, warm: Path, *, steps: int, seed: int) -> Printer:
    """Train under rubrics that evolve."""
    rubrics = folder / "rubrics.sqlite"
    printer = Printer(rubrics)
    async with MockJudge() as judge:
        options = {"base_url": judge.url, "model": "mock", "rubrics": str(rubrics)}
        config = TrainConfig(
            env=f"{ENV}&reward=none",
            recipe="grpo",
            steps=steps,
            seed=seed,
            model=ModelConfig(path=str(warm), device="cpu"),
            rollout=RolloutConfig(tasks_per_step=8, group_size=8, max_tokens=60),
            trainer=TrainerConfig(lr=5e-4, warmup_steps=3, updates_per_step=1),
            eval=EvalConfig(tasks=64, split="train", temperature=1.0),
            reward=[RewardConfig(name=format_served("evolving-rubric", options), timeout_s=300.0)],
            run=RunConfig(folder=str(folder / "run"), tensorboard=False),
        )
        await run_training(config, watcher=printer)
    return printer


def main(arguments: list[str] | None = None) -> Printer:
    """Warm up, train, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--warm-steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rubrics-"))
    warm = warm_start(folder, steps=options.warm_steps, seed=options.seed)
    printer = asyncio.run(evolve(folder, warm, steps=options.steps, seed=options.seed))
    print(f"true score of the first step {printer.truths[0]:.2f}, last {printer.truths[-1]:.2f}")
    return printer


if __name__ == "__main__":
    main()
