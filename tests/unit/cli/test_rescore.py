"""`ludus rescore` with the environment's own return as a part: by-hand rewards and advantages."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import msgspec
import pytest

import ludus
from ludus.agent import Episode, Segment, Stop, Trajectory, Turn, TurnKind
from ludus.cli import rescore
from ludus.errors import ConfigError
from ludus.messages import assistant, user
from ludus.verdict import Verdict


def played(
    task: str, index: int, text: str, reward: float, stop: Stop = Stop.TERMINATED
) -> Episode:
    """One rollout that said `text` and earned `reward`."""
    turn = Turn(
        kind=TurnKind.ACT, obs_ids=[], out_ids=[1], logprobs=[0.0], versions=[0], reward=reward,
        message=assistant(text), observation=[user("Capital?")],
    )  # fmt: skip
    trajectory = Trajectory(
        verdict=Verdict.of(reward), terminated=True, stop=stop,
        segments=[Segment(prompt_ids=[0], turns=[turn])], gold="Paris",
    )  # fmt: skip
    return Episode(task=task, group=task, seed=0, index=index, trajectories=[trajectory])


def run(
    folder: Path, episodes: list[Episode], reward: str, capsys: pytest.CaptureFixture[str]
) -> dict[str, float]:
    path = folder / "episodes.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in episodes))
    (folder / "reward.toml").write_text(reward)
    line = [str(path), "--reward", str(folder / "reward.toml"), "--json"]
    assert rescore.main([*line, "--out", str(folder / "out.jsonl")]) == 0
    told: dict[str, float] = json.loads(capsys.readouterr().out)
    return told


def test_the_recorded_return_is_a_part_and_signs_that_change_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old rewards 1 and 0 of a group: advantages +.5 and -.5. With -2 times an exact match of the
    first: 1 - 2 = -1 and 0, so advantages -.5 and +.5: both change sign.
    """
    episodes = [played("t", 0, "Paris", 1.0), played("t", 1, "Rome", 0.0)]
    parts = '[[parts]]\nname = "env"\n[[parts]]\nname = "exact"\nweight = -2.0\n'
    told = run(tmp_path, episodes, parts, capsys)
    assert (told["sign_changes"], told["compared"]) == (2, 2)
    assert (told["old_mean"], told["new_mean"]) == (0.5, -0.5)
    rescored = (tmp_path / "out.jsonl").read_text()
    assert '"env":[1.0,1.0]' in rescored


@pytest.mark.parametrize("out", ["episodes.jsonl", "reward.toml/out.jsonl"])
def test_a_file_that_cannot_take_the_episodes_is_told_before_anything_is_judged(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, [played("t", 0, "Paris", 1.0)], '[[parts]]\nname = "exact"\n', capsys)
    kept = (tmp_path / "episodes.jsonl").read_bytes()
    line = [str(tmp_path / "episodes.jsonl"), "--reward", str(tmp_path / "nowhere.toml")]
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path / out))):
        rescore.main([*line, "--out", str(tmp_path / out)])
    assert (tmp_path / "episodes.jsonl").read_bytes() == kept


def test_the_return_alone_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes = [played("t", n, "x", n / 4) for n in range(5)]
    told = run(tmp_path, episodes, '[[parts]]\nname = "env"\n', capsys)
    assert told["sign_changes"] == 0
    assert told["old_mean"] == told["new_mean"] == 0.5


def test_an_episode_that_broke_off_has_no_return(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes = [played("t", 0, "x", 1.0), played("t", 1, "x", 0.0, Stop.ENV_ERROR)]
    told = run(tmp_path, episodes, '[[parts]]\nname = "env"\n', capsys)
    assert told["without_new_reward"] == 1


@ludus.verifier("rescore/never")
async def never(sample: ludus.Sample) -> ludus.Verdict:
    """Answer after an hour."""
    await asyncio.sleep(3600)
    return ludus.Verdict.of(1.0)


def test_a_reward_that_never_answers_is_no_reward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescore, "TIMEOUT_S", 0.05)
    episodes = [played("t", n, "x", 1.0) for n in range(2)]
    told = run(tmp_path, episodes, '[[parts]]\nname = "rescore/never"\n', capsys)
    assert told["without_new_reward"] == 2
