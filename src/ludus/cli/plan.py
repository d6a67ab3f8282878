"""`ludus plan`: what a run would take and reach on GPUs, from a model's config.json alone."""

from __future__ import annotations

from pathlib import Path

from ludus.config import Table
from ludus.errors import MissingExtra
from ludus.trainer.settings.plan import PlanConfig

from .arguments import VerbHelp, parse_settings
from .train import recipe_or_settings, with_cluster

ABOUT = """\
ludus plan [RECIPE | FILE.toml | MODEL] [OPTIONS] says how much memory each rank of a run takes, by
term, how many tokens a second each stage would reach on a kind of GPU, and the best split of 1 to
--gpus GPUs between generation and training, by simulation with the scheduler of ludus train, also
as the table [cluster] of a run on Ray. MODEL is a folder with a config.json, that file, tiny, or a
released model; no weights and no tokenizer are read."""
MODELS = ("tiny", "smollm2")
EXAMPLE = """\
ludus plan examples/09_eight_gpus.toml --model.path ./Qwen3-8B --gpus 64
  ludus plan ./Qwen3-8B/config.json --gpus 8 --gpu h200 --answer-tokens 2000"""


def main(arguments: list[str]) -> int:
    """Print the plan, and return 0."""
    config = parse_settings(
        PlanConfig,
        with_cluster(arguments),
        VerbHelp(verb="plan", about=ABOUT, example=EXAMPLE),
        named=_named,
    )
    try:
        from ludus.trainer.plan.splits import split_plan
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus plan") from error
    print(split_plan(config))
    return 0


def _named(name: str) -> Table:
    path = Path(name)
    if path.name == "config.json":
        return {"model": {"path": str(path.parent)}}
    if (path / "config.json").is_file() or (name in MODELS and not path.exists()):
        return {"model": {"path": name}}
    return recipe_or_settings(name)
