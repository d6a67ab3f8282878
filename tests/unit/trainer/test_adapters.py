"""LoRA: what is trained, published, saved and refused."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.errors import ConfigError
from ludus.trainer.config import LoraConfig, TrainerConfig
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.adapters import (
    add_adapter,
    base_of,
    load_adapter,
    merge_saved_adapter,
    merged_tensors,
    save_adapter,
    without_adapter,
)
from ludus.trainer.models.loading import load_model, save_model
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.models.weights import adapter_tensors, checked
from ludus.trainer.rollout.batch import Row, pad
from ludus.trainer.sft import negative_log_likelihood

pytest.importorskip("peft", reason="the extra lora is not installed")

RANK = 3
LAYERS = 2


def plain(seed: int = 0, **sizes: int) -> Any:
    given = {"hidden": 16, "layers": LAYERS, "heads": 2, "max_length": 64} | sizes
    return build_model(300, seed=seed, **given).eval()


def batch(count: int = 6) -> Any:
    generator = torch.Generator().manual_seed(7)
    made: list[Row] = []
    for number in range(count):
        ids = torch.randint(3, 300, (9 + number,), generator=generator).tolist()
        made.append(Row(ids, [0, 0, 0, *([1] * (6 + number))], [0.0] * (9 + number)))
    return pad(made)


def trained(steps: int = 3, **settings: Any) -> tuple[Any, Learner]:
    model = plain()
    lora = LoraConfig(rank=RANK, **settings)
    add_adapter(model, lora, base="nowhere")
    learner = Learner(model, TrainerConfig(lr=3e-2, lora=lora))
    given = batch()
    for _ in range(steps):
        learner.update(given, torch.arange(len(given)), negative_log_likelihood)
    return model, learner


def test_a_new_adapter_changes_nothing_and_only_its_matrices_are_trained() -> None:
    before = plain()
    model, learner = trained(steps=0)
    given = batch()
    fresh = Learner(before, TrainerConfig()).score(given)
    assert torch.equal(fresh, learner.score(given))
    learner.update(given, torch.arange(len(given)), negative_log_likelihood)
    assert not torch.equal(fresh, learner.score(given))
    # 7 linear layers a decoder layer, two matrices each
    assert len(learner.optimizer.param_groups[0]["params"]) == LAYERS * 7 * 2
    now = dict(model.named_parameters())
    for name, weight in before.named_parameters():
        owner, leaf = name.rpartition(".")[::2]
        kept = now.get(name, now.get(f"{owner}.base_layer.{leaf}"))
        assert kept is not None
        assert torch.equal(kept, weight)


def test_merged_weights_give_the_log_probabilities_of_the_adapter() -> None:
    model, learner = trained()
    given = batch()
    merged = plain()
    names = [name for name, _ in merged_tensors(model)]
    assert names == [name for name, _ in merged.named_parameters()]  # a tied head once
    merged.load_state_dict(dict(checked(learner.source())), strict=False)
    gap = (Learner(merged, TrainerConfig()).score(given) - learner.score(given)).abs().max()
    assert float(gap) < 1e-5
    # by hand: W + alpha / r * B A, for one layer
    tensors = adapter_tensors(model)
    stem = "model.layers.1.mlp.up_proj"
    delta = tensors[f"{stem}.lora_B.default.weight"] @ tensors[f"{stem}.lora_A.default.weight"]
    expected = plain().get_parameter(f"{stem}.weight") + 2 * delta
    assert torch.allclose(merged.get_parameter(f"{stem}.weight"), expected, atol=1e-7)


def test_the_base_model_is_the_reference_without_a_second_copy() -> None:
    model, learner = trained()
    given = batch()
    moved = learner.score(given)
    with without_adapter(model):
        inside = learner.score(given)
    assert torch.equal(inside, Learner(plain(), TrainerConfig()).score(given))
    assert torch.equal(learner.score(given), moved)
    learner.update(given, torch.arange(len(given)), negative_log_likelihood)  # it still learns
    assert not torch.equal(learner.score(given), moved)


async def test_an_engine_with_the_adapter_takes_the_matrices_alone() -> None:
    model, learner = trained(publish="adapter")
    names = {meta.name for meta in learner.source().metadata()}
    assert names == set(adapter_tensors(model))
    theirs = plain()
    add_adapter(theirs, LoraConfig(rank=RANK))
    engine, whole = LocalEngine(theirs), LocalEngine(plain())
    try:
        with pytest.raises(ConfigError, match="the engine's model does not have"):
            await whole.set_weights(learner.source(), 1)
        await engine.set_weights(learner.source(), 1)
        given = batch()
        ids = given.ids[5].tolist()
        logprobs = await engine.logprobs(ids)
    finally:
        await engine.close()
        await whole.close()
    expected = learner.score(given)[5, 3:]
    assert torch.allclose(torch.tensor(logprobs[3:]), expected, atol=1e-5)


@pytest.mark.parametrize("save", ["merged", "adapter"])
def test_a_checkpoint_loads_merged_and_continues_as_an_adapter(save: Any, tmp_path: Path) -> None:
    base, tokenizer = tmp_path / "base", build_tokenizer()
    save_model(plain(), tokenizer, base)
    model = load_model(base)
    add_adapter(model, LoraConfig(rank=RANK, save=save), base=str(base))
    learner = Learner(model, TrainerConfig(lr=3e-2))
    given = batch()
    learner.update(given, torch.arange(len(given)), negative_log_likelihood)
    save_model(model, tokenizer, tmp_path / "made")
    whole = list((tmp_path / "made").glob("*.safetensors"))
    assert bool(whole) == (save == "merged")
    loaded = load_model(tmp_path / "made")
    gap = (Learner(loaded, TrainerConfig()).score(given) - learner.score(given)).abs().max()
    assert float(gap) < 1e-5
    again = load_model(base)
    add_adapter(again, LoraConfig(rank=RANK, adapter=str(tmp_path / "made" / "adapter")))
    twin = Learner(again, TrainerConfig(lr=3e-2))
    twin.restore(copy.deepcopy(learner.state()))
    for one in (learner, twin):
        one.update(given, torch.arange(len(given)), negative_log_likelihood)
    assert torch.equal(twin.score(given), learner.score(given))


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft's own
def test_peft_itself_loads_what_was_saved(tmp_path: Path) -> None:
    from peft import PeftModel  # pyright: ignore[reportMissingImports]

    model, learner = trained()
    save_adapter(model, tmp_path)
    given = batch()
    theirs: Any = PeftModel.from_pretrained(plain(), str(tmp_path))
    with torch.no_grad():
        said = theirs(given.ids).logits.log_softmax(-1)
    logp = said[:, :-1].gather(2, given.ids[:, 1:].unsqueeze(2)).squeeze(2) * given.mask[:, 1:]
    assert torch.allclose(logp, learner.score(given)[:, 1:], atol=1e-5)


@pytest.mark.parametrize(
    ("other", "rank", "reason"),
    [
        (lambda: plain(seed=1), RANK, "was trained on 'nowhere' .* has other weights"),
        (lambda: plain(hidden=32), RANK, r"is \[3, 16\], here \[3, 32\]"),
        (lambda: plain(layers=1), RANK, "no counterpart, such as .*layers.1"),
        (plain, RANK + 1, r"another model or rank: .* is \[3, .*, here \[4, "),
        (plain, RANK, ""),  # the positive control
    ],
)
def test_an_adapter_of_another_model_is_refused_with_the_reason(
    other: Any, rank: int, reason: str, tmp_path: Path
) -> None:
    model, _ = trained()
    save_adapter(model, tmp_path)
    mine = other()
    add_adapter(mine, LoraConfig(rank=rank), base="here")
    before = copy.deepcopy(adapter_tensors(mine))
    if not reason:
        return load_adapter(mine, tmp_path)
    with pytest.raises(ConfigError, match=reason):
        load_adapter(mine, tmp_path)
    assert all(torch.equal(one, before[name]) for name, one in adapter_tensors(mine).items())
    return None


def test_an_adapter_that_would_be_scaled_otherwise_is_refused(tmp_path: Path) -> None:
    model, _ = trained(alpha=12.0)
    save_adapter(model, tmp_path)
    with pytest.raises(ConfigError, match=r"the factor 4, .* gives 2; set trainer.lora.alpha = 12"):
        add_adapter(plain(), LoraConfig(rank=RANK, adapter=str(tmp_path)))
    add_adapter(plain(), LoraConfig(rank=RANK, alpha=12.0, adapter=str(tmp_path)))
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({**settings, "alpha_pattern": {"q": 1}})
    )
    with pytest.raises(ConfigError, match="alpha_pattern"):
        merge_saved_adapter(plain(), tmp_path)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", "truncated"),  # as a full disk leaves it
        ("[]", "Expected `object`"),
        ('{"r": 0, "lora_alpha": 1, "target_modules": []}', "at `$.r`"),
        ('{"r": 2, "lora_alpha": null, "target_modules": []}', "lora_alpha"),
    ],
)
def test_settings_of_an_adapter_that_cannot_be_read_are_refused_by_their_file(
    written: str, told: str, tmp_path: Path
) -> None:
    model, _ = trained()
    save_adapter(model, tmp_path)
    (tmp_path / "adapter_config.json").write_text(written)
    named = rf"adapter_config\.json' says nothing of an adapter: .*{re.escape(told)}"
    for read in (
        lambda: base_of(tmp_path),
        lambda: merge_saved_adapter(plain(), tmp_path),
        lambda: add_adapter(plain(), LoraConfig(rank=RANK, adapter=str(tmp_path))),
    ):
        with pytest.raises(ConfigError, match=named):
            read()


def test_the_alpha_that_a_refusal_asks_for_is_taken(tmp_path: Path) -> None:
    model, _ = trained()
    save_adapter(model, tmp_path)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    # The factor is 65 / sqrt(3), so that alpha has more digits than the message shows.
    changed = {**settings, "lora_alpha": 65, "use_rslora": True}
    (tmp_path / "adapter_config.json").write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match=r"set trainer\.lora\.alpha") as caught:
        add_adapter(plain(), LoraConfig(rank=RANK, adapter=str(tmp_path)))
    alpha = float(str(caught.value).rpartition("= ")[2])
    add_adapter(plain(), LoraConfig(rank=RANK, alpha=alpha, adapter=str(tmp_path)))


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft's own
def test_an_adapter_of_rank_stabilised_lora_is_merged_as_peft_merges_it(tmp_path: Path) -> None:
    from peft import PeftModel  # pyright: ignore[reportMissingImports]

    model, _ = trained()
    save_adapter(model, tmp_path)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**settings, "use_rslora": True}))
    theirs: Any = PeftModel.from_pretrained(plain(), str(tmp_path)).merge_and_unload()
    ours = plain()
    merge_saved_adapter(ours, tmp_path)
    expected = dict(theirs.named_parameters())
    for name, weight in ours.named_parameters():
        assert torch.allclose(weight, expected[name], atol=1e-6)


def test_a_folder_without_an_adapter_and_layers_that_do_not_exist_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="cannot load an adapter from"):
        add_adapter(plain(), LoraConfig(rank=RANK, adapter=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"names q_prj; the linear layers .* q_proj, up_proj"):
        add_adapter(plain(), LoraConfig(rank=RANK, targets="q_prj,v_proj"))
    with pytest.raises(ConfigError, match=r"trainer.lora.alpha is set, but trainer.lora.rank is 0"):
        LoraConfig(alpha=4)


def test_some_layers_alone(tmp_path: Path) -> None:
    model, _ = trained(targets="q_proj,v_proj")
    assert len(adapter_tensors(model)) == LAYERS * 2 * 2
    save_adapter(model, tmp_path)
    kept = json.loads((tmp_path / "adapter_config.json").read_text(encoding="utf-8"))
    assert sorted(kept["target_modules"]) == ["q_proj", "v_proj"]
