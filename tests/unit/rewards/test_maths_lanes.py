"""The two lanes of the verifier's pool on a machine that stalls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.rewards.maths.lanes import QUICK_S, TRIES, WALL_FACTOR, Lanes
from ludus.rewards.pool import Fate, PoolLimits

SCORER = """
import time

def score(request):
    while time.time() < request["stalled until"]:
        time.sleep(0.01)  # which uses no CPU seconds, as a process that is not scheduled
    return {"equal": True}
"""


@pytest.fixture
def lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lanes]:
    (tmp_path / "stalled_scorer.py").write_text(SCORER)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Lanes("stalled_scorer:score", PoolLimits(workers=1))
    yield made
    made.close()


def test_a_pair_that_the_quick_lane_gives_no_time_is_decided_in_the_slow_one(lanes: Lanes) -> None:
    ready = lanes.submit({"gold": "0", "stalled until": 0.0}, cpu_s=1.0)
    assert ready.result(timeout=60).fate is Fate.DONE
    until = time.time() + TRIES * WALL_FACTOR * QUICK_S + 0.5
    outcome = lanes.submit({"gold": "1", "stalled until": until}, cpu_s=1.0).result(timeout=60)
    assert time.time() > until, "every try in the quick lane was late"
    assert (outcome.fate, outcome.value) == (Fate.DONE, {"equal": True})
