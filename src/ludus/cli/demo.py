"""`ludus demo`: serve an environment, train a small policy over HTTP, and write a report."""

from __future__ import annotations

from ludus.errors import MissingExtra

from .arguments import VerbHelp
from .interruptible import run_interruptible
from .settings import parse_settings

ABOUT = """\
Serve an environment in another process, warm a small policy up on faulty demonstrations, and let
GRPO remove the fault over HTTP. Two minutes on two idle cores; nothing is downloaded.
Ctrl-C ends it without a report (exit code 130)."""
EXAMPLE = "ludus demo --seed 1"


def main(arguments: list[str]) -> int:
    """Read the settings and run the demonstration; returns 0."""
    try:
        from ludus.trainer.demos.calculator import DemoConfig, run_demo
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus demo") from error
    run_interruptible(
        run_demo(
            parse_settings(
                DemoConfig,
                arguments,
                VerbHelp(verb="demo", about=ABOUT, example=EXAMPLE),
                named=None,
            )
        )
    )
    return 0
