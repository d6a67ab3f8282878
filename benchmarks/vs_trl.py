"""Tokens per CPU-second of a step of GRPO, beside TRL's GRPOTrainer.

    python -m venv /tmp/trl && /tmp/trl/bin/pip install torch==2.13.0 trl==1.16.0
    python benchmarks/vs_trl.py --peer /tmp/trl/bin/python [--rounds 3] [--steps 4]

Both sides train the same tiny model (random weights, float32, one thread) on the same prompts with
the same reward, four groups of eight rollouts and one AdamW update a step, and sample until the end
token or the limit of the workload:

    equal     64 tokens each, prompts of about 20 tokens
    variable  up to 512 tokens, prompts of about 20 tokens: rows end where the model ends them
    long      up to 32 tokens after prompts of about 600 tokens

A side counts its sampled tokens and the CPU time of its own process, over all of a step: sampling,
rewards, credit, update, and new weights for the sampler. The first step of a round warms up and is
not counted. Rounds alternate between the sides, and the ratio is the median of the ratios of
neighbouring rounds. Neither side writes files; ludus plays no environment here, and TRL has no
reference model (beta is 0).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
GROUPS, ROLLOUTS, LR = 4, 8, 1e-4
WORKLOADS = {"equal": (0, 64, True), "variable": (0, 512, False), "long": (580, 32, False)}
"""Characters before the question, the most tokens sampled, and whether all rows have as many."""
END = 2
"""The end token of the tiny model."""


def prompts(before: int) -> list[str]:
    """Return the questions, each after a text of its own of `before` characters."""
    texts = [f"{chr(97 + n % 26) * 3} {n} " * 200 for n in range(64)]
    return [f"{texts[n][:before]}add {n} and {n * 7 % 13} = " for n in range(64)]


class LudusSide:
    """A learner and an engine of ludus in this process.

    Args:
        folder: the model.
    """

    def __init__(self, folder: str) -> None:
        import torch

        torch.set_num_threads(1)
        from ludus.trainer.engines.local import LocalEngine
        from ludus.trainer.models.loading import load_model, load_tokenizer

        self.folder = folder
        self.load, self.engine_of = load_model, LocalEngine
        self.encode: Any = load_tokenizer(folder)

    async def play(self, workload: str, steps: int) -> dict[str, float]:
        """Train for a warm-up step and `steps` steps; return tokens and CPU seconds of these."""
        import torch

        from ludus.trainer.config import TrainerConfig
        from ludus.trainer.learning.experience import gather
        from ludus.trainer.learning.learner import Learner
        from ludus.trainer.learning.update import Updater
        from ludus.trainer.recipes.recipe import load_recipe
        from ludus.trainer.recipes.resolution import resolve

        before, limit, equal = WORKLOADS[workload]
        ids = [self.encode(prompt)["input_ids"] for prompt in prompts(before)]
        learner = Learner(self.load(self.folder), TrainerConfig(lr=LR))
        updater = Updater(resolve(load_recipe("grpo"), max_tokens=limit), learner)
        engine = self.engine_of(self.load(self.folder))
        tokens, started_s = 0, 0.0
        try:
            for step in range(steps + 1):
                if step == 1:
                    tokens, started_s = 0, time.process_time()
                numbers = range(step * GROUPS, (step + 1) * GROUPS)
                groups = await asyncio.gather(
                    *(
                        self.group(engine, ids[number % 64], number, limit, equal)
                        for number in numbers
                    )
                )
                experience = gather(groups)
                assert experience is not None
                updater.step(experience, generator=torch.Generator().manual_seed(step))
                await engine.set_weights(learner.source(), step + 1)
                tokens += int(experience.batch.mask.sum())
            return {"tokens": tokens, "cpu_s": time.process_time() - started_s}
        finally:
            await engine.close()

    async def group(
        self, engine: Any, prompt: list[int], number: int, limit: int, equal: bool
    ) -> Any:
        """Sample the rollouts of a prompt."""
        from ludus.agent import Episode, Sampling, Segment, Trajectory, Turn
        from ludus.envs import Task
        from ludus.trainer.rollout.collect import Group
        from ludus.verdict import Verdict

        ends = () if equal else (END,)
        generations = await asyncio.gather(
            *(
                engine.generate(
                    prompt,
                    Sampling(max_tokens=limit, stop_token_ids=ends, seed=number * ROLLOUTS + index),
                )
                for index in range(ROLLOUTS)
            )
        )
        episodes: list[Episode] = []
        for index, generation in enumerate(generations):
            turn = Turn(out_ids=generation.ids, logprobs=generation.logprobs)
            verdict = Verdict.of(
                sum(token % 2 == 0 for token in generation.ids) / len(generation.ids)
            )
            rows = [Segment(prompt_ids=prompt, turns=[turn])]
            trajectory = Trajectory(verdict=verdict, segments=rows)
            episodes.append(Episode(task=str(number), index=index, trajectories=[trajectory]))
        return Group(Task(id=str(number), split="train"), episodes, 0, number)


def serve(folder: str) -> None:
    """Answer requests for rounds on standard input, as the peer does."""
    side = LudusSide(folder)
    for line in sys.stdin:
        workload, steps = line.split()
        print(json.dumps(asyncio.run(side.play(workload, int(steps)))), flush=True)


def ask(side: subprocess.Popen[str], workload: str, steps: int) -> dict[str, float]:
    """Let a side play a round."""
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write(f"{workload} {steps}\n")
    side.stdin.flush()
    while True:
        line = side.stdout.readline()
        if not line:
            raise SystemExit(f"a side ended with code {side.wait(timeout=60)}")
        if line.startswith("{"):
            figures: dict[str, float] = json.loads(line)
            return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peer", help="an interpreter with TRL")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.serve)
    if not given.peer:
        parser.error("--peer names the interpreter of an environment with TRL")
    from ludus.trainer.models.tiny import write_tiny_policy

    with tempfile.TemporaryDirectory() as scratch:
        folder = str(write_tiny_policy(Path(scratch) / "model", max_length=2048))
        quiet = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        table = json.dumps(
            {name: [prompts(workload[0]), *workload[1:]] for name, workload in WORKLOADS.items()}
        )
        (Path(scratch) / "workloads.json").write_text(table, encoding="utf-8")
        commands = (
            [sys.executable, __file__, "--serve", folder],
            [given.peer, str(HERE / "vs_trl_peer.py"), scratch],
        )
        sides = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet
            )
            for command in commands
        ]
        try:
            print("workload   tokens per CPU-second: ludus, TRL   ratio (of each round)")
            for workload in given.workloads.split(","):
                rates: list[tuple[float, float]] = []
                lengths: list[tuple[float, float]] = []
                for _ in range(given.rounds):
                    both = [ask(side, workload, given.steps) for side in sides]
                    rates.append(tuple(figures["tokens"] / figures["cpu_s"] for figures in both))  # type: ignore[arg-type]
                    rows = given.steps * GROUPS * ROLLOUTS
                    lengths.append(tuple(figures["tokens"] / rows for figures in both))  # type: ignore[arg-type]
                ratios = sorted(mine / theirs for mine, theirs in rates)
                mine, theirs = (median(pair[side] for pair in rates) for side in (0, 1))
                long = [median(pair[side] for pair in lengths) for side in (0, 1)]
                print(
                    f"{workload:10} {mine:8.0f} {theirs:8.0f}   {median(ratios):.2f} "
                    f"({', '.join(f'{ratio:.2f}' for ratio in ratios)})   mean tokens of a row "
                    f"{long[0]:.0f}, {long[1]:.0f}",
                    flush=True,
                )
        finally:
            for side in sides:
                side.kill()
                side.wait(timeout=60)


if __name__ == "__main__":
    main()
