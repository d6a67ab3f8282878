"""A recipe is data: which functions of `ludus.trainer.algorithms` make an algorithm, and their
options.

    name = "grpo"
    [algorithm]
    advantage = "grpo_advantages"
    loss = "ppo_clip_loss"
    [algorithm.loss_options]
    eps_high = 0.28

A recipe comes from this folder by name, or from a TOML file of yours; overrides are merged over it.
A file may start from another recipe and say only what differs:

    base = "grpo"
    name = "grpo-higher"
    [algorithm.loss_options]
    eps_high = 0.28
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from ludus.errors import ConfigError, UnknownName

_PACKAGE = "ludus.trainer.recipes"

Option = bool | int | float | str | tuple[float, ...]
"""The value of a keyword. Where a number is expected, "max_tokens" is the trainer's longest
response and "0.2 * max_tokens" a share of it. A TOML list is a tuple: right = [2.0, 1.0].
"""


class UnknownRecipe(UnknownName):
    """No recipe has this name."""

    kind = "recipe"


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function by name, with its keywords."""

    name: str
    options: dict[str, Option] = {}


class Shaping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of reward shaping."""

    name: str
    options: dict[str, Option] = {}
    combine: Literal["add", "replace"] = "add"
    """Whether the result is added to the reward or takes its place."""
    weight: float = 1.0
    """Of what is added."""


class Corrections(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Between the policy that sampled and the one that learns."""

    weights: str = ""
    """A `*_weights` function (tis_weights, mis_weights); empty is none."""
    weight_options: dict[str, Option] = {}
    filters: tuple[Call, ...] = ()
    """`*_mask` functions; what they drop leaves the loss."""
    denominator: Literal["original", "remaining"] = "original"
    """Whether dropped tokens still count in the mean: the two differ by N / N_kept."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pull towards a reference policy."""

    place: Literal["none", "loss", "reward"] = "none"
    coefficient: float = 0.0
    estimator: Literal["k1", "k2", "k3", "k3+"] = "k2"
    """In the loss; in the reward it is k1."""
    importance_weighted: bool = False
    """Multiply each estimate by pi / old."""


class EntropyBonus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bonus for staying undecided."""

    coefficient: float = 0.0
    """Loss a nat."""


class ValueHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value head and its loss."""

    coefficient: float = 0.5
    value_clip: float = 0.2


class Overlong(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of rollouts cut by a limit."""

    in_loss: bool = True
    """Whether their tokens are trained."""
    in_statistics: bool = True
    """Whether their rewards count in the means of their group."""


class CreditSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an estimator that takes rewards of tokens takes for a step, and for an end."""

    discount: Literal["token", "turn"] = "token"
    """What `gamma` and `lam` count. With "turn", a turn (an action, a summary or a fold) is one
    step: its value is that before its first token, and all of its tokens share its advantage.
    """
    truncation: Literal["zero", "value"] = "zero"
    """What the state is worth in which a limit cut an episode: nothing, where the limit is part of
    the task, or what the value head says of it.
    """


class AlgorithmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rewards become a gradient."""

    advantage: str
    """A `*_advantages` function."""
    loss: str
    """A `*_loss` function."""
    advantage_options: dict[str, Option] = {}
    whiten: bool = False
    """Whiten the advantages over the batch's tokens afterwards."""
    loss_options: dict[str, Option] = {}
    agg: str = ""
    """An aggregation; empty is the loss's own."""
    agg_options: dict[str, Option] = {}
    corrections: Corrections = Corrections()
    kl: Divergence = Divergence()
    entropy: EntropyBonus = EntropyBonus()
    value: ValueHead | None = None
    credit: CreditSettings = CreditSettings()
    overlong: Overlong = Overlong()
    ratio_to: Literal["learner", "sampler"] = "learner"
    """The old policy of the loss: the learner before the first update of a step, or the engine with
    the log-probabilities that it sampled with. The second is pi_train / pi_gen, which corrects for
    what differs between the two as well.
    """


class TrackerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What single-stream SPO keeps of each task."""

    pool: int = 1024
    """Tasks that are drawn from: the first of an endless set, at most all of a finite one."""
    prior_rollouts: int = 8
    """Played of each task of the pool before the first step; 0 starts from Beta(N0 / 2, N0 / 2)."""
    rho_low: float = 0.875
    """Least memory; the prior weighs N0 = 1 / (1 - rho_low) rollouts."""
    rho_high: float = 0.96
    half_life: float = 0.06
    """Nats a token the policy moves until half is forgotten."""
    floor: float = 0.05
    """Added to the preference of every task."""


class SamplingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rollouts are made, and which of them are trained."""

    group_size: int = 8
    """Rollouts a task."""
    temperature: float = 1.0
    filter: str = ""
    """A `*_mask` function of rewards and groups; empty keeps every group."""
    filter_options: dict[str, Option] = {}
    filter_by: Literal["shaped", "raw"] = "shaped"
    """Which rewards the filter reads: those after shaping, or those that the task gave."""
    refill: bool = False
    """Whether dropped groups are replaced by new ones until the batch is full."""
    drop_solved_at: float = 0.0
    """Tasks whose pass rate reached this leave the pool; 0 keeps all."""
    prioritise: bool = False
    """Whether tasks are drawn by how uncertain they are; else they come in turn."""
    tracker: TrackerSettings | None = None
    """Of success rates, task by task, for single-stream SPO."""


class UpdateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many optimizer updates a step makes, and from how much of its rollouts each is made."""

    splits: int = 1
    """Mini-batches that the groups of a step are shared out into; each makes one update."""
    epochs: int = 1
    """How often every group is used."""

    @property
    def count(self) -> int:
        """Updates a step."""
        return self.splits * self.epochs


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole recipe."""

    name: str
    summary: str
    """One line."""
    source: str
    """The paper."""
    environment: str
    """An environment id, where this recipe shows what it is for."""
    algorithm: AlgorithmSettings
    updates: UpdateSettings = UpdateSettings()
    sampling: SamplingSettings = SamplingSettings()
    shaping: tuple[Shaping, ...] = ()


def recipe_names() -> list[str]:
    """The recipes ludus ships.

    >>> "grpo" in recipe_names()
    True
    """
    return sorted(
        entry.name[:-5] for entry in files(_PACKAGE).iterdir() if entry.name.endswith(".toml")
    )


def load_recipe(name: str, overrides: Mapping[str, object] | None = None) -> Recipe:
    """Read a recipe by name, or from a `.toml` file, with `overrides` merged over it.

    Args:
        name: one of `recipe_names()`, or the path of a file.
        overrides: nested like the file: `{"algorithm": {"loss_options": {"eps_high": 0.3}}}`. An
            override that names another function drops the options of the one it replaces.

    >>> load_recipe("grpo", {"sampling": {"group_size": 4}}).sampling.group_size
    4

    Raises:
        UnknownRecipe: nothing has this name.
        ConfigError: a key or a value that a recipe does not have; the message says where.
    """
    table = merge(_whole(name), overrides or {})
    try:
        return msgspec.convert(table, Recipe)
    except msgspec.ValidationError as error:
        raise ConfigError(f"recipe {name!r}: {error}") from error


def merge(table: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """`overrides` over `table`, key by key; options of a function that is replaced go with it.

    >>> merge({"loss": "a", "loss_options": {"x": 1}, "agg": "b"}, {"loss": "c"})
    {'loss': 'c', 'agg': 'b'}
    """
    merged = dict(table)
    for key, value in overrides.items():
        if key in _OWNERS and merged.get(key) != value:
            merged.pop(_OWNERS[key], None)
    for key, value in overrides.items():
        present = merged.get(key)
        both = isinstance(present, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(_named(present), _named(value)) if both else value
    return merged


_OWNERS = {
    "advantage": "advantage_options",
    "loss": "loss_options",
    "agg": "agg_options",
    "weights": "weight_options",
    "filter": "filter_options",
}
"""Which key names the function that a table of options belongs to."""


def _named(table: object) -> dict[str, object]:
    return {str(key): value for key, value in table.items()} if isinstance(table, Mapping) else {}


def _whole(name: str) -> dict[str, object]:
    """The table of a recipe, merged over that of its base, and so on."""
    table, seen = _read(name), [name]
    while "base" in table:
        base = table.pop("base")
        if not isinstance(base, str) or base in seen:
            way = " -> ".join(map(str, [*seen, base]))
            raise ConfigError(f"recipe {name!r}: base must name another recipe, got {way}")
        seen.append(base)
        table = merge(_read(base), table)
    return table


def _read(name: str) -> dict[str, object]:
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UnknownRecipe(f"no recipe file at {name!r}")
        text, where = path.read_text(encoding="utf-8"), name
    else:
        if name not in recipe_names():
            raise UnknownRecipe.near(name, recipe_names(), hint="ludus recipes")
        text, where = (
            (files(_PACKAGE) / f"{name}.toml").read_text(encoding="utf-8"),
            f"{name}.toml",
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe {where}: not valid TOML: {error}") from error
