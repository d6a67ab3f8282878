"""Updates of a step: how many, of which groups, and against which old policy."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.errors import ConfigError
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import UpdateSettings, load_recipe, recipe_names
from ludus.trainer.recipes.resolution import plan_updates, resolve
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

PAPERS = {
    "cispo": 16,
    "dapo": 16,
    "dler": 8,
    "dr_grpo": 8,
    "grpo": 1,
    "gspo": 4,
    "lite_ppo": 1,
    "luspo": 4,
    "minimax_m1": 16,
    "olmo_rl": 1,
    "otb": 1,
    "ppo": 8,
    "reinforce_pp": 8,
    "rloo": 2,
    "scale_rl": 8,
    "spo": 8,
    "supo": 4,
}
"""Updates a step, as the sources that the recipes name have them; of luspo and supo ours."""


def episode(reward: float, *, seed: int, length: int = 5, cut: bool = False) -> Episode:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 40, (3 + length,), generator=draw).tolist()
    turn = Turn(out_ids=ids[3:], logprobs=(-3.7 + torch.randn(length, generator=draw)).tolist())
    played = Trajectory(
        verdict=Verdict.of(reward),
        stop=Stop.LENGTH if cut else Stop.TERMINATED,
        segments=[Segment(prompt_ids=ids[:3], turns=[turn])],
    )
    return Episode(task=str(seed), trajectories=[played])


def group(number: int, *rewards: float, cut: tuple[int, ...] = (), length: int = 5) -> Group:
    played = [
        episode(reward, seed=100 * number + k, cut=k in cut, length=length)
        for k, reward in enumerate(rewards)
    ]
    return Group(Task(id=str(number), split="train"), played, 0)


def mixed(count: int) -> list[Group]:
    return [group(number, 1.0, 0.0) for number in range(count)]


def gathered(groups: list[Group]) -> Experience:
    found = gather(groups)
    assert found is not None
    return found


def updater(recipe: str, overrides: dict[str, object] | None = None, **settings: Any) -> Any:
    model = build_model(40, hidden=16, layers=1, heads=2, max_length=64)
    learner = Learner(model, TrainerConfig(lr=1e-2))
    return Updater(
        resolve(load_recipe(recipe, overrides), max_tokens=20),
        learner,
        updates=UpdateSettings(**settings),
    )


def step(made: Any, groups: list[Group]) -> Any:
    return made.step(gathered(groups), generator=torch.Generator().manual_seed(0))


def test_every_recipe_makes_the_updates_of_its_source() -> None:
    found = {}
    for name in recipe_names():
        algorithm = resolve(load_recipe(name), max_tokens=20)
        # the default of rollout.tasks_per_step is enough for all of them
        found[name] = plan_updates(algorithm, groups=16).settings.count
    assert found == PAPERS


def test_the_page_says_how_many_updates_each_recipe_makes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text(encoding="utf-8")
    nearest = page.split("| recipe | updates | nearest |")[1].split("\n\n")[0]
    found = {line.split("|")[1].strip(): int(line.split("|")[2]) for line in _rows(nearest)}
    assert found == PAPERS


def _rows(table: str) -> list[str]:
    return [line for line in table.splitlines() if "%" in line]


@pytest.mark.parametrize("name", recipe_names())
def test_every_value_of_a_recipe_names_its_source(name: str) -> None:
    """A comment on its line, or one on the line before."""
    text = (files("ludus.trainer.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    before, bare = "", list[str]()
    for line in text.splitlines():
        key = line.partition("=")[0].strip()
        told = "#" in line.partition("=")[2] or before.startswith("#")
        if "=" in line and not line.startswith(("#", "[")) and not told:
            bare.append(key)
        before = line
    assert bare == ["name", "summary", "source", "environment"]


def test_a_small_step_makes_fewer_updates_and_says_so_in_one_line() -> None:
    plan = plan_updates(resolve(load_recipe("dapo"), max_tokens=20), groups=4)
    assert plan.settings.splits == 4
    (note,) = plan.notes
    assert "rollout.tasks_per_step = 4" in note
    assert "4 instead of 16 updates" in note
    assert "\n" not in note


def test_what_the_user_asks_for_wins() -> None:
    plan = plan_updates(resolve(load_recipe("dapo"), max_tokens=20), groups=16, wanted=2)
    assert (plan.settings.splits, plan.settings.epochs, plan.notes) == (2, 1, ())


@pytest.mark.parametrize(
    ("recipe", "groups", "wanted", "told"),
    [
        ("grpo", 16, 0, True),
        ("grpo", 16, 2, False),
        ("gspo", 1, 0, True),
        ("dapo", 16, 1, True),
        ("scale_rl", 1, 0, False),  # its ratio is to the engine
        ("rloo", 1, 0, False),  # it has no clip
    ],
)
def test_a_clip_that_cannot_act_is_told(recipe: str, groups: int, wanted: int, told: bool) -> None:
    algorithm = resolve(load_recipe(recipe), max_tokens=20)
    plan = plan_updates(algorithm, groups=groups, wanted=wanted)
    assert any("never acts" in note for note in plan.notes) == told


def test_a_step_makes_the_updates_it_was_planned_for() -> None:
    made = updater("dapo", {"shaping": []}, splits=16)
    numbers = step(made, mixed(16))
    assert numbers["updates"] == made.learner.updates == 16
    assert numbers["ratio_max"] > 1 > numbers["ratio_min"]


def test_epochs_use_every_group_again() -> None:
    made = updater("gspo", splits=2, epochs=3)
    numbers = step(made, mixed(4))
    assert numbers["updates"] == made.learner.updates == 6
    assert numbers["tokens"] == 3 * 4 * 2 * 5


def test_groups_that_train_nothing_take_no_mini_batch() -> None:
    """A mini-batch of solved groups alone would be an update less."""
    solved = [group(number, 1.0, 1.0) for number in range(10, 14)]
    made = updater("dapo", {"shaping": []}, splits=4)
    assert step(made, [*mixed(4), *solved])["updates"] == made.learner.updates == 4


def test_a_step_in_which_the_filter_drops_everything_changes_nothing() -> None:
    for recipe in ("dapo", "dler", "scale_rl"):
        made = updater(recipe, splits=4)
        before = [one.detach().clone() for one in made.learner.model.parameters()]
        numbers = step(made, [group(1, 1.0, 1.0), group(2, 0.0, 0.0)])
        assert numbers["grad_norm"] == 0.0
        assert made.learner.updates == 0
        after = made.learner.model.parameters()
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("recipe", ["dler", "scale_rl"])
def test_statistics_are_of_what_the_filter_keeps(recipe: str) -> None:
    """Solved and failed groups are dropped; how many there were changes no advantage."""
    useful = [group(1, 1.0, 0.0, length=4), group(2, 0.0, 0.0, 1.0, length=6)]
    dropped = [group(number, 1.0, 1.0, length=9) for number in range(3, 8)]
    dropped += [group(9, 0.0, 0.0, 0.0)]
    few = updater(recipe).credited(gathered(useful)).batch
    many = updater(recipe).credited(gathered([*useful, *dropped])).batch
    alone = few.inputs.advantages
    beside = many.inputs.advantages[: len(few), : alone.shape[1]]
    assert bool(alone.any())
    torch.testing.assert_close(beside, alone)
    assert not bool(many.inputs.advantages[len(few) :].any())
    assert not bool(many.mask[len(few) :].any())


def test_whitening_by_the_recipe_is_of_what_the_filter_keeps() -> None:
    """The class of the same mistake: `whiten` after any estimator, with any filter."""
    overrides: dict[str, object] = {
        "algorithm": {"whiten": True},
        "sampling": {"filter": "zero_gradient_mask"},
    }
    useful = [group(1, 1.0, 0.0, 0.0)]
    few = updater("dr_grpo", overrides).credited(gathered(useful)).batch
    many = updater("dr_grpo", overrides).credited(gathered([*useful, group(2, 1.0, 1.0)])).batch
    torch.testing.assert_close(many.inputs.advantages[:3], few.inputs.advantages)


def test_dler_filters_by_what_truncation_leaves() -> None:
    # one right answer was cut: shaped, both earn nothing, and the group carries no comparison
    cut = group(1, 1.0, 0.0, cut=(0,))
    # two right answers, one of them cut: shaped, they differ
    split = group(2, 1.0, 1.0, cut=(0,))
    made = updater("dler")
    assert made.passing([cut, split]) == [1]
    batch = made.credited(gathered([cut, split])).batch
    assert batch.mask.any(1).tolist() == [False, False, True, True]


def test_dapo_filters_by_right_answers_whatever_their_lengths() -> None:
    # of 20 tokens, 16 are free; 18 cost half: the shaped rewards of two right answers differ
    right = Group(
        Task(id="1", split="train"),
        [episode(1.0, seed=1, length=5), episode(1.0, seed=2, length=18)],
        0,
    )
    assert updater("dapo").passing([right]) == []
    assert updater("dapo", {"sampling": {"filter_by": "shaped"}}).passing([right]) == [0]


def test_the_ratio_of_scale_rl_is_to_the_engine() -> None:
    groups = [group(1, 1.0, 0.0, 0.0)]
    batch = updater("scale_rl").credited(gathered(groups)).batch
    assert torch.equal(batch.inputs.old_logp, batch.sampler_logp)
    numbers = step(updater("scale_rl"), groups)
    # the engine's words are noisy: ratios leave 1 before anything has been learned
    assert numbers["ratio_max"] > 1.5
    assert step(updater("cispo"), groups)["ratio_max"] == 1.0


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"algorithm": {"corrections": {"weights": "tis_weights"}}}, "would count twice"),
        ({"algorithm": {"loss": "minirl_loss"}}, "would count twice"),
        ({"algorithm": {"loss": "reinforce_loss"}}, "has no ratio"),
        ({"updates": {"splits": 0}}, "must be at least 1, got 0 and 1"),
        ({"updates": {"epochs": 0}}, "must be at least 1, got 8 and 0"),
        ({"algorithm": {"entropy": {"target": -1}}}, "at least 0, got -1"),
        (
            {"algorithm": {"entropy": {"target": 0.2, "coefficient": -0.1}}},
            "must not be negative and change must be positive, got -0.1 and 0.005",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    overrides: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        resolve(load_recipe("scale_rl", overrides), max_tokens=20)
