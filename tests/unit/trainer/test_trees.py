"""Trees of rollouts: each sampled token trained once, with the gradient of the flattened rows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.envs import Task
from ludus.errors import ConfigError
from ludus.trainer.algorithms import (
    deepsearch_advantages,
    grpo_advantages,
    node_depths,
    spo_tree_advantages,
    tree_grpo_advantages,
    tree_node_weights,
    tree_pooled_advantages,
    tree_sibling_advantages,
    tree_values,
    vine_tree_advantages,
)
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import load_policies, load_recipe, merge
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group, own_nodes
from ludus.verdict import Verdict

WORDS = 40
PROMPT = [3, 4, 5, 6]


def overrides(**more: Any) -> dict[str, object]:
    """The sum over sampled tokens, divided by the number of leaves."""
    algorithm = {
        "advantage": "tree_sibling_advantages",
        "agg": "fixed_length",
        "agg_options": {"length": 1.0},
        **more,
    }
    return merge(load_policies("tree"), {"algorithm": algorithm})


def leaf(way: list[tuple[str, list[int]]], reward: float | None, *, prompt: list[int]) -> Episode:
    """A leaf whose turns are nodes with their tokens."""
    turns = [
        Turn(
            obs_ids=[7, 8] if place else [],
            out_ids=list(ids),
            logprobs=[-1.0] * len(ids),
            node=node,
        )
        for place, (node, ids) in enumerate(way)
    ]
    verdict = Verdict.unavailable("lost") if reward is None else Verdict.of(reward)
    trajectory = Trajectory(
        verdict=verdict,
        segments=[Segment(prompt_ids=list(prompt), turns=turns)],
        node=way[-1][0],
        exclude_from_baseline=reward is None,
        exclude_from_loss=reward is None,
    )
    return Episode(task="t", trajectories=[trajectory])


def tree(rewards: list[float | None], *, branch: int = 2, depth: int = 3, seed: int = 0) -> Group:
    """A balanced tree with random tokens; siblings that sampled the same are among them."""
    draw = torch.Generator().manual_seed(seed)
    tokens: dict[str, list[int]] = {}
    leaves: list[Episode] = []
    prompt = [*PROMPT, seed % 10 + 3]
    for path, reward in zip(itertools.product(range(branch), repeat=depth), rewards, strict=True):
        nodes = ["/".join(map(str, path[: level + 1])) for level in range(depth)]
        for node in nodes:
            if node not in tokens:
                tokens[node] = torch.randint(9, WORDS, (5,), generator=draw).tolist()
        leaves.append(leaf([(node, tokens[node]) for node in nodes], reward, prompt=prompt))
    same = [one for one in leaves if one.trajectories[0].node.endswith("1/1")]
    for one in same:  # a sibling that happens to sample what the other did
        turns = one.trajectories[0].turns
        turns[-1].out_ids = list(leaves[leaves.index(one) - 1].trajectories[0].turns[-1].out_ids)
    own_nodes(leaves)
    return Group(Task(id=f"t{seed}", split="train"), leaves, 0, ordinal=seed)


def experience(*groups: Group) -> Experience:
    gathered = gather(groups)
    assert gathered is not None
    return gathered


REWARDS: list[float | None] = [1, 0, 0, 1, 1, 1, 0, 0]
OTHERS: list[float | None] = [0, 0, 1, 0, 0, 1, 1, 1]


def test_every_sampled_token_is_trained_once() -> None:
    step = experience(tree(REWARDS), tree(OTHERS, seed=1))
    assert step.nodes is not None
    nodes = step.nodes[step.batch.mask.bool()]
    counts = torch.bincount(nodes)
    assert set(counts.tolist()) <= {0, 5}, "each node's five tokens, in one row"
    assert int(step.batch.mask.sum()) == 2 * (2 + 4 + 8) * 5
    assert not bool(step.batch.mask[step.nodes < 0].any())


def flattened(step: list[Group], advantage: Any) -> list[tuple[list[int], list[float]]]:
    """Each leaf's whole way, every token with the advantage of its node: the rows of the proof."""
    rows: list[tuple[list[int], list[float]]] = []
    for group in step:
        trajectories = [
            each.trajectories[0] for each in group.episodes if each.trajectories[0].verdict.ok
        ]
        names = sorted(
            {
                "/".join(t.node.split("/")[:d])
                for t in trajectories
                for d in range(t.node.count("/") + 2)
            }
        )
        index = {name: place for place, name in enumerate(names)}
        parents = torch.tensor([index[name.rpartition("/")[0]] if name else -1 for name in names])
        rewards = torch.zeros(len(names), dtype=torch.float64)
        for trajectory in trajectories:
            rewards[index[trajectory.node]] = trajectory.verdict.unwrap()
        values = advantage(rewards, parents)
        for trajectory in trajectories:
            (segment,) = trajectory.segments
            weights = [0.0] * len(segment.ids())
            for start, turn in segment.spans():
                weights[start : start + len(turn.out_ids)] = [
                    float(values[index[turn.node]])
                ] * len(turn.out_ids)
            rows.append((segment.ids(), weights))
    return rows


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms and angles of the model in float64, where transformers takes float32."""

    def norm(self: Any, hidden: Tensor) -> Tensor:
        scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * hidden * scale

    def angles(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        turned = position_ids[..., None].double() * self.inv_freq.double()
        both = torch.cat([turned, turned], -1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "forward", angles)


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(shape).double()


@pytest.mark.parametrize("packing", ["none", "shared"])
def test_the_gradient_is_that_of_the_flattened_rows(exact: None, packing: Any) -> None:
    """In float64 to 1e-12 of its largest entry, with two trees and a sibling that said the same."""
    groups = [tree(REWARDS), tree(OTHERS, seed=1)]
    learner = Learner(
        model(), TrainerConfig(lr=1e-9, max_grad_norm=1e9, packing=packing), ReadingOptions()
    )
    algorithm = resolve(load_recipe("grpo", overrides(loss="reinforce_loss")), max_tokens=8)
    updater = Updater(algorithm, learner)
    updater.step(experience(*groups), generator=torch.Generator().manual_seed(0))
    found = {name: one.grad for name, one in learner.model.named_parameters()}
    reference = model()
    rows = flattened(groups, tree_sibling_advantages)
    total = torch.zeros((), dtype=torch.float64)
    for ids, weights in rows:
        logits = reference(input_ids=torch.tensor([ids])).logits[0, :-1]
        logp = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0]
        total = total - (logp * torch.tensor(weights[1:], dtype=torch.float64)).sum()
    (total / len(rows)).backward()
    wanted = {name: one.grad for name, one in reference.named_parameters()}
    largest = max(float(one.abs().max()) for one in wanted.values() if one is not None)
    for name, one in wanted.items():
        assert one is not None
        assert found[name] is not None
        gap = float((found[name] - one).abs().max()) / largest  # type: ignore[operator]
        assert gap < 1e-12, (name, gap)


def test_the_estimator_of_the_trainer_is_unbiased_on_a_world_that_is_enumerated() -> None:
    """Two roots, each forked once: the mean over all 64 trees is the gradient, to the last digit of
    float32 numbers that are exact; that of SPO-tree is half of it at each level.
    """
    first, second = 0.25, {0: 0.75, 1: 0.5}  # P(a = 1), P(b = 1 | a)
    reward = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 2.0, (1, 1): 0.5}
    chance = {
        "a": {1: first, 0: 1 - first},
        0: {1: second[0], 0: 1 - second[0]},
        1: {1: second[1], 0: 1 - second[1]},
    }
    # the true gradient in the logits of "a", "b after 0", "b after 1"
    value = {a: sum(chance[a][b] * reward[a, b] for b in (0, 1)) for a in (0, 1)}
    spread = lambda p: p * (1 - p)  # noqa: E731
    true = torch.tensor(
        [
            spread(first) * (value[1] - value[0]),
            chance["a"][0] * spread(second[0]) * (reward[0, 1] - reward[0, 0]),
            chance["a"][1] * spread(second[1]) * (reward[1, 1] - reward[1, 0]),
        ],
        dtype=torch.float64,
    )
    learner = Learner(
        build_model(WORDS, hidden=16, layers=1, heads=2), TrainerConfig(), ReadingOptions()
    )
    for advantage, scale in (
        ("tree_sibling_advantages", 1.0),
        ("tree_pooled_advantages", 1.0),
        ("spo_tree_advantages", 0.5),
    ):
        algorithm = resolve(load_recipe("grpo", overrides(advantage=advantage)), max_tokens=8)
        updater = Updater(algorithm, learner)
        mean = torch.zeros(3, dtype=torch.float64)
        for outcome in itertools.product((0, 1), repeat=6):
            a = outcome[:2]
            b = {
                (root, child): outcome[2 + 2 * root + child] for root in (0, 1) for child in (0, 1)
            }
            weight = 1.0
            for root in (0, 1):
                weight *= chance["a"][a[root]]
                for child in (0, 1):
                    weight *= chance[a[root]][b[root, child]]
            leaves = [
                leaf(
                    [(f"{root}", [10 + a[root]]), (f"{root}/{child}", [20 + b[root, child]])],
                    reward[a[root], b[root, child]],
                    prompt=PROMPT,
                )
                for root in (0, 1)
                for child in (0, 1)
            ]
            own_nodes(leaves)
            step = experience(Group(Task(id="t", split="train"), leaves, 0))
            batch = updater.credited(step).batch
            advantages = batch.inputs.advantages
            assert advantages is not None
            for row, root in enumerate((0, 0, 1, 1)):
                child = row % 2
                places = batch.mask[row].nonzero().flatten().tolist()
                for place in places:
                    token = int(batch.ids[row, place])
                    credit = weight * float(advantages[row, place]) / 4  # of 4 leaves
                    if token in (10, 11):
                        mean[0] += credit * (token - 10 - chance["a"][1])
                    else:
                        state = a[root]
                        mean[1 + state] += credit * (b[root, child] - chance[state][1])
        torch.testing.assert_close(mean, scale * true, atol=1e-12, rtol=1e-12)


def test_a_dead_leaf_leaves_the_tree_and_its_siblings_share_its_weight() -> None:
    rewards = list(REWARDS)
    rewards[1] = rewards[4] = rewards[5] = None  # a leaf, and a whole subtree
    dead, plain = tree(rewards), flattened([tree(rewards)], tree_sibling_advantages)
    learner = Learner(
        build_model(WORDS, hidden=16, layers=1, heads=2), TrainerConfig(), ReadingOptions()
    )
    updater = Updater(resolve(load_recipe("grpo", overrides()), max_tokens=8), learner)
    step = experience(dead)
    batch = updater.credited(step).batch
    assert len(batch) == 5
    assert batch.inputs.advantages is not None
    assert step.nodes is not None
    assert step.parents is not None
    living = tree_node_weights(step.parents)
    values = tree_sibling_advantages(
        torch.zeros(len(step.parents), dtype=torch.float64).index_put(
            (step.leaves,), step.rewards.double()
        ),
        step.parents,
    )
    expected = torch.where(step.nodes >= 0, (values * living)[step.nodes.clamp(min=0)], 0.0)
    torch.testing.assert_close(batch.inputs.advantages.double(), expected * batch.mask.double())
    assert plain


def test_a_tree_whose_leaves_all_failed_trains_nothing() -> None:
    assert gather([tree([None] * 8)]) is None
    both = experience(tree([None] * 8), tree(OTHERS, seed=1))
    assert int(both.batch.mask.sum()) == 14 * 5


def test_weights_and_values_against_plain_python() -> None:
    """Random trees: the weight is the product of shares, and an only child has no advantage."""
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        parents = [-1]
        for node in range(1, 14):
            parents.append(int(torch.randint(0, node, (1,), generator=draw)))
        children = {n: [m for m, p in enumerate(parents) if p == n] for n in range(len(parents))}
        rewards = torch.rand(len(parents), generator=draw, dtype=torch.float64)

        def worth(n: int) -> float:
            below = children[n]  # noqa: B023
            return sum(map(worth, below)) / len(below) if below else float(rewards[n])  # noqa: B023

        leaves = sum(not children[n] for n in children)
        weights, above = [], torch.tensor(parents)
        for n in range(len(parents)):
            weight, at = float(leaves), n
            while parents[at] >= 0:
                weight /= len(children[parents[at]])
                at = parents[at]
            weights.append(weight)
        expected = torch.tensor(weights, dtype=torch.float64)
        torch.testing.assert_close(tree_node_weights(above), expected)
        ends = torch.tensor([not children[n] for n in children])
        assert float(expected[ends].sum()) == pytest.approx(leaves)
        values = tree_values(rewards, above)
        assert values.tolist() == pytest.approx([worth(n) for n in range(len(parents))])
        siblings = tree_sibling_advantages(rewards, above)
        parent_based = spo_tree_advantages(rewards, above)
        for n, parent in enumerate(parents):
            brothers = [m for m in children.get(parent, []) if m != n]
            if parent < 0 or not brothers:
                assert float(siblings[n]) == 0
            else:
                mean = sum(worth(m) for m in brothers) / len(brothers)
                assert float(siblings[n]) == pytest.approx(worth(n) - mean)
                scale = len(brothers) / (len(brothers) + 1)
                assert float(parent_based[n]) == pytest.approx(scale * float(siblings[n]))
        assert int(node_depths(above).max()) >= 1
        pooled = tree_pooled_advantages(rewards, above, decay=0.5)

        def leaves_of(n: int) -> list[int]:
            return [leaf for m in children[n] for leaf in leaves_of(m)] or [n]  # noqa: B023

        for n in range(len(parents)):
            total, weight, at, share = 0.0, 0.0, n, 1.0
            while parents[at] >= 0:
                for m in children[parents[at]]:
                    if m != at:
                        total += share * len(leaves_of(m)) * worth(m)
                        weight += share * len(leaves_of(m))
                at, share = parents[at], share / 2
            assert float(pooled[n]) == pytest.approx(worth(n) - total / weight if weight else 0.0)


def test_a_vine_telescopes_and_its_continuations_weigh_nothing() -> None:
    """Two rollouts of three segments with two continuations from each state but the last."""
    parents, played, rewards = [-1], [False], [0.0]
    draw = torch.Generator().manual_seed(0)

    def add(parent: int, valued: bool, reward: float) -> int:
        parents.append(parent)
        played.append(valued)
        rewards.append(reward)
        return len(parents) - 1

    def drawn() -> float:
        return float(torch.rand((), generator=draw, dtype=torch.float64))

    states: dict[int, float] = {}
    ways: list[list[int]] = []
    for _ in range(2):
        way, at = [], 0
        for step in range(3):
            at = add(at, False, drawn() if step == 2 else 0.0)
            way.append(at)
            if step < 2:
                worth = [drawn(), drawn()]
                states[at] = sum(worth) / 2
                for each in worth:
                    add(at, True, each)
            else:
                states[at] = rewards[at]
        ways.append(way)
    beginning = [drawn() for _ in range(3)]
    for each in beginning:
        add(0, True, each)
    states[0] = sum(beginning) / 3
    above, valued = torch.tensor(parents), torch.tensor(played)
    found = vine_tree_advantages(torch.tensor(rewards, dtype=torch.float64), above, valued)
    weights = tree_node_weights(above, valued)
    for way in ways:
        assert [float(found[n]) for n in way] == pytest.approx(
            [states[n] - states[parents[n]] for n in way]
        )
        assert float(found[way].sum()) == pytest.approx(rewards[way[-1]] - states[0])
    assert weights[valued].tolist() == [0.0] * int(valued.sum())
    assert all(weights[n] == 1 for way in ways for n in way), "two rollouts, each counted whole"
    assert not found[valued].any()


def test_tree_grpo_is_two_group_normalisations_averaged_upwards() -> None:
    """Two trees of three and two ends; the trees' names are the groups of the first part."""
    parents = torch.tensor([-1, 0, 0, 1, 1, 3, 3, 2, 2])
    rewards = torch.tensor([0, 0, 0, 0, 1.0, 1.0, 0.5, 0.0, 0.2], dtype=torch.float64)
    ends, trees = [4, 5, 6, 7, 8], torch.tensor([0, 0, 0, 1, 1])
    both = grpo_advantages(rewards[ends], trees) + grpo_advantages(rewards[ends], 0 * trees)
    found = tree_grpo_advantages(rewards, parents)
    torch.testing.assert_close(found[ends], both)
    assert float(found[3]) == pytest.approx(float(both[1] + both[2]) / 2)
    assert float(found[1]) == pytest.approx((float(found[3]) + float(both[0])) / 2)


def test_a_search_credits_what_leads_to_a_right_end_by_its_depth() -> None:
    """One tree: the second end is right. Wrong ends lower nothing that has a right one below."""
    parents = torch.tensor([-1, 0, 1, 1, 3, 3])
    rewards = torch.tensor([0, 0, 0.0, 0, 1.0, 0.0], dtype=torch.float64)
    found = deepsearch_advantages(rewards, parents, least=0.1)
    mean = (-1 + 1 - 1) / 3
    quality = {1: 1 / 3, 2: -1.0, 3: 2 / 3, 4: 1.0, 5: -1.0}
    for node, worth in quality.items():
        assert float(found[node]) == pytest.approx(math.tanh(worth) - mean)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"advantage": "grpo_advantages"}, "the leaves of a tree share tokens"),
        ({"agg": "sequence_mean", "agg_options": {}}, "not defined on trees"),
        ({"loss": "gspo_loss", "agg": ""}, "not defined on trees"),
        ({"value": {}}, "a tree is no line"),
    ],
)
def test_recipes_that_are_not_defined_on_trees_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(load_recipe("grpo", overrides(**changes)), max_tokens=8)
