"""Recipes as data: which functions of `ludus.trainer.algorithms` form an algorithm, with
options.

    name = "grpo"
    [algorithm]
    advantage = "grpo_advantages"
    loss = "ppo_clip_loss"
    [algorithm.loss_options]
    eps_high = 0.28

A recipe is loaded by name from this folder, or from a TOML file of yours; overrides are merged
over the file. A file may start from another recipe and state only the differences:

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
from typing import Any, Literal

import msgspec

from ludus.errors import ConfigError, UnknownName
from ludus.wire.faults import Refused
from ludus.wire.strict import checker

from .schedules import Schedule, take_schedules

_PACKAGE = "ludus.trainer.recipes"

Option = bool | int | float | str | tuple[float, ...]
"""The value of an option. Where a number is expected, "max_tokens" is the trainer's longest
response and "0.2 * max_tokens" a share of that. A TOML list is a tuple: right = [2.0, 1.0].
"""


class UnknownRecipe(UnknownName):
    """No recipe has this name."""

    kind = "recipe"


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function by name with options."""

    name: str
    options: dict[str, Option] = {}


class Shaping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of reward shaping."""

    name: str
    options: dict[str, Option] = {}
    combine: Literal["add", "replace"] = "add"
    """Whether the result is added to the reward or replaces the reward."""
    weight: float = 1.0
    """The factor of an added result."""


class Corrections(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Corrections between the sampling policy and the learning policy."""

    weights: str = ""
    """A `*_weights` function (tis_weights, mis_weights); empty means none."""
    weight_options: dict[str, Option] = {}
    filters: tuple[Call, ...] = ()
    """`*_mask` functions; dropped tokens leave the loss."""
    denominator: Literal["original", "remaining"] = "original"
    """Whether dropped tokens still count in the mean: the two differ by N / N_kept."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pull towards a reference policy."""

    place: Literal["none", "loss", "reward"] = "none"
    coefficient: float = 0.0
    estimator: Literal["k1", "k2", "k3", "k3+"] = "k2"
    """The estimator in the loss; in the reward k1 is used."""
    importance_weighted: bool = False
    """Whether each estimate is multiplied by pi / old."""


class EntropyBonus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entropy bonus, which rewards exploration."""

    coefficient: float = 0.0
    """The weight of the entropy in the loss, per nat; with a target, the weight before the first
    step. Without a target 0 leaves the entropy out.
    """
    target: float = 0.0
    """The entropy to keep, in nats per token; 0 leaves the coefficient as it is. Before each step
    the coefficient rises by `change` if the step's rollouts have at most this entropy, and
    otherwise falls by `change`, to 0 at least. The bonus counts only in steps that raise the
    coefficient. Source: Skywork-OR1, arXiv 2505.22312.
    """
    change: float = 0.005
    """How far the coefficient moves in a step; without a target it has no effect."""

    @property
    def counts(self) -> bool:
        """Whether a step may have a bonus."""
        return bool(self.coefficient or self.target)


class ValueHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value head and the loss that trains the head."""

    coefficient: float = 0.5
    value_clip: float = 0.2


class Overlong(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The treatment of rollouts that a limit cut off."""

    in_loss: bool = True
    """Whether the tokens of such rollouts are trained."""
    in_statistics: bool = True
    """Whether the rewards of such rollouts count in the means of their group."""


class CreditSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps and episode ends for estimators that take token rewards."""

    discount: Literal["token", "turn"] = "token"
    """The step that `gamma` and `lam` count. With "turn", a turn (an action, a summary or a fold)
    is one step: the step's value is the value before its first token, and all of its tokens
    share the advantage.
    """
    truncation: Literal["zero", "value"] = "zero"
    """The value of the state at which a limit cut an episode: zero, where the limit is part of the
    task, or the value head's estimate.
    """


class AlgorithmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a recipe that turns rewards into a gradient."""

    advantage: str
    """The name of a `*_advantages` function of `trainer.algorithms`."""
    loss: str
    """The name of a `*_loss` function of `trainer.algorithms`."""
    advantage_options: dict[str, Option] = {}
    whiten: bool = False
    """Whether the advantages are whitened over the batch's tokens afterwards."""
    loss_options: dict[str, Option] = {}
    agg: str = ""
    """An aggregation; empty means the loss's default."""
    agg_options: dict[str, Option] = {}
    corrections: Corrections = Corrections()
    kl: Divergence = Divergence()
    entropy: EntropyBonus = EntropyBonus()
    value: ValueHead | None = None
    credit: CreditSettings = CreditSettings()
    overlong: Overlong = Overlong()
    proxy_ratio: float = 0.02
    """The share of the likeliest token below which tokens are left out of `proxy_logp`."""
    answer_marker: str = ""
    """The mark that a rollout's answer stands behind in its last turn, such as "</think>", where
    given texts are scored; empty takes the whole turn as the answer.
    """
    ratio_to: Literal["learner", "sampler"] = "learner"
    """The old policy of the loss: the learner before the first update of a step, or the engine with
    the log-probabilities of its samples. The second gives the ratio pi_train / pi_gen, which
    also corrects for differences between engine and learner.
    """


class TrackerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the success rates that single-stream SPO tracks per task."""

    pool: int = 1024
    """How many tasks are drawn from: the first tasks of an endless set, at most all tasks of a
    finite set.
    """
    prior_rollouts: int = 8
    """Rollouts played for each task of the pool before the first step; 0 starts from Beta(N0 / 2,
    N0 / 2).
    """
    rho_low: float = 0.875
    """The smallest memory; the prior weighs N0 = 1 / (1 - rho_low) rollouts."""
    rho_high: float = 0.96
    half_life: float = 0.06
    """How far, in nats per token, the policy moves until half of the past is forgotten."""
    floor: float = 0.05
    """A constant added to the sampling weight of every task."""


class VocabularySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NLPO's mask: rollouts sample, and the learner computes, over the likeliest tokens of an
    earlier copy of the policy alone.
    """

    top_p: float
    """The probability that the kept tokens reach under the copy, at temperature 1; in (0, 1]."""
    every: int
    """Steps after which the copy becomes the policy again."""


class SamplingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rollouts that are made, and the choice of rollouts that are trained."""

    group_size: int = 8
    """The number of rollouts per task."""
    temperature: float = 1.0
    filter: str = ""
    """A `*_mask` function of rewards and groups; empty keeps every group."""
    filter_options: dict[str, Option] = {}
    filter_by: Literal["shaped", "raw"] = "shaped"
    """The rewards that the filter reads: after shaping, or as the task gave them."""
    refill: bool = False
    """Whether dropped groups are replaced by new ones until the batch is full."""
    drop_solved_at: float = 0.0
    """The pass rate at which a task leaves the pool; 0 keeps all tasks."""
    prioritise: bool = False
    """Whether tasks with uncertain success are drawn more often; otherwise tasks come in turn."""
    tracker: TrackerSettings | None = None
    """Success rates per task, for single-stream SPO."""
    vocabulary: VocabularySettings | None = None
    """The mask of the vocabulary, for NLPO."""
    rules: tuple[Call, ...] = ()
    """The sampling policy: rules that decide what each task is given, in order; see
    `trainer.rollout.sampling`. Without any, every task gets `group_size` equal rollouts.
    """


class UpdateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many optimizer updates a step makes, and how the step's rollouts are divided among
    these.
    """

    splits: int = 1
    """Mini-batches that the groups of a step are divided into; each makes one update."""
    epochs: int = 1
    """How often every group is used."""

    @property
    def count(self) -> int:
        """The number of updates in a step."""
        return self.splits * self.epochs


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A complete training recipe, as read from TOML."""

    name: str
    summary: str
    """A one-line description."""
    source: str
    """The paper that the recipe follows."""
    environment: str
    """The id of an environment on which this recipe shows its purpose."""
    algorithm: AlgorithmSettings
    float32_head: bool = False
    """Whether the head's product is computed in float32 whatever model.dtype is."""
    updates: UpdateSettings = UpdateSettings()
    sampling: SamplingSettings = SamplingSettings()
    shaping: tuple[Shaping, ...] = ()
    schedules: dict[str, Schedule] = {}
    """The numbers that move, by dotted path (`algorithm.kl.coefficient`, `shaping.0.weight`); the
    recipe has their first values. A file writes the schedule in the number's place.
    """

    @property
    def clip_rests(self) -> bool:
        """Whether the recipe limits a ratio that is always 1, so that the clip never acts: with a
        single update, and the learner as the old policy.
        """
        clips = "eps_high" in self.algorithm.loss_options
        return clips and self.algorithm.ratio_to == "learner" and self.updates.count == 1


def recipe_names() -> list[str]:
    """Return the names of the recipes that ludus ships.

    >>> "grpo" in recipe_names()
    True
    """
    return sorted(
        entry.name[:-5] for entry in files(_PACKAGE).iterdir() if entry.name.endswith(".toml")
    )


def load_recipe(name: str, overrides: Mapping[str, object] | None = None) -> Recipe:
    """Read a recipe by name, or from a `.toml` file, and merge `overrides` over the file.

    Args:
        name: one of `recipe_names()`, or the path of a file.
        overrides: nested like the file: `{"algorithm": {"loss_options": {"eps_high": 0.3}}}`. An
            override that names another function drops the options of the replaced function.

    >>> load_recipe("grpo", {"sampling": {"group_size": 4}}).sampling.group_size
    4

    Raises:
        UnknownRecipe: no recipe has this name.
        ConfigError: an unknown key or an invalid value; the message says where.
    """
    table, schedules = take_schedules(merge(_whole(name), overrides or {}), name)
    try:
        recipe = msgspec.convert(table, Recipe)
    except msgspec.ValidationError as error:
        raise ConfigError(f"recipe {name!r}: {error}{_hint(table)}") from error
    return msgspec.structs.replace(recipe, schedules={**recipe.schedules, **schedules})


def _hint(table: Mapping[str, Any]) -> str:
    """Return the name that was probably meant by an unknown one; or where the options of a function
    stand, if they stand in the place of its name.
    """
    if (check := checker(Recipe)) is not None:
        try:
            check(table, "$")
        except Refused as unknown:
            return f"; {str(unknown).partition('; ')[2]}"
    algorithm = table.get("algorithm")
    if not isinstance(algorithm, dict):
        return ""
    wrong = [name for name in _OWNERS if isinstance(algorithm.get(name), dict)]
    return f"; its options stand in [algorithm.{_OWNERS[wrong[0]]}]" if wrong else ""


def valued(recipe: Recipe, values: Mapping[str, float]) -> Recipe:
    """Return a recipe with other values of the numbers that move.

    Args:
        recipe: a recipe.
        values: numbers by dotted path, as `Recipe.schedules` names them.

    >>> valued(load_recipe("grpo"), {"algorithm.kl.coefficient": 0.5}).algorithm.kl.coefficient
    0.5
    """
    table: Any = msgspec.json.decode(msgspec.json.encode(recipe))
    for path, value in values.items():
        *way, last = path.split(".")
        place: Any = table
        for name in way:
            place = place[int(name)] if isinstance(place, list) else place[name]
        place[last] = value
    return msgspec.convert(table, Recipe)


def policy_names() -> list[str]:
    """Return the names of the sampling policies that ludus ships.

    >>> "dars" in policy_names()
    True
    """
    return sorted(
        entry.name[:-5]
        for entry in (files(_PACKAGE) / "policies").iterdir()
        if entry.name.endswith(".toml")
    )


def load_policies(names: str, beside: str = "") -> dict[str, object]:
    """Return the overrides of sampling policies, which stand beside any recipe.

    A policy is a part of a recipe: rules of sampling, and what reads the numbers they give. Rules
    and shaping of the recipe and of several policies follow each other; a rule that a policy names
    again has the policy's options.

    Args:
        names: names of `policy_names()`, or paths of TOML files, separated by commas.
        beside: the recipe whose own rules and shaping come first; empty for none.

    >>> [rule["name"] for rule in load_policies("dars", "scale_rl")["sampling"]["rules"]]
    ['interrupt', 'dars']

    Raises:
        UnknownRecipe: there is no such policy.
        ConfigError: a file is not TOML.
    """
    merged: dict[str, object] = {}
    parts = [part.strip() for part in names.split(",") if part.strip()]
    if beside and parts:
        own = _whole(beside)
        merged = {"shaping": _rows(own, "shaping")} if "shaping" in own else {}
        merged["sampling"] = {"rules": _rows(own, "sampling.rules")}
    for name in parts:
        table = read_policy(name)
        for described in ("name", "summary", "source"):
            table.pop(described, None)
        lists = {"shaping": [*_rows(merged, "shaping"), *_rows(table, "shaping")]}
        named = {_name_of(rule): rule for rule in _rows(merged, "sampling.rules")}
        again = {_name_of(rule): rule for rule in _rows(table, "sampling.rules")}
        lists["sampling.rules"] = [*(named | again).values()]
        merged = merge(merged, table)
        if lists["shaping"]:
            merged["shaping"] = lists["shaping"]
        if lists["sampling.rules"]:
            merged = merge(merged, {"sampling": {"rules": lists["sampling.rules"]}})
    return merged


def _name_of(rule: object) -> object:
    return rule.get("name") if isinstance(rule, Mapping) else None


def read_policy(name: str) -> dict[str, object]:
    """Return the table of a sampling policy: its summary, its source, and what it overrides.

    Raises:
        UnknownRecipe: there is no such policy.
        ConfigError: the file is not TOML.
    """
    return _read(name, "policies", policy_names())


def _rows(table: Mapping[str, object], path: str) -> list[object]:
    place: object = table
    for name in path.split("."):
        place = place.get(name, []) if isinstance(place, Mapping) else []
    return list(place) if isinstance(place, list) else []


def merge(table: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """Merge `overrides` over `table`, key by key; the options of a replaced function are dropped.

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
"""For each key that names a function, the key of that function's options."""


def _named(table: object) -> dict[str, object]:
    return {str(key): value for key, value in table.items()} if isinstance(table, Mapping) else {}


def _whole(name: str) -> dict[str, object]:
    """Return the table of a recipe, merged over the table of the base recipe, recursively."""
    table, seen = _read(name), [name]
    while "base" in table:
        base = table.pop("base")
        if not isinstance(base, str) or base in seen:
            way = " -> ".join(map(str, [*seen, base]))
            raise ConfigError(f"recipe {name!r}: base must name another recipe, got {way}")
        seen.append(base)
        table = merge(_read(base), table)
    return table


def _read(name: str, folder: str = "", known: list[str] | None = None) -> dict[str, object]:
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UnknownRecipe(f"no recipe file at {name!r}")
        text, where = path.read_text(encoding="utf-8"), name
    else:
        known = recipe_names() if known is None else known
        if name not in known:
            raise UnknownRecipe.near(name, known, hint="ludus recipes")
        entry = files(_PACKAGE) / folder / f"{name}.toml"
        text, where = entry.read_text(encoding="utf-8"), f"{name}.toml"
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe {where}: not valid TOML: {error}") from error
