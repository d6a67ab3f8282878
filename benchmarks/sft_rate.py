"""Tokens per CPU-second of `ludus sft --data`, against those of the learner of RL on the same rows.

    python benchmarks/sft_rate.py [--conversations 10000] [--hidden 192]

Supervised training reads a file of conversations with a tool, encodes it, and makes one pass of
updates. The learner gets the same rows as rollouts, already encoded, and makes as many updates with
the clipped loss of PPO, whose old log-probabilities are given: neither sampling nor scoring is
counted. The updates of both take turns, since a busy machine changes what a CPU second does. CPU
seconds are those of the process, on one thread. Loading the model is counted in neither.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ludus.trainer import algorithms
from ludus.trainer.config import ModelConfig, RunConfig, SFTConfig, TrainerConfig
from ludus.trainer.data.encoding import batch_of
from ludus.trainer.data.examples import rows_of_examples
from ludus.trainer.data.supervised import open_run
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.rollout.batch import Batch
from ludus.trainer.sft import DataRun, load_examples

TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Work out an expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}


def main() -> None:
    """Measure both, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        data = write_conversations(place / "data.jsonl", options.conversations)
        heads = max(1, options.hidden // 32)
        model = write_tiny_policy(place / "model", hidden=options.hidden, heads=heads)
        config = SFTConfig(
            data=data,
            epochs=1.0,
            held_out=0.0,
            batch_size=options.batch,
            model=ModelConfig(path=str(model), device="cpu"),
            trainer=TrainerConfig(lr=1e-4),
            run=RunConfig(folder=str(place / "run"), tensorboard=False, save_every=0),
        )
        supervised, learner = asyncio.run(measured(config))
    print(f"ludus sft --data    {supervised:,.0f} tokens per CPU-second, with reading and encoding")
    print(f"the RL learner      {learner:,.0f} tokens per CPU-second")
    print(f"ratio               {supervised / learner:.3f}")


async def measured(config: SFTConfig) -> tuple[float, float]:
    """The tokens per CPU-second of both."""
    async with AsyncExitStack() as stack:
        opened = open_run(config, Path(config.run.folder), stack, lambda _: config.model.path)
        started = time.process_time()
        examples = load_examples(config, opened.chat_format, opened.longest())
        encoded = time.process_time() - started
        run = DataRun(config, opened, examples)
        batches = [examples.batch(n, config.batch_size, seed=0) for n in range(run.steps)]
        tokens = sum(len(row) for drawn in batches for row in rows_of_examples(drawn))

        print(f"{len(examples.train)} conversations, {tokens:,} tokens; encoding {encoded:.1f} s")
        policy = Learner(load_model(config.model.path), config.trainer, opened.reading())
        rollouts = [batch_of(rows_of_examples(drawn)) for drawn in batches]
        spent = {"supervised": 0.0, "reinforced": 0.0}

        async def reinforced(batch: Batch) -> None:
            await asyncio.to_thread(reinforce, policy, batch)

        for number, batch in enumerate(rollouts):
            # In pairs, each first in turn: what else the machine does slows both alike.
            pair: dict[str, Callable[[], Any]] = {
                "supervised": run.update,
                "reinforced": partial(reinforced, batch),
            }
            for name in sorted(pair, reverse=bool(number % 2)):
                spent[name] += await cpu(pair[name])
        return tokens / (encoded + spent["supervised"]), tokens / spent["reinforced"]


def reinforce(policy: Learner, batch: Batch) -> None:
    """An update on rollouts whose old log-probabilities and advantages are given."""
    inputs = replace(
        batch.inputs, old_logp=-3 * torch.ones_like(batch.mask), advantages=batch.mask.clone()
    )

    def loss(part: Any, predicted: Any) -> Any:
        given = part.inputs
        return algorithms.ppo_clip_loss(predicted.logp, given.old_logp, given.advantages, part.mask)

    policy.update(replace(batch, inputs=inputs), torch.arange(len(batch)), loss)


async def cpu(work: Callable[[], Any]) -> float:
    """The CPU seconds of some work."""
    started = time.process_time()
    await work()
    return time.process_time() - started


def write_conversations(path: Path, count: int) -> str:
    """Write conversations in which a tool is called."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            a, b = rng.randint(1, 999), rng.randint(1, 999)
            call = {"name": "calculate", "arguments": json.dumps({"expression": f"{a}+{b}"})}
            messages = [
                {"role": "user", "content": f"What is {a} plus {b}? ({number})"},
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": call}]},
                {"role": "tool", "tool_call_id": "c", "content": str(a + b)},
                {"role": "assistant", "content": f"The sum of {a} and {b} is {a + b}."},
            ]
            file.write(json.dumps({"messages": messages, "tools": [TOOL]}) + "\n")
    return str(path)


if __name__ == "__main__":
    main()
