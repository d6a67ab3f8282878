"""A reward model that was trained on preferences drives a policy; `benchmarks/text_reward.py`,
small.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

pytestmark = pytest.mark.slow


def test_the_true_worth_rises_though_nobody_is_told_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import text_reward

    assert text_reward.worth("aabbaabb") == 0.8 * 4
    assert text_reward.worth("aaaaaaaaaa") == pytest.approx(0.8 * (10 - 4))
    curve = text_reward.driven(tmp_path, pairs=500, steps=15, seed=1)
    assert len(curve) == 15
    before, after = (fmean(true for true, _ in part) for part in (curve[:2], curve[-3:]))
    assert before < 4.2  # letters at random have 3.2
    assert after > before + 1
    assert fmean(score for _, score in curve[-3:]) > fmean(score for _, score in curve[:2])
