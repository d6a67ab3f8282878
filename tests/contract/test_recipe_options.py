"""Every option of a recipe changes what a training step does: none is read and then dropped."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.errors import ConfigError
from ludus.trainer import algorithms
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.texts import GivenTexts, texts_of
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.calls import NOT_OPTIONS
from ludus.trainer.recipes.recipe import UpdateSettings, load_recipe, merge
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

Fingerprint = tuple[float, ...]

MAX_TOKENS = 8
KINDS = ("_advantages", "_loss", "_weights", "_mask", "_rewards")


def trajectory(
    draw: torch.Generator,
    reward: float,
    *,
    most: int = 3,
    cut: bool = False,
    excluded: bool = False,
) -> Any:
    """One to three segments of one to three turns; the sampler's words are noisy."""
    made = [segment(draw) for _ in range(number(draw, 1, most))]
    return Trajectory(
        verdict=Verdict.of(reward),
        gold="12",
        stop=Stop.MAX_TURNS if cut else Stop.TERMINATED,
        segments=made,
        exclude_from_loss=excluded,
    )


def segment(draw: torch.Generator) -> Segment:
    turns: list[Turn] = []
    for place in range(number(draw, 1, 3)):
        length = number(draw, 2, 5)
        noise = 0.7 * torch.randn(length, generator=draw)
        turns.append(
            Turn(
                obs_ids=words(draw, number(draw, 1, 3)) if place else [],
                out_ids=words(draw, length),
                logprobs=(noise - 3.7).tolist(),
            )
        )
    return Segment(prompt_ids=words(draw, 3), turns=turns)


def number(draw: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (1,), generator=draw))


def words(draw: torch.Generator, count: int) -> list[int]:
    return torch.randint(3, 40, (count,), generator=draw).tolist()


def experience(size: int) -> list[Group]:
    """Groups of `size`: all right, all wrong, mixed; rewards of every size; some cut short, some
    left out of the loss; one of the groups lost all but one of its rollouts.
    """
    draw = torch.Generator().manual_seed(0)
    rewards = [[1.0] * size, [0.0] * size, [1.0] + [0.0] * (size - 1)]
    rewards += [(torch.rand(size, generator=draw) - 0.4).clamp(0).tolist() for _ in range(4)]
    rewards += [[1.0] * (size - 1) + [-0.5]]
    groups: list[Group] = []
    for row, mine in enumerate(rewards):
        task = Task(id=str(row), split="train")
        played = [
            trajectory(draw, reward, cut=(row + index) % 3 == 0, excluded=(row + index) % 5 == 4)
            for index, reward in enumerate(mine)
        ]
        groups.append(group(task, played))
    alone = trajectory(draw, 1.0, most=1)
    return [*groups, group(Task(id="alone", split="train"), [alone])]


def group(task: Task, played: list[Trajectory]) -> Group:
    return Group(task, [Episode(task=task.id, trajectories=[one]) for one in played], 0)


def learner(seed: int, *, values: bool = False) -> Learner:
    model = build_model(40, hidden=16, layers=1, heads=2, max_length=64, seed=seed)
    made = Learner(model, TrainerConfig(lr=3e-2, max_grad_norm=1e9), ReadingOptions(values=values))
    if made.value_head is not None:  # one that says something: it starts at 0 everywhere
        torch.nn.init.normal_(made.value_head.weight, generator=torch.Generator().manual_seed(seed))
    return made


def updater(recipe: str, overrides: Mapping[str, object]) -> Updater:
    found = load_recipe(recipe, overrides)
    algorithm = resolve(found, max_tokens=MAX_TOKENS)
    pupil = learner(0, values=found.algorithm.value is not None)
    reference = learner(1) if "ref_logp" in algorithm.needs else None
    made = Updater(algorithm, pupil, reference=reference, updates=UpdateSettings(splits=3))
    made.texts = GivenTexts(
        texts_of(algorithm.needs),
        encode=lambda text: [3 + ord(each) % 37 for each in text],
        decode=lambda ids: "".join(map(chr, ids)),
    )
    return made


def outcome(recipe: str, overrides: Mapping[str, object]) -> Fingerprint:
    """What three updates on the same rollouts make of the same weights. How far the gradient went
    counts too, since Adam forgets its size.
    """
    made = updater(recipe, overrides)
    gathered = made.gather(experience(made.algorithm.recipe.sampling.group_size))
    assert gathered is not None
    metrics = made.step(gathered, generator=torch.Generator().manual_seed(0))
    weights = [float(one.detach().double().pow(2).sum()) for one in parameters_of(made.learner)]
    return (metrics["grad_norm"], *weights)


@functools.cache
def outcome_of_start(recipe: str, overrides: str) -> Fingerprint:
    """The outcome of overrides in JSON, from which several settings start."""
    return outcome(recipe, json.loads(overrides))


def parameters_of(of: Learner) -> list[torch.nn.Parameter]:
    head = [] if of.value_head is None else list(of.value_head.parameters())
    return [*of.model.parameters(), *head]


# --- the functions of the library, option by option -----------------------------------------------

REQUIRED: dict[str, object] = {
    "max_length": 12.0,
    "buffer": 8.0,
    "budget": 6.0,
    "length": 8.0,
    "alpha": 0.5,
    "lam": 0.5,
    "mixing": 0.5,
    "tau": 0.5,
    "power": 0.5,
    "temperature": 0.5,
    "delta": 0.1,
    "low": 0.9,
    "high": 1.1,
    "threshold": 0.1,
    "ddof": 1,
    "share": 0.3,
    "wanted": 4,
    "cap": 1.1,
    "multiplier": 0.5,
    "omega": 0.5,
    "eps": 0.1,
    "beta": 0.5,
    "eps_token": (0.2, 0.2),
    "eps_sequence": (0.2, 0.2),
    "eps_low": 0.2,
    "eps_high": 0.2,
    "coefficient": 0.1,
    "keep": 2,
    "weight": 0.5,
    "n": 2,
}
"""Of options without a default."""

TELLING: dict[str, dict[str, object]] = {
    "cispo_loss": {"eps_low": 0.5, "eps_high": 1.1},
    "clip_cov_mask": {"low": -0.2, "high": 0.4, "share": 0.3, "eps_low": 0.05, "eps_high": 0.05},
    "cosine_rewards": {"max_length": 20.0, "margin": 2.0},
    "decoupled_ppo_loss": {"cap": 1.1},
    "dhpo_loss": {"eps_token": (0.02, 0.02), "eps_sequence": (0.01, 0.01)},
    "kl_cov_loss": {"share": 0.1},
    "low_probability_mask": {"share": 0.02},
    "mpt_mask": {"sigma": 3.5, "probability": 0.02},
    "reinforce_pp_advantages": {"eps": 0.5},
    "reinforce_pp_baseline_advantages": {"eps": 0.5},
    "reward_spread_mask": {"threshold": 0.34},
    "trust_region_mask": {"threshold": 0.25},
    "topr_loss": {"cap": 3.0, "max_log_ratio": 0.02},
}
"""Values at which a function's other options come into play on these rollouts."""


INERT = {
    ("clip_cov_mask", "eps_low"): "before the first update no ratio is clipped",
    ("clip_cov_mask", "eps_high"): "before the first update no ratio is clipped",
    ("lp_reg_loss", "beta"): "a fresh model has no token that is far less likely than others",
    ("mt_grpo_advantages", "coefficient"): "no turn of these rollouts earned anything by itself",
    ("pruned_mask", "dropped"): "a constant of the proxy",
    ("rlpr_rewards", "format_weight"): "a factor of a reward that is given beside",
    ("r2vpo_loss", "delta"): "a constant of the Lagrangian; its multiplier goes by it",
}
"""Options that change nothing here, and why."""


def library(kind: str) -> list[str]:
    return [
        name
        for name in algorithms.__all__
        if name.endswith(kind) and inspect.isfunction(getattr(algorithms, name))
    ]


def overrides_of(name: str, kind: str, options: Mapping[str, object]) -> tuple[str, Any]:
    """A recipe that has the function in its place."""
    given = dict(options)
    table: dict[str, Any]
    if kind == "_loss":
        return "grpo", {"algorithm": {"loss": name, "loss_options": given, "agg": ""}}
    if kind == "_advantages":
        base = "ppo" if "values" in inspect.signature(getattr(algorithms, name)).parameters else ""
        table = {"advantage": name, "advantage_options": given}
        if name in ("egae_advantages", "compaction_advantages"):
            # these have their own idea of what a truncated state is worth, or none
            table["credit"] = {"truncation": "zero"}
        return base or "grpo", {"algorithm": table}
    if kind == "_weights":
        table = {"corrections": {"weights": name, "weight_options": given}}
        return "grpo", {"algorithm": table}
    if kind == "_rewards":
        return "grpo", {"shaping": [{"name": name, "options": given, "combine": "add"}]}
    parameters = inspect.signature(getattr(algorithms, name)).parameters
    if kind == "_mask" and "groups" in parameters and "advantages" not in parameters:
        return "grpo", {"sampling": {"filter": name, "filter_options": given}}
    if kind == "_mask":
        filters = [{"name": name, "options": given}]
        return "grpo", {"algorithm": {"corrections": {"filters": filters}}}
    return "grpo", {"algorithm": {"agg": name, "agg_options": given}}


def options_of(name: str) -> dict[str, tuple[object, object]]:
    """Each option's default, or a value where it has none, and its type."""
    function = getattr(algorithms, name)
    hints = get_type_hints(function)
    return {
        p.name: (REQUIRED.get(p.name) if p.default is p.empty else p.default, hints[p.name])
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.KEYWORD_ONLY
        and "Tensor" not in str(p.annotation)
        and p.name not in NOT_OPTIONS
    }


def others(value: object, hint: object) -> Iterator[object]:
    """Other values an option may have."""
    if get_origin(hint) is Literal:
        yield from (one for one in get_args(hint) if one != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, max(0, value - 1), 20 * value)
    elif isinstance(value, float):
        yield from (one for one in (0.5 * value, 2 * value, value + 0.3, 0.01) if one != value)
    elif isinstance(value, tuple):
        yield tuple(0.5 * one + 0.1 for one in value)
    elif value is None:
        yield from (0.5, 0.05)


CASES = [
    (name, kind, options)
    for kind in (*KINDS, "")
    for name in (
        library(kind) if kind else ["sequence_mean", "sequence_sum", "fixed_length", "prompt_mean"]
    )
    if (options := [option for option in options_of(name) if (name, option) not in INERT])
]


REFUSED = {
    "drpo_length_weights": "algorithm.corrections names needs correct, lengths",
    "deepsearch_advantages": "parents",
    "entropy_loss": r"put it into \[algorithm.entropy\]",
    "hapo_history_rewards": "shortest",
    "kl_loss": r"put it into \[algorithm.kl\]",
    "kl_penalised_rewards": "shaping names needs logp, mask, ref_logp, token_rewards",
    "l1_exact_rewards": "target",
    "l1_max_rewards": "target",
    "laser_rewards": "target",
    "no_positive_resampling_mask": "pass_rates",
    "pcl_mask": "success",
    "repetition_rewards": "responses",
    "roc_selection_mask": "penalties",
    "single_stream_spo_advantages": "success rates",
    "single_stream_spo_sampling_weights": "alpha, beta",
    "spo_tree_advantages": "parents",
    "tree_grpo_advantages": "parents",
    "tree_pooled_advantages": "parents",
    "treepo_advantages": "parents",
    "treepo_leaf_rewards": "parents",
    "ssp_proposer_rewards": "solved, verified",
    "value_loss": r"put it into \[algorithm.value\]",
}
"""Functions for trainers of your own: what ours says when it is asked for one of them, before any
rollout is played. (Single-stream SPO is in test_recipes_spo.py.)
"""
REFUSED |= {
    name: "needs .*which this trainer does not compute"
    for name in library("_loss")
    if getattr(algorithms, name).__module__.startswith("ludus.trainer.algorithms.preferences")
}
"""Preference losses read pairs from files: `ludus train dpo`, not the trainer of rollouts."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "options"), CASES, ids=[case[0] for case in CASES])
def test_every_option_of_a_function_changes_the_step(
    name: str, kind: str, options: list[str]
) -> None:
    known = options_of(name)
    start = {key: value for key, (value, _) in known.items() if must_be_said(name, key)}
    start |= TELLING.get(name, {})
    if name in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[name]):
            updater(*overrides_of(name, kind, start))
        return
    before = outcome(*overrides_of(name, kind, start))
    for option in options:
        value, hint = known[option]
        assert any(
            outcome(*overrides_of(name, kind, {**start, option: other})) != before
            for other in others(start.get(option, value), hint)
        ), f"{option} changes nothing"


def must_be_said(name: str, option: str) -> bool:
    parameters = inspect.signature(getattr(algorithms, name)).parameters
    return parameters[option].default is inspect.Parameter.empty


# --- what else a recipe says ----------------------------------------------------------------------

FILTERED = {"filters": [{"name": "ratio_band_mask", "options": {"low": 0.9, "high": 1.1}}]}
KL = {"place": "loss", "coefficient": 0.5, "estimator": "k2"}
PAST: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "whiten": ("grpo", {}, {"algorithm": {"whiten": True}}),
    "agg": ("grpo", {}, {"algorithm": {"agg": "sequence_sum"}}),
    "denominator": (
        "grpo",
        {"algorithm": {"corrections": FILTERED}},
        {"algorithm": {"corrections": {"denominator": "remaining"}}},
    ),
    "kl.place": ("grpo", {}, {"algorithm": {"kl": KL}}),
    "kl.place of a token's reward": (
        "reinforce_pp",
        {"algorithm": {"kl": {"place": "none", "coefficient": 0.0}}},
        {"algorithm": {"kl": {"place": "reward", "coefficient": 0.5}}},
    ),
    "kl.coefficient": (
        "grpo",
        {"algorithm": {"kl": KL}},
        {"algorithm": {"kl": {"coefficient": 0.1}}},
    ),
    "kl.estimator": ("grpo", {"algorithm": {"kl": KL}}, {"algorithm": {"kl": {"estimator": "k3"}}}),
    "kl.importance_weighted": (
        "grpo",
        {"algorithm": {"kl": KL}},
        {"algorithm": {"kl": {"importance_weighted": True}}},
    ),
    "entropy.coefficient": ("grpo", {}, {"algorithm": {"entropy": {"coefficient": 0.1}}}),
    "value.coefficient": ("ppo", {}, {"algorithm": {"value": {"coefficient": 2.0}}}),
    "value.value_clip": ("ppo", {}, {"algorithm": {"value": {"value_clip": 1e-4}}}),
    "credit.discount": (
        "reinforce_pp",
        {"algorithm": {"advantage_options": {"gamma": 0.9}}},
        {"algorithm": {"credit": {"discount": "turn"}}},
    ),
    "credit.discount of a value head": ("ppo", {}, {"algorithm": {"credit": {"discount": "turn"}}}),
    "credit.truncation": ("ppo", {}, {"algorithm": {"credit": {"truncation": "zero"}}}),
    "overlong.in_loss": ("grpo", {}, {"algorithm": {"overlong": {"in_loss": False}}}),
    "overlong.in_statistics": (
        "grpo",
        {"algorithm": {"overlong": {"in_loss": False}}},
        {"algorithm": {"overlong": {"in_statistics": False}}},
    ),
    "shaping.weight": (
        "grpo",
        {"shaping": [{"name": "kimi_length_rewards", "weight": 1.0}]},
        {"shaping": [{"name": "kimi_length_rewards", "weight": 0.5}]},
    ),
    "shaping.combine": (
        "grpo",
        {"shaping": [{"name": "kimi_length_rewards", "combine": "add"}]},
        {"shaping": [{"name": "kimi_length_rewards", "combine": "replace"}]},
    ),
    "sampling.filter": ("grpo", {}, {"sampling": {"filter": "active_sampling_mask"}}),
    "sampling.filter_by": ("dapo", {}, {"sampling": {"filter_by": "shaped"}}),
    "ratio_to": ("grpo", {}, {"algorithm": {"ratio_to": "sampler"}}),
}
PAST["sampling.filter"][2]["sampling"]["filter_options"] = {"wanted": 4}


@pytest.mark.parametrize("setting", PAST)
def test_every_other_setting_changes_the_step(setting: str) -> None:
    recipe, start, change = PAST[setting]
    assert outcome(recipe, merge(start, change)) != outcome_of_start(recipe, json.dumps(start))


def test_weights_enter_a_baseline_that_takes_them() -> None:
    """OTB weighs what has been gathered by the squared importance weights."""
    weights = {"corrections": {"weights": "tis_weights", "weight_options": {"cap": 1.3}}}
    made: Any = updater("otb", {"algorithm": weights})
    gathered = gather(experience(8))
    assert gathered is not None
    batch = made.credited(gathered).batch
    words, mask = gathered.batch, gathered.batch.mask
    weights_of = algorithms.tis_weights(
        made.learner.score(words), words.sampler_logp, mask, cap=1.3
    )
    norms = made.learner.score_norms(words)
    # a rollout that was cut into rows is one row here: the trained tokens of all, one after another
    places = [
        (mask * (gathered.rollouts == number).unsqueeze(1)).nonzero(as_tuple=True)
        for number in range(len(gathered.rewards))
    ]
    flat = [
        pad_sequence([tensor[place] for place in places], True)
        for tensor in (mask, norms, weights_of)
    ]
    found = algorithms.otb_advantages(
        gathered.rewards,
        gathered.groups,
        flat[0],
        flat[1],
        weights=flat[2],
        **made.algorithm.advantage_fn.options,
    )
    expected = torch.zeros_like(mask)
    for number, place in enumerate(places):
        expected[place] = found[number, : len(place[0])]
    torch.testing.assert_close(batch.inputs.advantages, expected)


def test_a_filter_that_draws_goes_by_the_steps_generator() -> None:
    filters = [{"name": "clip_cov_mask", "options": TELLING["clip_cov_mask"]}]
    overrides = {"algorithm": {"corrections": {"filters": filters}}}
    first = outcome("grpo", overrides)
    torch.manual_seed(7)  # what else draws must not matter
    torch.rand(3)
    assert outcome("grpo", overrides) == first
