"""At each end of what makes an environment harder the expert earns 1 and junk earns nothing."""

from typing import Any

import pytest

from ludus.envs import EnvSession, build_env
from ludus.envs.tasks import SPLITS
from ludus.errors import MissingExtra, RewardUnavailable
from ludus.verdict import Status

JUNK = ["junk", "", "<tool_call>", "\x00", "I do not know.", "{}", "[]"]
MAX_JUNK_TURNS = 12

EXTREMES: dict[str, list[dict[str, Any]]] = {
    "arithmetic": [
        {"min_operations": 64, "max_operations": 64},
        {"min_operations": 20, "max_operations": 20, "max_number": 1_000_000},
    ],
    "calls": [
        {"min_calls": 1, "max_calls": 1, "functions": 1},
        {"min_calls": 8, "max_calls": 8, "functions": 8},
    ],
    "coding": [{"min_steps": 1, "max_steps": 1}, {"min_steps": 5, "max_steps": 5}],
    "files": [
        {"min_chores": 1, "max_chores": 1, "min_files": 4, "max_files": 4},
        {"min_chores": 6, "max_chores": 6, "min_files": 200, "max_files": 200},
        {"kinds": ["gather"], "min_chores": 3, "max_chores": 3},
    ],
    "functions": [
        {"min_calls": 4, "max_calls": 8, "slack": 1.0},
        {"min_calls": 196, "max_calls": 200, "slack": 1.0},
    ],
    "ledger": [{"registers": 26, "turns": 128}, {"turns": 8, "doublings": 4}],
    "repair": [{"min_functions": 1, "max_functions": 1}],
    "search": [
        {"min_hops": 1, "max_hops": 1, "topk": 1},
        {"min_hops": 3, "max_hops": 3, "style": "tags"},
        {"shapes": ["compare"], "min_hops": 2, "people": 60},
        {"shapes": ["intersect"], "min_hops": 2, "world": 3, "people": 2000},
    ],
    "sql": [{"min_level": 1, "max_level": 1, "databases": 1}, {"min_level": 4, "databases": 20}],
    "tally": [{"min_items": 20, "max_items": 20, "base": 2}],
    "textworld": [
        {"rooms": 1, "objects": 2, "min_steps": 1, "max_steps": 1, "slack": 1.0},
        {"rooms": 8, "objects": 12, "min_steps": 8, "max_steps": 8, "slack": 1.0},
    ],
    "twenty-questions": [
        {"min_things": 2, "max_things": 2, "slack": 0},
        {"min_things": 96, "max_things": 96, "slack": 0},
    ],
    "verilog": [{"min_outputs": 1, "max_outputs": 1, "min_width": 4, "max_width": 4}],
    "wikigame": [
        {"min_distance": 1, "max_distance": 1, "slack": 1.0},
        {"min_distance": 6, "max_distance": 6, "slack": 1.0, "show_target": False},
    ],
}
SEEDS = {"coding": 4, "repair": 4, "files": 6, "textworld": 3, "verilog": 4}
CASES = [
    pytest.param(name, given, id=f"{name} {' '.join(f'{k}={v}' for k, v in given.items())}")
    for name, several in EXTREMES.items()
    for given in several
]


async def returned(session: EnvSession, split: str, seed: int, junk: str | None) -> float:
    """What the expert earns, or who says `junk` again and again."""
    await session.reset(seed=seed, options={"split": split})
    total, turns = 0.0, 0
    while junk is None or turns < MAX_JUNK_TURNS:
        action = session.env.demonstrate() if junk is None else junk
        assert action is not None
        _, reward, terminated, truncated, _ = await session.step(action)
        total, turns = total + reward, turns + 1
        if terminated or truncated:
            break
    return total


@pytest.mark.slow
@pytest.mark.parametrize(("name", "given"), CASES)
async def test_experts_earn_one_and_junk_nothing(name: str, given: dict[str, Any]) -> None:
    try:
        session = EnvSession(build_env(f"ludus/{name}-v0", **given))
        for split in SPLITS:
            for seed in range(SEEDS.get(name, 30)):
                assert await returned(session, split, seed, None) == pytest.approx(1)
            for seed, junk in enumerate(JUNK[: SEEDS.get(name, len(JUNK))]):
                assert await returned(session, split, seed, junk) <= 0
        await session.close()
    except MissingExtra as error:
        pytest.skip(str(error))
    except RewardUnavailable as error:
        if error.verdict.status is not Status.UNAVAILABLE:
            raise
        pytest.skip(f"no reward on this machine: {error}")
