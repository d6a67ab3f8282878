"""`ludus sft`: warm a model up on demonstrations by an environment's expert."""

from __future__ import annotations

import sys

from ludus.errors import MissingExtra

from .arguments import VerbHelp
from .interruptible import run_interruptible
from .loading import command_line
from .settings import parse_settings

ABOUT = """\
ludus sft [FILE.toml] [OPTIONS] warms a model up on what an environment's own expert does."""
EXAMPLE = """\
ludus sft --env ludus/arithmetic-v0 --model.path ./model --steps 200
  ludus sft --env 'ludus/arithmetic-v0?demo_fault=wrong-operator' --model.path ./model"""


def main(arguments: list[str]) -> int:
    """Train, print the checkpoint's path, and return 0, or 130 if interrupted after a
    checkpoint.
    """
    try:
        from ludus.trainer.config import SFTConfig
        from ludus.trainer.run.checkpoint import checkpoints
        from ludus.trainer.run.journal import sft_progress
        from ludus.trainer.sft import folder_of, run_sft
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus sft") from error
    config = parse_settings(
        SFTConfig, arguments, VerbHelp(verb="sft", about=ABOUT, example=EXAMPLE)
    )
    try:
        with sft_progress(config.steps) as progress:
            checkpoint = run_interruptible(run_sft(config, progress=progress))
    except KeyboardInterrupt:
        folder = folder_of(config)
        if not checkpoints(folder / "checkpoints"):
            raise
        resume_command = command_line("sft", str(folder / "config.toml"), "--run.resume")
        print(f"interrupted; go on with: {resume_command}", file=sys.stderr)
        return 130
    print(f"checkpoint  {checkpoint}")
    return 0
