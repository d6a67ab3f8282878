"""`ludus train` and `ludus sft`: learning from rewards, and from demonstrations."""

from __future__ import annotations

import sys
from pathlib import Path

from ludus.config import Table, read_toml
from ludus.errors import MissingExtra
from ludus.trainer.config import SFTConfig, TrainConfig

from .arguments import VerbHelp, parse_settings
from .loading import command_line
from .signals import run_interruptible

SFT_ABOUT = """\
ludus sft [FILE.toml] [OPTIONS] warms a model up on what an environment's own expert does."""
SFT_EXAMPLE = """\
ludus sft --env ludus/arithmetic-v0 --model.path ./model --steps 200
  ludus sft --env 'ludus/arithmetic-v0?demo_fault=wrong-operator' --model.path ./model"""


def main_sft(arguments: list[str]) -> int:
    """Train, print the checkpoint's path, and return 0, or 130 if interrupted after a
    checkpoint.
    """
    config = parse_settings(
        SFTConfig, arguments, VerbHelp(verb="sft", about=SFT_ABOUT, example=SFT_EXAMPLE)
    )
    try:
        from ludus.trainer.models.checkpoint import checkpoints
        from ludus.trainer.run.journal import sft_progress
        from ludus.trainer.sft import folder_of, run_sft
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus sft") from error
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


ABOUT = """\
ludus train [RECIPE | FILE.toml] [OPTIONS] trains a policy. RECIPE is an algorithm (ludus recipes);
FILE.toml holds settings, and options on the command line win over it. A run is a folder:
config.toml, metrics.jsonl, episodes, checkpoints.

--dry-run checks everything and prints the plan, without an engine and without touching the folder:
tokens a step, memory, staleness, updates, what each part of the recipe can do, disk, and every
setting that would have no effect."""
EXAMPLE = """\
ludus train grpo --env ludus/arithmetic-v0 --model.path ./model --trainer.lr=1e-4
  ludus train examples/02_train.toml --steps 20
  ludus train examples/02_train.toml --run.resume
  ludus train examples/02_train.toml --dry-run"""

DRY = ("--dry-run", "--dry_run")


def main(arguments: list[str]) -> int:
    """Train, write the report, and return 0, or 130 if interrupted after saving."""
    words = [argument for argument in arguments if argument not in DRY]
    config = parse_settings(
        TrainConfig,
        words,
        VerbHelp(verb="train", about=ABOUT, example=EXAMPLE),
        named=recipe_or_settings,
    )
    if words == list(arguments):
        return _run(config)
    try:
        from ludus.trainer.plan.dry_run import make_plan
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus train --dry-run") from error
    print(run_interruptible(make_plan(config)))
    return 0


def recipe_or_settings(name: str) -> Table:
    """Return the settings of a TOML file, or the one that names a recipe."""
    is_settings = name.endswith(".toml") and "algorithm" not in read_toml(name)
    return read_toml(name) if is_settings else {"recipe": name}


def _run(config: TrainConfig) -> int:
    try:
        from ludus.agent.viewer.page import write_report
        from ludus.trainer.ranks.launch import follows, open_ranks
        from ludus.trainer.run.journal import ProgressWatcher
        from ludus.trainer.train import run_training
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus train") from error
    if follows():
        from ludus.trainer.setup import follow_training

        follow_training(config)
        return 0
    with open_ranks(config), ProgressWatcher(config.steps) as watcher:
        result = run_interruptible(run_training(config, watcher=watcher))
    try:
        report = str(write_report(result.folder))
    except OSError as error:  # the checkpoint is there all the same
        report = f"not written: {error.strerror}"
    if result.interrupted:
        again = command_line("train", str(Path(result.folder) / "config.toml"), "--run.resume")
        print(f"interrupted after step {result.step}; go on with: {again}", file=sys.stderr)
        return 130
    if result.stopped:
        print(f"ended early after step {result.step}: {result.stopped}")
    print("\n".join(result.summary))
    print(f"checkpoint  {result.checkpoint}\nreport      {report}")
    return 0
