"""One rank of the equality test: every recipe, sharded and in one process, in one start.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python equality.py OUT [compiled]

Rank 0 also trains in one process, and writes the differences. With `compiled`, only compiled layers
are trained, beside layers that are not.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import LoraConfig, TrainerConfig
from ludus.trainer.learning.experience import Experience, gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.policy_model import MovingReference
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.adapters import add_adapter
from ludus.trainer.models.tiny import build_model
from ludus.trainer.ranks.group import Ranks, place_of
from ludus.trainer.ranks.learner import ShardedLearner
from ludus.trainer.ranks.sharding import whole
from ludus.trainer.ranks.shards import named_weights
from ludus.trainer.recipes.recipe import load_recipe, recipe_names
from ludus.trainer.recipes.resolution import plan_updates, resolve
from ludus.trainer.rollout.collect import Group
from ludus.trainer.rollout.tracker import SuccessTracker
from ludus.verdict import Verdict

GROUPS, GROUP_SIZE = 4, 4
SETTINGS = TrainerConfig(lr=1e-6, tokens_per_pass=96)


def experience(count: int = GROUPS) -> Experience:
    """Rollouts of one to three windows and 3 to 20 tokens, with rewards 0 and 1."""
    draw = torch.Generator().manual_seed(7)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=draw))

    def window(prompt: list[int]) -> Segment:
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
        return Segment(prompt_ids=prompt, turns=turns)

    def rollout(index: int, prompt: list[int]) -> Trajectory:
        cut = index == 3
        return Trajectory(
            verdict=Verdict.of(float((index + number(0, 2)) % 2)),
            stop=Stop.MAX_TURNS if cut else Stop.TERMINATED,
            segments=[window(prompt) for _ in range(number(1, 4))],
        )

    groups = []
    for task in range(count):
        name = f"train/{task}"
        prompt = [number(3, 40) for _ in range(20 if task % 2 else 3)]  # of 16, it is shared
        played = [
            Episode(task=name, group=name, index=index, trajectories=[rollout(index, prompt)])
            for index in range(GROUP_SIZE)
        ]
        groups.append(Group(Task(id=name, split="train"), played, 0))
    found = gather(groups)
    assert found is not None
    return found


@dataclass(frozen=True)
class Case:
    """What is trained, and how."""

    recipe: str = "grpo"
    settings: dict[str, Any] = field(default_factory=dict)
    tied: bool = True
    groups: int = GROUPS
    mean: bool = False
    """Whether ranks reduce gradients by their mean, which is wrong: the positive control."""
    offload: bool = False
    dtype: torch.dtype | None = None
    """The type to compute in; float32 where it is None."""
    head: bool = False
    """Whether the head's product is computed in float32."""
    scale: float = 0.0
    """What the loss is first scaled by, in float16; 0 leaves it as it is."""
    pulled: bool = False
    """Whether a strong KL pulls towards a reference, which is another model at first."""


LORA = LoraConfig(rank=4)
CASES = {
    **{name: Case(name) for name in recipe_names()},
    "a mean of gradients": Case(mean=True),
    "an untied head": Case(tied=False),
    "an adapter": Case(settings={"lora": LORA}),
    "an adapter and a value head": Case("ppo", settings={"lora": LORA}),
    "padded rows": Case(settings={"packing": "none"}),
    "layers computed again": Case(settings={"checkpoint_layers": True}),
    "every row longer than a pass": Case(settings={"tokens_per_pass": 2}),
    "one group, fewer passes than ranks": Case(groups=1, settings={"tokens_per_pass": 10_000}),
    "shards in the memory of the CPU": Case(offload=True),
    "a critic of its own": Case("ppo", settings={"critic": "separate", "critic_lr": 5e-6}),
    "an adapter and a critic": Case("ppo", settings={"critic": "separate", "lora": LORA}),
    "values alone at first": Case("ppo", settings={"value_updates": 2}),
    "a moving average": Case(settings={"ema_decay": 0.5}),
    "a reference that stays": Case(pulled=True),
    "a moving reference": Case(pulled=True, settings={"reference_every": 1}),
    "a moving reference of an adapter": Case(
        pulled=True, settings={"reference_every": 1, "lora": LORA}
    ),
    "bfloat16": Case(dtype=torch.bfloat16),
    "a float32 head in bfloat16": Case("scale_rl", dtype=torch.bfloat16, head=True),
    "float16": Case(dtype=torch.float16),
    "float16, overflows": Case(dtype=torch.float16, scale=2.0**40),
}

COMPILED = {
    "compiled layers": Case(settings={"compile": True}),
    "compiled layers, computed again": Case(settings={"compile": True, "checkpoint_layers": True}),
}


class Trained(NamedTuple):
    gradients: list[list[Tensor]]
    """Of each update."""
    metrics: dict[str, float]
    weights: dict[str, Tensor]
    """What an engine is given."""
    average: dict[str, Tensor]
    """What an engine is given while the moving average is in place."""


PULL: dict[str, Any] = {"algorithm": {"kl": {"place": "loss", "coefficient": 0.5}}}


def learner_of(case: Case, ranks: Ranks | None, *, values: bool, seed: int = 0) -> Learner:
    model = build_model(
        48,
        seed=seed,
        hidden=16,
        layers=2,
        heads=2,
        max_length=128,
        initializer_range=0.05,  # of released models: rounding is smaller than at 1 / sqrt(16)
        tie_word_embeddings=case.tied,
    )
    settings = replace(SETTINGS, **case.settings)
    if settings.lora.rank:
        add_adapter(model, settings.lora)
    reading = ReadingOptions(
        temperature=0.9,
        values=values,
        autocast=case.dtype,
        float32_head=case.head,
        logits_at_once=48 * 8,
    )
    if ranks is None:
        return Learner(model, settings, reading)
    return ShardedLearner(model, settings, reading, ranks=ranks, offload=case.offload)


def trained(case: Case, ranks: Ranks | None) -> Trained:
    """Train two steps."""
    algorithm = resolve(load_recipe(case.recipe, PULL if case.pulled else None), max_tokens=20)
    made = learner_of(case, ranks, values="values" in algorithm.needs)
    if case.mean and isinstance(made, ShardedLearner):
        for module in made.root.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(float(made.ranks.world))
    made.scale.factor = case.scale or made.scale.factor
    plan = plan_updates(algorithm, groups=case.groups)
    tracker = algorithm.recipe.sampling.tracker
    reference: Any = None
    if "ref_logp" in algorithm.needs:
        reference = learner_of(case, ranks, values=False, seed=int(case.pulled))
    if made.anchor.every:
        reference = MovingReference(made, reference)
    updater = Updater(
        algorithm,
        made,
        reference=reference,
        tracker=None if tracker is None else SuccessTracker(tracker),
        updates=plan.settings,
    )
    gradients: list[list[Tensor]] = []
    step = made.optimizer.step

    def kept() -> Any:
        grads = [one.grad for one in named_weights(made).values()]
        gradients.append([whole(one).clone() for one in grads if one is not None])
        return step()

    made.optimizer.step = kept  # type: ignore[method-assign]
    metrics: dict[str, float] = {}
    data = experience(case.groups)
    for seed in range(2):
        metrics |= updater.step(data, generator=torch.Generator().manual_seed(seed))
    # what an engine is compared with
    metrics["scored"] = sum(made.score_ids([7, 30, 4, 11, 23, 9], 0.7))
    weights = published(made)
    with made.averaged():
        return Trained(gradients, metrics, weights, published(made))


def published(made: Learner) -> dict[str, Tensor]:
    """Return a copy of what an engine is given."""
    pieces: Any = made.source().pieces()
    return {name: one.clone() for piece in pieces for name, one in piece.items()}


def furthest(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """Return the largest difference of two models' weights."""
    return max(float((some[name] - one).abs().max()) for name, one in others.items())


def differences(sharded: Trained, plain: Trained) -> dict[str, Any]:
    largest = max(float(one.abs().max()) for update in plain.gradients for one in update)
    pairs = [
        (a, b)
        for mine, theirs in zip(sharded.gradients, plain.gradients, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    ]
    return {
        "updates": len(plain.gradients),
        "gradient": max(float((a - b).abs().max()) for a, b in pairs) / largest,
        "names": list(sharded.weights) == list(plain.weights),
        "weights": furthest(sharded.weights, plain.weights),
        "average": furthest(sharded.average, plain.average),
        "averaged": furthest(plain.average, plain.weights),
        "metrics": {name: [sharded.metrics.get(name), one] for name, one in plain.metrics.items()},
    }


def main() -> None:
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    place = place_of()
    assert place is not None
    compiled = "compiled" in sys.argv[2:]
    if compiled:
        # The graphs that are compiled, without the C++ compiler, which takes minutes for them.
        torch.compile = functools.partial(torch.compile, backend="aot_eager")
    ranks = Ranks(place, timeout_s=240 if compiled else 60)
    found: dict[str, Any] = {}
    for name, case in (COMPILED if compiled else CASES).items():
        sharded = trained(case, ranks)
        if not place.rank:
            found[name] = differences(sharded, trained(Case() if compiled else case, None))
    if not place.rank:
        out.write_text(json.dumps(found))
    ranks.close()


if __name__ == "__main__":
    main()
