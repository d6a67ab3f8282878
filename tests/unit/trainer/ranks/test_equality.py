"""Ranks train what one process trains: every recipe, and what else a learner can be asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.trainer.recipes.recipe import recipe_names

WRONG = "a mean of gradients"
PULLED = ("reference that stays", "moving reference")
HALF = {
    "bfloat16": 0.05,
    "a float32 head in bfloat16": 0.05,
    "float16": 0.01,
    "float16, overflows": 0.01,
}
"""Cases in half precision, and how far a gradient may be from that of one process: ranks round
every weight, autocast only those of products.
"""


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.large)])
def test_ranks_have_the_gradients_weights_and_metrics_of_one_process(
    world: int, start: Any, tmp_path: Path
) -> None:
    out = tmp_path / "found.json"
    started = start("equality.py", world, out)
    said = [rank.communicate(timeout=500)[0] for rank in started]
    assert [rank.returncode for rank in started] == [0] * world, "\n".join(said)
    found = json.loads(out.read_text())
    assert {*recipe_names(), WRONG} < set(found)
    wrong = found.pop(WRONG)
    assert wrong["gradient"] == pytest.approx(1 - 1 / world, rel=0.01)  # the test can fail
    assert found["a moving average"]["averaged"] > 2e-7  # it is not what is trained
    pulled = [found[f"a {name}"]["metrics"]["loss"] for name in PULLED]
    assert all(loss > 0.01 for loss in pulled[0])  # it is far, until it is reset
    assert all(abs(loss) < 1e-6 for loss in pulled[1])
    assert found["float16, overflows"]["metrics"]["loss_scale"][0] < 2.0**40
    for name, case in found.items():
        assert case["updates"] > 1, name
        if name in HALF:
            assert case["gradient"] <= HALF[name], name
            scales = case["metrics"].get("loss_scale", [1.0, 1.0])
            assert scales[1] / 4 <= scales[0] <= scales[1], name  # gradients are float16 on ranks
            continue
        assert case["names"], name
        # over the largest entry of the gradient, in float32
        assert case["gradient"] <= 1e-6, name
        # an update moves a weight by the learning rate, 1e-6, where rounding decides its sign
        assert max(case["weights"], case["average"]) <= 1e-7, name
        for metric, (sharded, plain) in case["metrics"].items():
            assert sharded == pytest.approx(plain, rel=1e-4, abs=1e-5), (name, metric)


@pytest.mark.large  # tracing the layers takes minutes on two busy cores
@pytest.mark.timeout(1600)
def test_compiled_layers_on_ranks_have_the_gradients_of_one_process_that_compiles_nothing(
    start: Any, tmp_path: Path
) -> None:
    out = tmp_path / "found.json"
    started = start("equality.py", 2, out, "compiled")
    said = [rank.communicate(timeout=1500)[0] for rank in started]
    assert [rank.returncode for rank in started] == [0, 0], "\n".join(said)
    found = json.loads(out.read_text())
    assert len(found) == 2
    for name, case in found.items():
        assert case["gradient"] <= 1e-6, name
        assert case["weights"] <= 1e-7, name
