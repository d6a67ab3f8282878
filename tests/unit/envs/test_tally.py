"""Tally: sums step by step, and what checking again costs."""

from __future__ import annotations

import random

import pytest

from ludus.envs import EnvSession
from ludus.envs.families.tally import Tally
from ludus.errors import ConfigError


async def begun(env: Tally, index: int = 0, split: str = "train") -> EnvSession:
    session = EnvSession(env)
    await session.reset(seed=0, options={"task": f"{split}/{index}", "split": split})
    return session


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("a33b42c24,=4", 1.0),  # 3 + 4 + 2 = 9, and 9 mod 5 = 4
        ("=4", 1.0),  # a guess that is right is right
        ("=1,=4", 1.0),  # the last one counts
        ("=4,=1", 0.0),
        ("a33b42c24,", 0.0),
        ("4", 0.0),
        ("=44", 0.0),
        ("= 4 ", 1.0),
        ("=4.", 1.0),
        ("=4..", 0.0),
        ("", 0.0),
    ],
)
async def test_what_stands_behind_the_last_equals_sign_is_the_answer(
    answer: str, reward: float
) -> None:
    env = Tally(base=5)
    session = await begun(env)
    env.digits = (3, 4, 2)
    _, given, terminated, *_ = await session.step(answer)
    assert (given, terminated) == (reward, True)


async def test_the_demonstrator_checks_as_often_as_it_is_told_to() -> None:
    env = Tally(base=5, demo_recheck=0.75)
    passes: list[int] = []
    for index in range(400):
        await begun(env, index)
        said = env.demonstrate()
        assert said.endswith(f",={env.gold()}")
        passes.append(said.count(","))
    # geometric: 1 / (1 - 0.75) passes, with a standard deviation of sqrt(0.75) / 0.25 = 3.5 each
    assert sum(passes) / 400 == pytest.approx(4.0, abs=4 * 3.5 / 20)


async def test_a_pass_holds_letters_digits_and_sums() -> None:
    env = Tally(base=5)
    await begun(env)
    env.digits = (3, 4, 2, 0)
    assert env.demonstrate() == "a33b42c24d04,=4"


async def test_a_slip_is_the_last_digit_instead_of_the_sum() -> None:
    env = Tally(base=5, demo_slip=0.6)
    slips = 0
    for index in range(400):
        await begun(env, index)
        answer = env.demonstrate()[-1]
        assert answer in (env.gold(), str(env.digits[-1]))
        slips += answer != env.gold()
    # of the slips, one in five is right all the same: 0.6 * 0.8
    assert slips / 400 == pytest.approx(0.48, abs=0.1)


def test_no_task_is_in_two_splits() -> None:
    env = Tally(base=5, max_items=4)
    seen: dict[str, set[tuple[int, ...]]] = {}
    for split in ("train", "validation", "test"):
        rng = random.Random(split)
        seen[split] = {env._draw(rng, 3, split) for _ in range(300)}  # pyright: ignore[reportPrivateUsage]
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["validation"]
    assert not seen["validation"] & seen["test"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": 11}, "base must be from 2 to 10"),
        ({"min_items": 4, "max_items": 3}, "need 1 <= min_items <= max_items"),
        ({"demo_recheck": 1.0}, r"demo_recheck must be in \[0, 1\)"),
        ({"min_items": 1, "base": 2}, "raise min_items or base"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Tally(**settings)
