"""Updates of a learner behind the Tinker API: every recipe's gradient is that of this process,
whether the server is asked for a loss of its own or for the recipe's derivative.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.background import run_on_loop
from ludus.secret import Secret
from ludus.trainer.config import ModelConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.credit import Credited, idle_rows
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner, Loss, Predicted, UpdatePasses
from ludus.trainer.learning.update import PassLoss, Updater
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.recipes.algorithm import Algorithm
from ludus.trainer.recipes.recipe import UpdateSettings, load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.batch import Batch
from ludus.trainer.rollout.tracker import SuccessTracker
from ludus.trainer.tinker.client import TinkerClient
from ludus.trainer.tinker.models import BaseModel, ModelHouse
from ludus.trainer.tinker.remote import RemoteLearner
from ludus.trainer.tinker.service import TinkerService
from ludus.trainer.tinker.store import CheckpointStore
from ludus.trainer.tinker.wire import Passed
from ludus.wire.server import BackgroundServer, HttpServer

PLAYED = "recipes_reference/rollouts.py"
SETTINGS = TrainerConfig(lr=1e-3, max_grad_norm=1e9)
rollouts = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / PLAYED)))


class Counting(TinkerClient):
    """A client that keeps which passes it has asked for."""

    def __init__(self, learner: str, key: Secret) -> None:
        super().__init__(learner, key)
        self.asked: list[str] = []
        self.impossible = False
        """Whether the server finds a token of each prompt impossible."""

    async def passed(self, data: Any, loss: str, *given: Any, **named: Any) -> Passed:
        self.asked.append("score" if named.get("forward_only") else loss)
        passed = await super().passed(data, loss, *given, **named)
        if self.impossible:
            passed = replace(passed, logprobs=[np.array(each) for each in passed.logprobs])
            for each in passed.logprobs:
                each[0] = -np.inf
        return passed


class Served(NamedTuple):
    house: ModelHouse
    url: str
    path: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    path = write_tiny_policy(folder / "model", hidden=16, layers=1, heads=2)
    house = ModelHouse(BaseModel.load(ModelConfig(path=str(path), device="cpu"), "m"))
    service = TinkerService(house, CheckpointStore(folder / "kept"))
    with BackgroundServer(HttpServer([service], token="tml-key")) as url:
        yield Served(house, url.replace("http://", "tinker://"), path)


@contextmanager
def learner_of(served: Served) -> Iterator[tuple[RemoteLearner, Counting, Learner]]:
    """A learner elsewhere, its client, and the server's learner, whose weights are trained."""
    client = Counting(served.url, Secret("tml-key"))
    run_on_loop(client.open("m"))
    run_on_loop(client.create("m", None))
    config = TrainConfig(env="", learner=served.url, trainer=SETTINGS)
    try:
        yield RemoteLearner(client, config), client, served.house.models[client.model].made()
    finally:
        run_on_loop(client.close())


@dataclass(frozen=True)
class Case:
    """A recipe, and the passes that its updates ask for: of the first update, and of a later one.

    Both are what the recipe's formula says, not what the code returned.
    """

    recipe: str
    first: tuple[str, ...]
    later: tuple[str, ...] | None = None
    """None where a step has one update alone."""
    algorithm: dict[str, Any] = field(default_factory=dict)
    """Settings of the recipe's algorithm."""


ENTROPY, PPO, CISPO = ("cross_entropy",), ("ppo",), ("cispo",)
KNOWN, TWICE = ("cross_entropy",), ("score", "cross_entropy")
TRUNCATED = {"weights": "tis_weights", "weight_options": {"cap": 1.2, "floor": 0.5}}
SEQUENCES = {"weights": "tis_weights", "weight_options": {"cap": 1.2, "level": "sequence"}}
ABSOLUTE = {"eps_low": 0.5, "eps_high": 1.5, "bounds": "absolute"}
ABOVE = {"eps_low": 1.1, "eps_high": 1.5, "bounds": "absolute"}
CASES = {
    "dapo": Case("dapo", PPO, PPO),
    "dr_grpo": Case("dr_grpo", PPO, PPO),
    "supo": Case("supo", PPO, PPO),
    "cispo": Case("cispo", CISPO, CISPO),
    "minimax_m1": Case("minimax_m1", CISPO, CISPO),
    "scale_rl": Case("scale_rl", CISPO, CISPO),
    "rloo": Case("rloo", ENTROPY, ENTROPY),
    "grpo": Case("grpo", ENTROPY),
    "lite_ppo": Case("lite_ppo", ENTROPY),
    "olmo_rl": Case("olmo_rl", CISPO),
    "reinforce_pp": Case("reinforce_pp", PPO, PPO),
    # Weights against the sampler, of a step with several updates: a factor of each token.
    "ppo, truncated": Case("dapo", PPO, PPO, {"corrections": TRUNCATED}),
    "cispo, truncated": Case("cispo", CISPO, CISPO, {"corrections": TRUNCATED}),
    "the score, truncated": Case("rloo", ENTROPY, ENTROPY, {"corrections": TRUNCATED}),
    "decoupled": Case("dapo", PPO, PPO, {"loss": "decoupled_ppo_loss"}),
    "absolute": Case("cispo", CISPO, CISPO, {"loss_options": ABSOLUTE}),
    "by prompt": Case("dapo", PPO, PPO, {"agg": "prompt_mean"}),
    "by sequence": Case("dapo", PPO, PPO, {"agg": "sequence_mean"}),
    "a floor": Case("grpo", CISPO, None, {"corrections": TRUNCATED}),
    # What the API has no loss for is computed here: ratios of whole sequences, a third branch,
    # bounds that keep out a ratio of 1, weights of whole sequences.
    "gspo": Case("gspo", KNOWN, TWICE),
    "luspo": Case("luspo", KNOWN, TWICE),
    "dler": Case("dler", KNOWN, TWICE),
    "spo": Case("spo", KNOWN, TWICE),
    "above 1": Case("cispo", KNOWN, TWICE, {"loss_options": ABOVE}),
    "weights of sequences": Case("grpo", TWICE, None, {"corrections": SEQUENCES}),
}
LATER_AND_QUICK = {"dapo", "cispo", "rloo", "ppo, truncated", "gspo"}
"""The later updates of these are quick tests: one for each way in which a loss is asked for."""
QUICK = {
    *LATER_AND_QUICK,
    *("grpo", "decoupled", "absolute", "by prompt", "a floor", "weights of sequences"),
}
"""The first updates of these are quick tests; the others ask for the same losses."""


class Step(NamedTuple):
    """A step that learns: what was played, and what the recipe makes of it."""

    algorithm: Algorithm
    credited: Credited
    loss: PassLoss
    passes: UpdatePasses


def step_of(case: Case, here: Learner, *, later: bool) -> Step:
    """A step whose old policy and sampler are off, as clips and bounds see them."""
    recipe = load_recipe(case.recipe, {"algorithm": case.algorithm})
    algorithm = resolve(recipe, max_tokens=rollouts.MAX_TOKENS)
    updates = UpdateSettings(splits=2) if case.later else UpdateSettings()
    tracker = None
    if recipe.sampling.tracker is not None:
        tracker = SuccessTracker(recipe.sampling.tracker)
        for number in range(8):  # what was played before the first step
            tracker.begin(str(number), float(number % 3), 4)
    updater = Updater(algorithm, here, updates=updates, tracker=tracker)
    played = gather(rollouts.groups(max_rows=2)[:8])
    assert played is not None
    draw = torch.Generator().manual_seed(3)
    now = here.score(played.batch)

    def off(spread: float) -> Tensor:
        return (now + spread * torch.randn(now.shape, generator=draw)) * played.batch.mask

    batch = replace(played.batch, sampler_logp=off(0.4))
    experience = replace(played, batch=batch)
    known = updater.known(experience)
    assert (known.old_logp is not None) == updater.asked.old
    if later and known.old_logp is not None:
        known = replace(known, old_logp=off(0.3))
    credited = updater.credited(experience, known, draw)
    idle = idle_rows(credited, algorithm, bonus=0.0)
    loss = updater.loss_of(credited, 0)
    loss.made = int(later)
    loss.watched = frozenset(range(4))
    passes = UpdatePasses(
        idle=idle, together=credited.together, afresh=lambda: loss.forget_after(0, 0, 0)
    )
    return Step(algorithm, credited, loss, passes)


def test_what_a_server_says_of_a_prompt_reaches_no_number(served: Served) -> None:
    played = gather(rollouts.groups(max_rows=2)[:2])
    assert played is not None
    with learner_of(served) as (elsewhere, client, _):
        known = elsewhere.score(played.batch)
        client.impossible = True
        assert torch.equal(elsewhere.score(played.batch), known)


def updated_by(
    learner: Learner | RemoteLearner, holder: Learner, step: Step, loss: Loss
) -> tuple[dict[str, float], list[Tensor]]:
    """Make an update, and return its numbers and the gradient that the optimizer was given."""
    gradient: list[Tensor] = []

    def keep(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            gradient.extend(weight.grad.clone() for weight in group["params"])

    hook = holder.optimizer.register_step_pre_hook(keep)
    rows = torch.arange(len(step.credited.batch))
    numbers = learner.update(step.credited.batch, rows, loss, step.passes)
    hook.remove()
    return numbers, gradient


def close(found: list[Tensor], wanted: list[Tensor]) -> None:
    size = max(float(each.abs().max()) for each in wanted)
    assert size > 0
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).abs().max()) <= 1e-6 * max(size, 1.0)


@pytest.mark.parametrize(
    ("name", "later"),
    [
        (name, late)
        if name in (LATER_AND_QUICK if late else QUICK)
        else pytest.param(name, late, marks=pytest.mark.slow)
        for name, case in CASES.items()
        for late in (False, True)
        if case.later or not late
    ],
)
def test_a_pass_that_the_server_names_has_the_recipes_gradient(
    served: Served, name: str, later: bool
) -> None:
    """Three ways are equal: this process, one request by name, and the derivative that is computed
    here. The numbers that a run keeps of its passes are too.
    """
    case = CASES[name]
    here = Learner(load_model(served.path), SETTINGS)
    step = step_of(case, here, later=later)
    numbers, wanted = updated_by(here, here, step, step.loss)
    measured = (step.loss.moves, step.loss.gaps, step.loss.seen)
    moves, gaps, seen = (list(each) for each in measured)

    def plain(batch: Batch, predicted: Predicted) -> tuple[Tensor, Tensor]:
        return step.loss(batch, predicted)  # not known by its recipe

    for loss, asked in ((plain, TWICE), (step.loss, case.later if later else case.first)):
        with learner_of(served) as (remote, client, there):
            told, gradient = updated_by(remote, there, step, loss)
            assert tuple(client.asked) == asked
        close(gradient, wanted)
        for key in ("loss", "grad_norm", "tokens", "lr"):
            assert told[key] == pytest.approx(numbers[key], rel=1e-5, abs=1e-6), key
        for many, few in ((moves, step.loss.moves), (gaps, step.loss.gaps)):
            assert len(few) == len(many) == (0 if later and many is gaps else 1)
            for one, other in zip(few, many, strict=True):
                assert one == pytest.approx(other, rel=1e-4, abs=1e-5)
        assert len(seen) == len(step.loss.seen)
