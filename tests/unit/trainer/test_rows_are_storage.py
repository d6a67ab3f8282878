"""The law of rows: how a rollout's sampled tokens are cut into rows changes no gradient.

The oracle is the same rollouts, each flattened into one row. Log-probabilities are held equal, and
only the partition changes, as context summaries or a chat template that rewrites the past change
it. All numbers are float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.credit import idle_rows
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.learner import Learner, UpdatePasses
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.algorithm import Algorithm
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.recipes.recipe import Recipe, load_recipe, recipe_names
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group
from ludus.trainer.rollout.tracker import SuccessTracker
from ludus.verdict import Verdict

ROLLOUTS, LONGEST, SEEDS = 6, 9, range(3)
EXACT = {"rtol": 0.0, "atol": 1e-12}
JUNK = float("nan")
"""What stands in slots that no policy sampled: it must never matter."""


@dataclass(frozen=True)
class Layout:
    """Where each slot of B rows comes from."""

    slots: Tensor
    """[B, T] int: the slot of the flattened rollouts, -1 for a prompt or padding."""
    rollouts: Tensor
    """[B] int."""

    def lay(self, flat: Tensor) -> Tensor:
        """Lay [N, L] out in [B, T]."""
        filler = JUNK if flat.is_floating_point() else 0
        taken = flat.flatten()[self.slots.clamp(min=0)]
        return torch.where(self.slots < 0, torch.full_like(taken, filler), taken)

    def mask(self, flat: Tensor) -> Tensor:
        """Lay the mask out, which is 0 where nothing was sampled."""
        return flat.flatten()[self.slots.clamp(min=0)] * (self.slots >= 0)


@dataclass(frozen=True)
class Played:
    """Rollouts as played, each flattened into one row of L slots."""

    mask: Tensor
    of_tokens: Inputs
    of_rollouts: Inputs

    @property
    def whole(self) -> Layout:
        """One row for each rollout."""
        slots = torch.arange(self.mask.numel()).view_as(self.mask)
        return Layout(slots, torch.arange(len(self.mask)))

    def cut(self, draw: Random) -> Layout:
        """Cut rollouts at drawn places, each row behind a prompt of a drawn length."""
        rows: list[list[int]] = []
        owners: list[int] = []
        for number, trained in enumerate(self.mask.tolist()):
            sampled = [place for place, token in enumerate(trained) if token]
            inner = sampled[1:]
            cuts = sorted(draw.sample(inner, draw.randint(0, min(3, len(inner)))))
            for start, end in pairwise([0, *cuts, sampled[-1] + 1]):
                slots = [number * LONGEST + place for place in range(start, end)]
                rows.append([-1] * draw.randint(0, 3) + slots)
                owners.append(number)
        order = list(range(len(rows)))
        if draw.random() < 0.5:  # rows of one rollout stay in order, and need not be neighbours
            keys = {row: draw.random() for row in order}
            for number in range(len(self.mask)):
                own = [row for row in order if owners[row] == number]
                for row, key in zip(own, sorted(keys[row] for row in own), strict=True):
                    keys[row] = key
            order.sort(key=keys.__getitem__)
        width = max(map(len, rows)) + draw.randint(0, 2)
        padded = [rows[row] + [-1] * (width - len(rows[row])) for row in order]
        return Layout(torch.tensor(padded), torch.tensor([owners[row] for row in order]))


def play(seed: int, group_size: int) -> Played:
    """Draw rollouts with everything that a recipe may read of them."""
    draw, noise = Random(seed), torch.Generator().manual_seed(seed)
    shape = (ROLLOUTS, LONGEST)
    mask, turns = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.long)
    ends = torch.zeros(shape, dtype=torch.float64)
    for row in range(ROLLOUTS):
        length = draw.randint(3, LONGEST)
        trained = [1] + [int(draw.random() < 0.8) for _ in range(length - 2)] + [1]
        mask[row, :length] = torch.tensor(trained, dtype=torch.float64)
        # a turn ends where an observation follows, and sometimes within what was sampled
        number = 0
        for place in range(length):
            turns[row, place] = number
            last = place == length - 1 or not trained[place + 1] or draw.random() < 0.3
            if trained[place] and last:
                ends[row, place], number = 1, number + 1

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(shape, generator=noise, dtype=torch.float64)

    old = -normal(1).abs() - 0.05
    groups = torch.arange(ROLLOUTS) // (1 if group_size == 1 else 3)
    rewards = torch.tensor([1.0, 0, 0.5, 0, 1, 1], dtype=torch.float64)
    return Played(
        mask,
        Inputs(
            logp=old + normal(0.3),
            old_logp=old,
            sampler_logp=old + normal(0.3),
            ref_logp=old + normal(0.3),
            entropy=normal(1).abs() + 0.1,
            values=normal(0.5),
            old_values=normal(0.5),
            proxies=normal(1).abs(),
            turns=turns,
            turn_rewards=normal(0.2) * ends,
        ),
        Inputs(
            rewards=rewards,
            groups=groups,
            truncated=torch.tensor([draw.random() < 0.3 for _ in range(ROLLOUTS)]),
            lengths=mask.sum(1),
            alpha=torch.linspace(1, 4, ROLLOUTS, dtype=torch.float64),
            beta=torch.linspace(3, 2, ROLLOUTS, dtype=torch.float64),
            bootstrap=torch.linspace(0, 1, ROLLOUTS, dtype=torch.float64),
            greedy_rewards=rewards.flip(0),
        ),
    )


def gradients(algorithm: Algorithm, played: Played, layout: Layout) -> list[Tensor]:
    """Return the gradients [N, L] of a step's loss by log-probability, entropy and value."""
    assert played.of_tokens.logp is not None
    assert played.of_tokens.entropy is not None
    assert played.of_tokens.values is not None
    leaves = [
        leaf.detach().clone().requires_grad_()
        for leaf in (played.of_tokens.logp, played.of_tokens.entropy, played.of_tokens.values)
    ]
    tokens = played.of_tokens.each(layout.lay)
    assert tokens.turn_rewards is not None
    tokens = replace(tokens, turn_rewards=tokens.turn_rewards.nan_to_num())  # declared to be 0
    mask = layout.mask(played.mask)
    known = replace(
        tokens, logp=None, mask=mask, rollouts=layout.rollouts, **played.of_rollouts.given()
    )
    shaped = algorithm.shape(played.of_rollouts)
    kept = algorithm.keep(replace(played.of_rollouts, rewards=shaped))
    if "weights" in algorithm.advantage_fn.optional:
        known = replace(known, weights=algorithm.weigh(known))
    credit = algorithm.advantages(replace(known, rewards=shaped), kept=kept)
    corrected = algorithm.correct(
        replace(
            known, mask=mask * kept[layout.rollouts].unsqueeze(1), advantages=credit.advantages
        ),
        torch.Generator().manual_seed(0),
    )
    logp, entropy, values = (layout.lay(leaf) for leaf in leaves)
    inputs = Inputs(
        logp=logp,
        entropy=entropy,
        old_logp=tokens.old_logp,
        sampler_logp=tokens.sampler_logp,
        ref_logp=tokens.ref_logp,
        advantages=credit.advantages,
        weights=corrected.weights,
        mask=corrected.mask,
        rollouts=layout.rollouts,
        groups=None if known.groups is None else known.groups[layout.rollouts],
        rewards=shaped[layout.rollouts],
    )
    loss = algorithm.loss(inputs)
    total = loss.total / loss.weight
    if algorithm.recipe.algorithm.value is not None:
        read = corrected.mask if credit.value_mask is None else corrected.mask * credit.value_mask
        value_sum, value_weight = algorithm.value_loss(
            replace(
                inputs,
                values=values,
                old_values=tokens.old_values,
                returns=credit.returns,
                mask=read,
            )
        )
        total = total + value_sum / value_weight
    total.backward()
    return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]


Settings = dict[str, Any]
LOSSES: Settings = {
    "aipo_loss": {"cap": 1.2},
    "cispo_loss": {},
    "dapo_loss": {},
    "decoupled_ppo_loss": {},
    "drpo_loss": {"max_length": 16},
    "dual_clip_loss": {},
    "gmpo_loss": {},
    "gspo_loss": {"eps_low": 0.1, "eps_high": 0.1},
    "gspo_token_loss": {"eps_low": 0.1, "eps_high": 0.1},
    "hapo_loss": {},
    "kimi_k25_loss": {"tau": 0.5},
    "kimi_loss": {"tau": 0.5},
    "kl_cov_loss": {"share": 0.2},
    "luspo_loss": {"eps_low": 0.1, "eps_high": 0.1},
    "minirl_loss": {},
    "minpro_loss": {},
    "pacs_loss": {},
    "ppo_clip_loss": {},
    "r2vpo_loss": {"multiplier": 0.1, "delta": 0.1},
    "reinforce_loss": {},
    "rover_loss": {"temperature": 1.0},
    "sapo_loss": {},
    "topr_loss": {"ratio": "sequence"},
    "two_sided_clip_loss": {},
    "vespo_loss": {},
}
AGGREGATIONS: Settings = {
    "token_mean": {},
    "sequence_mean": {},
    "sequence_mean_all_rows": {},
    "sequence_sum": {},
    "sequence_sum_all_rows": {},
    "fixed_length": {"length": 16},
    "prompt_mean": {},
}
CORRECTIONS: dict[str, Settings] = {
    "weights of sequences": {"weights": "tis_weights", "weight_options": {"level": "sequence"}},
    "geometric weights": {
        "weights": "mis_weights",
        "weight_options": {"level": "geometric", "low": 0.9},
        "denominator": "remaining",
    },
    "weights over their mean": {"weights": "tis_weights", "weight_options": {"normalise": True}},
    "band": {"filters": [{"name": "ratio_band_mask", "options": {"low": 0.9, "high": 1.2}}]},
    "trust region": {"filters": [{"name": "trust_region_mask", "options": {"threshold": 0.1}}]},
    "stale failures": {"filters": [{"name": "opsm_mask", "options": {"delta": 0.0}}]},
    "mastered": {"filters": [{"name": "mpt_mask", "options": {"sigma": 0.9, "probability": 0.2}}]},
    "drawn": {"filters": [{"name": "clip_cov_mask", "options": {"share": 0.3, "low": -9.0}}]},
}
CREDIT: dict[str, Settings] = {
    "of turns": {"credit": {"discount": "turn"}},
    "of turns, by sequence": {"credit": {"discount": "turn"}, "agg": "sequence_mean"},
}
OVERLONG: Settings = {"algorithm": {"overlong": {"in_loss": False}}}
"""Rollouts that train nothing, some of which an aggregation counts."""


def variants() -> Iterator[tuple[str, str, Settings]]:
    """Yield what the law is held to: name, recipe, what is changed in the recipe."""
    for name in recipe_names():
        yield name, name, {}
        yield f"{name}, overlong rollouts left out", name, OVERLONG
    for loss, options in LOSSES.items():
        change = {"loss": loss, "loss_options": options, "agg": "", "agg_options": {}}
        yield loss, "grpo", {"algorithm": change}
        by_token = {"zero_tail": True, "compact": True}  # else a token's slot counts, holes too
        credit = {"advantage": "otb_advantages", "advantage_options": by_token}
        yield f"{loss} with a baseline for each token", "grpo", {"algorithm": {**change, **credit}}
    for agg, options in AGGREGATIONS.items():
        change = {"agg": agg, "agg_options": options, "overlong": {"in_loss": False}}
        yield agg, "grpo", {"algorithm": change}
        terms = {"kl": {"place": "loss", "coefficient": 0.1}, "entropy": {"coefficient": 0.1}}
        yield f"terms by {agg}", "grpo", {"algorithm": {**change, **terms}}
    for name, change in CORRECTIONS.items():
        yield name, "grpo", {"algorithm": {"corrections": change}}
    for name, change in CREDIT.items():
        yield name, "ppo", {"algorithm": change}


VARIANTS = [
    pytest.param(load_recipe(recipe, change), id=name) for name, recipe, change in variants()
]


@pytest.mark.parametrize("recipe", VARIANTS)
def test_cutting_rollouts_into_rows_leaves_the_gradient(recipe: Recipe) -> None:
    algorithm = resolve(recipe, max_tokens=LONGEST)
    for seed in SEEDS:
        played = play(seed, recipe.sampling.group_size)
        oracle = gradients(algorithm, played, played.whole)
        cut = gradients(algorithm, played, played.cut(Random(seed)))
        for right, got in zip(oracle, cut, strict=True):
            torch.testing.assert_close(got, right, **EXACT)


# --- through the learner: passes of a real model --------------------------------------------------


def bigrams(seed: int = 0) -> Any:
    """Return a policy whose next token depends on the last one alone, so that a row may begin
    anywhere: attention adds nothing to what the layers pass on.
    """
    model = build_model(40, hidden=16, layers=1, heads=2, max_length=64, seed=seed).double()
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        layer.self_attn.o_proj.weight.requires_grad_(False)  # its gradient reads the whole row
    return model


def cut_into_segments(turns: list[Turn], cuts: list[int], draw: Random) -> list[Segment]:
    """Cut the turns of a rollout at the given turns; a row begins with anything that ends in the
    token before.
    """
    segments: list[Segment] = []
    for start, end in pairwise([0, *cuts, len(turns)]):
        before = turns[start - 1].out_ids[-1] if start else 3
        prompt = [draw.randint(4, 39) for _ in range(draw.randint(0, 2))]
        segments.append(Segment(prompt_ids=[*prompt, before], turns=turns[start:end]))
    return segments


def experienced(seed: int, *, group_size: int, cut: bool) -> Experience:
    """Gather three groups of rollouts, whole or cut into rows; the sampled tokens are the same."""
    draw, cuts = Random(seed), Random(seed + 1)
    groups: list[Group] = []
    for number in range(3):
        task = Task(id=str(number), split="train")
        episodes: list[Episode] = []
        for _ in range(group_size):
            turns = [
                Turn(
                    out_ids=[draw.randint(4, 39) for _ in range(length)],
                    logprobs=[-draw.uniform(1, 5) for _ in range(length)],
                    reward=draw.choice([0.0, 0.25]),
                )
                for length in (draw.randint(1, 4) for _ in range(draw.randint(1, 4)))
            ]
            inner = range(1, len(turns))
            places = sorted(cuts.sample(inner, cuts.randint(0, len(inner)))) if cut else []
            trajectory = Trajectory(
                verdict=Verdict.of(draw.choice([0.0, 0.5, 1.0])),
                stop=draw.choice([Stop.TERMINATED, Stop.TERMINATED, Stop.MAX_TURNS]),
                segments=cut_into_segments(turns, places, cuts),
            )
            episodes.append(Episode(task=task.id, trajectories=[trajectory]))
        groups.append(Group(task, episodes, 0))
    gathered = gather(groups)
    assert gathered is not None
    batch = gathered.batch
    exact = replace(batch, mask=batch.mask.double(), sampler_logp=batch.sampler_logp.double())
    return replace(
        gathered,
        batch=exact,
        rewards=gathered.rewards.double(),
        turn_rewards=gathered.turn_rewards.double(),
    )


def weight_gradients(recipe: Recipe, experience: Experience, tokens: int) -> list[Tensor]:
    """Return the gradients of an update against the sampler's policy, in passes of `tokens`."""
    algorithm = resolve(recipe, max_tokens=16)
    config = TrainerConfig(lr=1e-3, tokens_per_pass=tokens, max_grad_norm=1e9)
    values = recipe.algorithm.value is not None
    learner = Learner(bigrams(), config, ReadingOptions(values=values))
    if learner.value_head is not None:
        torch.nn.init.constant_(learner.value_head.weight, 0.1)
    tracker = recipe.sampling.tracker
    reference = Learner(bigrams(seed=1), config) if "ref_logp" in algorithm.needs else None
    updater = Updater(
        algorithm,
        learner,
        reference=reference,
        tracker=None if tracker is None else SuccessTracker(tracker),
    )
    known = replace(updater.known(experience), old_logp=experience.batch.sampler_logp)
    credited = updater.credited(experience, known, torch.Generator().manual_seed(0))
    idle = idle_rows(credited, algorithm, bonus=0.0)
    passes = UpdatePasses(
        idle=idle, together=credited.together, entropy="entropy" in algorithm.needs
    )
    learner.update(
        credited.batch, torch.arange(len(credited.batch)), updater.loss_of(credited), passes
    )
    return [weight.grad for weight in learner.model.parameters() if weight.grad is not None]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", VARIANTS)
def test_cutting_rollouts_leaves_the_gradient_of_the_weights_in_passes_of_any_size(
    recipe: Recipe,
) -> None:
    group_size = min(recipe.sampling.group_size, 3)
    whole = experienced(0, group_size=group_size, cut=False)
    cut = experienced(0, group_size=group_size, cut=True)
    oracle = weight_gradients(recipe, whole, tokens=1000)
    assert any(bool(gradient.any()) for gradient in oracle)
    for tokens in (1000, 6):
        got = weight_gradients(recipe, cut, tokens)
        for right, gradient in zip(oracle, got, strict=True):
            torch.testing.assert_close(gradient, right, **EXACT)


def test_segments_count_only_where_a_recipe_says_so() -> None:
    """SUPO's equation 4 counts a rollout once for each of its segments, on purpose."""
    options = {"advantage_options": {"statistics_over": "segments"}}
    algorithm = resolve(load_recipe("supo", {"algorithm": options}), max_tokens=LONGEST)
    played = play(0, group_size=3)
    whole = gradients(algorithm, played, played.whole)[0]
    cut = gradients(algorithm, played, played.cut(Random(0)))[0]
    assert float((whole - cut).abs().max()) > 1e-3
