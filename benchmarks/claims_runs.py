"""The claims that are about the trainer: what `run_training` does with controls, stages, several
environments, hints and trees, on a game of letters that a tiny policy plays.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import ludus
from ludus.metrics import read_metrics
from ludus.trainer import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
    assemble,
    run_sft,
    run_training,
    write_tiny_policy,
)
from ludus.trainer.rollout.evaluate import evaluate
from ludus.trainer.settings.parts import EnvironmentConfig, StageConfig

ENV, LETTERS, TASKS = "claims/codes-v0", "abcd", 8
SHAPE = {"hidden": 32, "heads": 2, "layers": 1, "max_length": 256}
STEPS, WARM_STEPS, LAST = 12, 50, 3
Numbers = dict[str, float]


@ludus.register(ENV)
class Codes(ludus.TextEnv):
    """Say the secret code of a task, a letter a turn.

    Args:
        length: letters of a code.
        world: the seed of the codes.
        domain: "math", or "code", whose codes are those of mathematics and a letter more.
        turns: how often another half of the code holds from the middle on, as the observation says
            then; chance decides.
        sure: how often the demonstrator says the right letter.
    """

    never_blocks = True
    forks = "copy"
    max_turns: ClassVar[int] = 12

    def __init__(
        self,
        length: int = 3,
        world: int = 0,
        domain: str = "math",
        turns: float = 0.0,
        sure: float = 1.0,
    ) -> None:
        self.length, self.world, self.domain = length, world, domain
        self.turns, self.sure = turns, sure
        self.said, self.code = "", ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Show the task."""
        place = int(self.task.id.rpartition("/")[2]) % TASKS
        draw = random.Random(f"{self.world}/{place}")
        self.code = "".join(draw.choice(LETTERS) for _ in range(self.length))
        self.other = "".join(draw.choice(LETTERS) for _ in range(self.length))
        self.code += draw.choice(LETTERS) * (self.domain == "code")
        self.said = ""
        return f"{self.domain[0]}{place}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take a letter, and judge the last."""
        self.said += action[:1] or "?"
        over, shown = len(self.said) == len(self.code), ""
        if self.turns and len(self.said) == len(self.code) // 2:
            turned = self.rng.random() < self.turns
            if turned:
                middle = len(self.said)
                self.code = self.code[:middle] + self.other[middle:]
            shown = "+" if turned else "-"
        return shown, float(over and self.said == self.code), over, False, {}

    def demonstrate(self) -> str:
        """The next letter, right or drawn."""
        right = self.code[len(self.said)]
        return right if self.rng.random() < self.sure else self.rng.choice(LETTERS)

    def gold(self) -> str:
        """The whole code."""
        return self.code


def named(**arguments: object) -> str:
    """The environment with arguments."""
    return f"{ENV}?" + "&".join(f"{name}={value}" for name, value in arguments.items())


class Bench:
    """Warm starts, runs and evaluations in one folder.

    Args:
        folder: of all runs.
        seed: of codes, model and runs.
        scale: of the number of steps, for a run in miniature.
    """

    def __init__(self, folder: Path, seed: int, scale: float) -> None:
        self.folder, self.seed, self.scale = folder, seed, scale

    def steps(self, count: float) -> int:
        """So many steps, scaled."""
        return max(1, round(count * self.scale))

    def warm(self, *envs: Mapping[str, object]) -> Path:
        """A policy that has seen demonstrations of each environment, one after the other."""
        phrases = ["system\n", "user\n", "assistant\n", "\n<|im_start|>user\n"]
        phrases += ["<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>user\n"]
        model = write_tiny_policy(self.folder / "model", phrases=phrases, seed=self.seed, **SHAPE)
        for number, arguments in enumerate(envs):
            model = asyncio.run(
                run_sft(
                    SFTConfig(
                        env=named(world=self.seed, **arguments),
                        steps=self.steps(WARM_STEPS),
                        batch_size=64,
                        seed=self.seed,
                        model=ModelConfig(path=str(model), device="cpu"),
                        trainer=TrainerConfig(lr=1e-2, warmup_steps=5),
                        run=RunConfig(
                            folder=str(self.folder / f"warm-{number}"), tensorboard=False
                        ),
                    )
                )
            )
        return model

    def train(
        self, name: str, model: Path, arguments: Mapping[str, object], **changes: Any
    ) -> Path:
        """Train, and return the last checkpoint's folder of weights."""
        config = replace(self.config(name, model, arguments), **changes)
        return asyncio.run(run_training(config)).checkpoint

    def config(self, name: str, model: Path, arguments: Mapping[str, object]) -> TrainConfig:
        """The settings that all arms share."""
        return TrainConfig(
            env=named(world=self.seed, **arguments),
            recipe="grpo",
            steps=self.steps(STEPS),
            seed=self.seed,
            model=ModelConfig(path=str(model), device="cpu"),
            rollout=RolloutConfig(tasks_per_step=8, group_size=4, max_tokens=2),
            trainer=TrainerConfig(lr=4e-3),
            eval=EvalConfig(tasks=TASKS, temperature=1.0),
            run=RunConfig(
                folder=str(self.folder / name), tensorboard=False, episodes_every=0, save_every=0
            ),
        )

    def last(self, name: str) -> dict[str, Any]:
        """The last evaluation of a run."""
        rows = read_metrics(self.folder / name / "metrics.jsonl")
        return [row for row in rows if "eval/mean" in row][-1]

    def first(self, name: str) -> dict[str, Any]:
        """The first evaluation of a run."""
        rows = read_metrics(self.folder / name / "metrics.jsonl")
        return next(row for row in rows if "eval/mean" in row)

    def true_rewards(self, name: str) -> list[float]:
        """The mean reward that rollouts earned, step by step, whatever was trained on."""
        rows = read_metrics(self.folder / name / "metrics.jsonl")
        return [
            row.get("reward/metric/true_reward", row["reward/mean"])
            for row in rows
            if "reward/mean" in row
        ]

    def tokens(self, name: str) -> list[tuple[float, float]]:
        """Sampled tokens so far and mean reward, step by step."""
        curve, total = list[tuple[float, float]](), 0.0
        for row in read_metrics(self.folder / name / "metrics.jsonl"):
            if "episode/tokens" in row and "reward/mean" in row:
                total += row["episode/tokens"] * row["episode/count"]
                curve.append((total, row["reward/mean"]))
        return curve

    def scores(self, name: str, model: Path, several: Sequence[EnvironmentConfig]) -> Numbers:
        """Rewards of a model in several environments, by name."""
        config = replace(
            self.config(name, model, {}),
            env="",
            environment=list(several),
            eval=EvalConfig(tasks=TASKS * len(several), temperature=1.0, samples=8),
        )

        async def play() -> Mapping[str, float]:
            parts = await assemble(config)
            try:
                return (await evaluate(parts.evaluator, config.eval)).numbers
            finally:
                await parts.closing.aclose()

        numbers = asyncio.run(play())
        return {each.title: numbers[f"eval/{each.title}/mean"] for each in several}


def controls(seed: int, scale: float) -> Numbers:
    """The true reward of rollouts while training on it, and on four controls."""
    kinds = {"true": "", "random": "random", "inverted": "inverted", "format": "format"}
    kinds["noise"] = "noise=0.2"
    with tempfile.TemporaryDirectory() as folder:
        bench, world = Bench(Path(folder), seed, scale), {"length": 3}
        start = bench.warm({**world, "sure": 0.5})
        for name, control in kinds.items():
            bench.train(name, start, world, control=control)
        curves = {name: bench.true_rewards(name) for name in kinds}
    before = statistics.fmean(curve[0] for curve in curves.values())
    after = {name: statistics.fmean(curve[-LAST:]) for name, curve in curves.items()}
    gains = {f"{name}_gain": reward - before for name, reward in after.items()}
    return {"before": before, **after, **gains}


def stages_and_mixing(seed: int, scale: float) -> Numbers:
    """Mathematics, then code; both at once; code alone: at one number of rollouts."""
    math, code = {"length": 3, "domain": "math"}, {"length": 3, "domain": "code"}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), seed, scale)
        start = bench.warm({**math, "sure": 0.5}, {**code, "sure": 0.5})
        several = [
            EnvironmentConfig(env=named(world=seed, **each), name=str(each["domain"]))
            for each in (math, code)
        ]
        half, whole = bench.steps(STEPS), 2 * bench.steps(STEPS)
        stages = [
            StageConfig(name=name, steps=half, env=named(world=seed, **each))
            for name, each in (("math", math), ("code", code))
        ]
        ends = {"before": start}
        ends["staged"] = bench.train("staged", start, math, stage=stages)
        ends["math_only"] = sorted((bench.folder / "staged" / "1-math").glob("checkpoints/step-*"))[
            -1
        ]
        mixed = {"env": "", "environment": several, "steps": whole}
        ends["mixed"] = bench.train("mixed", start, math, **mixed)
        ends["code_only"] = bench.train("code_only", start, code, steps=whole)
        scores = {
            f"{name}_{domain}": reward
            for name, model in ends.items()
            for domain, reward in bench.scores(f"of-{name}", model, several).items()
        }
    return {
        **scores,
        "transfer": scores["math_only_code"] - scores["before_code"],
        "kept": scores["staged_math"] - scores["math_only_math"],
        "staged_over_mixed": (scores["staged_math"] + scores["staged_code"]) / 2
        - (scores["mixed_math"] + scores["mixed_code"]) / 2,
    }


def hints(seed: int, scale: float) -> Numbers:
    """pass@k of tasks that almost no rollout solves, with and without hints."""
    with tempfile.TemporaryDirectory() as folder:
        bench, world = Bench(Path(folder), seed, scale), {"length": 4}
        start = bench.warm({**world, "sure": 0.2})
        passes = EvalConfig(tasks=TASKS, temperature=1.0, samples=8)
        policies = {"plain": "", "shown": "guide", "played": "roll_in"}
        for name, sampling in policies.items():
            # Guide plays failed groups once more: at one number of rollouts the others get twice
            steps = bench.steps(STEPS) * (1 if name == "shown" else 2)
            asked = {"sampling": sampling, "steps": steps, "eval": passes}
            bench.train(name, start, world, **asked)
        rows = {"before": bench.first("plain"), **{name: bench.last(name) for name in policies}}
    passed = {f"{name}_{k}": row[f"eval/pass@{k}"] for name, row in rows.items() for k in (1, 8)}
    return {
        **passed,
        "shown_gain": passed["shown_8"] - passed["plain_8"],
        "played_gain": passed["played_8"] - passed["plain_8"],
    }


def trees(seed: int, scale: float) -> Numbers:
    """Trees against groups at equal sampled tokens, in a certain and an uncertain environment."""
    numbers: Numbers = {}
    for kind, world in (("certain", {"length": 4}), ("uncertain", {"length": 4, "turns": 0.5})):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), seed, scale)
            start = bench.warm({**world, "sure": 0.5})
            # a tree of eight leaves samples as many tokens as five or six rollouts
            bench.train("group", start, world, steps=bench.steps(1.4 * STEPS))
            bench.train("tree", start, world, sampling="tree")
            curves = {name: bench.tokens(name) for name in ("group", "tree")}
        budget = min(curve[-1][0] for curve in curves.values())
        for name, curve in curves.items():
            numbers[f"{kind}_{name}"] = near_end(curve, budget)
        numbers[f"{kind}_tokens"] = budget
        numbers[f"{kind}_gain"] = numbers[f"{kind}_tree"] - numbers[f"{kind}_group"]
    return numbers


def near_end(curve: Sequence[tuple[float, float]], budget: float, share: float = 0.2) -> float:
    """The mean reward of the steps in the last part of a budget of tokens."""
    rewards = [reward for tokens, reward in curve if (1 - share) * budget <= tokens <= budget]
    return sum(rewards) / len(rewards)
