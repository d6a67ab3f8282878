"""Write into docs/algorithms.md of each recipe the nearest one; print the cosines of all pairs.

    python docs/algorithms_differences.py

Every recipe learns one step from the same rollouts: once with the updates of its own paper, once
with a single one. What is compared is the sum of the gradients of a step's updates.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import load_recipe, recipe_names
from ludus.trainer.recipes.resolution import compare, plan_updates, resolve
from ludus.trainer.rollout.collect import Group
from ludus.trainer.rollout.tracker import SuccessTracker
from ludus.verdict import Verdict

PAGE = Path(__file__).with_name("algorithms.md")
MARK = "<!-- table of differences: written by docs/algorithms_differences.py -->"
END = "<!-- end of the table of differences -->"
SAME = 1e-5
"""Relative difference of two gradients that are the same but for rounding."""
MAX_TOKENS, GROUPS, VOCABULARY = 10, 24, 40
PARTS = {
    "algorithm.advantage": "advantage",
    "algorithm.whiten": "advantage",
    "algorithm.loss": "loss",
    "algorithm.agg": "mean",
    "algorithm.corrections": "correction",
    "algorithm.ratio_to": "old policy",
    "algorithm.overlong": "overlong mask",
    "algorithm.value": "value head",
    "updates": "updates",
    "sampling.filter": "filter",
    "shaping": "shaping",
}
"""Settings that change the gradient of given rollouts, by how their names begin."""


@dataclass(frozen=True)
class Learned:
    """What a recipe made of the common rollouts."""

    own: Tensor
    """The sum of the gradients of its own updates, flat."""
    single: Tensor
    """The gradient of one update on everything."""
    updates: int


def learn() -> dict[str, Learned]:
    """Every recipe on the common rollouts."""
    return {name: Learned(*_gradients(name)) for name in recipe_names()}


def distance(one: Tensor, other: Tensor) -> float:
    """Relative difference: 0 is the same gradient."""
    return float((one - other).norm() / torch.maximum(one.norm(), other.norm()))


def reasons(left: str, right: str) -> list[str]:
    """What of two recipes differs that can change a gradient."""
    found = [key for key, _, _ in compare(load_recipe(left), load_recipe(right))]
    parts = [part for start, part in PARTS.items() if any(key.startswith(start) for key in found)]
    return list(dict.fromkeys(parts))


def matrix(learned: Mapping[str, Learned]) -> str:
    """Cosines of all pairs: below the diagonal at their own updates, above with one update each."""
    names = list(learned)
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for row, left in enumerate(names):
        cells = [_cell(learned, left, right, row, k) for k, right in enumerate(names)]
        lines.append(f"| {left} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def render(learned: Mapping[str, Learned]) -> str:
    """Of each recipe the nearest one, and what tells them apart."""
    names = list(learned)
    nearest = ["| recipe | updates | nearest | apart by | what differs |"]
    nearest.append("| --- | --- | --- | --- | --- |")
    for name in names:
        other = max((one for one in names if one != name), key=lambda one: _own(learned, name, one))
        apart = distance(learned[name].own, learned[other].own)
        nearest.append(
            f"| {name} | {learned[name].updates} | {other} | {apart:.0%} "
            f"| {', '.join(reasons(name, other))} |"
        )
    return "\n".join(nearest)


def write(text: str) -> None:
    """Between the marks of the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(MARK)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{MARK}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _cell(learned: Mapping[str, Learned], left: str, right: str, row: int, column: int) -> str:
    if row == column:
        return ""
    one, other = learned[left], learned[right]
    pair = (one.own, other.own) if row > column else (one.single, other.single)
    return "same" if distance(*pair) < SAME else f"{_cosine(*pair):.2f}"


def _own(learned: Mapping[str, Learned], left: str, right: str) -> float:
    return _cosine(learned[left].own, learned[right].own)


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


def _gradients(name: str) -> Iterator[Any]:
    own, updates = _step(name, wanted=0)
    single, _ = _step(name, wanted=1)
    yield from (own, single, updates)


def _step(name: str, *, wanted: int) -> tuple[Tensor, int]:
    """The summed gradient of a step, and how many updates it made."""
    recipe = load_recipe(name)
    algorithm = resolve(recipe, max_tokens=MAX_TOKENS)
    plan = plan_updates(algorithm, groups=GROUPS, wanted=wanted).settings
    model = build_model(VOCABULARY, hidden=16, layers=1, heads=2, max_length=64)
    learner = Learner(
        model,
        TrainerConfig(lr=1e-2, max_grad_norm=1e9),
        ReadingOptions(values=recipe.algorithm.value is not None),
    )
    total = torch.zeros(sum(one.numel() for one in model.parameters()))

    def add(*_: object) -> None:
        total.add_(torch.cat([_flat(one) for one in model.parameters()]))

    learner.optimizer.register_step_pre_hook(add)
    settings = recipe.sampling.tracker
    tracker = None if settings is None else SuccessTracker(settings)
    updater = Updater(algorithm, learner, tracker=tracker, updates=plan)
    experience = gather(common_groups())
    assert experience is not None
    metrics = updater.step(experience, generator=torch.Generator().manual_seed(0))
    return total, int(metrics["updates"])


def _flat(parameter: Tensor) -> Tensor:
    found = parameter.grad
    return torch.zeros(parameter.numel()) if found is None else found.flatten()


def common_groups() -> list[Group]:
    """Groups of four: mixed, solved and failed ones, partial rewards, answers that are cut and
    answers that are only long; the engine's probabilities are a little off.
    """
    draw = torch.Generator().manual_seed(3)
    kinds = [[1.0, 0, 0, 0], [1.0, 0, 0, 1], [0.25, 1, 0.5, 0], [1.0, 1, 1, 0]]
    made: list[Group] = []
    for number in range(GROUPS):
        rewards = kinds[number % 4] if number % 7 < 5 else [float(number % 7 == 5)] * 4
        played = [
            Episode(task=str(number), trajectories=[_rollout(draw, reward, (number + place) % 8)])
            for place, reward in enumerate(rewards)
        ]
        made.append(Group(Task(id=str(number), split="train"), played, 0))
    return made


def _rollout(draw: torch.Generator, reward: float, place: int) -> Trajectory:
    length = int(torch.randint(2, MAX_TOKENS + 1, (1,), generator=draw))
    ids = torch.randint(3, VOCABULARY, (3 + length,), generator=draw).tolist()
    sampled = (-3.7 + 0.3 * torch.randn(length, generator=draw)).tolist()
    return Trajectory(
        verdict=Verdict.of(reward),
        stop=Stop.LENGTH if place == 0 else Stop.TERMINATED,
        segments=[Segment(prompt_ids=ids[:3], turns=[Turn(out_ids=ids[3:], logprobs=sampled)])],
    )


if __name__ == "__main__":
    of_recipes = learn()
    sys.stdout.write(matrix(of_recipes) + "\n")
    write(render(of_recipes))
