"""CPU time of an episode's turns on the local engine, over that of a bare loop in torch.

    python benchmarks/engine_turns.py [--turns 50 200] [--rounds 5]

An episode of one row: a turn brings 20 observed tokens and samples 20, at temperature 1. The bare
loop keeps transformers' own cache from turn to turn and draws by the same uniforms, so that both
sample the same tokens, which is checked. It is the lower bound of what a turn costs without a
queue, a thread, and keys that are kept for other episodes. Rounds are in turns, in one process, on
one thread; the table has medians of CPU seconds of the whole process.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from transformers import DynamicCache

from ludus.agent import Sampling
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.models.tiny import build_model

VOCABULARY, OBSERVED, SAMPLED = 1000, 20, 20
Turns = list[list[int]]


def observations(turns: int) -> Turns:
    """Return the observed ids of each turn; the first turn has a prompt of 30 tokens more."""
    draw = random.Random(0)
    sizes = [OBSERVED + 30, *[OBSERVED] * (turns - 1)]
    return [[draw.randrange(3, VOCABULARY) for _ in range(size)] for size in sizes]


def on_engine(model: Any, observed: Turns) -> Turns:
    """Play an episode on an engine; return what was sampled."""

    async def play() -> Turns:
        engine, ids, answers = LocalEngine(model), list[int](), Turns()
        for turn, seen in enumerate(observed):
            ids += seen
            answer = await engine.generate(ids, Sampling(max_tokens=SAMPLED, seed=turn))
            ids += answer.ids
            answers.append(answer.ids)
        await engine.close()
        return answers

    return asyncio.run(play())


@torch.inference_mode()
def bare(model: Any, observed: Turns) -> Turns:
    """Play the same episode with the model and its cache alone."""
    cache, pending, answers = DynamicCache(config=model.config), list[int](), Turns()
    for turn, seen in enumerate(observed):
        draw, sampled = random.Random(turn), list[int]()
        pending = [*pending, *seen]
        for _ in range(SAMPLED):
            hidden = model.base_model(torch.tensor([pending]), past_key_values=cache)
            logits = model.lm_head(hidden.last_hidden_state[:, -1])
            mass = logits.softmax(-1).double().cumsum(-1)
            uniform = draw.random() * mass[:, -1:]
            pending = [int(torch.searchsorted(mass, uniform, right=True))]
            sampled += pending
        answers.append(sampled)
    return answers


def cpu_s(work: Callable[..., Turns], *given: Any) -> tuple[float, Turns]:
    """Return the CPU seconds of a call, and its result."""
    started = time.process_time()
    result = work(*given)
    return time.process_time() - started, result


def main() -> None:
    """Print a row for each number of turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = build_model(VOCABULARY, hidden=given.hidden, layers=4, heads=4, max_length=16_384)
    print("| turns | tokens | engine, CPU s | bare torch, CPU s | ratio |\n|---|---|---|---|---|")
    for turns in given.turns:
        observed, times = observations(turns), list[tuple[float, float]]()
        for _ in range(given.rounds):
            ours, answers = cpu_s(on_engine, model, observed)
            theirs, expected = cpu_s(bare, model, observed)
            assert answers == expected, "the engine samples other tokens than the bare loop"
            times.append((ours, theirs))
        ratio = median(ours / theirs for ours, theirs in times)
        ours, theirs = (median(side) for side in zip(*times, strict=True))
        tokens = sum(map(len, observed)) + turns * SAMPLED
        print(f"| {turns} | {tokens:,} | {ours:.2f} | {theirs:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
