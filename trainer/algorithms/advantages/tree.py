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
        at = depths == depth
        total = torch.zeros_like(values).index_add(0, parents[at], values[at])
        count = torch.zeros_like(values).index_add(0, parents[at], torch.ones_like(values[at]))
        values = torch.where(count > 0, total / count.clamp(min=1), values)
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


def tree_node_weights(parents: Tensor) -> Tensor:
    """How much a token of each node weighs, where every leaf below a root weighs 1 on average:
    `w_n = leaves of the root * prod_{n and its ancestors m} 1 / siblings of m, itself included`.

    A token that several leaves share is one sample. With these weights it is in the loss once, and
    as often as the rows of all leaves would have it in a balanced tree; equal weights for every
    token would turn the gradient.

    Args:
        parents: [N] int.

    Source: the product of branching probabilities; Segment policy optimization, arXiv 2505.23564,
    has it as a mean over children.

    >>> tree_node_weights(torch.tensor([-1, 0, 0, 1, 1]))
    tensor([3.0000, 1.5000, 1.5000, 0.7500, 0.7500], dtype=torch.float64)
    """
    count = _children(parents)
    share = torch.where(parents >= 0, 1 / count[parents.clamp(min=0)].clamp(min=1), 1.0).double()
    weights, nodes = torch.ones_like(share), torch.arange(len(parents), device=parents.device)
    roots, ancestors = nodes.clone(), nodes.clone()
    for _ in range(int(node_depths(parents).max()) + 1 if len(parents) else 0):
        exists, index = ancestors >= 0, ancestors.clamp(min=0)
        weights = weights * torch.where(exists, share[index], 1.0)
        roots = torch.where(exists, index, roots)
        ancestors = _climb(ancestors, parents)
    leaves = (count == 0).double()
    return weights * torch.zeros_like(share).index_add(0, roots, leaves)[roots]


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
    return count, total / count.clamp(min=1), least == greatest
