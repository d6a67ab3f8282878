"""Recipes: read, merged, resolved into functions a trainer calls, or refused with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import nan
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from ludus.cli.recipes import main
from ludus.errors import ConfigError, UnknownName
from ludus.trainer import algorithms as A
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.recipes.recipe import UnknownRecipe, load_recipe, merge, recipe_names
from ludus.trainer.recipes.resolution import clip_rests, compare, effective, resolve

SHIPPED = [
    "reinforce_pp",
    "rloo",
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "cispo",
    "luspo",
    "lite_ppo",
    "ppo",
    "spo",
    "otb",
    "dler",
    "scale_rl",
    "olmo_rl",
    "minimax_m1",
    "supo",
]

MASK = torch.tensor([[1.0, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]])
ROLLOUTS = torch.tensor([0, 0, 1, 2, 3])
"""Rollout 0 was cut in two by a summary."""
REWARDS, GROUPS = torch.tensor([1.0, 0, 1, 0]), torch.tensor([0, 0, 1, 1])
OLD = torch.linspace(-2, -0.5, 20).view(5, 4)
PENALTY = {"name": "overlong_penalty_rewards", "options": {"max_length": 8, "buffer": 2}}
BAND = {"name": "ratio_band_mask", "options": {"low": 0.9, "high": 1.1}}


def given() -> dict[str, Tensor]:
    """Everything a recipe may ask for."""
    return {
        "old_logp": OLD,
        "sampler_logp": OLD - 0.1,
        "truncated": torch.tensor([True, False, False, False]),
        "alpha": torch.full((4,), 4.0),
        "beta": torch.full((4,), 4.0),
        "values": torch.rand(5, 4, generator=torch.Generator().manual_seed(0)),
        "proxies": torch.full((5, 4), 0.5),
    }


def rolled(
    rewards: Tensor, groups: Tensor, mask: Tensor, rollouts: Tensor, **more: Tensor
) -> Inputs:
    return Inputs(rewards=rewards, groups=groups, mask=mask, rollouts=rollouts, **more)


def test_the_shipped_recipes_are_all_there() -> None:
    assert recipe_names() == sorted(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_says_what_it_is_and_gives_a_finite_gradient(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.summary
    assert recipe.source
    assert "-v" in recipe.environment
    algorithm = resolve(recipe, max_tokens=8)
    groups = torch.arange(4) if recipe.sampling.group_size == 1 else GROUPS
    tensors = given()
    lengths = torch.tensor([4.0, 4, 2, 2])
    rewards = algorithm.shape(
        Inputs(rewards=REWARDS, groups=groups, lengths=lengths, truncated=tensors["truncated"])
    )
    assert rewards.shape == REWARDS.shape
    assert algorithm.keep(Inputs(rewards=rewards, groups=groups)).dtype == torch.bool
    credit = algorithm.advantages(rolled(rewards, groups, MASK, ROLLOUTS, **tensors))
    assert credit.advantages.shape == MASK.shape
    assert bool((credit.advantages[MASK == 0] == 0).all())
    corrected = algorithm.correct(
        Inputs(mask=MASK, rollouts=ROLLOUTS, advantages=credit.advantages, **tensors)
    )
    logp = (OLD + 0.05).requires_grad_()
    more = {} if corrected.weights is None else {"weights": corrected.weights}
    loss = algorithm.loss(
        Inputs(
            logp=logp,
            old_logp=OLD,
            advantages=credit.advantages,
            mask=corrected.mask,
            groups=groups[ROLLOUTS],
            **more,
        )
    )
    A.divide(loss.total, loss.weight).backward()
    assert logp.grad is not None
    assert bool(logp.grad.isfinite().all())
    assert bool(logp.grad.any())
    assert bool((logp.grad[corrected.mask == 0] == 0).all())


def test_a_resolved_recipe_computes_what_its_functions_do_by_hand() -> None:
    algorithm = resolve(load_recipe("grpo"))
    # rewards (1, 0) in each group: A = +-.5 / (sqrt(.5) + 1e-6), once a rollout, over all its rows
    credit = algorithm.advantages(rolled(REWARDS, GROUPS, MASK, ROLLOUTS)).advantages
    one = 0.5 / (0.5**0.5 + 1e-6)
    expected = torch.tensor([one, one, -one, one, -one]).unsqueeze(1) * MASK
    torch.testing.assert_close(credit, expected)
    loss = algorithm.loss(Inputs(logp=OLD + 0.3, old_logp=OLD, advantages=credit, mask=MASK))
    # ratio 1.35: clipped to 1.2 where A > 0; five rows, one number each
    ratio = torch.tensor(0.3).exp()
    total = -3 * one * 1.2 + 2 * one * ratio
    torch.testing.assert_close(loss.total, total)
    assert loss.weight.item() == 5
    torch.testing.assert_close(loss.parts["policy"], loss.total)


def test_segments_of_a_rollout_count_once_whatever_the_estimator() -> None:
    for name in ("grpo", "dr_grpo", "rloo", "lite_ppo", "supo", "dler"):
        algorithm = resolve(load_recipe(name, {"shaping": []}), max_tokens=8)
        tensors = given() | {"truncated": torch.zeros(4, dtype=torch.bool)}
        cut = algorithm.advantages(rolled(REWARDS, GROUPS, MASK, ROLLOUTS, **tensors)).advantages
        order = torch.tensor([0, 2, 3, 4])
        whole = algorithm.advantages(
            rolled(REWARDS, GROUPS, MASK[order], torch.arange(4), **tensors)
        ).advantages
        if name != "dler":  # whitening weighs tokens, and the cut rollout has more of them
            torch.testing.assert_close(cut[order], whole)
        assert cut[0, 0] == cut[1, 0]


def test_supo_counts_segments_where_its_recipe_says_so(tmp_path: Path) -> None:
    file = tmp_path / "segments.toml"
    file.write_text(
        'base = "supo"\nname = "by-segments"\n'
        '[algorithm.advantage_options]\nstatistics_over = "segments"\n'
    )
    owners = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3])
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, 1.0]), torch.zeros(4, dtype=torch.int64)
    algorithm = resolve(load_recipe(str(file)))
    made = algorithm.advantages(rolled(rewards, groups, torch.ones(10, 2), owners))
    # four rows of ten have 1: a mean of 0.4, a variance of 2.4 / 9
    right, wrong = 0.6 / (2.4 / 9) ** 0.5, -0.4 / (2.4 / 9) ** 0.5
    wanted = torch.tensor([right, wrong])[(rewards[owners] == 0).long()]
    torch.testing.assert_close(made.advantages[:, 0], wanted, atol=1e-4, rtol=0)


def test_overlong_rollouts_leave_the_loss_and_stay_in_the_statistics() -> None:
    algorithm = resolve(load_recipe("supo"))
    truncated = torch.tensor([True, False, False, False])
    credit = algorithm.advantages(rolled(REWARDS, GROUPS, MASK, ROLLOUTS, truncated=truncated))
    assert credit.advantages[2, 0] < 0  # compared with the truncated one
    corrected = algorithm.correct(Inputs(mask=MASK, rollouts=ROLLOUTS, truncated=truncated))
    assert corrected.mask[:2].sum() == 0
    assert torch.equal(corrected.mask[2:], MASK[2:])


def test_overlong_rollouts_can_leave_the_statistics_too() -> None:
    overrides = {"algorithm": {"overlong": {"in_loss": False, "in_statistics": False}}}
    algorithm = resolve(load_recipe("grpo", overrides))
    truncated = torch.tensor([True, False, False, False])
    credit = algorithm.advantages(rolled(REWARDS, GROUPS, MASK, ROLLOUTS, truncated=truncated))
    assert credit.advantages[2].tolist() == [0, 0, 0, 0]  # alone in what is left of its group
    assert credit.advantages[3, 0] > 0


def test_rejected_tokens_stay_in_the_denominator_or_leave_it() -> None:
    correction = {"weights": "mis_weights", "weight_options": {"low": 0.9, "high": 1.2}}
    sampler = OLD.clone()
    sampler[2] -= 1.0  # weight e, outside
    for denominator, weight in (("original", 12), ("remaining", 8)):
        corrections = correction | {"denominator": denominator}
        algorithm = resolve(
            load_recipe("dapo", {"algorithm": {"corrections": corrections}}), max_tokens=8
        )
        corrected = algorithm.correct(
            Inputs(mask=MASK, rollouts=ROLLOUTS, old_logp=OLD, sampler_logp=sampler)
        )
        assert corrected.weights is not None
        assert corrected.weights[2].tolist() == [0, 0, 0, 0]
        assert corrected.mask.sum() == weight


def test_filters_join_the_corrections() -> None:
    filters = [{"name": "trust_region_mask", "options": {"threshold": 0.01}}]
    sampler = OLD.clone()
    sampler[3, 0] += 1.0
    algorithm = resolve(load_recipe("grpo", {"algorithm": {"corrections": {"filters": filters}}}))
    corrected = algorithm.correct(
        Inputs(mask=MASK, rollouts=ROLLOUTS, old_logp=OLD, sampler_logp=sampler)
    )
    assert corrected.weights is not None
    assert corrected.weights.any(1).tolist() == [True, True, True, False, True]
    assert torch.equal(corrected.mask, MASK)


def test_the_kl_and_entropy_terms_join_the_loss() -> None:
    overrides = {
        "algorithm": {
            "kl": {"place": "loss", "coefficient": 0.5, "estimator": "k2"},
            "entropy": {"coefficient": 0.25},
        }
    }
    algorithm = resolve(load_recipe("dapo", overrides), max_tokens=8)
    assert {"ref_logp", "entropy"} <= algorithm.needs
    loss = algorithm.loss(
        Inputs(
            logp=OLD,
            old_logp=OLD,
            advantages=torch.zeros(5, 4),
            mask=MASK,
            ref_logp=OLD - 2.0,
            entropy=torch.ones(5, 4),
        )
    )
    # .5 * 2^2 / 2 and -.25 on each of 12 tokens
    assert loss.parts["kl"].item() == pytest.approx(12.0)
    assert loss.parts["entropy"].item() == pytest.approx(-3.0)
    assert loss.total.item() == pytest.approx(9.0)
    assert loss.weight.item() == 12


def test_a_kl_in_the_reward_reaches_every_token() -> None:
    overrides = {"algorithm": {"kl": {"place": "reward", "coefficient": 0.1}}}
    algorithm = resolve(load_recipe("reinforce_pp", overrides))
    rewards = torch.zeros(4)
    ref = OLD - torch.tensor([0.0, 1, 2, 3])
    found = algorithm.advantages(
        rolled(rewards, GROUPS, MASK, ROLLOUTS, old_logp=OLD, ref_logp=ref)
    )
    returns = A.returns_to_go(-0.1 * (OLD - ref), MASK)
    torch.testing.assert_close(found.advantages, A.whiten(returns, MASK))


def test_movement_is_measured_with_the_ratio_the_loss_clips() -> None:
    logp = OLD + torch.tensor([0.4, -0.4, 0.0, 0.4])
    tensors = Inputs(logp=logp, old_logp=OLD, advantages=torch.ones(5, 4), mask=MASK)
    # row 0 trains tokens 0, 1, 3; row 1 token 0; row 2 all; row 3 and row 4 tokens 0, 1 and 1, 2:
    # ratios above 1.2 at 2 + 1 + 2 + 1 + 0 of 12 tokens
    assert resolve(load_recipe("grpo")).moved(tensors).clip_high.item() == pytest.approx(0.5)
    # sequence ratios: e^(.4/3), e^.4, e^.1, 1, e^-.2: above 1.0004 for 3 + 1 + 4 of 12 tokens
    assert resolve(load_recipe("gspo")).moved(tensors).clip_high.item() == pytest.approx(8 / 12)
    # absolute bounds are not PPO's; the statistic falls back to 0.2
    assert resolve(load_recipe("scale_rl")).moved(tensors).clip_high.item() == pytest.approx(0.5)


def test_ppo_has_returns_for_its_value_head() -> None:
    algorithm = resolve(load_recipe("ppo"))
    values = given()["values"]
    credit = algorithm.advantages(rolled(REWARDS, GROUPS, MASK, ROLLOUTS, values=values))
    assert credit.returns is not None
    # the two rows of rollout 0 are one chain of four tokens; its reward is on the last of them
    chain, alone = MASK.clone(), MASK.clone()
    chain[0], alone[:2] = 1, 0
    joined = values.clone()
    joined[0] = torch.stack([values[0, 0], values[0, 1], values[0, 3], values[1, 0]])
    rewards = torch.zeros(5, 4)
    rewards[torch.tensor([0, 2, 3, 4]), torch.tensor([3, 3, 1, 2])] = REWARDS
    first = A.gae_advantages(rewards[:1], joined[:1], chain[:1])
    rest = A.gae_advantages(rewards, values, alone)
    expected = [torch.zeros(5, 4), torch.zeros(5, 4)]
    for one, of_chain, of_rest in zip(expected, first, rest, strict=True):
        one[2:] = of_rest[2:]
        one[0, [0, 1, 3]], one[1, 0] = of_chain[0, :3], of_chain[0, 3]
    torch.testing.assert_close(credit.returns, expected[1])
    torch.testing.assert_close(credit.advantages, A.whiten(expected[0], MASK))
    total, weight = algorithm.value_loss(
        Inputs(values=values, old_values=values, returns=credit.returns, mask=MASK)
    )
    errors = ((values - expected[1]).square() * MASK).sum()
    torch.testing.assert_close(total, errors / 4)
    assert weight == 12


def test_scale_rl_can_be_split_through_a_prompt() -> None:
    algorithm = resolve(load_recipe("scale_rl"))
    groups, advantages = GROUPS[ROLLOUTS], torch.ones(5, 4)
    arguments = {"logp": OLD, "old_logp": OLD, "advantages": advantages, "mask": MASK}
    whole = algorithm.loss(Inputs(**arguments, groups=groups))
    assert whole.weight.item() == pytest.approx(2)
    tokens = A.group_sum(MASK.sum(1), groups)
    parts = [
        algorithm.loss(
            Inputs(
                **{name: tensor[rows] for name, tensor in arguments.items()},
                groups=groups[rows],
                prompt_tokens=tokens[rows],
            )
        )
        for rows in (slice(0, 1), slice(1, 4), slice(4, 5))
    ]
    torch.testing.assert_close(sum(p.total for p in parts), whole.total)
    torch.testing.assert_close(sum(p.weight for p in parts), whole.weight)


# --- overrides ------------------------------------------------------------------------------------


def test_overrides_reach_one_option_and_keep_the_rest() -> None:
    recipe = load_recipe("dapo", {"algorithm": {"loss_options": {"eps_high": 0.3}}})
    assert recipe.algorithm.loss_options == {"eps_low": 0.2, "eps_high": 0.3}


def test_replacing_a_function_drops_the_options_of_the_old_one() -> None:
    recipe = load_recipe("cispo", {"algorithm": {"loss": "sapo_loss"}})
    assert recipe.algorithm.loss_options == {}
    assert merge({"a": {"b": 1}}, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}


def test_a_recipe_may_be_a_file_of_yours(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nsummary = "s"\nsource = "me"\nenvironment = "me/e-v0"\n'
        '[algorithm]\nadvantage = "rloo_advantages"\nloss = "tests.unit.trainer.nothing:loss"\n'
    )
    with pytest.raises(ConfigError, match="cannot be imported"):
        resolve(load_recipe(str(path)))
    path.write_text(path.read_text().replace("tests.unit.trainer.nothing:loss", "sapo_loss"))
    assert resolve(load_recipe(str(path))).loss_fn.function is A.sapo_loss
    path.write_text("name = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(str(path))


OWN = """
from torch import Tensor


def one_number(rewards: Tensor, groups: Tensor, *, bound: float = 1.0) -> Tensor:
    return rewards.mean()


def positional(rewards: Tensor, groups: Tensor, bound: float = 1.0) -> Tensor:
    return rewards
"""


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("one_numer", {}, "no attribute 'one_numer'.*--import own_functions.py"),
        ("one_number", {"bound": "x"}, "bound must be a number, got 'x'"),
        ("one_number", {"bund": 1.0}, "did you mean 'bound'"),
        ("positional", {"bound": 2.0}, "it is a tensor there, and options are keywords"),
    ],
)
def test_a_mistake_in_a_function_of_yours_says_what_to_do(
    function: str,
    options: dict[str, object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own_functions.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    changes = {"advantage": f"own_functions:{function}", "advantage_options": options}
    with pytest.raises(ConfigError, match=message):
        resolve(load_recipe("rloo", {"algorithm": changes}))


def test_an_advantage_of_a_single_number_is_not_spread_over_all_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_functions.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = resolve(load_recipe("rloo", {"algorithm": {"advantage": "own_functions:one_number"}}))
    inputs = Inputs(
        rewards=torch.tensor([1.0, 0.0]),
        groups=torch.tensor([0, 0]),
        mask=torch.ones(2, 3),
        rollouts=torch.tensor([0, 1]),
    )
    with pytest.raises(ConfigError, match=r"shape \[\]; it must be \[2\]"):
        own.advantages(inputs)


def test_a_recipe_may_start_from_another_and_say_what_differs(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text('base = "dapo"\nname = "first"\n[algorithm.loss_options]\neps_high = 0.3\n')
    second.write_text(f'base = "{first}"\n[sampling]\ngroup_size = 4\n')
    found = load_recipe(str(second))
    assert found.name == "first"
    assert found.algorithm.loss_options == {"eps_low": 0.2, "eps_high": 0.3}
    assert (found.sampling.group_size, found.sampling.refill) == (4, True)


@pytest.mark.parametrize(
    ("base", "message"),
    [("3", "base must name another recipe"), ('"{itself}"', "-> "), ('"grop"', "did you mean")],
)
def test_a_base_that_is_none_is_refused(tmp_path: Path, base: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"base = {base.format(itself=path)}\n")
    with pytest.raises((ConfigError, UnknownRecipe), match=message):
        load_recipe(str(path))


def test_options_may_be_shares_of_the_longest_response() -> None:
    shaping = resolve(load_recipe("dapo"), max_tokens=1000).shaping[0][1]
    assert shaping.options == {"max_length": 1000.0, "buffer": 200.0}
    with pytest.raises(ConfigError, match="the trainer has not said how long a response may be"):
        resolve(load_recipe("dapo"))


def test_an_option_may_be_a_list(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "grpo"\n[[shaping]]\nname = "cosine_rewards"\n'
        "[shaping.options]\nmax_length = 8\nright = [1.5, 1.0]\n"
    )
    recipe = load_recipe(str(path))
    shaped = resolve(recipe).shape(
        Inputs(rewards=torch.tensor([1.0]), groups=torch.tensor([0]), lengths=torch.tensor([0.0]))
    )
    assert shaped.tolist() == [1.0 + 1.5]  # a right answer of no length earns the first
    assert effective(recipe)["shaping.cosine_rewards.right"] == (1.5, 1.0)


def test_a_recipe_that_contradicts_itself_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"put it into \[algorithm.kl\]"):
        effective(load_recipe("grpo", {"algorithm": {"loss": "kl_loss"}}))


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("gspo", {"algorithm": {"agg": "token_mean"}}, "would weigh sequences by their length"),
        ("grpo", {"sampling": {"group_size": 1}}, "group_size = 1 all advantages are 0"),
        ("spo", {"sampling": {"group_size": 4}}, "set sampling.group_size = 1"),
        ("ppo", {"algorithm": {"value": None}}, "gae_advantages needs a value head"),
        ("grpo", {"algorithm": {"value": {}}}, "grpo_advantages never reads"),
        ("dler", {"algorithm": {"whiten": True}}, "whitened already"),
        (
            "grpo",
            {"algorithm": {"kl": {"place": "loss", "coefficient": 0.1, "estimator": "k1"}}},
            "expected gradient of 0",
        ),
        (
            "grpo",
            {"algorithm": {"kl": {"place": "reward", "coefficient": 0.1}}},
            "which grpo_advantages cannot take",
        ),
        ("grpo", {"algorithm": {"kl": {"place": "loss"}}}, "coefficient 0.0 does nothing"),
        ("olmo_rl", {"algorithm": {"loss": "minirl_loss"}}, "would count them twice"),
        ("grpo", {"algorithm": {"overlong": {"in_statistics": False}}}, "needs an advantage"),
        ("grpo", {"algorithm": {"loss_options": {"eps_low": -0.2}}}, "wrong side of 1"),
        ("spo", {"algorithm": {"loss_options": {"dual_clip": 0.9}}}, "must be above 1"),
        (
            "dr_grpo",
            {"algorithm": {"agg_options": {"rows": "all"}, "agg": "x"}},
            "no such function",
        ),
        ("grpo", {"sampling": {"temperature": 0.0}}, "greedy rollouts are all alike"),
        ("grpo", {"sampling": {"temperature": nan}}, "sampling.temperature must be finite"),
        ("ppo", {"algorithm": {"value": {"coefficient": nan}}}, "coefficient must be finite"),
        ("ppo", {"algorithm": {"value": {"coefficient": -1.0}}}, "coefficient must be positive"),
        ("ppo", {"algorithm": {"value": {"value_clip": -0.1}}}, "value_clip not negative"),
        ("grpo", {"algorithm": {"proxy_ratio": 2.0}}, "a share of the likeliest token"),
        (
            "grpo",
            {"algorithm": {"kl": {"place": "loss", "coefficient": nan}}},
            r"algorithm\.kl\.coefficient must be finite, got nan",
        ),
        ("dapo", {"shaping": [{**PENALTY, "weight": nan}]}, r"shaping\.0\.weight must be finite"),
        ("grpo", {"sampling": {"refill": True}}, "there is no filter"),
        ("ppo", {"algorithm": {"advantage_options": {"lam": 1.5}}}, "lam = 1.5 is not in"),
        ("grpo", {"algorithm": {"loss": "pacs_loss", "agg": "token_mean"}}, "has no parameter agg"),
        (
            "grpo",
            {
                "algorithm": {
                    "loss": "rover_loss",
                    "advantage": "rover_advantages",
                    "loss_options": {"temperature": 1.0},
                },
                "sampling": {"group_size": 1},
            },
            "all advantages are 0",
        ),
        (
            "scale_rl",
            {
                "algorithm": {
                    "loss": "aipo_loss",
                    "agg": "",
                    "loss_options": {"cap": 2.0},
                    "agg_options": {},
                }
            },
            "would count twice",
        ),
        (
            "grpo",
            {"algorithm": {"loss": "pacs_loss", "kl": {"place": "loss", "coefficient": 0.1}}},
            "cannot share its denominator",
        ),
        (
            "grpo",
            {"algorithm": {"loss": "pacs_loss", "entropy": {"coefficient": 0.1}}},
            "cannot share its denominator",
        ),
        *(
            ("grpo", {"algorithm": {"entropy": {"target": 1.0, **wrong}}}, "with a target")
            for wrong in ({"coefficient": -0.1, "change": 0.1}, {"coefficient": 0.1, "change": 0.0})
        ),
    ],
)
def test_settings_in_conflict_are_refused_with_the_reason(
    name: str, overrides: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        resolve(load_recipe(name, overrides), max_tokens=8)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"algorithm": {"loss": "ppo_clip_los"}}, "no such loss; did you mean 'ppo_clip_loss'"),
        ({"algorithm": {"advantage": "ppo_clip_loss"}}, "no such advantages"),
        ({"algorithm": {"loss_options": {"eps": 0.1}}}, "takes no option 'eps'; did you mean"),
        ({"algorithm": {"lossy": "x"}}, r"unknown field `lossy` - at `\$.algorithm`"),
        ({"algorithm": {"lossy": "x"}}, r"`\$.algorithm`; did you mean 'loss'\?"),
        ({"algoritm": {"loss": "x"}}, r"unknown field `algoritm`; did you mean 'algorithm'\?"),
        ({"shaping": [{"nme": "x"}]}, r"did you mean 'name'\?"),
        ({"updates": {"zzz": 1}}, r"`zzz` - at `\$.updates`; known: epochs, splits"),
        ({"sampling": {"group_size": "many"}}, r"Expected `int`, got `str`"),
        ({"algorithm": {"loss": "kimi_loss"}}, "kimi_loss needs the option tau"),
        ({"algorithm": {"loss_options": {"eps_high": float("nan")}}}, "eps_high must be a number"),
    ],
)
def test_mistakes_are_named_with_what_would_work(
    overrides: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(load_recipe("grpo", overrides))


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(UnknownRecipe, match="no recipe named 'drgrpo'; did you mean 'dr_grpo'"):
        load_recipe("drgrpo")


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(ConfigError, match="otb_advantages needs proxies"):
        resolve(load_recipe("otb")).advantages(rolled(REWARDS, GROUPS, MASK, ROLLOUTS))
    with pytest.raises(ConfigError, match=r"algorithm\.overlong needs truncated"):
        resolve(load_recipe("supo")).correct(Inputs(mask=MASK, rollouts=ROLLOUTS))


async def late(rewards: Tensor, groups: Tensor) -> Tensor:
    return rewards


def loss_of_tokens(
    logp: Tensor, advantages: Tensor, mask: Tensor, *, agg: str = "token_mean"
) -> tuple[Tensor, Tensor]:
    return -logp * advantages * mask, mask.sum()


RETURNING: dict[str, Callable[..., object]] = {
    "nothing": lambda rewards, groups: None,
    "late": lambda rewards, groups: late(rewards, groups),
    "rows": lambda rewards, groups, mask: rewards,
    "few": lambda rewards, groups: rewards[1:],
    "loss_of_tokens": loss_of_tokens,
}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing", r"own:nothing returned a NoneType \(is a return missing\?\), not a tensor"),
        ("late", r"own:late returned a coroutine \(the function must be a plain def\)"),
        ("rows", r"own:rows .* shape \[3\]; it must be \[3, 4\], a number for each token"),
        ("few", r"own:few .* shape \[2\]; it must be \[3\], a number for each rollout or row"),
        ("loss_of_tokens", r"shapes \[3, 4\] and \[\]; each must be one number, as aggregate"),
    ],
)
def test_what_a_function_of_ones_own_returns_is_told_with_what_it_must_be(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "own", cast(ModuleType, SimpleNamespace(**RETURNING)))
    place = "loss" if name.startswith("loss") else "advantage"
    made = resolve(load_recipe("rloo", {"algorithm": {place: f"own:{name}"}}))
    ones = torch.ones(3, 4)
    numbers = torch.arange(3)
    inputs = rolled(torch.ones(3), 0 * numbers, ones, numbers, logp=ones, advantages=ones)
    called: Callable[..., object] = made.loss if place == "loss" else made.advantages
    with pytest.raises(ConfigError, match=told):
        called(inputs)


def test_a_function_that_is_no_plain_def_is_refused_before_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "own", cast(ModuleType, SimpleNamespace(late=late)))
    with pytest.raises(ConfigError, match="own:late must be a plain def"):
        resolve(load_recipe("rloo", {"algorithm": {"advantage": "own:late"}}))


# --- the command ----------------------------------------------------------------------------------


def test_the_difference_shows_hidden_defaults() -> None:
    found = {key: (a, b) for key, a, b in compare(load_recipe("grpo"), load_recipe("dapo"))}
    assert found["algorithm.loss.eps_high"] == (0.2, 0.28)
    assert found["algorithm.agg"] == ("sequence_mean", "token_mean")
    assert found["shaping.overlong_penalty_rewards.buffer"] == (None, "0.2 * max_tokens")
    assert found["shaping.overlong_penalty_rewards.clamp"] == (None, True)
    assert "algorithm.loss.eps_low" not in found
    assert effective(load_recipe("grpo"))["algorithm.advantage.singleton"] == "zero"


def test_the_command_lists_shows_and_compares(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    recipes, _, of_preferences = capsys.readouterr().out.partition("\n\n")
    assert all(f" {method}" in of_preferences for method in ("dpo", "rdpo", "kto", "modpo"))
    listed = recipes.splitlines()
    assert len(listed) == len(SHIPPED)
    assert any(line.startswith("grpo ") and "arXiv 2402.03300" in line for line in listed)
    told = {line.split()[0]: line for line in listed}
    assert " 16 x 1 " in told["dapo"]
    assert "1 x 1, never clips" in told["grpo"]
    # The list reads the settings alone; what a trainer is told is read off the loss function.
    for name in SHIPPED:
        algorithm = resolve(load_recipe(name), max_tokens=1)
        rests = clip_rests(algorithm, algorithm.recipe.updates)
        assert rests == ("never clips" in told[name]), name
    assert main(["show", "cispo"]) == 0
    assert "algorithm.loss.bounds" in capsys.readouterr().out
    assert main(["diff", "grpo", "grpo"]) == 0
    assert "no difference" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "ludus recipes diff grpo dapo" in capsys.readouterr().out
    with pytest.raises(UnknownName, match="no action named 'difs'; did you mean 'diff'"):
        main(["difs", "grpo"])
    with pytest.raises(ConfigError, match="missing from ludus recipes diff: RECIPE"):
        main(["diff", "grpo"])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"agg": "token_mean"}, r"algorithm\.agg = 'token_mean' would have no effect"),
        ({"kl": {"place": "loss", "coefficient": 0.1}}, "cannot share its denominator"),
        ({"entropy": {"coefficient": 0.1}}, "cannot share its denominator"),
        ({"ratio_to": "sampler"}, "has no ratio"),
        ({"corrections": {"weights": "tis_weights"}}, "has no parameter weights"),
        ({"corrections": {"filters": [BAND]}}, 'set corrections.denominator = "remaining"'),
    ],
)
@pytest.mark.parametrize("loss", ["bare_loss:bare_loss", "drpo_loss"])
def test_settings_that_a_loss_would_not_use_are_refused(
    loss: str,
    settings: dict[str, object],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bare_loss.py").write_text(
        "def bare_loss(logp, advantages, mask):\n"
        "    return -(logp * advantages * mask).sum(), mask.sum()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {"max_length": 8} if loss == "drpo_loss" else {}
    chosen = {"loss": loss, "loss_options": options, "agg": ""}
    with pytest.raises(ConfigError, match=reason):
        resolve(load_recipe("grpo", {"algorithm": {**chosen, **settings}}))
    remaining = {"corrections": {"filters": [BAND], "denominator": "remaining"}}
    assert resolve(load_recipe("grpo", {"algorithm": {**chosen, **remaining}})).agg is None
