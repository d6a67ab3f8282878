"""`ludus sweep`: recipes over seeds, with separate seeds for tuning and comparison."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Annotated

import msgspec
import tyro

from ludus.agent.viewer import RunReader
from ludus.agent.viewer.compare import compare, held_out_scores
from ludus.config import read_toml
from ludus.errors import ConfigError
from ludus.registry import imported
from ludus.trainer.config import TrainConfig
from ludus.wire.address import read_value

from .arguments import Flag, VerbHelp, parse
from .compare import show_comparison
from .progress import progress_bar
from .recipes import check_recipe
from .train import recipe_or_settings

TUNING = 1_000_000
"""Seeds from here on tune; those that compare are below."""


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The options of `ludus sweep`; what follows `--` are settings of `ludus train`."""

    recipes: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECIPE ...")]
    """The recipes that are compared: names (ludus recipes) or TOML files."""
    seeds: int = 5
    """Seeds of each recipe on which it is compared: 1 and on."""
    tune: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SETTING=VALUE,VALUE")] = ()
    """Settings that are tuned for each recipe, trainer.lr=1e-5,3e-5; several make a grid."""
    tuning_seeds: int = 2
    """Seeds of each cell of the grid, none of which is compared on."""
    folder: Path = Path("runs/sweep")
    """Where the runs are written; a sweep that is there is gone on with."""
    jobs: int = 1
    """How many runs go on at the same time."""
    dry_run: Flag = False
    """Print the runs, and begin none."""
    json: Flag = False
    """Print the comparison as JSON."""


Cell = tuple[tuple[str, str], ...]
"""Tuned settings with a value of each."""


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep."""

    recipe: str
    seed: int
    values: Cell
    """Tuned settings and their values."""
    folder: Path

    def command(self, settings: Sequence[str]) -> list[str]:
        """Return the command line that starts or continues this run."""
        imports = [word for name in imported for word in ("--import", name)]
        python = [sys.executable, "-m", "ludus", *imports, "train"]
        if (self.folder / "checkpoints").is_dir() and (self.folder / "config.toml").is_file():
            return [*python, str(self.folder / "config.toml"), "--run.resume"]
        own = [f"--{name}={value}" for name, value in self.values]
        place = [f"--seed={self.seed}", f"--run.folder={self.folder}"]
        return [*python, self.recipe, *settings, *own, *place]


def main(arguments: Sequence[str]) -> int:
    """Tune, train and compare; returns 0, or 1 where the runs cannot be compared."""
    words = list(arguments)
    settings = words[words.index("--") + 1 :] if "--" in words else []
    if "--" not in words:
        _point_at_settings(words)
    options = parse(
        SweepOptions,
        words[: words.index("--")] if "--" in words else words,
        VerbHelp(
            verb="sweep",
            about="Train recipes over seeds, and compare them: settings are tuned on seeds of "
            "their own. What follows -- goes to ludus train.",
            example="ludus sweep grpo rloo --seeds 5 --tune trainer.lr=1e-5,3e-5 -- "
            "--env ludus/arithmetic-v0 --model.path ./model --steps 40",
        ),
    )
    _check(options, settings)
    grid = _grid(options.tune)
    trials = [run for recipe in options.recipes for run in _trials(options, recipe, grid)]
    if options.dry_run:
        number = len(options.recipes) * options.seeds
        for run in [*trials, *_tests(options, {})]:
            print(" ".join(run.command(settings)[2:]))
        print(f"{len(trials)} runs tune, {number} compare", file=sys.stderr)
        return 0
    _train_all(trials, settings, options.jobs)
    chosen = {
        recipe: _best([run for run in trials if run.recipe == recipe], grid)
        for recipe in options.recipes
    }
    for recipe, values in chosen.items():
        if values:
            print(f"{recipe}: {', '.join(f'{name} = {value}' for name, value in values)}")
    tests = _tests(options, chosen)
    _train_all(tests, settings, options.jobs)
    names = [_label(run.recipe) for run in tests]
    comparison = compare([_read(run.folder) for run in tests], names=names)
    if options.json:
        tuned = {recipe: dict(values) for recipe, values in chosen.items()}
        print(msgspec.json.encode(comparison | {"tuned": tuned}).decode())
    elif comparison["refused"]:
        print("\n".join(f"not compared: {why}" for why in comparison["refused"]), file=sys.stderr)
    else:
        show_comparison(comparison)
    return 1 if comparison["refused"] else 0


def _point_at_settings(words: Sequence[str]) -> None:
    """Refuse a setting of `ludus train` that stands where options of the sweep do."""
    names = {field.name for field in fields(TrainConfig)}
    for word in words:
        name = word.removeprefix("--").partition("=")[0].partition(".")[0].replace("-", "_")
        if word.startswith("--") and name in names - {"sampling"}:
            raise ConfigError(
                f"{word} is a setting of ludus train; settings stand behind --: "
                "ludus sweep grpo rloo --seeds 5 -- --env ludus/arithmetic-v0 ..."
            )


def _check(options: SweepOptions, settings: Sequence[str]) -> None:
    """Refuse what would only be noticed hours later."""
    if not options.recipes or len(set(options.recipes)) < len(options.recipes):
        raise ConfigError("a sweep needs recipes, each once: ludus sweep grpo rloo -- SETTINGS")
    for recipe in options.recipes:
        if named := recipe_or_settings(recipe).get("recipe"):
            check_recipe(str(named))
    labels = [_label(recipe) for recipe in options.recipes]
    if len(set(labels)) < len(labels):
        raise ConfigError(f"two recipes are called {max(labels, key=labels.count)!r}; rename one")
    if min(options.seeds, options.tuning_seeds, options.jobs) < 1:
        raise ConfigError("--seeds, --tuning-seeds and --jobs must be at least 1")
    for word in settings:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if name in ("seed", "run.folder", "run.resume"):
            raise ConfigError(f"{word}: the sweep sets seeds and folders; leave it out")
        if any(item.partition("=")[0] == name for item in options.tune):
            raise ConfigError(f"{word}: is tuned already (--tune); leave it out")


def _grid(items: Sequence[str]) -> list[Cell]:
    """Return the cells of the grid; a single empty cell where nothing is tuned."""
    axes: list[list[tuple[str, str]]] = []
    for item in items:
        name, sign, values = item.partition("=")
        given = [value.strip() for value in values.split(",") if value.strip()]
        if not sign or not given:
            raise ConfigError(f"--tune takes SETTING=VALUE,VALUE, got {item!r}")
        axes.append([(name.strip(), value) for value in given])
    return list(itertools.product(*axes))


def _trials(options: SweepOptions, recipe: str, grid: Sequence[Cell]) -> list[SweepRun]:
    """Return the runs that tune a recipe; none where there is nothing to choose from."""
    runs: list[SweepRun] = []
    for cell, number in itertools.product(grid, range(options.tuning_seeds)):
        name = "_".join(f"{setting.rpartition('.')[2]}={value}" for setting, value in cell)
        place = options.folder / "tune" / _label(recipe) / f"{name}-{number}".replace("/", "_")
        runs.append(SweepRun(recipe, TUNING + number, cell, place))
    return runs if len(grid) > 1 else []


def _tests(options: SweepOptions, chosen: dict[str, Cell]) -> list[SweepRun]:
    place = options.folder / "test"
    return [
        SweepRun(recipe, seed, chosen.get(recipe, ()), place / _label(recipe) / f"seed-{seed}")
        for recipe in options.recipes
        for seed in range(1, options.seeds + 1)
    ]


def _label(recipe: str) -> str:
    return Path(recipe).stem if recipe.endswith(".toml") else recipe


def _best(trials: Sequence[SweepRun], grid: Sequence[Cell]) -> Cell:
    """Return the cell with the best mean held-out score over the tuning seeds."""
    if not trials:
        return grid[0]
    return max(
        grid, key=lambda cell: fmean(_score(run.folder) for run in trials if run.values == cell)
    )


def _score(folder: Path) -> float:
    scores = held_out_scores(_read(folder))
    if not scores:
        raise ConfigError(
            f"{str(folder)!r} has no held-out episode with a reward; set --eval.every and "
            "--eval.tasks behind the --"
        )
    return fmean(scores.values())


def _read(folder: Path) -> RunReader:
    reader = RunReader(folder, str(folder), None)
    reader.refresh()
    return reader


def _train_all(runs: Sequence[SweepRun], settings: Sequence[str], jobs: int) -> None:
    """Train what is not finished.

    Raises:
        ConfigError: a run ended with an error, or was begun with other settings; the others are
            finished first.
    """
    waiting = [run for run in runs if not _is_finished(run)]
    faults: list[str] = []
    with progress_bar() as progress, ThreadPoolExecutor(jobs) as pool:
        bar = progress.add_task("runs", total=len(runs), completed=len(runs) - len(waiting))
        for run, fault in zip(
            waiting, pool.map(lambda run: _train(run, settings), waiting), strict=True
        ):
            faults += [fault] if fault else []
            progress.console.print(
                f"{run.folder}: {fault or 'trained'}", soft_wrap=True, highlight=False, markup=False
            )
            progress.update(bar, advance=1)
    if faults:
        raise ConfigError("; ".join(faults[:3]))


def _is_finished(run: SweepRun) -> bool:
    if not (run.folder / "config.toml").is_file():
        return False
    table = read_toml(str(run.folder / "config.toml"))
    for name, value in [("seed", str(run.seed)), *run.values]:
        known: object = table
        for part in name.split("."):
            known = known.get(part) if isinstance(known, dict) else None
        if known is not None and known != read_value(value) and str(known) != value:
            raise ConfigError(
                f"{str(run.folder)!r} is a run with {name} = {known}, not {value}; name another "
                "--folder"
            )
    return _read(run.folder).state() == "finished"


def _train(run: SweepRun, settings: Sequence[str]) -> str:
    """Train in a separate process with a log beside the run; return what went wrong, or nothing."""
    log = run.folder.parent / f"{run.folder.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        ended = subprocess.run(
            run.command(settings), stdout=output, stderr=output, env=os.environ, check=False
        )
    if ended.returncode == 0:
        return ""
    lines = log.read_text(errors="replace").strip().splitlines() or ["nothing was said"]
    return f"{run.folder} ended with status {ended.returncode} ({lines[-1][:200]}); see {log}"
