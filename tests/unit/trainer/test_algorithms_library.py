"""The library as a whole: what it exports, how things are named."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
import torch

from ludus.trainer import algorithms

DOCS = Path(__file__).parents[3] / "docs"
FUNCTIONS: dict[str, Callable[..., object]] = {
    name: getattr(algorithms, name)
    for name in algorithms.__all__
    if isinstance(getattr(algorithms, name), FunctionType)
}
EXPECTED = [
    "reinforce",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
    "grpo",
    "dr_grpo",
    "lite_ppo",
    "gae",
    "egae",
    "vine_ppo",
    "spo_chain",
    "spo_tree",
    "single_stream_spo",
    "opo",
    "otb",
    "treepo",
    "hapo",
    "rover",
    "remax",
    "pass_at_k",
    "supo",
]
EXPECTED_LOSSES = [
    "reinforce",
    "ppo_clip",
    "dual_clip",
    "two_sided_clip",
    "dapo",
    "cispo",
    "gspo",
    "gspo_token",
    "luspo",
    "gmpo",
    "sapo",
    "topr",
    "minpro",
    "lp_reg",
    "decoupled_ppo",
    "minirl",
    "pacs",
    "rover",
    "drpo",
    "kl",
    "entropy",
    "value",
]


def test_every_function_has_a_worked_number() -> None:
    assert not [
        name for name, function in FUNCTIONS.items() if ">>>" not in (function.__doc__ or "")
    ]


def test_methods_say_their_shapes_and_their_source() -> None:
    generic = ("kl_loss", "entropy_loss")
    for name, function in FUNCTIONS.items():
        if name.endswith(("_loss", "_advantages")):
            text = function.__doc__ or ""
            assert "[B" in text or "[N" in text or "[..." in text, name
            assert "Source:" in text or name in generic, name


def test_the_methods_people_look_for_are_there() -> None:
    wanted = {f"{name}_advantages" for name in EXPECTED} | {
        f"{name}_loss" for name in EXPECTED_LOSSES
    }
    assert wanted <= set(algorithms.__all__)


def test_everything_exported_is_there_once() -> None:
    assert len(set(algorithms.__all__)) == len(algorithms.__all__)
    for name in algorithms.__all__:
        assert hasattr(algorithms, name)


def test_losses_return_a_sum_and_a_weight() -> None:
    for name, function in FUNCTIONS.items():
        if name.endswith("_loss"):
            assert inspect.signature(function).return_annotation == "Sum", name


def test_masks_come_first_and_options_are_keywords() -> None:
    for name, function in FUNCTIONS.items():
        if not name.endswith(("_loss", "_advantages", "_weights")):
            continue
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                assert "Tensor" in str(parameter.annotation), (name, parameter.name)


def of_folder(folder: str) -> list[str]:
    """The functions that are written in a folder of the library."""
    place = f"{algorithms.__name__}.{folder}."
    return [name for name, function in FUNCTIONS.items() if function.__module__.startswith(place)]


def load(path: Path) -> ModuleType:
    """A script of the documentation, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_in_the_docs_is_what_the_library_exports() -> None:
    index = load(DOCS / "algorithms_index.py")
    written = (DOCS / "algorithms_index.md").read_text(encoding="utf-8")
    assert written == index.render(), "run python docs/algorithms_index.py"


def test_every_picture_of_the_page_is_there() -> None:
    page = (DOCS / "algorithms.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\]\((pictures/[^)]+)\)", page)
    assert pictures
    for picture in pictures:
        assert (DOCS / picture).is_file(), picture


def test_every_surrogate_and_correction_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    pictures = load(DOCS / "pictures" / "algorithms.py")
    drawn = {name.split()[0] for name in pictures.surrogates()}
    # these read no ratio: a score or a value of the whole answer
    of_answers = {"pacs", "rover", "drpo"}
    losses = {n.removesuffix("_loss") for n in of_folder("surrogates") if n.endswith("_loss")}
    assert losses - of_answers <= drawn
    shown = {axes.get_title().split()[0] for axes in pictures.draw_corrections().axes}
    # these go by what a rollout is, not by a ratio
    of_rollouts = {"overlong_mask", "mpt_mask"}
    made = {n for n in of_folder("corrections") if n.endswith(("_weights", "_mask"))}
    assert made - of_rollouts <= shown


def test_the_example_of_the_page_runs_and_gives_its_gradient() -> None:
    page = (DOCS / "algorithms.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, torch.Tensor] = {}
    exec(compile(blocks[0], "docs/algorithms.md", "exec"), names)
    # A = +-.5 / (sqrt(.5) + 1e-6), ratio 1, six tokens
    one = 0.5 / (0.5**0.5 + 1e-6) / 6
    gradient = names["logp"].grad
    assert gradient is not None
    torch.testing.assert_close(gradient, torch.tensor([[-one] * 3, [one] * 3]))
