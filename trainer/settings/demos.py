"""The settings of `ludus demo` and `ludus demo-real`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """The sizes of the demo."""

    folder: str = "runs/demo"
    """Folder to write, overwritten each time; must be missing, empty, or the folder of an earlier
    demo.
    """
    seed: int = 0
    warm_start_steps: int = 260
    steps: int = 40
    tasks_per_step: int = 16
    group_size: int = 8
    held_out_tasks: int = 256
    """Number of held-out tasks, at least 1."""


@dataclass(frozen=True, slots=True)
class RealDemoConfig:
    """The sizes of the demo on released weights."""

    folder: str = "runs/demo-real"
    """Folder to write, overwritten each time; must be missing, empty, or the folder of an earlier
    demo.
    """
    model: str = "smollm2"
    """A released model, or any other model path."""
    task: Literal["quiz", "calculator"] = "quiz"
    """What is trained: questions about numbers from rewards alone, or expressions that a tool works
    out, after a short warm start.
    """
    seed: int = 0
    steps: int = 0
    """Number of training steps; 0 takes the task's (24 for the quiz, 15 for the calculator)."""
    tasks_per_step: int = 16
    """Number of questions in a step."""
    group_size: int = 0
    """Number of rollouts of each question in a step; 0 takes the task's (16, and 8 for the
    calculator).
    """
    warm_start_steps: int = 0
    """Number of steps of the warm start; 0 takes the task's (none, and 8 for the calculator)."""
    held_out_tasks: int = 150
    """Number of held-out questions, at least 2: an interval needs them."""
    lora_rank: int = 0
    """Rank of LoRA adapters, which are trained instead of the weights, at twenty times the learning
    rate and with layers that are computed again in the backward pass; 0 trains all weights.
    """
