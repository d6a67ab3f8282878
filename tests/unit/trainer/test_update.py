"""From groups of episodes to an update."""

import copy
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.errors import ConfigError
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.credit import idle_rows, rows_of_updates
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.learner import Learner, UpdatePasses
from ludus.trainer.learning.policy_model import MovingReference
from ludus.trainer.learning.reader import DEFAULT_READING, PolicyReader
from ludus.trainer.learning.update import Updater, gap_of, mean_gap
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import UpdateSettings, load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.batch import Batch, passes
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict


def trajectory(
    reward: float, *, segments: int = 1, failed: bool = False, overlong: bool = False, seed: int = 0
) -> Any:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(segments):
        ids = torch.randint(3, 40, (8,), generator=generator).tolist()
        made.append(Segment(prompt_ids=ids[:3], turns=[Turn(out_ids=ids[3:], logprobs=[-3.0] * 5)]))
    verdict = Verdict.unavailable("lost") if failed else Verdict.of(reward)
    return Trajectory(
        verdict=verdict,
        stop=Stop.ENV_ERROR if failed else Stop.MAX_TURNS if overlong else Stop.TERMINATED,
        segments=made,
        exclude_from_loss=failed or overlong,
        exclude_from_baseline=failed,
    )


def group(*trajectories: Trajectory) -> Any:
    task = Task(id="train/0", split="train")
    episodes = [Episode(task=task.id, trajectories=[one]) for one in trajectories]
    return Group(task, episodes, 0)


def experience_of(groups: list[Group]) -> Experience:
    experience = gather(groups)
    assert experience is not None
    return experience


def updater(
    recipe: str = "grpo", overrides: dict[str, object] | None = None, **settings: Any
) -> Any:
    model = build_model(40, hidden=16, layers=2, heads=2, max_length=64)
    learner = Learner(model, TrainerConfig(lr=1e-2, updates_per_step=settings.get("splits", 1)))
    return Updater(
        resolve(load_recipe(recipe, overrides), max_tokens=8),
        learner,
        updates=UpdateSettings(**settings),
    )


def step(made: Any, groups: list[Group]) -> Any:
    return made.step(experience_of(groups), generator=torch.Generator().manual_seed(0))


def test_a_failed_rollout_leaves_the_baseline_and_the_loss() -> None:
    with_failure = experience_of(
        [group(trajectory(1.0), trajectory(0.0), trajectory(0.0, failed=True))]
    )
    without = experience_of([group(trajectory(1.0), trajectory(0.0))])
    assert torch.equal(with_failure.rewards, without.rewards)
    assert torch.equal(with_failure.batch.ids, without.batch.ids)


def test_a_step_in_which_everything_failed_teaches_nothing() -> None:
    assert gather([group(trajectory(0, failed=True), trajectory(0, failed=True))]) is None


def test_an_overlong_rollout_counts_in_the_baseline_only() -> None:
    experience = experience_of([group(trajectory(1.0), trajectory(0.0, overlong=True))])
    batch = updater().credited(experience).batch
    # rewards 1 and 0: std (ddof 1) is 1/sqrt(2), so the advantage of the first is 0.5 * sqrt(2)
    assert float(batch.inputs.advantages[0, 4]) == pytest.approx(0.5 * 2**0.5, rel=1e-4)
    assert float(batch.mask[1].sum()) == 0.0


def test_segments_of_one_trajectory_share_its_advantage_and_count_once() -> None:
    experience = experience_of([group(trajectory(1.0, segments=3), trajectory(0.0))])
    batch = updater().credited(experience).batch
    assert len(batch) == 4
    assert batch.inputs.advantages[:3, 4].tolist() == pytest.approx([0.5 * 2**0.5] * 3, rel=1e-4)


def test_a_group_without_spread_gives_no_gradient_and_is_not_run() -> None:
    made = updater()
    groups = [group(trajectory(1.0), trajectory(1.0, seed=1))]
    numbers = step(made, groups)
    assert numbers["zero_advantage"] == 1.0
    assert numbers["grad_norm"] == 0.0


def test_dropping_idle_rows_does_not_change_the_gradient() -> None:
    mixed = group(trajectory(1.0, seed=1), trajectory(0.0, seed=2))
    flat = group(trajectory(1.0, seed=3), trajectory(1.0, seed=4))
    fast = step(updater(), [mixed, flat])
    # with an entropy bonus, here one that rounds to nothing, no row is idle
    slow = updater(overrides={"algorithm": {"entropy": {"coefficient": 1e-30}}})
    assert fast["grad_norm"] == pytest.approx(step(slow, [mixed, flat])["grad_norm"], rel=1e-5)


def test_a_row_without_advantage_is_run_where_its_sequence_has_a_ratio() -> None:
    experience = experience_of([group(trajectory(1.0, segments=2), trajectory(0.0, seed=1))])
    idle: dict[str, Any] = {}
    for recipe in ("grpo", "gspo"):
        made = updater(recipe)
        credited = made.credited(experience)
        advantages = credited.batch.inputs.advantages.clone()
        advantages[1:] = 0.0
        inputs = replace(credited.batch.inputs, advantages=advantages)
        credited = replace(credited, batch=replace(credited.batch, inputs=inputs))
        idle[recipe] = idle_rows(credited, made.algorithm, bonus=0.0).tolist()
    assert idle == {"grpo": [False, True, True], "gspo": [False, False, True]}


def test_groups_stay_whole_when_a_step_has_several_updates() -> None:
    made = updater(splits=2)
    experience = experience_of(
        [group(trajectory(1.0, segments=2), trajectory(0.0)), group(trajectory(0.0))]
    )
    batch = made.credited(experience).batch
    shares = rows_of_updates(batch, made.updates, torch.Generator().manual_seed(0))
    assert sorted(sorted(share.tolist()) for share in shares) == [[0, 1, 2], [3]]


def test_the_better_rollout_becomes_more_likely() -> None:
    made = updater()
    groups = [group(trajectory(1.0, seed=1), trajectory(0.0, seed=2))]
    experience = experience_of(groups)
    before = made.learner.score(experience.batch).sum(1)
    step(made, groups)
    after = made.learner.score(experience.batch).sum(1)
    assert after[0] > before[0]
    assert after[1] < before[1]


@pytest.mark.parametrize("recipe", ["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "supo"])
def test_recipes_run_with_several_updates_and_old_logprobs(recipe: str) -> None:
    made = updater(recipe, splits=2)
    groups = [
        group(trajectory(1.0, seed=i), trajectory(0.0, seed=i + 10), trajectory(0.0, seed=i + 20))
        for i in range(4)
    ]
    numbers = step(made, groups)
    assert numbers["grad_norm"] > 0
    assert numbers["old_sampler_gap"] > 0


PACS: dict[str, object] = {"algorithm": {"loss": "pacs_loss", "agg": ""}}


@pytest.mark.parametrize("tokens", [8, 16, 1000])
def test_a_loss_that_compares_rows_gets_whole_groups_whatever_a_pass_holds(tokens: int) -> None:
    """PACS's gradient runs through the group's mean: a group that is split changes it."""
    made = updater("grpo", PACS)
    made.learner.config = TrainerConfig(lr=1e-2, tokens_per_pass=tokens)
    groups = [
        group(*(trajectory(float(k == 0), seed=10 * i + k) for k in range(3))) for i in range(4)
    ]
    credited = made.credited(experience_of(groups))
    batch, loss = credited.batch, made.loss_of(credited)
    # moved already, so that the groups' means are not all the same
    moved = torch.rand(batch.mask.shape, generator=torch.Generator().manual_seed(1))
    batch = replace(
        batch, inputs=replace(batch.inputs, old_logp=made.learner.score(batch) - 0.1 * moved)
    )
    whole = reference_gradient(made, batch, loss)
    made.learner.config = TrainerConfig(lr=1e-2, tokens_per_pass=tokens, max_grad_norm=1e9)
    together = batch.inputs.groups
    made.learner.update(batch, torch.arange(len(batch)), loss, UpdatePasses(together=together))
    found = next(made.learner.model.parameters()).grad
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-7)


def reference_gradient(made: Any, batch: Batch, loss: Any) -> torch.Tensor:
    """In one pass over everything, by autograd alone."""
    predicted = made.learner.predict(batch)
    total, weight = loss(batch, predicted)
    (gradient,) = torch.autograd.grad(
        total / weight, [next(made.learner.model.parameters())], allow_unused=True
    )
    return gradient


@pytest.mark.parametrize("loss", ["kl_cov_loss", "hapo_loss"])
def test_tokens_chosen_by_comparing_all_are_the_same_however_rows_are_split(loss: str) -> None:
    overrides: dict[str, object] = {"algorithm": {"loss": loss}}
    norms: list[float] = []
    for tokens in (8, 24, 1000):
        made = updater("grpo", overrides)
        made.learner.config = TrainerConfig(lr=1e-3, tokens_per_pass=tokens)
        groups = [
            group(*(trajectory(float(k == 0), seed=10 * i + k) for k in range(3))) for i in range(4)
        ]
        norms.append(step(made, groups)["grad_norm"])
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-4)


def test_a_filter_that_reads_entropies_gets_them() -> None:
    options = {"sigma": 100.0, "probability": 0.0}
    filters = [{"name": "mpt_mask", "options": options}]
    made = updater("grpo", {"algorithm": {"corrections": {"filters": filters}}})
    experience = experience_of([group(trajectory(1.0, seed=1), trajectory(0.0, seed=2))])
    batch = made.credited(experience).batch
    # every token of a right answer counts as mastered, none of a wrong one
    assert batch.inputs.weights[0].tolist() == [0.0] * 8
    assert batch.inputs.weights[1, 3:].tolist() == [1.0] * 5


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_weights_of_rows_are_those_that_scoring_the_batch_beforehand_gives(level: str) -> None:
    """A band that keeps every row makes the trainer score the batch beforehand."""
    groups = [
        group(trajectory(1.0, seed=1, segments=2), trajectory(0.0, seed=2)),
        group(trajectory(0.5, seed=3), trajectory(1.0, seed=4), trajectory(0.0, seed=5)),
    ]
    weights = {"weights": "tis_weights", "weight_options": {"cap": 1.1, "level": level}}
    everything = [{"name": "ratio_band_mask", "options": {"low": 0.0, "high": 1e30}}]
    in_the_pass = updater("grpo", {"algorithm": {"corrections": weights}})
    beforehand = updater("grpo", {"algorithm": {"corrections": {**weights, "filters": everything}}})
    uncorrected = updater("grpo")
    assert (in_the_pass.asked.old, beforehand.asked.old) == (False, True)
    norms = [step(made, groups)["grad_norm"] for made in (in_the_pass, beforehand, uncorrected)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert norms[0] != pytest.approx(norms[2], rel=1e-2)
    pairs = zip(
        in_the_pass.learner.model.parameters(), beforehand.learner.model.parameters(), strict=True
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "settings"),
    [
        ({"weight_options": {"normalise": True}}, {}),  # the mean is that of the batch
        ({"denominator": "remaining"}, {}),
        ({}, {"splits": 2}),  # the second update is not the old policy
    ],
)
def test_weights_that_need_the_whole_batch_are_made_beforehand(
    overrides: dict[str, object], settings: dict[str, int]
) -> None:
    corrections = {"weights": "tis_weights", **overrides}
    made = updater("grpo", {"algorithm": {"corrections": corrections}}, **settings)
    assert made.asked.old


def test_rows_that_stay_together_fill_passes_up() -> None:
    lengths = torch.tensor([3, 9, 3, 2, 2, 4])
    together = torch.tensor([0, 0, 1, 1, 2, 2])
    parts = [sorted(part.tolist()) for part in passes(lengths, torch.arange(6), 16, together)]
    # sets of longest row 3, 4 and 9: four rows of 4 make 16, two more of 9 would make 54
    assert parts == [[2, 3, 4, 5], [0, 1]]
    alone = [sorted(part.tolist()) for part in passes(lengths, torch.arange(6), 4, together)]
    assert alone == [[2, 3], [4, 5], [0, 1]]


@pytest.mark.parametrize("loss", ["pacs_loss", "drpo_loss"])
def test_losses_of_whole_groups_learn(loss: str) -> None:
    options = {"drpo_loss": {"max_length": 8}}.get(loss, {})
    overrides: dict[str, object] = {"algorithm": {"loss": loss, "agg": "", "loss_options": options}}
    made = updater("grpo", overrides, splits=2)
    groups = [group(trajectory(1.0, seed=i), trajectory(0.0, seed=i + 10)) for i in range(4)]
    experience = experience_of(groups)
    before = made.learner.score(experience.batch).sum(1)
    for _ in range(5):
        step(made, groups)
    moved = made.learner.score(experience.batch).sum(1) - before
    assert bool((moved[0::2] > moved[1::2]).all())


def test_a_right_answer_stays_right_however_its_reward_is_shaped() -> None:
    loss = {"loss": "drpo_loss", "agg": "", "loss_options": {"max_length": 8}}
    penalty = {"name": "overlong_penalty_rewards", "options": {"max_length": 4, "buffer": 2}}
    made = updater("grpo", {"algorithm": loss, "shaping": [penalty]})
    credited = made.credited(experience_of([group(trajectory(1.0), trajectory(0.0, seed=1))]))
    assert credited.shaped.tolist()[0] <= 0.0  # it is too long
    assert credited.batch.inputs.correct.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("ratio_to", ["learner", "sampler"])
def test_a_step_is_measured_from_the_learner_whatever_its_ratio_is_to(ratio_to: str) -> None:
    """The sampler of these rollouts is far from the learner, and the step is tiny."""
    made = updater("grpo", {"algorithm": {"ratio_to": ratio_to}}, splits=2)
    made.max_kl, made.learner.config = 0.2, TrainerConfig(lr=1e-5)
    experience = experience_of(
        [group(trajectory(1.0, seed=seed), trajectory(0.0, seed=seed + 1)) for seed in (1, 3)]
    )
    made.watched = frozenset(episode.ordinal for episode in experience.episodes)
    before = made.learner.score(experience.batch)
    numbers = made.step(experience, generator=torch.Generator().manual_seed(0))
    moved = (made.learner.score(experience.batch) - before)[experience.batch.mask.bool()]
    assert numbers["old_sampler_gap"] > 1.0
    assert (numbers["updates"], numbers["share"], numbers["stopped"]) == (2.0, 1.0, 0.0)
    assert numbers["kl_after"] == pytest.approx(float((moved.exp() - 1 - moved).mean()), rel=0.1)
    told = made.learned[0].windows[0].logp
    assert told == pytest.approx(before[0][experience.batch.mask[0].bool()].tolist(), abs=1e-3)


def test_a_recipe_the_trainer_cannot_feed_is_refused_by_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"'ppo' needs .*values"):
        updater("ppo")


@pytest.mark.parametrize("recipe", ["grpo", "dr_grpo", "rloo", "scale_rl"])
def test_the_distance_to_the_sampler_is_measured_with_one_update_too(recipe: str) -> None:
    """By an independent way: the learner scores the batch before anything is learned."""
    made = updater(recipe, splits=1)
    groups = [group(trajectory(1.0, seed=1), trajectory(0.0, seed=2)) for _ in range(2)]
    batch = experience_of(groups).batch
    apart = ((made.learner.score(batch) - batch.sampler_logp).abs() * batch.mask).sum()
    numbers = step(made, groups)
    assert numbers["updates"] == 1.0
    assert numbers["old_sampler_gap"] == pytest.approx(float(apart / batch.mask.sum()), rel=1e-4)


@pytest.mark.parametrize("updates", [1, 2])
def test_the_distance_to_the_sampler_is_told_of_the_tokens_of_the_own_version(updates: int) -> None:
    made = updater(splits=updates)
    groups = [group(trajectory(1.0, seed=1), trajectory(0.0, seed=2)) for _ in range(2)]
    for one in groups:
        for turn in (episode.trajectories[0].turns[0] for episode in one.episodes):
            half = len(turn.out_ids) // 2
            turn.versions = [6] * half + [7] * (len(turn.out_ids) - half)
    experience = gather(groups, version=7)
    assert experience is not None
    assert experience.batch.versions is not None
    batch, own = experience.batch, experience.batch.mask * (experience.batch.versions == 7)
    assert 0 < own.sum() < batch.mask.sum()
    apart = ((made.learner.score(batch) - batch.sampler_logp).abs() * own).sum() / own.sum()
    numbers = made.step(experience, generator=torch.Generator().manual_seed(0))
    assert numbers["fresh_sampler_gap"] == pytest.approx(float(apart), rel=1e-4)
    assert numbers["fresh_sampler_gap"] != pytest.approx(numbers["old_sampler_gap"], rel=1e-4)


def test_the_distance_to_the_sampler_is_told_by_the_rows_of_a_pass() -> None:
    groups = [group(trajectory(1.0, seed=1), trajectory(0.0, seed=2)) for _ in range(2)]
    for turn in (each.trajectories[0].turns[0] for pair in groups for each in pair.episodes):
        turn.versions = [7] * len(turn.out_ids)
    experience = gather(groups, version=7)
    assert experience is not None
    made, batch = updater(), experience.batch
    parts = [batch.take(torch.tensor(rows)) for rows in ([0], [1, 2, 3])]
    gaps = [gap_of(made.learner.score(part), part, 7, part.mask.shape[0]) for part in parts]
    alone = [mean_gap([gap])["fresh_sampler_gap"] for gap in gaps]
    numbers = mean_gap(gaps)
    assert numbers["sampler_gap_rows/1"] == pytest.approx(alone[0])
    assert numbers["sampler_gap_rows/8"] == pytest.approx(alone[1])
    assert alone[0] != pytest.approx(alone[1])
    assert "sampler_gap_rows/64" not in numbers


def test_later_updates_of_a_step_do_not_count_as_a_distance_to_the_sampler() -> None:
    once, thrice = updater(splits=1), updater(splits=1, epochs=3)
    groups = [group(trajectory(1.0, seed=1), trajectory(0.0, seed=2))]
    assert step(once, groups)["old_sampler_gap"] == pytest.approx(
        step(thrice, groups)["old_sampler_gap"], rel=1e-6
    )


def test_a_step_without_a_gradient_measures_no_distance() -> None:
    groups = [group(trajectory(1.0), trajectory(1.0, seed=1))]
    assert "old_sampler_gap" not in step(updater(), groups)


def test_the_bonus_follows_a_target_of_entropy() -> None:
    # every token was sampled with a log-probability of -3, so that a step has 3 nats per token
    groups = [group(trajectory(1.0), trajectory(1.0, seed=1))]  # no signal but the bonus

    def numbers_of(**bonus: float) -> list[tuple[float, float, float]]:
        made, found = updater(overrides={"algorithm": {"entropy": bonus}}), []
        for _ in range(3):
            told = step(made, groups)
            found.append((told["entropy"], told["entropy_coefficient"], told["grad_norm"]))
        return found

    low = numbers_of(target=4.0, change=0.01)
    assert [entropy for entropy, _, _ in low] == pytest.approx([3.0] * 3)
    assert [weight for _, weight, _ in low] == pytest.approx([0.01, 0.02, 0.03])
    fixed = step(updater(overrides={"algorithm": {"entropy": {"coefficient": 0.01}}}), groups)
    assert low[0][2] == pytest.approx(fixed["grad_norm"])
    assert fixed["grad_norm"] > 0

    high = numbers_of(target=2.0, coefficient=0.015, change=0.01)
    assert [(weight, norm) for _, weight, norm in high] == [(0.0, 0.0)] * 3


def test_the_bonus_falls_while_the_entropy_is_above_the_target() -> None:
    bonus = {"target": 2.0, "coefficient": 0.015, "change": 0.01}
    made = updater(overrides={"algorithm": {"entropy": bonus}})
    left = []
    for _ in range(3):
        step(made, [group(trajectory(1.0), trajectory(0.0, seed=1))])
        left.append(made.entropy.coefficient)
    assert left == pytest.approx([0.005, 0.0, 0.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_moving_reference_is_the_policy_after_every_so_many_steps(dtype: torch.dtype) -> None:
    """The oracle is a deep copy of the policy that is made after each second step."""
    settings = TrainerConfig(lr=1e-2, reference_every=2)

    def fresh() -> Updater:
        policy = build_model(40, hidden=16, layers=2, heads=2, max_length=64).to(dtype)
        first = PolicyReader(copy.deepcopy(policy), settings, DEFAULT_READING)
        learner = Learner(policy, settings)
        kl: dict[str, object] = {"algorithm": {"kl": {"place": "loss", "coefficient": 0.1}}}
        algorithm = resolve(load_recipe("grpo", kl), max_tokens=8)
        return Updater(algorithm, learner, reference=MovingReference(learner, first))

    made = fresh()
    learner: Any = made.learner
    experience = experience_of([group(trajectory(1.0, seed=1), trajectory(0.0, seed=2))])
    expected = copy.deepcopy(learner.model)
    for steps in range(1, 7):
        oracle = PolicyReader(expected, settings, DEFAULT_READING).score(experience.batch)
        reference = made.known(experience).ref_logp
        assert torch.equal(reference, oracle), steps
        made.step(experience, generator=torch.Generator().manual_seed(steps))
        assert not torch.equal(learner.score(experience.batch), oracle)
        if steps % 2 == 0:
            expected = copy.deepcopy(learner.model)
        if steps == 3:  # a run that goes on from a checkpoint has the same reference
            state, weights = copy.deepcopy((learner.state(), learner.model.state_dict()))
            made = fresh()
            learner = made.learner
            learner.model.load_state_dict(weights)
            learner.restore(state)


def test_a_gradient_comes_back_to_few_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    benchmark: Any = import_module("gradient_path")
    path = benchmark.trace_update()
    assert path.reentries <= benchmark.MAX_REENTRIES, path.entries
