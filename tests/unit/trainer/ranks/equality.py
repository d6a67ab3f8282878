"""One rank of the equality test: every recipe, sharded and in one process, in one start.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python equality.py OUT.json [mean]

Rank 0 also trains in one process, and writes the differences. `mean` reduces gradients by their
mean, which is wrong: the positive control.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.update import Updater
from ludus.trainer.ranks.group import Ranks, place_of
from ludus.trainer.ranks.learner import ShardedLearner
from ludus.trainer.recipes import load_recipe, plan_updates, recipe_names, resolve
from ludus.trainer.rollout import Group
from ludus.trainer.rollout.tracker import SuccessTracker
from ludus.trainer.tiny import build_model
from ludus.verdict import Verdict

GROUPS, GROUP_SIZE = 4, 4
SETTINGS = TrainerConfig(lr=1e-6, tokens_per_pass=64)


def experience() -> Experience:
    """Rollouts of one to three windows and 3 to 20 tokens, with rewards 0 and 1."""
    draw = torch.Generator().manual_seed(7)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=draw))

    def window() -> Segment:
        turns = []
        for _ in range(number(1, 3)):
            count = number(1, 8)
            turns.append(
                Turn(
                    obs_ids=[number(3, 40) for _ in range(2)] if turns else [],
                    out_ids=[number(3, 40) for _ in range(count)],
                    logprobs=(-3.7 + 0.3 * torch.randn(count, generator=draw)).tolist(),
                )
            )
        return Segment(prompt_ids=[number(3, 40) for _ in range(3)], turns=turns)

    def rollout(index: int) -> Trajectory:
        cut = index == 3
        return Trajectory(
            verdict=Verdict.of(float((index + number(0, 2)) % 2)),
            stop=Stop.MAX_TURNS if cut else Stop.TERMINATED,
            segments=[window() for _ in range(number(1, 4))],
        )

    groups = []
    for task in range(GROUPS):
        name = f"train/{task}"
        played = [
            Episode(task=name, group=name, index=index, trajectories=[rollout(index)])
            for index in range(GROUP_SIZE)
        ]
        groups.append(Group(Task(id=name, split="train"), played, 0))
    found = gather(groups)
    assert found is not None
    return found


def full(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def trained(recipe: str, ranks: Ranks | None, *, wrong: bool) -> Any:
    """Train a step; return the gradients of each update, the metrics and the weights."""
    algorithm = resolve(load_recipe(recipe), max_tokens=20)

    def learner(values: bool) -> Learner:
        model = build_model(48, hidden=16, layers=2, heads=2, max_length=128)
        options: Any = {"temperature": 0.9, "values": values, "logits_at_once": 48 * 8}
        if ranks is None:
            return Learner(model, SETTINGS, **options)
        return ShardedLearner(model, SETTINGS, ranks=ranks, **options)

    made = learner("values" in algorithm.needs)
    if made.value_head is not None:
        bias = made.value_head.bias
        with torch.no_grad():
            bias.fill_(0.25)
    if wrong and isinstance(made, ShardedLearner):
        for module in made.root.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(float(made.ranks.world))
    plan = plan_updates(algorithm, groups=GROUPS)
    tracker = algorithm.recipe.sampling.tracker
    updater = Updater(
        algorithm,
        made,
        reference=learner(False) if "ref_logp" in algorithm.needs else None,
        tracker=None if tracker is None else SuccessTracker(tracker),
        updates=plan.settings.splits,
        epochs=plan.settings.epochs,
    )
    gradients: list[list[Tensor]] = []
    step = made.optimizer.step

    def kept() -> Any:
        parameters = made._parameters()
        gradients.append([full(one.grad) for one in parameters if one.grad is not None])
        return step()

    made.optimizer.step = kept  # type: ignore[method-assign]
    metrics: dict[str, float] = {}
    data = experience()
    for seed in range(2):
        metrics |= updater.step(data, generator=torch.Generator().manual_seed(seed))
    weights = [full(one) for one in made._parameters()]
    return gradients, metrics, weights


def main() -> None:
    out, wrong = Path(sys.argv[1]), sys.argv[2:] == ["mean"]
    torch.set_num_threads(1)
    place = place_of()
    assert place is not None
    ranks = Ranks(place, timeout_s=60)
    found: dict[str, Any] = {}
    for name in ["grpo"] if wrong else recipe_names():
        sharded = trained(name, ranks, wrong=wrong)
        if place.rank:
            continue
        plain = trained(name, None, wrong=False)
        largest = max(float(one.abs().max()) for update in plain[0] for one in update)
        pairs = [
            (float((a - b).abs().max()))
            for mine, theirs in zip(sharded[0], plain[0], strict=True)
            for a, b in zip(mine, theirs, strict=True)
        ]
        found[name] = {
            "updates": len(plain[0]),
            "gradient": max(pairs) / largest,
            "weights": max(
                float((a - b).abs().max()) for a, b in zip(sharded[2], plain[2], strict=True)
            ),
            "metrics": {
                key: [sharded[1].get(key), value] for key, value in copy.copy(plain[1]).items()
            },
        }
    if not place.rank:
        out.write_text(json.dumps(found))
    ranks.close()


if __name__ == "__main__":
    main()
