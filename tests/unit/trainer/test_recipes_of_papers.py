"""The updates of every recipe, through the real trainer, against its paper's formula in NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.agent import Stop, Trajectory
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.recipes.recipe import load_recipe, recipe_names
from ludus.trainer.recipes.resolution import plan_updates, resolve
from ludus.trainer.rollout.batch import Batch
from ludus.trainer.rollout.tracker import SuccessTracker


def load(path: Path) -> Any:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


HERE = Path(__file__).parent / "recipes_reference"
formulas, common = load(HERE / "formulas.py"), load(HERE / "rollouts.py")

# --- the real trainer, watched --------------------------------------------------------------------


class Watched:
    """A step of the trainer, with the weights before and the gradient of each of its updates."""

    def __init__(self, name: str, *, max_rows: int = 1) -> None:
        recipe = load_recipe(name)
        self.algorithm = resolve(recipe, max_tokens=common.MAX_TOKENS)
        self.plan = plan_updates(self.algorithm, groups=common.GROUPS).settings
        self.policy: Any = common.LinearPolicy()
        self.learner = Learner(
            self.policy,
            TrainerConfig(lr=0.05, max_grad_norm=1e9, tokens_per_pass=16_384),
            ReadingOptions(values=recipe.algorithm.value is not None),
        )
        if self.learner.value_head is not None:
            draw = torch.Generator().manual_seed(7)
            weight = 0.3 * torch.randn(1, common.FEATURES, generator=draw)
            self.learner.value_head.weight.data.copy_(weight)
        self.tracker = self._tracker(recipe.sampling.tracker)
        self.groups = common.groups(max_rows=max_rows)
        gathered = gather(self.groups)
        assert gathered is not None
        self.experience: Any = as_default(gathered)
        self.moments: list[dict[str, Any]] = []
        self.learner.optimizer.register_step_pre_hook(self._note)
        self.start = self._weights()

    def run(self) -> Watched:
        updater = Updater(self.algorithm, self.learner, tracker=self.tracker, updates=self.plan)
        updater.step(self.experience, generator=torch.Generator().manual_seed(0))
        return self

    def _tracker(self, settings: Any) -> SuccessTracker | None:
        if settings is None:
            return None
        made = SuccessTracker(settings)
        for number in range(common.GROUPS):
            made.begin(str(number), number % 5, 5)
        return made

    def _weights(self) -> dict[str, Any]:
        head = self.learner.value_head
        return {
            "policy": self.policy.lm_head.weight.detach().double().numpy().copy(),
            "value": None if head is None else head.weight.detach().double().numpy().copy(),
            "bias": 0.0 if head is None else float(head.bias.detach()),
        }

    def _note(self, optimizer: Any, args: Any, options: Any) -> None:
        head = self.learner.value_head
        made = {"policy_grad": gradient_of(self.policy.lm_head.weight)}
        if head is not None:
            made["value_grad"] = gradient_of(head.weight)
        self.moments.append({**self._weights(), **made})


def gradient_of(weight: Tensor) -> Any:
    """0 where nothing was run: a mini-batch of groups without a difference."""
    found = torch.zeros_like(weight) if weight.grad is None else weight.grad
    return found.double().numpy().copy()


def as_default(value: Any) -> Any:
    """Every tensor of a dataclass in the default type, so that the whole path runs in it."""
    if isinstance(value, Tensor):
        return value.to(torch.get_default_dtype()) if value.is_floating_point() else value
    if is_dataclass(value) and not isinstance(value, type):
        changed = {one.name: as_default(getattr(value, one.name)) for one in fields(value)}
        return replace(value, **changed)
    return value


# --- the same in NumPy ----------------------------------------------------------------------------


class Reference:
    """Forward pass and gradient of the linear policy, and what a formula is given."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        batch: Batch = watched.experience.batch
        self.ids = batch.ids.numpy()
        self.mask = batch.mask.double().numpy()
        features = watched.policy.features(batch.ids).double().numpy()
        # what stands before a token predicts it
        self.features = np.concatenate([np.zeros_like(features[:, :1]), features[:, :-1]], axis=1)
        self.orders = list(self._orders())

    def step(self, update: int) -> Any:
        watched, moment = self.watched, self.watched.moments[update]
        experience = watched.experience
        numbers = experience.groups.numpy()
        tasks = [int(task) for task in experience.tasks]
        successes = np.array([task % 5 for task in tasks], dtype=float)
        return formulas.PaperStep(
            rewards=experience.rewards.double().numpy(),
            owners=experience.rollouts.numpy(),
            earned=self.earned(),
            groups=numbers,
            mask=self.mask,
            truncated=experience.truncated.numpy(),
            sampler=experience.batch.sampler_logp.double().numpy(),
            old=self.logp(watched.start),
            now=self.logp(moment),
            proxies=self.proxies(watched.start),
            old_values=self.values(watched.start),
            now_values=self.values(moment),
            # N0 = 8 observations of weight, from five rollouts
            alpha=8 * (successes + 0.5) / 6,
            beta=8 * (5 - successes + 0.5) / 6,
            end_values=self.end_values(),
            max_tokens=float(common.MAX_TOKENS),
            mini_batch=partial(self.mini_batch, update),
        )

    def probabilities(self, weights: Mapping[str, Any]) -> Any:
        logits = self.features @ weights["policy"].T
        raised = np.exp(logits - logits.max(-1, keepdims=True))
        return raised / raised.sum(-1, keepdims=True)

    def chosen(self, table: Any) -> Any:
        return np.take_along_axis(table, self.ids[..., None], -1)[..., 0]

    def logp(self, weights: Mapping[str, Any]) -> Any:
        return np.log(self.chosen(self.probabilities(weights))) * self.mask

    def proxies(self, weights: Mapping[str, Any]) -> Any:
        table = self.probabilities(weights)
        return (1 - 2 * self.chosen(table) + (table**2).sum(-1)) * self.mask

    def values(self, weights: Mapping[str, Any]) -> Any:
        if weights["value"] is None:
            return np.zeros_like(self.mask)
        return ((self.features @ weights["value"].T)[..., 0] + weights["bias"]) * self.mask

    def trajectories(self) -> list[Trajectory]:
        return [one.trajectories[0] for group in self.watched.groups for one in group.episodes]

    def earned(self) -> Any:
        """What a turn earned, at the end of each stretch of trained tokens; of one-row rollouts."""
        found = np.zeros_like(self.mask)
        if len(self.trajectories()) < len(self.mask):
            return found
        for row, one in enumerate(self.trajectories()):
            following = np.append(self.mask[row, 1:], 0)
            ends = np.flatnonzero((self.mask[row] == 1) & (following == 0))
            found[row, ends] = one.verdict.unwrap() / len(ends)
        return found

    def end_values(self) -> Any:
        """The value after the last token of what a limit of the loop cut."""
        start, found = self.watched.start, np.zeros(len(self.trajectories()))
        if start["value"] is None:
            return found
        features = self.watched.policy.features(self.watched.experience.batch.ids)
        for row, one in enumerate(self.trajectories()):
            if one.stop is Stop.MAX_TURNS:
                last = int(np.flatnonzero(self.mask[row])[-1])
                state = features[row, last].double().numpy()
                found[row] = float(start["value"][0] @ state) + start["bias"]
        return found

    def mini_batch(self, update: int, names: list[int]) -> Any:
        """Groups in an order drawn anew each epoch, in as many equal parts as there are splits."""
        splits = self.watched.plan.splits
        order = np.array(names)[self.orders[update // splits](len(names))]
        part = np.array_split(order, splits)[update % splits]
        return np.isin(self.watched.experience.groups.numpy(), part)

    def _orders(self) -> Iterator[Callable[[int], Any]]:
        # epochs is 1 in every recipe: the first draw of the step's generator
        def first(count: int) -> Any:
            return torch.randperm(count, generator=torch.Generator().manual_seed(0)).numpy()

        yield first

    def gradients(self, update: int, slopes: Any) -> tuple[Any, Any]:
        """dL / d(matrix) and dL / d(value head), from dL / dlogp and dL / dvalue."""
        by_logp, by_value = slopes
        table = self.probabilities(self.watched.moments[update])
        onehot = np.eye(common.VOCABULARY)[self.ids]
        by_logit = by_logp[..., None] * (onehot - table)
        policy = np.einsum("btv,btd->vd", by_logit, self.features)
        value = None if by_value is None else np.einsum("bt,btd->d", by_value, self.features)[None]
        return policy, value


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def precision(request: pytest.FixtureRequest) -> Iterator[float]:
    """The default type of the whole path, and what it agrees to."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield 1e-6 if request.param == torch.float32 else 1e-9
    torch.set_default_dtype(before)


def test_every_recipe_has_a_formula() -> None:
    assert sorted(formulas.RECIPES) == recipe_names()


@pytest.mark.parametrize("name", sorted(formulas.RECIPES))
def test_each_update_is_the_papers(name: str, precision: float) -> None:
    watched = Watched(name).run()
    reference = Reference(watched)
    assert len(watched.moments) == watched.plan.count
    signals: list[float] = []
    for update, moment in enumerate(watched.moments):
        slopes = formulas.RECIPES[name](reference.step(update))
        policy, value = reference.gradients(update, slopes)
        signals.append(np.abs(policy).max())
        far = np.abs(moment["policy_grad"] - policy).max()
        assert far <= precision * max(1.0, np.abs(policy).max()), (name, update, far)
        if value is not None:
            off = np.abs(moment["value_grad"] - value).max()
            assert off <= precision * max(1.0, np.abs(value).max()), (name, update, off)
    assert sum(signal > 1e-3 for signal in signals) >= 0.6 * len(signals)


def test_the_segments_of_a_rollout_share_its_advantage_and_count_once(precision: float) -> None:
    """SUPO's own case: one to three rows a rollout."""
    watched = Watched("supo", max_rows=3).run()
    reference = Reference(watched)
    owners = watched.experience.rollouts
    assert len(owners) > len(watched.experience.rewards)
    for update, moment in enumerate(watched.moments):
        policy, _ = reference.gradients(update, formulas.supo(reference.step(update)))
        far = np.abs(moment["policy_grad"] - policy).max()
        assert far <= precision * max(1.0, np.abs(policy).max()), (update, far)
        assert np.abs(policy).max() > 1e-3


@pytest.mark.parametrize("name", ["dapo", "gspo", "cispo", "dler", "spo", "scale_rl"])
def test_the_last_update_of_a_step_is_off_policy(name: str) -> None:
    """The control: what is compared above has ratios on both sides of the clip."""
    watched = Watched(name).run()
    step = Reference(watched).step(watched.plan.count - 1)
    ratios = np.exp((step.now - step.old) * step.mask)[step.mask > 0]
    assert ratios.min() < 0.8
    assert ratios.max() > 1.28


def test_a_formula_of_another_recipe_does_not_pass() -> None:
    """The control: GRPO's formula is not DAPO's."""
    watched = Watched("dapo").run()
    reference = Reference(watched)
    policy, _ = reference.gradients(3, formulas.RECIPES["grpo"](reference.step(3)))
    assert np.abs(watched.moments[3]["policy_grad"] - policy).max() > 1e-3


@pytest.mark.slow
def test_no_two_recipes_have_the_same_gradient() -> None:
    differences = load(Path(__file__).parents[3] / "docs" / "algorithms_differences.py")
    learned = differences.learn()
    names = list(learned)
    pairs = [(a, b) for k, a in enumerate(names) for b in names[:k]]
    near = {pair for pair in pairs if gap(differences, learned, pair, "own") < 0.05}
    assert near == set()
    # the control: with one update each, what differs in the ratio alone is the same
    same = {pair for pair in pairs if gap(differences, learned, pair, "single") < 1e-5}
    assert same == {("gspo", "grpo"), ("minimax_m1", "dapo")}
    # and of every pair the page can say why
    assert all(differences.reasons(*pair) for pair in pairs)


def gap(differences: Any, learned: Any, pair: tuple[str, str], kind: str) -> float:
    return differences.distance(*(getattr(learned[name], kind) for name in pair))
