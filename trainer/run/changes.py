"""Differences between a run's settings and the settings of a resumption.

Settings that change what is learned or how it is measured must be those of the run, unless
`run.resume_changed` allows the difference. Settings that say where the run is written, how often it
is saved, and on what it is computed are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ludus.config import as_table, read_toml
from ludus.errors import ConfigError
from ludus.metrics import replace_file

from ..recipes.recipe import Recipe
from ..recipes.resolution import compare

RECIPE_FILE = "recipe.json"
"""The recipe of a run in full, since a recipe's file may change under the same name."""

FREE = frozenset(
    {
        "env_url",
        "engine",
        "run",
        "local",
        "vllm",
        "ranks",
        "cluster",
        "overlap.outage_s",
        "overlap.publish_timeout_s",
        "overlap.stall_s",
        "overlap.stall_limit_s",
        "model.device",
        "rollout.concurrency",
        "trainer.tokens_per_pass",
        "trainer.packing",
        "trainer.checkpoint_layers",
        "trainer.compile",
        "trainer.kernels",
        "trainer.ema_use",
        "trainer.lora.publish",
        "trainer.lora.save",
        "trainer.max_refused",
        "eval.every",
        "eval.beside",
        "eval.stop_at",
        "eval.patience",
        "tokens",
    }
)
"""Settings, and sections, that change neither what is learned nor what is measured. Each other
setting counts, so that a new one is never forgotten.
"""
COUNTED = frozenset({"local.keep_cache", "vllm.keep_cache"})
"""Settings of free sections that change what is learned: from which weights tokens are sampled."""
SECRETS = ("token", "key", "secret")
"""Endings of the names of settings that hold a secret; a secret may change between runs."""


def refuse_changes(folder: Path, config: object, recipe: Recipe | None = None) -> list[str]:
    """Compare settings with the settings of the run in `folder`, and refuse differences.

    Args:
        folder: the folder of a run that is resumed.
        config: the settings of a training run or of a warm start, whose field `run` says whether
            differences are allowed.
        recipe: the recipe as resolved; None where the run has none.

    Returns:
        The differences that were allowed, one line each.

    Raises:
        ConfigError: settings differ, and `run.resume_changed` is not set; the message names each.
    """
    new = as_table(config)
    defaults = as_table(type(config)())
    differences = [*_changed_settings(folder, new, defaults), *_changed_recipe(folder, recipe)]
    if differences and not new["run"]["resume_changed"]:
        raise ConfigError(
            f"the run in {str(folder)!r} was made with other settings: "
            f"{'; '.join(differences)}. Give "
            "the run's own (its config.toml has them all), or continue with the new ones by "
            "--run.resume-changed"
        )
    return differences


def keep_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe of a run into the run folder."""
    replace_file(folder / RECIPE_FILE, msgspec.json.format(msgspec.json.encode(recipe)) + b"\n")


def _changed_settings(
    folder: Path, new: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[str]:
    path = folder / "config.toml"
    if not path.exists():
        return
    # A run of an older version has not written settings that are newer: they had their defaults.
    old = {**dict(_leaves(defaults)), **dict(_leaves(read_toml(path)))}
    now = dict(_leaves(new))
    # Rows of the old run may have no counterpart now; other old names are settings that are gone.
    rows = {name for name in old if any(part.isdigit() for part in name.split("."))}
    for name in sorted(now.keys() | rows):
        section_free = name.partition(".")[0] in FREE and name not in COUNTED
        free = name in FREE or section_free or name.endswith(SECRETS)
        if name == "steps":
            free = now.get("trainer.lr_decay") == "constant"  # else the rates of all steps change
        if not free and old.get(name) != now.get(name):
            yield f"{name} was {old.get(name)!r} and is {now.get(name)!r}"


def _changed_recipe(folder: Path, recipe: Recipe | None) -> Iterator[str]:
    path = folder / RECIPE_FILE
    if recipe is None or not path.exists():
        return
    try:
        before = msgspec.json.decode(path.read_bytes(), type=Recipe)
        differences = compare(before, recipe)
    except (msgspec.DecodeError, ConfigError) as error:  # of a version with other recipes
        yield f"the recipe {str(path)!r} cannot be compared: {error}"
        return
    for name, old, now in differences:
        yield f"recipe: {name} was {old!r} and is {now!r}"


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting by dotted name; a row of a list of tables has the row's place in the name.

    Settings that are None or empty are yielded too. A tuple becomes a list, as TOML has it.
    """
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value and isinstance(value, list) and all(isinstance(row, Mapping) for row in value):
            for place, row in enumerate(value):
                yield from _leaves(row, f"{prefix}{name}.{place}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value
