"""`benchmarks/gpu.py` runs on a CPU with tiny sizes, and its formulas are those of its page."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def gpu() -> Any:
    spec = spec_from_file_location("benchmark_gpu", ROOT / "benchmarks" / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["benchmark_gpu"] = module
    spec.loader.exec_module(module)
    return module


def test_every_part_is_measured_and_shown(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("machine", "learner", "engine", "trl"):
        given = ["gpu.py", part, "--cpu", "--tiny", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", given)
        gpu.main()
    found = json.loads((tmp_path / "learner-0.5B.json").read_text())
    assert found["tokens_a_step"] >= 512
    assert found["tokens_s"] > 0
    text = gpu.table(tmp_path, measured=False)
    assert "the figures mean nothing" in text
    assert "of the matrix product" in text
    assert "of what the memory allows" in text


def test_flops_count_matrix_products_and_causal_attention(gpu: Any) -> None:
    model = gpu.made("tiny", gpu.TINY)
    # a layer: q and o 32 x 32, k and v 32 x 32 (2 heads of 16), three of 32 x 64; the head 128 x 32
    assert gpu.matrix_weights(model) == 2 * (4 * 32 * 32 + 3 * 32 * 64) + 128 * 32
    assert sum(gpu.lengths(gpu.Sizes())) >= 16_384  # the goal: at least 16k packed tokens a step


def test_the_script_is_a_script_and_refuses_unknown_options() -> None:
    script = str(ROOT / "benchmarks" / "gpu.sh")
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    refused = subprocess.run(
        ["bash", script, "--gpu"], capture_output=True, text=True, timeout=30, check=False
    )
    assert refused.returncode == 2
    assert "no option --gpu" in refused.stderr
