"""Checkpoints of ranks continue with any number of ranks and in one process, and back."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ludus.cli.main import main as run_command
from ludus.errors import ConfigError
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.checkpoint import load_state
from ludus.trainer.models.loading import load_model, load_shell
from ludus.trainer.models.tiny import build_model, write_tiny_policy, write_tiny_vision_policy
from ludus.trainer.ranks.launch import restore_learner


def script() -> Any:
    spec = spec_from_file_location("ranks_checkpoints", Path(__file__).parent / "checkpoints.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["ranks_checkpoints"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("another", [3, pytest.param(4, marks=pytest.mark.large)])
def test_checkpoints_continue_equally_in_any_number_of_processes(
    another: int, start: Any, tmp_path: Path
) -> None:
    here = script()
    write_tiny_policy(tmp_path / "base", **here.SHAPE)
    write_tiny_vision_policy(tmp_path / "vision")
    plain = here.updater(None)
    here.step(plain, 0)
    here.save(plain, tmp_path / "plain", 1)
    here.step(plain, 1)
    expected = here.weights(plain)
    half = here.updater(None, half=True)
    here.step(half, 0)
    half.learner.anchor.every = 0  # a run whose reference stays: ranks go on with one that moves
    here.save(half, tmp_path / "half", 1)
    for world in (2, another):
        started = start("checkpoints.py", world, tmp_path)
        said = [rank.communicate(timeout=300)[0] for rank in started]
        assert [rank.returncode for rank in started] == [0] * world, "\n".join(said)
    folder = tmp_path / "sharded" / "step-000001"
    assert not list(folder.rglob("*.safetensors"))
    with pytest.raises(ConfigError, match=f"no whole model.*ludus model join {folder}"):
        load_model(folder)
    alone = here.updater(None, folder)
    assert alone.learner.updates == 1
    assert_joined(folder, torch.load(tmp_path / "saved.pt"), worst=0.0)
    exported = dict(load_model(folder / "average").named_parameters())
    with alone.learner.averaged():
        for name, weight in alone.learner.model.named_parameters():
            assert torch.allclose(weight, exported[name], rtol=0.0, atol=1e-7), name
    here.step(alone, 1)
    torch.save(here.weights(alone), tmp_path / "continued-1.pt")
    # two ranks that went on, two from the plain checkpoint; more and one from that of two
    for name in ("two", "continued-2", f"continued-{another}", "continued-1"):
        found = torch.load(tmp_path / f"{name}.pt")
        assert list(found) == list(expected)
        worst = max(float((found[key] - one).abs().max()) for key, one in expected.items())
        assert worst <= 1e-6, (name, worst)
    # the folder is one of transformers
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    told = json.loads((tmp_path / "found-2.json").read_text())
    # ranks go on from the float32 copies of one process, not from the rounded weights
    copies = [one.detach() for one in half.learner._parameters()]
    kept = torch.load(tmp_path / "half.pt")
    assert len(kept) == len(copies) == told["moments"]
    assert all(torch.equal(one, copy) for one, copy in zip(kept, copies, strict=True))
    assert any(not torch.equal(one, one.bfloat16().float()) for one in copies)
    assert "the checkpoint of step 2 could not be written" in told["full"]
    assert "rank 1 (host " in told["full"]
    assert "File too large" in told["full"] or "is there room left?" in told["full"]
    assert (told["left"], told["partial"]) == (["step-000001"], [])
    refuse_others(folder, here)
    # an adapter is merged into its base, by rounding of float32 as one process merges it
    adapter = tmp_path / "adapter"
    assert_equal(load_model(adapter), torch.load(tmp_path / "adapter.pt"), "trained", worst=1e-7)
    average = load_model(adapter / "average")
    assert_equal(average, torch.load(tmp_path / "adapter.pt"), "average", worst=1e-7)
    # of a model that reads images, files have other names than the model
    assert_joined(tmp_path / "images", {})
    joined, begun = (load_model(tmp_path / name).state_dict() for name in ("images", "vision"))
    assert joined.keys() == begun.keys()
    assert all(torch.equal(joined[name], one) for name, one in begun.items())
    # an average that the checkpoint has not begins as its weights, not as those before
    empty = load_shell(tmp_path / "images", dtype=torch.float32, device="cpu").requires_grad_(True)
    learner = Learner(empty, TrainerConfig(ema_decay=0.5))
    restore_learner(learner, load_state(tmp_path / "images")["learner"], tmp_path / "images")
    with learner.averaged():
        for name, weight in learner.model.named_parameters():
            assert torch.equal(weight, begun[name]), name


def assert_joined(folder: Path, expected: dict[str, Any], *, worst: float = 0.0) -> None:
    """Join a checkpoint by the command, and compare the models that it writes."""
    assert run_command(["model", "join", str(folder)]) == 0
    if expected:
        assert_equal(load_model(folder), expected, "trained", worst=worst)
        assert_equal(load_model(folder / "average"), expected, "average", worst=worst)


def assert_equal(model: Any, expected: dict[str, Any], kind: str, *, worst: float) -> None:
    named = {name: one.detach() for name, one in model.named_parameters()}
    of_kind = {
        name.removeprefix(f"{kind}/"): one
        for name, one in expected.items()
        if name.startswith(f"{kind}/")
    }
    assert named.keys() == of_kind.keys()
    for name, one in of_kind.items():
        assert float((named[name] - one).abs().max()) <= worst, name


def refuse_others(folder: Path, here: Any) -> None:
    state = load_state(folder)["learner"]
    size = len(here.build_tokenizer())
    values = ReadingOptions(values=True)
    for changed, told in (
        ({"hidden": 24}, "a model of another shape"),
        ({"layers": 1}, r"holds the state of critic\.model\.model\.layers\.1"),
        ({"layers": 3}, r"lacks the state of critic\.model\.model\.layers\.2"),
    ):
        model = build_model(size, **{**here.SHAPE, **changed})
        with pytest.raises(ConfigError, match=told):
            restore_learner(Learner(model, here.SETTINGS, values), state, folder)
    for settings, reading in ((TrainerConfig(), values), (here.SETTINGS, ReadingOptions())):
        with pytest.raises(ConfigError, match="holds the state of a separate critic"):
            restore_learner(
                Learner(build_model(size, **here.SHAPE), settings, reading), state, folder
            )
    half = build_model(size, **here.SHAPE).bfloat16()
    with pytest.raises(ConfigError, match="would start without the optimizer's state"):
        restore_learner(Learner(half, here.SETTINGS, values), state, folder)
    learner = Learner(build_model(size, **here.SHAPE), here.SETTINGS, values)
    with pytest.raises(ConfigError, match="holds no readable shards"):
        restore_learner(learner, state, folder.parent)
