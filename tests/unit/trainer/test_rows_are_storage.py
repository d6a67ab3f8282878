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

import pytest
import torch
from torch import Tensor

from ludus.trainer.recipes import (
    Algorithm,
    Inputs,
    Recipe,
    load_recipe,
    recipe_names,
    resolve,
)

ROLLOUTS, LONGEST, SEEDS = 6, 9, range(8)
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
        tokens,
        logp=None,
        mask=mask,
        rollouts=layout.rollouts,
        **played.of_rollouts.given(),
    )
    shaped = algorithm.shape(played.of_rollouts)
    kept = algorithm.keep(replace(played.of_rollouts, rewards=shaped))
    if "weights" in algorithm.advantage_fn.optional:
        known = replace(known, weights=algorithm.weigh(known))
    credit = algorithm.advantages(replace(known, rewards=shaped), kept=kept)
    corrected = algorithm.correct(
        replace(
            known,
            mask=mask * kept[layout.rollouts].unsqueeze(1),
            advantages=credit.advantages,
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


def obeys(recipe: Recipe) -> None:
    """Assert the law for a recipe, over drawn rollouts and cuts."""
    algorithm = resolve(recipe, max_tokens=LONGEST)
    for seed in SEEDS:
        played = play(seed, recipe.sampling.group_size)
        oracle = gradients(algorithm, played, played.whole)
        cut = gradients(algorithm, played, played.cut(Random(seed)))
        for right, got in zip(oracle, cut, strict=True):
            torch.testing.assert_close(got, right, **EXACT)


def _settings(name: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the recipe as shipped, and with each way to weigh, filter, aggregate or add terms."""
    yield name, {}
    value = {"algorithm": {"credit": {"discount": "turn"}}}
    if name == "ppo":
        yield name, value


@pytest.mark.parametrize("name", recipe_names())
def test_cutting_rollouts_into_rows_leaves_the_gradient_of_every_recipe(name: str) -> None:
    for recipe, overrides in _settings(name):
        obeys(load_recipe(recipe, overrides))
