"""The rewards that `rubrics.py` compares, and training and testing under one of them."""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from rubrics_warm import ENV, PEOPLE

ARMS = ("true", "evolving", "shuffled", "length")
TASKS, GROUP = 8, 8
MAX_TOKENS = 60
"""Of a turn; a report that states everything takes about fifty."""
LENGTHS = (12, 24, 36, 48, 60, 72, 84, 96)
"""Words at which a report meets one more criterion of the arm "length"; a sentence has about 12."""


@dataclass(frozen=True)
class Setting:
    """One size of the comparison."""

    steps: int = 32
    lr: float = 5e-4
    tested: int = 256
    """Reports on which the true score is measured."""


def verifier_of(arm: str, url: str):
    """The verifier behind an arm's reward."""
    from ludus.rewards.judge import RubricJudge
    from ludus.rewards.judge.evolving import EvolvingJudge

    if arm == "evolving":
        return EvolvingJudge(base_url=url, model="mock")
    judge = RubricJudge(base_url=url, model="mock")
    if arm == "length":
        items = [{"text": f"The response has at least {n} words."} for n in LENGTHS]
        return WithRubric(judge, lambda sample: {"items": items})
    if arm == "shuffled":
        return WithRubric(judge, shuffled_rubrics())
    return judge


class WithRubric:
    """A judge that is handed another gold than the sample's own."""

    never_blocks = True

    def __init__(self, judge, rubric_of):
        self.judge = judge
        self.rubric_of = rubric_of

    async def score(self, sample):
        """Judge by the other gold."""
        import msgspec

        return await self.judge.score(msgspec.structs.replace(sample, gold=self.rubric_of(sample)))

    async def close(self):
        """Close the judge."""
        await self.judge.close()


def shuffled_rubrics():
    """The true rubric of another topic of the same kind, always the same one."""
    from ludus.envs.families.fiction import build_world
    from ludus.envs.families.research import FEWEST_FACTS, facts_of

    topics = [e for e in build_world(0, PEOPLE).realm("train") if len(facts_of(e)) >= FEWEST_FACTS]
    kinds = {}
    for topic in topics:
        kinds.setdefault(topic.kind, []).append(topic)
    rubrics = {}
    for members in kinds.values():
        for place, topic in enumerate(members):
            other = members[(place + 1) % len(members)]
            items = [f'The response names "{f.value}" as {f.about}.' for f in facts_of(other)]
            rubrics[topic.name] = {"items": [{"text": text} for text in items]}

    def of(sample):
        question = sample.prompt[-1].text
        return rubrics[question.removeprefix("Write a short report on what is known about ")[:-1]]

    return of


async def run_arm(arm: str, folder: Path, warm: str, seed: int, setting: Setting, url: str) -> dict:
    """Train from the warm start under one reward, then test."""
    import torch

    from ludus.rewards.registry import register_verifier
    from ludus.trainer.config import (
        EvalConfig,
        ModelConfig,
        RewardConfig,
        RolloutConfig,
        RunConfig,
        TrainConfig,
        TrainerConfig,
    )
    from ludus.trainer.train import run_training

    torch.set_num_threads(1)
    started, cpu = time.perf_counter(), time.process_time()
    verifier = verifier_of(arm, url)
    name = f"bench/{arm}-{seed}"
    register_verifier(name, factory(verifier))
    config = TrainConfig(
        env=f"{ENV}&reward=none",
        recipe="grpo",
        steps=setting.steps,
        seed=seed,
        model=ModelConfig(path=warm, device="cpu"),
        rollout=RolloutConfig(tasks_per_step=TASKS, group_size=GROUP, max_tokens=MAX_TOKENS),
        trainer=TrainerConfig(lr=setting.lr, warmup_steps=3, updates_per_step=1),
        eval=EvalConfig(tasks=1, split="train", temperature=1.0),
        reward=[RewardConfig(name=name, timeout_s=300.0)],
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=0, episodes_every=0),
    )
    try:
        result = await run_training(config)
    finally:
        await verifier.close()
    after = await truth(str(result.checkpoint), folder / "test", setting.tested)
    return {
        "arm": arm, "seed": seed, **after,
        "wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu,
    }  # fmt: skip


def factory(verifier):
    """What the registry calls to make the verifier."""
    return lambda: verifier


async def truth(checkpoint: str, folder: Path, tasks: int) -> dict:
    """What reports of a checkpoint are worth, sampled at the temperature of training, by the
    world's facts.
    """
    from ludus.trainer.config import EvalConfig, ModelConfig, RolloutConfig, RunConfig, TrainConfig
    from ludus.trainer.rollout.evaluate import evaluate
    from ludus.trainer.setup import assemble

    config = TrainConfig(
        env=ENV,
        steps=1,
        seed=10_000,
        model=ModelConfig(path=checkpoint, device="cpu"),
        rollout=RolloutConfig(max_tokens=MAX_TOKENS),
        eval=EvalConfig(tasks=tasks, split="train", temperature=1.0),
        run=RunConfig(folder=str(folder), tensorboard=False),
    )
    parts = await assemble(config)
    try:
        episodes = (
            await evaluate(parts.evaluator, EvalConfig(split="train", tasks=tasks))
        ).episodes
    finally:
        await parts.closing.aclose()
    verdicts = [episode.trajectories[0].verdict for episode in episodes]
    words = [len(e.trajectories[0].turns[-1].message.text.split()) for e in episodes]
    return {
        "truth": statistics.fmean(verdict.unwrap() for verdict in verdicts),
        "stated": statistics.fmean(v.metrics.get("stated", 0.0) for v in verdicts),
        "false": statistics.fmean(v.metrics.get("false_claims", 0.0) for v in verdicts),
        "words": statistics.fmean(words),
    }
