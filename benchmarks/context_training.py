"""The trained rows of `context.py`: managers on ludus/ledger-v0 at equal working context.

Every arm of a seed begins from one set of weights that a clean demonstrator has taught. Each is
then shown a noisy demonstrator in its own windows, and trained by `supo`: the statistics are over
rollouts, and all segments of a rollout share the advantage, whatever manager cut them.
"""

import asyncio
import json
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supo_runs import clean_start, longest_row, one_thread
from supo_setting import CONTINUATION, INSTRUCTION, PHRASES, Setting

from ludus.agent.context import ReSum, register_context

SIZE = Setting(
    registers=2, turns=12, window=50, demo="noisy", demo_steps=120,
    attempts=1, tasks=16, steps=12, eval_tasks=128,
)  # fmt: skip
STATE, MEMORY = "Note.", "\n\nMemory:\n"
EXTRA = (f"\n\n{STATE}", f"\n\n{STATE}\n\n<IS>", "<IS>", "</IS>", MEMORY)
"""What the other managers write into every window, one token each."""
TRAINED = ("none", "summarize", "memagent", "resum")
"""The arms by default; `mem1` takes three times as long, since each turn is a row."""


@dataclass(frozen=True)
class Arm:
    """What an arm has in a run's `[context]`, and how long its actions may be."""

    context: dict[str, object]
    max_tokens: int


class Registrar:
    """The separate summariser of the arm `resum`: a program that reads registers without error."""

    async def write(self, messages, max_tokens: int) -> str:
        """The registers, as the demonstrator writes them."""
        text = messages[-1].text
        known = dict(re.findall(r"([a-z])(\d)", text.partition("Summary: ")[2].partition("\n")[0]))
        known |= dict(re.findall(r"^\[user\] ([a-z])(\d)$", text, re.MULTILINE))
        return "".join(register + digit for register, digit in sorted(known.items()))

    async def close(self) -> None:
        """Nothing to close."""


@register_context("benchmark/resum")
def registrar(threshold: float, max_summaries: int, summary_tokens: int) -> ReSum:
    """ReSum with the program above in place of a server."""
    return ReSum(
        Registrar(),
        threshold=threshold,
        max_summaries=max_summaries,
        summary_tokens=summary_tokens,
        carry=True,
        continuation=CONTINUATION,
    )


def arm_of(name: str, setting: Setting) -> Arm:
    """The settings of a trained manager."""
    shared: dict[str, object] = {"manager": name, "max_summaries": setting.turns}
    shared |= {"threshold": setting.full_at, "summary_tokens": setting.summary_tokens}
    if name == "none":
        return Arm({}, setting.action_tokens)
    if name == "mem1":  # the state stands in the action, with two marks around
        tokens = setting.action_tokens + setting.summary_tokens + 2
        return Arm(shared | {"instruction": STATE}, tokens)
    if name == "resum":
        return Arm(shared | {"manager": "benchmark/resum"}, setting.action_tokens)
    if name == "summarize":
        shared |= {"last_pair": "carry", "continuation": CONTINUATION}
    return Arm(shared | {"instruction": INSTRUCTION}, setting.action_tokens)


def taught(seed: int, folder: Path, setting: Setting = SIZE) -> Path:
    """Weights that the clean demonstrator has taught."""
    one_thread()
    return clean_start(setting, folder, seed, (*PHRASES, *EXTRA))


def trained(
    folder: Path, seeds: Sequence[int], arms: Sequence[str] = TRAINED, *, own_starts: bool = False
) -> Iterator[dict]:
    """Yield a row for each arm and seed, as soon as it is there; one that is kept is read."""
    one_thread()
    for seed in seeds:
        for name in arms:
            kept = folder / f"{name}-{seed}.json"
            if not kept.exists():
                first = seed if own_starts else 0
                row = train_arm(SIZE, folder / f"{name}-{seed}", _clean(first, folder), name, seed)
                kept.write_text(json.dumps(row))
            yield json.loads(kept.read_text())


def _clean(seed: int, folder: Path) -> Path:
    """The weights that the clean demonstrator has taught, made once for a folder."""
    kept = folder / f"clean-{seed}.txt"
    if not kept.exists():
        clean = taught(seed, folder / f"clean-{seed}")
        kept.write_text(str(clean))
    return Path(kept.read_text())


def train_arm(setting: Setting, folder: Path, clean: Path, name: str, seed: int) -> dict:
    """Show an arm its own windows, train it and test it."""
    from ludus.agent.context import ContextSettings
    from ludus.metrics import read_metrics
    from ludus.trainer.config import (
        EvalConfig,
        ModelConfig,
        RolloutConfig,
        RunConfig,
        SFTConfig,
        TrainConfig,
        TrainerConfig,
    )
    from ludus.trainer.sft import run_sft
    from ludus.trainer.train import run_training

    started, arm = time.process_time(), arm_of(name, setting)
    context = ContextSettings(**arm.context)
    warm = clean
    if name != "none":  # whose expert would run out of its window
        warm = asyncio.run(
            run_sft(
                SFTConfig(
                    env=setting.varied.env(demo=setting.demo),
                    steps=setting.demo_steps,
                    batch_size=16,
                    seed=seed,
                    window=setting.window,
                    context=context,
                    model=ModelConfig(path=str(clean), device="cpu"),
                    trainer=TrainerConfig(lr=setting.demo_lr, warmup_steps=20, lr_decay="linear"),
                    run=RunConfig(folder=str(folder / "demo"), tensorboard=False),
                )
            )
        )
    config = TrainConfig(
        env=setting.env(),
        recipe="supo",
        steps=setting.steps,
        seed=seed,
        model=ModelConfig(path=str(warm), device="cpu"),
        rollout=RolloutConfig(
            tasks_per_step=setting.tasks_a_step,
            group_size=setting.group,
            max_tokens=arm.max_tokens,
            window=setting.window,
            max_turns=4096,
            concurrency=setting.tasks_a_step * setting.group,
        ),
        context=context,
        trainer=TrainerConfig(
            lr=setting.lr, warmup_steps=setting.rise, lr_decay="linear", updates_per_step=1
        ),
        eval=EvalConfig(tasks=setting.eval_tasks),
        run=RunConfig(folder=str(folder / "rl"), tensorboard=False, save_every=0, episodes_every=0),
    )
    asyncio.run(run_training(config))
    rows = read_metrics(folder / "rl" / "metrics.jsonl")
    evals = [row["eval/mean"] for row in rows if "eval/mean" in row]
    sampled = [row["reward/mean"] for row in rows if "reward/mean" in row]
    return {
        "env": "ledger",
        "manager": name,
        "seed": seed,
        "before": evals[0],
        "after": evals[-1],
        "sampled_before": sampled[0],
        "sampled": statistics.fmean(sampled[-3:]),
        "row_tokens": longest_row(folder / "rl"),
        "cpu_s": time.process_time() - started,
    }


def brief(setting: Setting = SIZE) -> Setting:
    """One update of each stage: whether everything works, before anything is learned."""
    stages = ("copy", "answer", "settle", "demo")
    ones = {f"{stage}_steps": 1 for stage in stages} | {"answer_batch": 1, "steps": 1}
    return replace(setting, **ones, tasks=1, eval_tasks=1)
