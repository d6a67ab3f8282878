"""Ways to name a run on the command line: the folder, a file inside, or a name in `runs/`."""

from __future__ import annotations

from pathlib import Path

from ludus.config import Table, read_toml
from ludus.errors import UnknownName

RUNS = Path("runs")
"""The folder that runs are written to where nothing else is said."""
SETTINGS = "config.toml"


class UnknownRun(UnknownName):
    """No run, folder or file is at the place that was named."""

    kind = "run"


def known_runs() -> list[str]:
    """Return the folders of the runs in `runs/`, sorted."""
    return sorted(str(path.parent) for path in RUNS.glob(f"*/{SETTINGS}"))


def run_place(word: str) -> Path:
    """Return the path that a word stands for.

    The settings, the folder of checkpoints and a checkpoint of a run stand for the run; `mine` is
    `runs/mine` where there is nothing else of that name. Other paths that exist, such as a file of
    episodes or a folder of runs, stay as they are.

    Raises:
        UnknownRun: there is nothing at that place; the message names the nearest run.
    """
    place = Path(word)
    if not place.exists() and (RUNS / word).exists():
        place = RUNS / word
    if not place.exists() and not place.suffix:  # a file that is missing is told by its reader
        raise UnknownRun.near(word, known_runs(), hint="ludus watch shows the runs in runs/")
    for inner in (place, *place.absolute().parents):
        if inner.name == "checkpoints" and (inner.parent / SETTINGS).is_file():
            return inner.parent
    return place.parent if place.name == SETTINGS else place


def settings_of(word: str) -> Table:
    """Read the settings that a TOML file or a run folder holds.

    Those of a run folder name the folder itself, which may have been moved since.

    Raises:
        UnknownRun: there is no such folder; see `run_place`.
        ConfigError: there is no such file, or the file is not TOML.
    """
    place = Path(word)
    if not place.exists() and not place.suffix:
        place = run_place(word)
    if not place.is_dir():
        return read_toml(place)
    table = read_toml(place / SETTINGS)
    run = table.get("run", {})  # what is no table is told by who reads the settings
    return {**table, "run": {**run, "folder": str(place)}} if isinstance(run, dict) else table
