"""A judge's measured error in the verifier's card and in the report of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ludus.agent.viewer.page import write_report
from ludus.errors import ConfigError
from ludus.estimates import wilson
from ludus.rewards import make_verifier
from ludus.rewards.judge.card import JudgeCard
from ludus.rewards.judge.prompt import VERSION
from ludus.rewards.measured import Measure, judges_of
from ludus.trainer.rollout.scoring import WeightedVerifier
from ludus.trainer.run.judges import keep_judges, unmeasured

NOWHERE = {"base_url": "http://127.0.0.1:9/v1"}
MEASURE = Measure(name="false praise", rate=wilson(3, 40), events=3, trials=40, ideal=0.0)


def card(path: Path, *, model: str = "m", version: int = VERSION) -> str:
    made = JudgeCard(
        model=model, base_url="http://x/v1", prompt_version=version, measures=[MEASURE], effort={}
    )
    path.write_bytes(msgspec.json.encode(made))
    return str(path)


def rewards(**options: str) -> list[WeightedVerifier]:
    verifier = make_verifier("judge", **NOWHERE, model="m", **options)
    return [WeightedVerifier("judge?model=m", verifier, judges=tuple(judges_of(verifier)))]


def test_a_report_tells_the_measured_error(tmp_path: Path) -> None:
    made = rewards(card=card(tmp_path / "card.json"))
    assert unmeasured(made) == []
    keep_judges(tmp_path, made)
    page = write_report(tmp_path).read_text()
    assert '"name":"false praise"' in page
    assert '"events":3,"trials":40' in page


def test_a_judge_that_nobody_measured_is_told(tmp_path: Path) -> None:
    made = rewards()
    (note,) = unmeasured(made)
    assert "'m'" in note
    assert "ludus check-judge" in note
    keep_judges(tmp_path, made)
    assert '"model":"m"' in write_report(tmp_path).read_text()


def test_a_run_without_judges_says_nothing_of_them(tmp_path: Path) -> None:
    keep_judges(tmp_path, [WeightedVerifier("exact", make_verifier("exact"))])
    assert '"judges":[]' in write_report(tmp_path).read_text()


def test_every_kind_of_judge_and_a_composition_tell_theirs(tmp_path: Path) -> None:
    path = tmp_path / "reward.toml"
    path.write_text('[[parts]]\nname = "judge?base_url=http://127.0.0.1:9/v1&model=inner"\n')
    kinds = {"preference": {}, "evolving-rubric": {}}
    models = [
        judges_of(make_verifier(name, **NOWHERE, model=name, **more))[0].model
        for name, more in kinds.items()
    ]
    assert models == list(kinds)
    assert judges_of(make_verifier("compose", file=str(path)))[0].model == "inner"


@pytest.mark.parametrize("wrong", [{"model": "other"}, {"version": VERSION - 1}])
def test_a_card_of_another_judge_is_refused(wrong: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="measure it again"):
        rewards(card=card(tmp_path / "card.json", **wrong))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="cannot read"):
        rewards(card=str(tmp_path / "none.json"))
