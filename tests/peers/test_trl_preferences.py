"""Our preference losses against TRL's own code, where TRL is installed."""

from __future__ import annotations

import json

import pytest

from tests.unit.trainer.test_preference_losses import ours

from . import trl_losses

pytest.importorskip("trl", reason="make test-peers installs TRL")


@pytest.mark.parametrize("seed", range(3))
def test_losses_are_those_of_trl(seed: int) -> None:
    given = trl_losses.inputs(seed)
    theirs = trl_losses.losses(given)
    assert ours(given) == pytest.approx(theirs, abs=1e-9)
    kept = json.loads(trl_losses.NUMBERS.read_text(encoding="utf-8"))["losses"][seed]
    assert theirs == pytest.approx(kept, abs=1e-9)
