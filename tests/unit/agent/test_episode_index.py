"""The index of recorded episodes, and which of them a step keeps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings, strategies as st

from ludus.agent import Episode, Segment, Trajectory, Turn, read_episodes, write_episodes
from ludus.agent.episodes import chosen, indexed
from ludus.messages import assistant
from ludus.verdict import Verdict


def episode(ordinal: int, reward: float | None, tokens: int = 3, text: str = "four") -> Episode:
    verdict = Verdict.unavailable("lost") if reward is None else Verdict.of(reward)
    turn = Turn(out_ids=[1] * tokens, message=assistant(text))
    played = Trajectory(verdict=verdict, segments=[Segment(prompt_ids=[7], turns=[turn])])
    return Episode(task=f"t/{ordinal}", ordinal=ordinal, trajectories=[played])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(max_size=60), max_size=8))
def test_every_episode_is_read_back_by_its_place_in_the_index(texts: list[str]) -> None:
    episodes = [
        episode(number, 1.0, text=text.encode("utf-8", "ignore").decode())
        for number, text in enumerate(texts)
    ]
    path = Path(tempfile.mkdtemp()) / "step-000003.jsonl"
    try:
        sizes = write_episodes(path, episodes)
        data = path.read_bytes()
        lines = indexed(path.name, 3, episodes, sizes, ())
        for line, whole in zip(lines, read_episodes(path), strict=True):
            at = data[line.offset : line.offset + line.bytes]
            assert msgspec.json.decode(at, type=Episode) == whole
            assert (line.ordinal, line.step, line.tokens) == (whole.ordinal, 3, 3)
        assert sum(sizes) == len(data)
    finally:
        shutil.rmtree(path.parent)


def test_a_step_keeps_its_best_worst_failed_and_longest_episode_before_random_ones() -> None:
    step = [episode(n, reward) for n, reward in enumerate([0.5, 0.9, 0.1, None, 0.4, 0.3])]
    step.append(episode(6, 0.5, tokens=50))
    kept = [(why, one.ordinal) for one, why in chosen(step, most=4, seed=0)]
    assert kept == [("best", 1), ("worst", 2), ("failed", 3), ("longest", 6)]
    kept_more = chosen(step, most=6, seed=0)
    assert [why for _, why in kept_more][4:] == ["random", "random"]
    assert len({one.ordinal for one, _ in kept_more}) == 6
    assert chosen(step, most=0, seed=0) == []
    assert [why for _, why in chosen(step[3:4], most=5, seed=0)] == ["failed"]
