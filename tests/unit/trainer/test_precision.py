"""Half precision, copies in float32, scaled losses, critics, averages, and memory that runs out."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.errors import ConfigError, UpdateRefused
from ludus.trainer.config import ModelConfig, RunConfig, TrainConfig, TrainerConfig
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.learning.copies import FOLDER
from ludus.trainer.learning.learner import Learner, LossScale, Predicted, UpdatePasses
from ludus.trainer.learning.pass_memory import OutOfMemory
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.devices import chosen_precision, pick_device, settled_dtype, unsupported
from ludus.trainer.models.loading import load_model, save_model
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.models.weights import MemoryWeights, checked
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.rollout.batch import Batch, Row, pad
from ludus.trainer.setup import settle
from ludus.trainer.sft import negative_log_likelihood


def learner(
    dtype: torch.dtype = torch.float32, autocast: torch.dtype | None = None, **settings: Any
) -> Learner:
    model: Any = build_model(300, hidden=16, layers=2, heads=2, max_length=64)
    model = model.to(dtype)
    values = settings.pop("values", False)
    given: dict[str, Any] = {"lr": 1e-2, **settings}
    config = TrainerConfig(**given)
    return Learner(model, config, ReadingOptions(autocast=autocast, values=values))


def batch(count: int = 6, length: int = 12) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 300, (count, length), generator=generator).tolist()
    return pad([Row(one, [0, *([1] * (length - 1))], [0.0] * length) for one in ids])


def teach(made: Learner, steps: int = 1, given: Batch | None = None) -> list[dict[str, float]]:
    given = given or batch()
    every = torch.arange(len(given))
    return [made.update(given, every, negative_log_likelihood) for _ in range(steps)]


def weights(made: Learner) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in made.model.named_parameters()}


def test_steps_too_small_for_bfloat16_add_up_in_the_copies() -> None:
    made, lost = learner(torch.bfloat16, lr=1e-5), learner(torch.bfloat16, lr=1e-5)
    exact = learner(lr=1e-5)
    rounded = {name: one.float() for name, one in weights(made).items()}
    exact.model.load_state_dict(rounded, strict=False)  # a tied head
    first = weights(made)
    teach(made, 40)
    teach(exact, 40)
    name = "model.layers.0.mlp.up_proj.weight"
    began = first[name].float()
    moved = (made.masters.of(made.model.get_parameter(name)).detach() - began).abs().mean()
    expected = (exact.model.get_parameter(name).detach() - began).abs().mean()
    assert float(moved) == pytest.approx(float(expected), rel=0.1)
    # the positive control: bfloat16 weights moved by the optimizer itself stand nearly still
    bare = torch.optim.AdamW(lost.model.parameters(), lr=1e-5, betas=(0.9, 0.99), weight_decay=0.0)
    for _ in range(40):
        bare.zero_grad()
        total, count = negative_log_likelihood(batch(), lost.predict(batch()))
        (total / count).backward()
        bare.step()
    stuck = (lost.model.get_parameter(name).detach().float() - began).abs().mean()
    assert float(stuck) < float(expected) / 2


def test_copies_are_saved_and_passes_add_up_in_float32() -> None:
    one, other = learner(torch.bfloat16), learner(torch.bfloat16, tokens_per_pass=12)
    norms = [teach(made)[0]["grad_norm"] for made in (one, other)]
    assert norms[0] == pytest.approx(norms[1], rel=2e-2)  # of bfloat16's 8 bits
    assert all(part.grad is None for part in one.model.parameters())
    state = copy.deepcopy(one.state())
    twin = learner(torch.bfloat16)
    twin.model.load_state_dict(one.model.state_dict())
    twin.restore(state)
    for made in (one, twin):
        teach(made, 2)
    for mine, theirs in zip(one.masters.state(), twin.masters.state(), strict=True):
        assert torch.equal(mine, theirs)


def test_float16_learns_as_float32_with_a_scaled_loss() -> None:
    half, full = learner(autocast=torch.float16), learner()
    told, expected = teach(half, 3), teach(full, 3)
    assert (
        1 < told[0]["loss_scale"] < 2.0**15
    )  # halved until the sums of the batch did not overflow
    assert told[2]["loss_scale"] == told[0]["loss_scale"]
    for one, other in zip(told, expected, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-2)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=2e-2)


def steep(part: Batch, predicted: Predicted) -> Any:
    """A loss whose gradient overflows in float16 at the first scales."""
    total, weight = negative_log_likelihood(part, predicted)
    return total * 64, weight


def test_an_overflow_of_the_scale_is_computed_again_and_is_no_broken_update() -> None:
    made, full = learner(autocast=torch.float16), learner()
    made.scale.factor = 2.0**24
    given = batch()
    told = made.update(given, torch.arange(6), steep)
    expected = full.update(given, torch.arange(6), steep)
    assert made.updates == 1
    assert made.scale.factor < 2.0**24
    assert told["grad_norm"] == pytest.approx(expected["grad_norm"], rel=2e-2)
    before = weights(made)

    def broken(part: Batch, predicted: Predicted) -> Any:
        total, weight = negative_log_likelihood(part, predicted)
        bad = part.inputs.rewards
        assert bad is not None
        return total + (predicted.logp.sum(1) * bad).sum(), weight

    worth = torch.tensor([0.0, 0.0, math.inf, 0.0, 0.0, 0.0])
    bad = Batch(given.ids, given.mask, given.sampler_logp, given.lengths, Inputs(rewards=worth))
    with pytest.raises(UpdateRefused, match="not finite") as refused:
        made.update(bad, torch.arange(6), broken)
    assert 2 in refused.value.rows
    assert all(torch.equal(one, before[name]) for name, one in weights(made).items())


def test_the_scale_grows_after_many_updates_and_is_kept() -> None:
    made = LossScale(torch.float16)
    for _ in range(200):
        made.made()
    assert made.factor == 2.0**16
    again = LossScale(torch.float16)
    again.restore(made.state())
    assert again.factor == 2.0**16
    other = LossScale(torch.bfloat16)
    other.restore(made.state())
    assert (other.factor, other.lower()) == (1.0, False)


def test_a_device_without_bfloat16_is_told_what_to_set() -> None:
    assert "7.5) does not have: set float16" in unsupported("bfloat16", (7, 5))
    assert unsupported("bfloat16", (8, 0)) == unsupported("float16", (7, 0)) == ""
    assert unsupported("bfloat16", None) == ""
    with pytest.raises(ConfigError, match=r"model.weights is 'bfloat16', but model.dtype is"):
        ModelConfig(weights="bfloat16")


@pytest.mark.parametrize(
    ("capability", "dtype"), [((9, 0), "bfloat16"), ((8, 0), "bfloat16"), ((7, 5), "float32")]
)
def test_a_gpu_that_has_bfloat16_computes_in_it_unless_a_type_is_named(
    capability: tuple[int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert settled_dtype("auto", "cuda:0") == dtype
    assert settled_dtype("float32", "cuda:0") == "float32"
    told = chosen_precision("auto", dtype)
    assert len(told) == (dtype == "bfloat16")
    assert all("moments in float32" in one for one in told)
    assert chosen_precision("bfloat16", "bfloat16") == ()  # who names it knows it


@pytest.mark.parametrize(
    ("recipe", "asked", "exact"),
    [("scale_rl", False, True), ("grpo", False, False), ("grpo", True, True)],
)
def test_a_recipe_that_says_so_has_its_head_in_float32(
    recipe: str, asked: bool, exact: bool, tmp_path: Path
) -> None:
    config = TrainConfig(
        env="ludus/arithmetic-v0",
        recipe=recipe,
        model=ModelConfig(path="model", float32_head=asked),
        run=RunConfig(folder=str(tmp_path)),
    )
    settled, _ = settle(config)
    assert settled.model.float32_head is exact


def value_loss(part: Batch, predicted: Predicted) -> Any:
    """Both terms: the policy's likelihood, and a value of 1 everywhere."""
    total, weight = negative_log_likelihood(part, predicted)
    assert predicted.values is not None
    return total + (((predicted.values - 1) ** 2) * part.mask).sum(), weight


@pytest.mark.parametrize("critic", ["shared", "separate"])
def test_values_are_trained_alone_at_first(critic: Any) -> None:
    made = learner(values=True, critic=critic, value_updates=2)
    given, first = batch(), weights(made)
    before = made.score_values(given)
    for _ in range(2):
        made.update(given, torch.arange(6), value_loss)
    assert all(torch.equal(one, first[name]) for name, one in weights(made).items())
    assert float((made.score_values(given) - before).abs().max()) > 1e-3
    made.update(given, torch.arange(6), value_loss)
    assert not all(torch.equal(one, first[name]) for name, one in weights(made).items())


def test_a_separate_critic_leaves_the_policy_to_its_own_gradient() -> None:
    given = batch()
    alone, split, shared = learner(), learner(values=True, critic="separate"), learner(values=True)
    for one in (split, shared):  # a head at 0 sends no gradient into what is below
        assert one.value_head is not None
        torch.nn.init.normal_(one.value_head.weight, generator=torch.Generator().manual_seed(0))
    alone.update(given, torch.arange(6), negative_log_likelihood)
    for one in (split, shared):
        one.update(given, torch.arange(6), value_loss)
    gradient = {id(one): dict(one.model.named_parameters()) for one in (alone, split, shared)}
    name = "model.layers.0.mlp.up_proj.weight"
    mine, theirs, mixed = (gradient[id(one)][name].grad for one in (alone, split, shared))
    assert mine is not None
    assert theirs is not None
    assert mixed is not None
    # clipped together with the critic's, so of equal direction
    assert torch.allclose(mine / mine.norm(), theirs / theirs.norm(), atol=1e-5)
    assert not torch.allclose(mine / mine.norm(), mixed / mixed.norm(), atol=1e-2)
    twin = learner(values=True, critic="separate")
    twin.model.load_state_dict(split.model.state_dict())
    twin.restore(copy.deepcopy(split.state()))
    assert torch.equal(twin.score_values(given), split.score_values(given))


def test_the_critic_has_a_rate_of_its_own() -> None:
    made = learner(values=True, critic="separate", lr=1e-3, critic_lr=1e-2, warmup_steps=4)
    made.update(batch(), torch.arange(6), value_loss)
    rates = [group["lr"] for group in made.optimizer.param_groups]
    assert rates == pytest.approx([2.5e-4, 2.5e-3])


def test_the_average_follows_its_formula_and_is_exported_beside_the_model(tmp_path: Path) -> None:
    made = learner(ema_decay=0.9, ema_use="evaluate")
    name = "model.norm.weight"
    expected = weights(made)[name]
    for _ in range(3):
        teach(made)
        expected = 0.9 * expected + 0.1 * weights(made)[name]
    now = weights(made)
    played = dict(checked(made.evaluated()))
    assert torch.allclose(played[name], expected, atol=1e-6)
    assert all(torch.equal(one, now[key]) for key, one in weights(made).items())
    assert torch.equal(dict(checked(made.source()))[name], now[name])
    tokenizer = build_tokenizer()
    writer = made.writer(tokenizer)
    assert writer is not None
    assert writer.broken() == []
    writer.write(tmp_path)
    assert torch.equal(load_model(tmp_path).get_parameter(name), now[name])
    averaged = load_model(tmp_path / FOLDER).get_parameter(name)
    assert torch.allclose(averaged, expected, atol=1e-6)
    twin = learner(ema_decay=0.9)
    twin.model.load_state_dict(made.model.state_dict())
    twin.restore(copy.deepcopy(made.state()))
    with twin.averaged():
        assert torch.equal(twin.model.get_parameter(name), averaged)
    assert learner().writer(tokenizer) is None
    save_model(made.model, tokenizer, tmp_path / "plain")


def test_an_error_while_the_average_stands_in_leaves_the_weights_as_they_were() -> None:
    made = learner(torch.bfloat16, ema_decay=0.5)
    with made.steady.changing(to=3):
        teach(made, 3)
    before = weights(made)

    def fails_to_write() -> None:
        with made.averaged():
            changed = any(not torch.equal(one, before[key]) for key, one in weights(made).items())
            assert changed, "the control: the average differs from the weights"
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fails_to_write()
    assert all(torch.equal(one, before[key]) for key, one in weights(made).items())
    assert made.steady.version == 3


SMALL_MEMORY = """
import json, logging, resource, sys, torch
torch.set_num_threads(1)
logging.basicConfig(stream=sys.stderr)
from ludus.trainer.config import TrainerConfig
from ludus.trainer.rollout.batch import Row, pad
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.pass_memory import OutOfMemory
from ludus.trainer.sft import negative_log_likelihood
from ludus.trainer.models.tiny import build_model

count, length = map(int, sys.argv[1:])
ids = torch.randint(3, 300, (count, length), generator=torch.Generator().manual_seed(0)).tolist()
given = pad([Row(one, [0] + [1] * (length - 1), [0.0] * length) for one in ids])
made = Learner(build_model(300, max_length=1 << 20), TrainerConfig(tokens_per_pass=1 << 20))
if count > 1:
    made.update(given.take(torch.arange(1)), torch.arange(1), negative_log_likelihood)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), used + (300 << 20)))
try:
    told = made.update(given, torch.arange(count), negative_log_likelihood)
    print(json.dumps({"times": told["out_of_memory"], "bound": made.tokens_per_pass}))
except OutOfMemory as error:
    print(json.dumps({"refused": str(error)}))
"""


def in_small_memory(count: int, length: int) -> tuple[str, str]:
    command = [sys.executable, "-c", SMALL_MEMORY, str(count), str(length)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return made.stdout, made.stderr


@pytest.mark.slow
def test_a_pass_that_does_not_fit_into_memory_is_halved_told_and_made() -> None:
    out, told = in_small_memory(64, 400)
    assert '"times"' in out, (out, told)
    assert "memory ran out in a pass of 25" in told
    assert "set trainer.tokens_per_pass to start there" in told


@pytest.mark.parametrize("fault", ["overflow", "memory"])
def test_what_a_loss_notes_of_passes_that_are_computed_again_can_be_dropped(fault: str) -> None:
    made = learner(autocast=torch.float16 if fault == "overflow" else None, tokens_per_pass=40)
    rows: list[int] = []
    if fault == "overflow":
        made.scale.factor = 2.0**24
    else:
        passes = 0

        def full_once(*_: Any) -> None:
            nonlocal passes
            passes += 1
            if passes == 2:  # the first pass has been noted by then
                raise torch.OutOfMemoryError("CUDA out of memory")

        made.model.base_model.layers[0].register_forward_pre_hook(full_once)

    def noting(part: Batch, predicted: Predicted) -> Any:
        rows.append(len(part))
        return steep(part, predicted)

    made.update(batch(), torch.arange(6), noting, UpdatePasses(afresh=rows.clear))
    assert sum(rows) == 6
    made.update(batch(), torch.arange(6), noting)
    assert sum(rows) == 12


@pytest.mark.slow
def test_a_row_that_does_not_fit_into_memory_is_refused_with_what_helps() -> None:
    out, told = in_small_memory(1, 60_000)
    assert "does not fit into memory, and its 1 row(s) cannot be split further" in out, (out, told)
    assert "trainer.checkpoint_layers" in out


def test_an_update_after_a_shortage_is_the_same_update() -> None:
    """torch's own error, raised by a hook at the first pass above a size."""
    given, whole, short = batch(8), learner(), learner()
    tokens: list[int] = []

    def full(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        tokens.append(inputs[0].shape[0] * inputs[0].shape[1])
        if tokens[-1] > 30:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    short.model.base_model.layers[1].register_forward_pre_hook(full)
    told, expected = teach(short, 1, given)[0], teach(whole, 1, given)[0]
    assert told.pop("out_of_memory") == 2.0
    assert told == pytest.approx(expected, rel=1e-5)
    assert tokens == [96, 48, 24, 24, 24, 24]
    assert short.tokens_per_pass == 24
    assert "out_of_memory" not in teach(short, 1, given)[0]  # the bound stays
    teach(whole, 1, given)
    assert torch.allclose(short.score(given), whole.score(given), atol=1e-3)

    def never(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    short.model.base_model.layers[0].register_forward_pre_hook(never)
    with pytest.raises(OutOfMemory, match="its 1 row"):
        teach(short, 1, given)

    def another(*_: Any) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    whole.model.base_model.layers[0].register_forward_pre_hook(another)
    with pytest.raises(RuntimeError, match="shapes"):
        teach(whole, 1, given)


@torch.no_grad()
def gap_to_exact_head(predicted: Any, hidden: Any, made: Any, ids: Any) -> float:
    """Return the largest difference from log-probabilities of the head's product in float64."""
    exact = torch.log_softmax(hidden.double() @ made.model.lm_head.weight.double().T, -1)
    return float((exact.gather(-1, ids.unsqueeze(-1)).squeeze(-1) - predicted).abs().max())


@pytest.mark.parametrize("on", [True, False])
def test_the_heads_product_is_in_float32_where_that_is_asked_for(on: bool) -> None:
    options = ReadingOptions(autocast=torch.bfloat16, float32_head=on)
    model: Any = build_model(300, hidden=16, layers=2, heads=2, max_length=64)
    made, given = Learner(model, TrainerConfig(), options), batch()
    with torch.no_grad():
        predicted, ids = made.predict(given).logp[:, 1:], given.ids[:, 1:]
        gap = gap_to_exact_head(predicted.flatten(), made._hidden(given), made, ids.flatten())
    assert (gap < 1e-5) is on, gap


@pytest.mark.parametrize("on", [True, False])
async def test_an_engine_in_half_precision_computes_the_head_in_float32_too(on: bool) -> None:
    model: Any = build_model(300, hidden=16, layers=2, heads=2, max_length=64)
    engine = LocalEngine(model.to(torch.bfloat16), float32_head=on)
    ids = batch(count=1).ids[0]

    async def gap() -> float:
        with torch.inference_mode():
            hidden = model.base_model(ids.unsqueeze(0)).last_hidden_state[0, :-1]
        scored = torch.tensor(await engine.logprobs(ids.tolist()))[1:]
        return gap_to_exact_head(scored, hidden, engine, ids[1:])

    assert (await gap() < 1e-5) is on
    weights = {name: 2 * one.detach() for name, one in model.named_parameters()}
    await engine.set_weights(MemoryWeights(weights), 1)
    assert (await gap() < 1e-5) is on  # no copy of the old head
    await engine.close()


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:9999", "cpu:1", ""])
def test_a_device_that_is_none_is_refused_by_the_name_of_its_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^model\.device (must be auto|is .*, but torch sees)"):
        pick_device(name)
