"""Advantages in a tree of rollouts that share prefixes: a node is a segment, a leaf ends a
rollout.

A tree (or a forest) is `parents` [N] int: the parent of each node, -1 for a root; `rewards` [N]
count at leaves only.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..groups import floating, group_std
from .group import grpo_advantages


def node_depths(parents: Tensor) -> Tensor:
    """The number of ancestors of each node, [N] int: `d(root) = 0`.

    >>> node_depths(torch.tensor([-1, 0, 0, 1]))
    tensor([0, 1, 1, 2])

    Raises:
        ValueError: the parents go round in a circle.
    """
    depths, ancestors = torch.zeros_like(parents), parents
    for _ in range(len(parents) + 1):
        if not bool((ancestors >= 0).any()):
            return depths
        depths = depths + (ancestors >= 0)
        ancestors = _climb(ancestors, parents)
    raise ValueError(f"the tree has a circle: parents={parents.tolist()}")


def tree_values(rewards: Tensor, parents: Tensor) -> Tensor:
    """The value of each node: a leaf's reward, an inner node's unweighted mean over all children,
    [N]: `V_n = mean_{children c} V_c`.

    Source: Segment policy optimization, arXiv 2505.23564; TreePO, arXiv 2508.17445.

    >>> tree_values(torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0]), torch.tensor([-1, 0, 0, 1, 1]))
    tensor([0.7500, 0.5000, 1.0000, 1.0000, 0.0000])
    """
    depths, values = node_depths(parents), floating(rewards).detach().clone()
    # From the deepest level upwards, so that the values of all children are known.
    for depth in range(int(depths.max()) if len(depths) else 0, 0, -1):
        values = _backed_up(values, parents, depths == depth)
    return values


def spo_tree_advantages(
    rewards: Tensor, parents: Tensor, *, normalise: bool = False, ddof: int = 0, eps: float = 1e-8
) -> Tensor:
    """SPO-tree: the value of a segment minus that of the parent; 0 at a root.

    `A = V_node - V_parent`, or over `std of the siblings + eps`. The method drops segments of
    advantage 0.

    Args:
        rewards: [N], read at leaves.
        parents: [N] int.
        normalise: divide by the standard deviation over the parent's children.
        ddof: 0 or 1 in that standard deviation.
        eps: added to that standard deviation.

    Returns:
        [N], one per node.

    Source: Segment policy optimization, arXiv 2505.23564.

    >>> spo_tree_advantages(torch.tensor([0.0, 1.0, 0.0]), torch.tensor([-1, 0, 0]))
    tensor([ 0.0000,  0.5000, -0.5000])
    """
    values = tree_values(rewards, parents)
    steps = torch.where(parents >= 0, values - values[parents.clamp(min=0)], 0.0)
    if not normalise:
        return steps
    # Siblings have the same parent, whose number serves as the number of their group.
    scale = group_std(values, parents, ddof=ddof) + eps
    return torch.where(steps == 0, 0.0, steps / torch.where(scale > 0, scale, 1.0))


def tree_sibling_advantages(rewards: Tensor, parents: Tensor) -> Tensor:
    """The value of a segment minus the mean value of its siblings; 0 at a root and without
    siblings.

    `A_n = V_n - mean_{siblings m != n} V_m`, which is `b / (b - 1)` times that of SPO-tree. No
    leaf below a segment is in its baseline, so that the policy gradient with the weights of
    `tree_node_weights` is unbiased, whatever the number of children, as long as that number does
    not depend on what was sampled below.

    Args:
        rewards: [N], read at leaves.
        parents: [N] int.

    Returns:
        [N], one per node.

    Source: leave-one-out (arXiv 2402.14740) at every fork.

    >>> tree_sibling_advantages(torch.tensor([0.0, 1.0, 0.0]), torch.tensor([-1, 0, 0]))
    tensor([ 0.,  1., -1.])
    """
    values, count = tree_values(rewards, parents), _children(parents)
    at, exists = parents.clamp(min=0), parents >= 0
    total = torch.zeros_like(values).index_add(0, parents[exists], values[exists])
    others = (total[at] - values) / (count[at] - 1).clamp(min=1)
    return torch.where(exists & (count[at] > 1), values - others, 0.0)


def tree_pooled_advantages(
    rewards: Tensor,
    parents: Tensor,
    *,
    decay: float = 0.5,
    normalise: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """The value of a segment minus the mean of all leaves that do not stand below it, where leaves
    that part from it further up count less; 0 at a root.

    `A_n = V_n - sum_a decay^(h_a) L_a V_a / sum_a decay^(h_a) L_a`, a running over the siblings of
    n (h = 0), of its parent (h = 1), and so on; L_a is the number of leaves below a. No leaf below
    a segment is in its baseline, so that the policy gradient with the weights of
    `tree_node_weights` is as unbiased as that of `tree_sibling_advantages`, whose baseline at a
    fork in two is a single sample and doubles the variance.

    Args:
        rewards: [N], read at leaves.
        parents: [N] int.
        decay: the weight of a level over that of the level below, in [0, 1]; 1 takes all leaves
            alike. 0.5 was best or close to it in worlds that can be enumerated.
        normalise: divide by the standard deviation of the leaves' rewards below the root, as GRPO
            does in a group; another objective.
        eps: added to that standard deviation.

    Returns:
        [N], one per node.

    Source: leave-one-out (arXiv 2402.14740) over every subtree that does not share the segment.

    Node 2 earns 0, its sibling 1, and the leaf beside their parent, at half the weight, 0:

    >>> r, parents = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]), torch.tensor([-1, 0, 1, 1, 0])
    >>> tree_pooled_advantages(r, parents)
    tensor([ 0.0000,  0.5000, -0.6667,  1.0000, -0.5000])
    """
    values, leaves, roots = tree_values(rewards, parents), _children(parents) == 0, _roots(parents)
    count, _, _ = _below(values, parents, leaves)
    total, weight = torch.zeros_like(values), torch.zeros_like(values)
    ancestors, share, exists = torch.arange(len(parents), device=parents.device), 1.0, parents >= 0
    sums = (values * count)[exists]
    below = torch.zeros_like(values).index_add(0, parents[exists], sums)
    counts = torch.zeros_like(values).index_add(0, parents[exists], count[exists])
    while bool((parents[ancestors] >= 0).any()):
        has, above = parents[ancestors] >= 0, parents[ancestors].clamp(min=0)
        others = below[above] - values[ancestors] * count[ancestors]
        total = total + torch.where(has, share * others, 0.0)
        weight = weight + torch.where(has, share * (counts[above] - count[ancestors]), 0.0)
        ancestors, share = torch.where(has, above, ancestors), share * decay
    advantages = torch.where(weight > 0, values - total / torch.where(weight > 0, weight, 1), 0.0)
    if not normalise:
        return advantages
    spread = torch.zeros_like(values)
    spread[roots[leaves]] = group_std(values[leaves], roots[leaves])
    # Equal leaves have no advantage, and the rounding of their mean none either.
    scale = spread[roots] + eps
    return torch.where(spread[roots] == 0, 0.0, advantages / torch.where(scale == 0, 1.0, scale))


def vine_tree_advantages(rewards: Tensor, parents: Tensor, continuations: Tensor) -> Tensor:
    """VinePPO and SPO-chain on a tree: the value at the end of a segment minus that at its start.

    `A_n = V_n - V_parent`, V being the mean reward of the continuations from there, and at the end
    of a rollout the reward itself. Continuations are not trained, and the rollout is none of its
    own, so that A has its full size. A state whose continuations all failed has the value of the
    next one, so that two segments are credited as one.

    Args:
        rewards: [N], read at leaves.
        parents: [N] int.
        continuations: [N] bool, the leaves that are played for the value of their parent.

    Returns:
        [N], one per node; 0 at roots and continuations.

    Source: VinePPO, arXiv 2410.01679; segment policy optimization, arXiv 2505.23564.

    Two continuations from the beginning earn 0 and 1, two from the end of the first turn 1 and 1;
    the rollout itself earns 0:

    >>> parents = torch.tensor([-1, 0, 0, 0, 1, 1, 1])
    >>> rewards = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    >>> played = torch.tensor([False, False, True, True, False, True, True])
    >>> vine_tree_advantages(rewards, parents, played)
    tensor([ 0.0000,  0.5000,  0.0000,  0.0000, -1.0000,  0.0000,  0.0000])
    """
    values, depths = floating(rewards).detach().clone(), node_depths(parents)
    of_values, trained = continuations & (parents >= 0), ~continuations & (parents >= 0)
    for depth in range(int(depths.max()) if len(depths) else 0, 0, -1):
        for chosen in (trained, of_values):  # the second, where there are any, has the last word
            values = _backed_up(values, parents, chosen & (depths == depth))
    return torch.where(trained, values - values[parents.clamp(min=0)], 0.0)


def tree_grpo_advantages(
    rewards: Tensor,
    parents: Tensor,
    *,
    intra: float = 1.0,
    inter: float = 1.0,
    ddof: int = 1,
    eps: float = 1e-6,
) -> Tensor:
    """Tree-GRPO: each leaf against the leaves of its tree and against those of its task, both in
    units of the standard deviation; a segment has the mean of what is below. ARPO's credit is the
    second part alone (`intra = 0`).

    `A_leaf = intra GRPO_tree(r) + inter GRPO_task(r)`, `A_n = mean_{children c} A_c`. Leaves of one
    tree share their first segments, whose own credit the first part takes away: biased, as
    published. With both parts the scale doubles.

    Args:
        rewards: [N], read at leaves.
        parents: [N] int; a root is a task, and its children are the trees.
        intra: weight of the first part.
        inter: weight of the second part.
        ddof: 0 or 1 in both standard deviations.
        eps: added to both.

    Returns:
        [N], one per node.

    Source: Tree-GRPO, arXiv 2509.21240; ARPO, arXiv 2507.19849, section 3.2 (soft estimation).

    >>> r, parents = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]), torch.tensor([-1, 0, 1, 1, 0])
    >>> tree_grpo_advantages(r, parents, intra=0.0, eps=0.0)
    tensor([-0.1443,  0.2887,  1.1547, -0.5774, -0.5774])
    """
    ends, tasks = _children(parents) == 0, _roots(parents)
    trees = _roots(torch.where(_climb(parents, parents) >= 0, parents, -1))
    returns, leaves = floating(rewards).detach(), torch.zeros_like(floating(rewards))
    for weight, groups in ((intra, trees[ends]), (inter, tasks[ends])):
        leaves[ends] += weight * grpo_advantages(returns[ends], groups, ddof=ddof, eps=eps)
    return tree_values(leaves, parents)


def deepsearch_advantages(
    rewards: Tensor,
    parents: Tensor,
    *,
    least: float = 0.1,
    temperature: float = 1.0,
    most: float = 1.0,
) -> Tensor:
    """DeepSearch: the quality that right and wrong ends give to a segment, minus the mean end of
    its tree.

    `q_n = sum g` over the right ends below n, or `-sum g` over the wrong ones where none is right,
    with `g = max(depth of n / depth of the end, least)`; `A_n = most tanh(q_n / temperature) -
    mean of the ends (1 or -1)` of the tree. A search chooses its ends: this is no estimate of the
    policy's gradient.

    Args:
        rewards: [N], read at leaves; an end is right above 0.
        parents: [N] int; a root is a task, and its children are the trees.
        least: the smallest g.
        temperature: of the soft clip.
        most: the greatest quality.

    Returns:
        [N], one per node; 0 at a task.

    Source: arXiv 2509.25454, equations 6 to 8 and the advantage of section 3.3, from notes. Every
    end is backed up here, in the paper the chosen one of each round.

    >>> r, parents = torch.tensor([0.0, 0.0, 1.0, 0.0]), torch.tensor([-1, 0, 1, 1])
    >>> deepsearch_advantages(r, parents)  # tanh(1 / 2), tanh(1) and tanh(-1)
    tensor([ 0.0000,  0.4621,  0.7616, -0.7616])
    """
    depths, ends = node_depths(parents), _children(parents) == 0
    returns = floating(rewards).detach()
    gained, lost = torch.zeros_like(returns), torch.zeros_like(returns)
    has_won = torch.zeros_like(ends)
    at, ancestors = ends.nonzero().squeeze(1), ends.nonzero().squeeze(1)
    while len(at):  # from each end to its task
        share = (depths[ancestors] / depths[at].clamp(min=1)).clamp(min=least).to(returns.dtype)
        won = returns[at] > 0
        gained = gained.index_add(0, ancestors, torch.where(won, share, 0.0))
        lost = lost.index_add(0, ancestors, torch.where(won, 0.0, share))
        has_won[ancestors[won]] = True
        above = parents[ancestors]
        at, ancestors = at[above >= 0], above[above >= 0]
    quality = most * torch.tanh(torch.where(has_won, gained, -lost) / temperature)
    trees = _roots(torch.where(_climb(parents, parents) >= 0, parents, -1))
    outcome = torch.where(returns > 0, 1.0, -1.0).to(returns.dtype)
    total = torch.zeros_like(returns).index_add(0, trees[ends], outcome[ends])
    count = torch.zeros_like(returns).index_add(0, trees[ends], torch.ones_like(outcome[ends]))
    mean = (total / count.clamp(min=1))[trees]
    return torch.where(parents >= 0, quality - mean, 0.0)


def tree_node_weights(parents: Tensor, continuations: Tensor | None = None) -> Tensor:
    """How much a token of each node weighs, where every leaf below a root weighs 1 on average:
    `w_n = leaves of the root * prod_{n and its ancestors m} 1 / siblings of m, itself included`.

    A token that several leaves share is one sample. With these weights it is in the loss once, and
    as often as the rows of all leaves would have it in a balanced tree; equal weights for every
    token would turn the gradient.

    Args:
        parents: [N] int.
        continuations: [N] bool, leaves that only give values: they weigh 0, and are no siblings.

    Source: the product of branching probabilities; Segment policy optimization, arXiv 2505.23564,
    has it as a mean over children.

    >>> tree_node_weights(torch.tensor([-1, 0, 0, 1, 1]))
    tensor([3.0000, 1.5000, 1.5000, 0.7500, 0.7500], dtype=torch.float64)
    """
    ends = _children(parents) == 0
    trained = torch.ones_like(ends) if continuations is None else ~continuations
    count = _children(torch.where(trained, parents, -1))
    share = torch.where(parents >= 0, 1 / count[parents.clamp(min=0)].clamp(min=1), 1.0).double()
    weights, roots = torch.ones_like(share), _roots(parents)
    ancestors = torch.arange(len(parents), device=parents.device)
    while bool((ancestors >= 0).any()):
        exists, index = ancestors >= 0, ancestors.clamp(min=0)
        weights = weights * torch.where(exists, share[index], 1.0)
        ancestors = _climb(ancestors, parents)
    leaves = (ends & trained).double()
    return weights * trained * torch.zeros_like(share).index_add(0, roots, leaves)[roots]


def _roots(parents: Tensor) -> Tensor:
    """The root above each node, [N] int; a root's is itself."""
    roots = torch.arange(len(parents), device=parents.device)
    for _ in range(int(node_depths(parents).max()) if len(parents) else 0):
        roots = torch.where(parents[roots] >= 0, parents[roots], roots)
    return roots


def _children(parents: Tensor) -> Tensor:
    """The number of children of each node, [N] int."""
    exists = parents >= 0
    return torch.zeros_like(parents).index_add(0, parents[exists], torch.ones_like(parents[exists]))


def treepo_leaf_rewards(
    rewards: Tensor,
    parents: Tensor,
    *,
    weigh_by: Literal["size", "one"] = "size",
    drop_constant: bool = False,
) -> Tensor:
    """TreePO: a leaf's reward compared with the leaves below each ancestor, [N]; inner nodes get 0.

    `r_j' = sum_h w_h (r_j - mean_h) / sum_h w_h`, h running over the leaf itself (which adds 0 with
    weight 1) and all its ancestors, mean_h over the leaves below h.

    Args:
        rewards: [N], read at leaves.
        parents: [N] int.
        weigh_by: w_h is the number of leaves below h ("size"), or 1 ("one").
        drop_constant: leave out subgroups whose rewards are all equal.

    Source: arXiv 2508.17445.

    Leaves 2, 3 below node 1, and leaf 4 beside it: (1 * 0 + 2 * 0.5 + 3 * 1/3) / 6 for leaf 2.

    >>> r, parents = torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0]), torch.tensor([-1, 0, 1, 1, 0])
    >>> treepo_leaf_rewards(r, parents)
    tensor([ 0.0000,  0.0000,  0.3333, -0.5000,  0.2500])
    """
    values, leaves = floating(rewards).detach(), torch.ones_like(parents, dtype=torch.bool)
    leaves[parents[parents >= 0]] = False
    sizes, means, constant = _below(values, parents, leaves)
    total, weight = torch.zeros_like(values), torch.zeros_like(values)
    # All nodes climb one level per round, each from itself to its root; then `ancestors` is -1.
    ancestors = torch.arange(len(parents), device=parents.device)
    for _ in range(int(node_depths(parents).max()) + 1 if len(parents) else 0):
        exists, index = ancestors >= 0, ancestors.clamp(min=0)
        share = sizes[index] if weigh_by == "size" else torch.ones_like(values)
        counted = exists & ~constant[index] if drop_constant else exists
        share = torch.where(counted, share, 0.0)
        total, weight = total + share * (values - means[index]), weight + share
        ancestors = _climb(ancestors, parents)
    return torch.where(leaves & (weight > 0), total / torch.where(weight > 0, weight, 1.0), 0.0)


def treepo_advantages(
    rewards: Tensor,
    parents: Tensor,
    *,
    weigh_by: Literal["size", "one"] = "size",
    drop_constant: bool = False,
    eta: float = 1.0,
) -> Tensor:
    """TreePO: the value of a segment minus that of the parent, from leaf rewards compared at every
    level; 0 at a root.

    `A = R_node - eta^d R_parent`, R being `tree_values(treepo_leaf_rewards(...))` and d the depth
    of the node. The method then whitens over tokens (`whiten`).

    Args:
        rewards: [N], read at leaves.
        parents: [N] int.
        weigh_by: see `treepo_leaf_rewards`.
        drop_constant: see `treepo_leaf_rewards`.
        eta: decay of the parent's part with depth; 1 (the authors' default) is none.

    Returns:
        [N], one per node.

    Source: arXiv 2508.17445.

    >>> r, parents = torch.tensor([0.0, 1.0, 0.0]), torch.tensor([-1, 0, 0])
    >>> treepo_advantages(r, parents)  # leaf rewards (2 * 0.5) / 3 and (2 * -0.5) / 3
    tensor([ 0.0000,  0.3333, -0.3333])
    """
    compared = treepo_leaf_rewards(rewards, parents, weigh_by=weigh_by, drop_constant=drop_constant)
    values = tree_values(compared, parents)
    decay = eta ** node_depths(parents).to(values.dtype)
    return torch.where(parents >= 0, values - decay * values[parents.clamp(min=0)], 0.0)


def _backed_up(values: Tensor, parents: Tensor, at: Tensor) -> Tensor:
    """Return `values` [N] in which the parents of the nodes `at` [N] have the mean of these."""
    above, brought = parents[at], values[at]
    total = torch.zeros_like(values).index_add(0, above, brought)
    count = torch.zeros_like(values).index_add(0, above, torch.ones_like(brought))
    # A mean stays among its terms, so that no rounding makes a step of equal values.
    least = torch.full_like(values, torch.inf).scatter_reduce(0, above, brought, "amin")
    greatest = torch.full_like(values, -torch.inf).scatter_reduce(0, above, brought, "amax")
    return torch.where(count > 0, (total / count.clamp(min=1)).clamp(least, greatest), values)


def _climb(nodes: Tensor, parents: Tensor) -> Tensor:
    return torch.where(nodes >= 0, parents[nodes.clamp(min=0)], nodes)


def _below(values: Tensor, parents: Tensor, leaves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return for the leaves below each node: count, mean reward, whether all rewards are equal."""
    count, total = torch.zeros_like(values), torch.zeros_like(values)
    least, greatest = torch.full_like(values, torch.inf), torch.full_like(values, -torch.inf)
    ancestors = torch.where(leaves, torch.arange(len(parents), device=parents.device), -1)
    while bool((ancestors >= 0).any()):
        exists = ancestors >= 0
        index, reward = ancestors[exists], values[exists]
        count = count.index_add(0, index, torch.ones_like(reward))
        total = total.index_add(0, index, reward)
        least = least.scatter_reduce(0, index, reward, "amin")
        greatest = greatest.scatter_reduce(0, index, reward, "amax")
        ancestors = _climb(ancestors, parents)
    return count, (total / count.clamp(min=1)).clamp(least, greatest), least == greatest
