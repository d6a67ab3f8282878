"""Bias and variance of gradient estimators, as the trainer computes them, on a world that can be
enumerated.

    python benchmarks/credit.py [--samples N] [--picture FILE]

The world: three turns of one token, 0 or 1, a probability for each of its seven states, and a
reward for each of the eight ends. The true gradient in the seven logits is a sum over the ends. A
sample is a group: 8 rollouts, or trees of 8 leaves (2 roots, forked in two after the first and
after the second turn). Groups are gathered and credited by `Updater`, as in a run; what is printed
is read off the advantages of that step, divided by the number of leaves.

| column | meaning |
|---|---|
| cosine | of the mean estimate with the true gradient |
| bias | distance of the mean from the closest multiple of the true gradient, over its length |
| scale | that multiple |
| noise | standard error of the bias |
| variance x tokens | of the estimate at scale 1, summed over the logits, times the sampled tokens |

An unbiased estimator has a bias within its noise, whatever its scale; a scale is a learning rate.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import load_policies, load_recipe, merge
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group, own_nodes
from ludus.verdict import Verdict

TURNS, LEAVES, FIRST = 3, 8, 10
STATES = 2**TURNS - 1
CHANCES = (0.5, 0.3, 0.8, 0.6, 0.2, 0.7, 0.4)
"""Of the action 1 in each state, in the order of breadth."""
REWARDS = (0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0)
"""Sparse: two of eight ends."""
AT_ONCE = 500
"""Groups that are credited together; they do not see each other."""
FLAT, TREE = 2**TURNS * TURNS, 2 * (1 + 2 + 4)
"""Tokens of a group."""


@dataclass(frozen=True)
class Estimator:
    """A row of the table."""

    name: str
    advantage: str
    tree: bool = False


ESTIMATORS = (
    Estimator("GRPO", "grpo_advantages"),
    Estimator("Dr. GRPO", "dr_grpo_advantages"),
    Estimator("RLOO", "rloo_advantages"),
    Estimator("tree", "tree_sibling_advantages", tree=True),
    Estimator("SPO-tree", "spo_tree_advantages", tree=True),
    Estimator("TreePO", "treepo_advantages", tree=True),
)


def true_gradient() -> Tensor:
    """The gradient of the mean reward in the logits of the states, [7], by enumeration."""
    total = torch.zeros(STATES, dtype=torch.float64)
    for end, actions in enumerate(itertools.product((0, 1), repeat=TURNS)):
        state, weight, scores = 0, 1.0, torch.zeros(STATES, dtype=torch.float64)
        for action in actions:
            chance = CHANCES[state]
            weight *= chance if action else 1 - chance
            scores[state] = action - chance
            state = 2 * state + 1 + action
        total += weight * REWARDS[end] * scores
    return total


def token(state: int, draw: torch.Generator) -> int:
    """Sample in a state: the id says the state and the action."""
    action = int(torch.rand((), generator=draw) < CHANCES[state])
    return FIRST + 2 * state + action


def below(state: int, said: list[tuple[str, int]], draw: torch.Generator) -> list[Episode]:
    """Play on, and fork in two after every turn but the last where nodes are named."""
    if state >= STATES:
        turns = [
            Turn(out_ids=[sampled], logprobs=[-1.0], node=node, obs_ids=[5] if place else [])
            for place, (node, sampled) in enumerate(said)
        ]
        verdict = Verdict.of(REWARDS[state - STATES])
        segments = [Segment(prompt_ids=[3, 4], turns=turns)]
        ended = Trajectory(verdict=verdict, segments=segments, node=said[-1][0])
        return [Episode(task="t", trajectories=[ended])]
    node = said[-1][0] if said else ""
    branches = [f"{node}/{child}" for child in (0, 1)] if node else [""]
    leaves: list[Episode] = []
    for name in branches:
        sampled = token(state, draw)
        leaves += below(2 * state + 1 + (sampled - FIRST) % 2, [*said, (name, sampled)], draw)
    return leaves


def group(number: int, tree: bool, draw: torch.Generator) -> Group:
    """A group of eight leaves."""
    leaves: list[Episode] = []
    for root in range(2 if tree else LEAVES):
        if not tree:
            leaves += below(0, [], draw)
            continue
        sampled = token(0, draw)
        leaves += below(1 + (sampled - FIRST) % 2, [(str(root), sampled)], draw)
    own_nodes(leaves)
    return Group(Task(id=f"t{number}", split="train"), leaves, 0, ordinal=number)


def estimates(estimator: Estimator, samples: int, seed: int) -> Tensor:
    """The estimate of each group, [samples, 7]."""
    change: dict[str, object] = {
        "algorithm": {
            "advantage": estimator.advantage,
            "agg": "fixed_length",
            "agg_options": {"length": 1.0},
        }
    }
    recipe = load_recipe("grpo", merge(load_policies("tree") if estimator.tree else {}, change))
    learner = Learner(
        build_model(40, hidden=16, layers=1, heads=2), TrainerConfig(), ReadingOptions()
    )
    updater = Updater(resolve(recipe, max_tokens=TURNS), learner)
    draw, chances = torch.Generator().manual_seed(seed), torch.tensor(CHANCES, dtype=torch.float64)
    found: list[Tensor] = []
    for first in range(0, samples, AT_ONCE):
        count = min(AT_ONCE, samples - first)
        groups = [group(first + n, estimator.tree, draw) for n in range(count)]
        experience = gather(groups)
        assert experience is not None
        batch = updater.credited(experience).batch
        advantages, owners = batch.inputs.advantages, batch.inputs.groups
        assert advantages is not None
        assert owners is not None
        rows, places = batch.mask.nonzero(as_tuple=True)
        ids = batch.ids[rows, places] - FIRST
        states, actions = ids // 2, ids % 2
        credit = advantages[rows, places].double() * (actions - chances[states]) / LEAVES
        sums = torch.zeros(count * STATES, dtype=torch.float64)
        sums.index_add_(0, owners[rows] * STATES + states, credit)
        found.append(sums.view(count, STATES))
    return torch.cat(found)


@dataclass(frozen=True)
class Measured:
    """What is printed of an estimator."""

    name: str
    cosine: float
    bias: float
    noise: float
    scale: float
    cost: float


def measure(estimator: Estimator, samples: int, seed: int = 0) -> Measured:
    """Compare the estimates of an estimator with the true gradient."""
    each, true = estimates(estimator, samples, seed), true_gradient()
    mean, length = each.mean(0), float(true.norm())
    scale = float(mean @ true) / length**2
    variance = float(each.var(0).sum())
    tokens = TREE if estimator.tree else FLAT
    return Measured(
        estimator.name,
        float(torch.cosine_similarity(mean, true, dim=0)),
        float((mean / scale - true).norm()) / length,
        (variance / samples) ** 0.5 / abs(scale) / length,
        scale,
        variance / scale**2 * tokens,
    )


def draw_picture(rows: list[Measured], path: str) -> None:
    """Draw bias and cost of each estimator."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3))
    names = [row.name for row in rows]
    left.bar(names, [row.bias for row in rows], yerr=[2 * row.noise for row in rows], color="#777")
    left.set_title("bias over the length of the gradient")
    right.bar(names, [row.cost for row in rows], color="#3a7")
    right.set_title("variance at scale 1 x sampled tokens")
    for axes in (left, right):
        axes.tick_params(axis="x", rotation=30)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Print the table, and draw it where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--picture", default="")
    options = parser.parse_args()
    rows: list[Measured] = []
    print("| estimator | cosine | bias | noise | scale | variance x tokens |")
    print("|---|---|---|---|---|---|")
    for estimator in ESTIMATORS:
        row = measure(estimator, options.samples)
        rows.append(row)
        print(
            f"| {row.name} | {row.cosine:.5f} | {row.bias:.4f} | {row.noise:.4f} | {row.scale:.4f} "
            f"| {row.cost:.3f} |",
            flush=True,
        )
    if options.picture:
        draw_picture(rows, options.picture)


if __name__ == "__main__":
    main()
