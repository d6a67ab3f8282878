"""Bias and variance of gradient estimators, as the trainer computes them, on a world that can be
enumerated.

    python benchmarks/credit.py [--world short|long] [--samples N] [--picture FILE]

The worlds: three or five turns of one token, 0 or 1, a probability for each state, and a reward for
each end. The true gradient in the logits of the states is a sum over the ends. A sample is a group:
8 rollouts, or trees (4 roots, forked after the turns 1 and 4, or 2 roots that are forked after the
first two turns). Groups are gathered and credited by `Updater`, as in a run; what is printed
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
import math
import operator
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

FIRST = 10
"""The id of the first action."""


@dataclass(frozen=True)
class World:
    """Turns of one token, 0 or 1, and a reward for each end."""

    chances: tuple[float, ...]
    """Of the action 1 in each state, in the order of breadth."""
    rewards: tuple[float, ...]
    """Of each end."""

    @property
    def turns(self) -> int:
        """Tokens of an episode."""
        return len(self.rewards).bit_length() - 1


SHORT = World((0.5, 0.3, 0.8, 0.6, 0.2, 0.7, 0.4), (0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0))
"""Sparse: two of eight ends."""
LONG = World((0.6,) * 31, (0.0,) * 31 + (1.0,))
"""Five turns, of which every one must be 1."""
WORLDS = {"short": SHORT, "long": LONG}
AT_ONCE = 500
"""Groups that are credited together; they do not see each other."""


@dataclass(frozen=True)
class Estimator:
    """A row of the table."""

    name: str
    advantage: str
    shape: tuple[int, ...] = (8,)
    """Roots, and the children of a node after the first, the second ... turn; then 1."""

    normalise: bool = False

    def tokens(self, turns: int) -> int:
        """Tokens of a group, in episodes of some turns."""
        return sum(itertools.accumulate(self.children(turns), operator.mul))

    def children(self, turns: int) -> tuple[int, ...]:
        """Roots, and the children of a node after each turn but the last."""
        return (*self.shape, *[1] * turns)[:turns]

    @property
    def is_tree(self) -> bool:
        """Whether nodes are credited, and not rollouts."""
        return len(self.shape) > 1


SPREAD, FULL = (4, 2, 1, 1, 2), (2, 2, 2)
"""The shape of the policy `tree` (forks after turns 1, 4, ...), and that of SPO-tree."""
ESTIMATORS = (
    Estimator("GRPO", "grpo_advantages"),
    Estimator("GRPO of 6", "grpo_advantages", (6,)),
    Estimator("Dr. GRPO", "dr_grpo_advantages"),
    Estimator("RLOO", "rloo_advantages"),
    Estimator("tree", "tree_pooled_advantages", SPREAD),
    Estimator("tree over GRPO's std", "tree_pooled_advantages", SPREAD, normalise=True),
    Estimator("tree, forked twice", "tree_pooled_advantages", FULL),
    Estimator("siblings alone", "tree_sibling_advantages", FULL),
    Estimator("SPO-tree", "spo_tree_advantages", FULL),
    Estimator("TreePO", "treepo_advantages", FULL),
    Estimator("Tree-GRPO's credit", "tree_grpo_advantages", FULL),
)


def ways(world: World) -> tuple[Tensor, Tensor]:
    """The probability of each end, [E], and the score of its way in the logits of the states,
    [E, S].
    """
    chances, scores = list[float](), list[list[float]]()
    for actions in itertools.product((0, 1), repeat=world.turns):
        state, weight, score = 0, 1.0, [0.0] * len(world.chances)
        for action in actions:
            chance = world.chances[state]
            weight *= chance if action else 1 - chance
            score[state] = action - chance
            state = 2 * state + 1 + action
        chances.append(weight)
        scores.append(score)
    return torch.tensor(chances, dtype=torch.float64), torch.tensor(scores, dtype=torch.float64)


def true_gradient(world: World) -> Tensor:
    """The gradient of the mean reward in the logits of the states, [S], by enumeration."""
    chances, scores = ways(world)
    return (chances * torch.tensor(world.rewards, dtype=torch.float64)) @ scores


def best_saving(world: World) -> float:
    """What the best tree has of the variance x tokens of rollouts in a line, at most.

    With the value of the task as the baseline, turn k adds the noise v_k to an estimate, and n_k
    samples of it cost as many tokens: sum v_k / n_k is least, for a sum of n_k, where n_k goes with
    sqrt(v_k). Rollouts have all n_k equal. The share is (sum sqrt v_k)^2 / (turns * sum v_k).
    """
    chances, scores = ways(world)
    rewards = torch.tensor(world.rewards, dtype=torch.float64)
    means = scores * (rewards - chances @ rewards).unsqueeze(1)
    noise: list[Tensor] = []
    for _ in range(world.turns):
        pairs, each = chances.view(-1, 2), means.view(-1, 2, means.shape[1])
        mean = (pairs.unsqueeze(2) * each).sum(1) / pairs.sum(1, keepdim=True)
        noise.append((pairs.unsqueeze(2) * (each - mean.unsqueeze(1)) ** 2).sum())
        chances, means = pairs.sum(1), mean
    of_turns = torch.stack(noise)
    return float(of_turns.sqrt().sum() ** 2 / (len(of_turns) * of_turns.sum()))


def token(world: World, state: int, draw: torch.Generator) -> int:
    """Sample in a state: the id says the state and the action."""
    action = int(torch.rand((), generator=draw) < world.chances[state])
    return FIRST + 2 * state + action


def below(
    world: World,
    state: int,
    said: list[tuple[str, int]],
    shape: tuple[int, ...],
    draw: torch.Generator,
) -> list[Episode]:
    """Play on, with the children of each turn's node that are still to come."""
    if not shape:
        turns = [
            Turn(out_ids=[sampled], logprobs=[-1.0], node=node, obs_ids=[5] if place else [])
            for place, (node, sampled) in enumerate(said)
        ]
        verdict = Verdict.of(world.rewards[state - len(world.chances)])
        segments = [Segment(prompt_ids=[3, 4], turns=turns)]
        ended = Trajectory(verdict=verdict, segments=segments, node=said[-1][0])
        return [Episode(task="t", trajectories=[ended])]
    leaves: list[Episode] = []
    for child in range(shape[0]):
        sampled = token(world, state, draw)
        name = f"{said[-1][0]}/{child}" if said else str(child)
        after = 2 * state + 1 + (sampled - FIRST) % 2
        leaves += below(world, after, [*said, (name, sampled)], shape[1:], draw)
    return leaves


def group(world: World, number: int, estimator: Estimator, draw: torch.Generator) -> Group:
    """A group of an estimator."""
    leaves = below(world, 0, [], estimator.children(world.turns), draw)
    if not estimator.is_tree:
        for leaf in leaves:
            leaf.trajectories[0].node = ""
    own_nodes(leaves)
    return Group(Task(id=f"t{number}", split="train"), leaves, 0, ordinal=number)


def estimates(world: World, estimator: Estimator, samples: int, seed: int) -> Tensor:
    """The estimate of each group, [samples, S]."""
    states = len(world.chances)
    change: dict[str, object] = {
        "algorithm": {
            "advantage": estimator.advantage,
            "advantage_options": {"normalise": True} if estimator.normalise else {},
            "agg": "fixed_length",
            "agg_options": {"length": 1.0},
        }
    }
    recipe = load_recipe("grpo", merge(load_policies("tree") if estimator.is_tree else {}, change))
    learner = Learner(
        build_model(FIRST + 2 * states, hidden=16, layers=1, heads=2),
        TrainerConfig(),
        ReadingOptions(),
    )
    updater = Updater(resolve(recipe, max_tokens=world.turns), learner)
    draw, chances = (
        torch.Generator().manual_seed(seed),
        torch.tensor(world.chances, dtype=torch.float64),
    )
    parts: list[Tensor] = []
    for first in range(0, samples, AT_ONCE):
        count = min(AT_ONCE, samples - first)
        groups = [group(world, first + n, estimator, draw) for n in range(count)]
        experience = gather(groups)
        assert experience is not None
        batch = updater.credited(experience).batch
        advantages, owners = batch.inputs.advantages, batch.inputs.groups
        assert advantages is not None
        assert owners is not None
        rows, places = batch.mask.nonzero(as_tuple=True)
        ids = batch.ids[rows, places] - FIRST
        at, actions = ids // 2, ids % 2
        leaves = math.prod(estimator.children(world.turns))
        credit = advantages[rows, places].double() * (actions - chances[at]) / leaves
        sums = torch.zeros(count * states, dtype=torch.float64)
        sums.index_add_(0, owners[rows] * states + at, credit)
        parts.append(sums.view(count, states))
    return torch.cat(parts)


@dataclass(frozen=True)
class Measured:
    """What is printed of an estimator."""

    name: str
    cosine: float
    bias: float
    noise: float
    scale: float
    cost: float


def measure(world: World, estimator: Estimator, samples: int, seed: int = 0) -> Measured:
    """Compare the estimates of an estimator with the true gradient."""
    each, true = estimates(world, estimator, samples, seed), true_gradient(world)
    mean, length = each.mean(0), float(true.norm())
    scale = float(mean @ true) / length**2
    variance = float(each.var(0).sum())
    return Measured(
        estimator.name,
        float(torch.cosine_similarity(mean, true, dim=0)),
        float((mean / scale - true).norm()) / length,
        (variance / samples) ** 0.5 / abs(scale) / length,
        scale,
        variance / scale**2 * estimator.tokens(world.turns),
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
        axes.tick_params(axis="x", rotation=60)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Print the table, and draw it where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--world", choices=sorted(WORLDS), default="short")
    parser.add_argument("--picture", default="")
    options = parser.parse_args()
    world, rows = WORLDS[options.world], list[Measured]()
    print(f"the best tree has at least {best_saving(world):.2f} of RLOO's variance x tokens\n")
    print("| estimator | cosine | bias | noise | scale | variance x tokens |")
    print("|---|---|---|---|---|---|")
    for estimator in ESTIMATORS:
        row = measure(world, estimator, options.samples)
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
