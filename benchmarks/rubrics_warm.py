"""The warm start of `rubrics.py`: a tiny policy that searches and writes careless reports."""

import asyncio
import re
from pathlib import Path

PEOPLE = 60
ENV = f"ludus/research-v0?pages=1&topk=2&people={PEOPLE}"
FAULTS = 0.6
"""Share of facts that the demonstrator leaves out (half of them) or states wrongly."""
SHAPE = {"hidden": 64, "layers": 2, "heads": 4, "max_length": 512}
STEPS, BATCH, LR = 600, 32, 4e-3
DEMONSTRATIONS = 300
"""Demonstrations whose recurring phrases become one token each."""


def phrases() -> list[str]:
    """Names of the world and the runs of text between them: one token each keeps reports short."""
    from ludus.envs import make_async
    from ludus.envs.families.fiction import build_world
    from ludus.trainer.models.tiny import briefing_phrases
    from ludus.wire.address import parse_served

    name, arguments = parse_served(ENV)
    env = make_async(name, **arguments).env
    names = sorted(build_world(0, PEOPLE).entities, key=len, reverse=True)
    between = re.compile("|".join(map(re.escape, names)) + r"|\d+|(?<=[.\n]) ?")
    texts = asyncio.run(_texts(env))
    parts = {part for text in texts for part in between.split(text) if len(part) > 1}
    return [*briefing_phrases(env.briefing()), *sorted(parts), *names]


async def _texts(env) -> list[str]:
    """What is shown and said in demonstrations."""
    from ludus.envs import EnvSession
    from ludus.messages import Message

    session, texts = EnvSession(env), []
    for seed in range(DEMONSTRATIONS):
        shown, _ = await session.reset(seed=seed)
        said: str | Message = ""
        while not isinstance(said, str) or not said:
            texts.append(shown if isinstance(shown, str) else "\n".join(m.text for m in shown))
            said = env.demonstrate()
            shown, *_ = await session.step(said)
        texts.append(said)
    return texts


def warm_start(folder: Path, seed: int, *, steps: int = STEPS) -> Path:
    """The checkpoint that every arm begins from."""
    import torch

    from ludus.trainer.config import ModelConfig, RunConfig, SFTConfig, TrainerConfig
    from ludus.trainer.models.tiny import write_tiny_policy
    from ludus.trainer.sft import run_sft

    torch.set_num_threads(1)
    model = write_tiny_policy(folder / "model", phrases=phrases(), seed=seed, **SHAPE)
    config = SFTConfig(
        env=f"{ENV}&demo_fault_rate={FAULTS}",
        steps=steps,
        batch_size=BATCH,
        seed=seed,
        model=ModelConfig(path=str(model), device="cpu"),
        trainer=TrainerConfig(lr=LR, warmup_steps=20, lr_decay="linear"),
        run=RunConfig(folder=str(folder / "warm"), tensorboard=False),
    )
    return asyncio.run(run_sft(config))
