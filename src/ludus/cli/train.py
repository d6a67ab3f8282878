"""`ludus train` and `ludus sft`: learning from rewards, preferences, demonstrations and data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ludus.config import Table, read_toml
from ludus.errors import ConfigError, MissingExtra, UnknownName
from ludus.registry import imported
from ludus.rewards import verifier_names
from ludus.trainer.config import PreferenceConfig, RewardModelConfig, SFTConfig, TrainConfig
from ludus.trainer.recipes.recipe import recipe_names
from ludus.trainer.settings.data import STRENGTHS
from ludus.trainer.settings.run import RunConfig

from .arguments import VerbHelp, parse_settings
from .loading import command_line
from .runs import RUNS, SETTINGS, known_runs, settings_of
from .signals import run_interruptible

SFT_ABOUT = """\
ludus sft [FILE.toml] [OPTIONS] trains a model on what an environment's own expert does, on
conversations of a file or hub, or on the recorded episodes of a run; see docs/data.md."""
SFT_EXAMPLE = """\
ludus sft --env ludus/arithmetic-v0 --model.path ./model --steps 200
  ludus sft --env 'ludus/arithmetic-v0?demo_fault=wrong-operator' --model.path ./model
  ludus sft --data conversations.jsonl --model.path ./model --epochs 2
  ludus sft --data runs/mine --min-reward 1 --model.path ./model"""


def main_sft(arguments: list[str]) -> int:
    """Train, print the checkpoint's path, and return 0, or 130 if interrupted after a
    checkpoint.
    """
    config = parse_settings(
        SFTConfig,
        arguments,
        VerbHelp(verb="sft", about=SFT_ABOUT, example=SFT_EXAMPLE),
        named=settings_of,
    )
    _refuse_verifier(config.env)
    _refuse_nameless(config.run, config.env or config.data, "sft")
    try:
        from ludus.trainer.run.journal import sft_progress
        from ludus.trainer.sft import folder_of, run_sft
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus sft") from error
    with sft_progress() as progress:
        return _supervised("sft", run_sft(config, progress=progress), folder_of(config))


PREFERENCES_ABOUT = f"""\
ludus train METHOD [OPTIONS] trains a policy on preferences between answers, from a file, a hub or
the recorded episodes of a run; see docs/data.md. METHOD is one of:
{", ".join(STRENGTHS)}."""
PREFERENCES_EXAMPLE = """\
ludus train dpo --data pairs.jsonl --model.path ./model
  ludus train kto --data runs/mine --model.path ./model --passing 0.5
  ludus train runs/dpo/config.toml --run.resume"""


def _main_preferences(arguments: list[str]) -> int:
    """Train on preferences; see `main_sft`."""
    config = parse_settings(
        PreferenceConfig,
        arguments,
        VerbHelp(verb="train dpo", about=PREFERENCES_ABOUT, example=PREFERENCES_EXAMPLE),
        named=lambda name: {"method": name} if name in STRENGTHS else settings_of(name),
    )
    try:
        from ludus.trainer.data.preferences import folder_of, run_preferences
        from ludus.trainer.run.journal import sft_progress
    except ImportError as error:
        raise MissingExtra.of("train", needed_for=f"ludus train {config.method}") from error
    with sft_progress(title=config.method) as progress:
        return _supervised("train", run_preferences(config, progress=progress), folder_of(config))


REWARD_ABOUT = """\
ludus train reward [OPTIONS] trains a reward model on rankings, ratings or labelled steps, measures
it, and writes a folder that ludus serve scores with; see docs/learned_rewards.md."""
REWARD_EXAMPLE = """\
ludus train reward --data pairs.jsonl --model.path ./model
  ludus train reward --kind process --objective steps --data steps.jsonl --model.path ./model
  ludus train reward --kind image --data rankings.jsonl --model.path ImageReward.pt"""
REWARD = "reward"


def _main_reward(arguments: list[str]) -> int:
    """Train a reward model; see `main_sft`."""
    config = parse_settings(
        RewardModelConfig,
        arguments,
        VerbHelp(verb="train reward", about=REWARD_ABOUT, example=REWARD_EXAMPLE),
        named=lambda name: {} if name == REWARD else settings_of(name),
    )
    try:
        from ludus.trainer.reward_models.training import folder_of, run_reward
        from ludus.trainer.run.journal import sft_progress
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus train reward") from error

    async def run(progress: Callable[[int, int, dict[str, float]], None]) -> Path:
        trained = await run_reward(config, progress=progress)
        print(f"serve       {command_line('serve', trained.serve)}")
        return trained.checkpoint

    with sft_progress(title=REWARD) as progress:
        return _supervised("train", run(progress), folder_of(config))


def _supervised(verb: str, run: Coroutine[Any, Any, Path], folder: Path) -> int:
    """Run supervised training, print the checkpoint's path, and return the exit status."""
    from ludus.trainer.models.checkpoint_folders import checkpoints

    try:
        checkpoint = run_interruptible(run)
    except KeyboardInterrupt:
        if not checkpoints(folder / "checkpoints"):
            raise
        resume_command = command_line(verb, str(folder / "config.toml"), "--run.resume")
        print(f"interrupted; go on with: {resume_command}", file=sys.stderr)
        return 130
    print(f"checkpoint  {checkpoint}")
    return 0


ABOUT = """\
ludus train [RECIPE | FILE.toml | RUN] [OPTIONS] trains a policy. RECIPE is an algorithm (ludus
recipes); FILE.toml holds settings, and options on the command line win over it. A run is a folder:
config.toml, metrics.jsonl, episodes, checkpoints; RUN takes its settings, to go on with it
(--run.resume) or to begin another like it (--run.folder); dpo and
its relatives learn from preferences in files (ludus train dpo --help), and reward trains a reward
model (ludus train reward --help).

--cluster auto|local|HOST:PORT lets Ray place the run's processes, as the settings under cluster
say, and start them again when they die (docs/cluster.md).

--dry-run checks everything and prints the plan, without an engine and without touching the folder:
tokens a step, memory, staleness, updates, what each part of the recipe can do, disk, and every
setting that would have no effect."""
EXAMPLE = """\
ludus train grpo --env ludus/arithmetic-v0 --model.path ./model --trainer.lr=1e-4
  ludus train examples/02_train.toml --steps 20
  ludus train examples/02_train.toml --run.resume
  ludus train runs/mine --run.resume
  ludus train examples/02_train.toml --dry-run"""

DRY = ("--dry-run", "--dry_run")


def main(arguments: list[str]) -> int:
    """Train, write the report, and return 0, or 130 if interrupted after saving."""
    if arguments and (supervised := _supervised_kind(arguments[0])):
        return supervised(arguments)
    arguments = with_cluster(arguments)
    for word in arguments:
        if word.startswith("--algorithm"):
            raise ConfigError(
                f"{word}: what belongs to a recipe stands in a TOML file that names it as base "
                '(base = "grpo"), which takes the recipe\'s place: ludus train mine.toml '
                "(docs/algorithms.md)"
            )
    words = [argument for argument in arguments if argument not in DRY]
    config = parse_settings(
        TrainConfig,
        words,
        VerbHelp(verb="train", about=ABOUT, example=EXAMPLE),
        named=recipe_or_settings,
    )
    _refuse_verifier(config.env)
    _refuse_nameless(config.run, config.env or config.environment or config.stage, "train")
    if words == list(arguments):
        return _run(config)
    try:
        from ludus.trainer.plan.dry_run import make_plan
        from ludus.trainer.stage_runs import rl_stage
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus train --dry-run") from error
    parts = [rl_stage(config, n) for n, part in enumerate(config.stage) if part.kind == "rl"]
    for part in parts or [config]:
        print(run_interruptible(make_plan(part)))
    return 0


def with_cluster(arguments: list[str]) -> list[str]:
    """Replace the short form `--cluster ADDRESS` by the setting `--cluster.address`."""
    spelled = [
        f"--cluster.address={word.removeprefix('--cluster=')}"
        if word.startswith("--cluster=")
        else "--cluster.address"
        if word == "--cluster"
        else word
        for word in arguments
    ]
    if spelled[-1:] == ["--cluster.address"]:
        raise ConfigError("--cluster needs auto, local, or the HOST:PORT of Ray's head")
    return spelled


def _supervised_kind(name: str) -> Callable[[list[str]], int] | None:
    """Return what trains where a first argument is a method that learns from data, or the settings
    of such a run; None for reinforcement learning.
    """
    if name in STRENGTHS:
        return _main_preferences
    if name == REWARD:
        return _main_reward
    is_run = (Path(name) / SETTINGS).is_file()
    is_file = name.endswith(".toml") and Path(name).is_file()
    table = settings_of(name) if is_run or is_file else {}
    if "objective" in table:
        return _main_reward
    return _main_preferences if "method" in table else None


def _refuse_verifier(env: str) -> None:
    if env in verifier_names():
        raise ConfigError(f"{env!r} is a verifier; an environment's id ends in -vN (ludus list)")


def _refuse_nameless(run: RunConfig, source: object, verb: str) -> None:
    """Raise ConfigError where a run is to go on, but neither a run nor a source is named."""
    if run.resume is True and not source and not run.folder:
        known = ", ".join(known_runs())
        raise ConfigError(
            f"--run.resume: name the folder of the run, ludus {verb} runs/NAME --run.resume"
            + (f"; runs here: {known}" if known else "; there is none in runs/ here")
        )


class UnknownStart(UnknownName):
    """Nothing that training could begin or go on with has this name."""

    kind = "recipe or run"


def recipe_or_settings(name: str) -> Table:
    """Return the settings of a TOML file or a run folder, or the setting that names a recipe.

    Raises:
        UnknownStart: no recipe, file or run has this name.
        ConfigError: the name is a folder without settings.
    """
    is_recipe = name in recipe_names()
    place = RUNS / name if not is_recipe and (RUNS / name).is_dir() else Path(name)
    if (place / SETTINGS).is_file():
        return settings_of(str(place))
    if not is_recipe and Path(name).is_dir():
        raise ConfigError(
            f"{name!r} holds no run: there is no {SETTINGS}; name a recipe (ludus recipes), a TOML "
            "file or the folder of a run"
        )
    if not name.endswith(".toml"):
        if Path(name).suffix and not Path(name).exists():
            raise ConfigError(f"no such file: {name!r}")
        if Path(name).is_file():
            raise ConfigError(f"{name!r} is a file, and no TOML file of settings or of a recipe")
        if not is_recipe:
            runs = known_runs()
            known = [*recipe_names(), *runs, *(Path(run).name for run in runs)]
            raise UnknownStart.near(name, known, hint="ludus recipes; a run's folder, runs/NAME")
        return {"recipe": name}
    table = read_toml(name)
    return {"recipe": name} if table.keys() & {"base", "algorithm"} else table


def _run(config: TrainConfig) -> int:
    try:
        from ludus.agent.viewer.page import write_report
        from ludus.trainer.ranks.launch import follows, open_ranks
        from ludus.trainer.run.journal import ProgressWatcher
        from ludus.trainer.stage_runs import stages_folder
        from ludus.trainer.train import run_training
    except ImportError as error:
        raise MissingExtra.of("train", needed_for="ludus train") from error
    if config.cluster.address:
        try:  # the only import of what needs Ray, and only where it was asked for
            from ludus.trainer.cluster.run import run_on_cluster
        except ImportError as error:
            raise MissingExtra.of("ray", needed_for="ludus train --cluster") from error
        config.require_complete()
        code, said = run_on_cluster(config, imported)
        print(said)
        return code
    if follows():
        from ludus.trainer.setup import follow_training

        follow_training(config)
        return 0
    steps = sum(stage.steps for stage in config.stage if stage.kind == "rl") or config.steps
    with open_ranks(config), ProgressWatcher(steps) as watcher:
        result = run_interruptible(
            run_training(config, watcher=watcher), "stopping after what is under way, to be saved"
        )
    try:
        report = str(write_report(result.folder))
    except OSError as error:  # the checkpoint is there all the same
        report = f"not written: {error.strerror}"
    if result.interrupted:
        folder = stages_folder(config) if config.stage else result.folder
        again = command_line("train", str(Path(folder) / "config.toml"), "--run.resume")
        print(f"interrupted after step {result.step}; go on with: {again}", file=sys.stderr)
        return 130
    if result.stopped:
        print(f"ended early after step {result.step}: {result.stopped}")
    print("\n".join(result.summary))
    print(f"checkpoint  {result.checkpoint}\nreport      {report}")
    return 0
