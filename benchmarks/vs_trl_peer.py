"""TRL's side of `vs_trl.py`: rounds of GRPO by `GRPOTrainer`, in an environment without ludus.

Standard input brings `WORKLOAD STEPS`; standard output takes tokens and CPU seconds as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

GROUPS, ROLLOUTS, LR = 4, 8, 1e-4


def even(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [sum(token % 2 == 0 for token in ids) / max(1, len(ids)) for ids in completion_ids]


class Counted(GRPOTrainer):
    tokens = 0

    def _generate_and_score_completions(self, *given: Any, **more: Any) -> Any:
        scored = super()._generate_and_score_completions(*given, **more)
        self.tokens += int(scored["completion_mask"].sum())
        return scored


class Clock(TrainerCallback):
    """Notes CPU time and tokens when the first step is done."""

    trainer: Counted
    start: tuple[float, int] | None = None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self.start is None:
            self.start = time.process_time(), self.trainer.tokens


def play(scratch: Path, workload: str, steps: int) -> dict[str, float]:
    prompts, limit, equal = json.loads((scratch / "workloads.json").read_text())[workload]
    config = GRPOConfig(
        output_dir=str(scratch / "trl"),
        per_device_train_batch_size=GROUPS * ROLLOUTS,
        num_generations=ROLLOUTS,
        max_completion_length=limit,
        max_steps=steps + 1,
        learning_rate=LR,
        lr_scheduler_type="constant",
        loss_type="grpo",
        beta=0.0,
        temperature=1.0,
        save_strategy="no",
        logging_steps=1000,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        shuffle_dataset=False,
        generation_kwargs={"min_new_tokens": limit} if equal else None,
        dataloader_pin_memory=False,
        seed=0,
    )
    folder = str(scratch / "model")
    clock = Clock()
    trainer = Counted(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=even,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[clock],
    )
    clock.trainer = trainer
    trainer.train()
    assert clock.start is not None
    started_s, before = clock.start
    return {"tokens": trainer.tokens - before, "cpu_s": time.process_time() - started_s}


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        workload, steps = line.split()
        with contextlib.redirect_stdout(sys.stderr):
            figures = play(Path(sys.argv[1]), workload, int(steps))
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
