"""LedgerRelay: the generator's promises, the proof's premises, the demonstrators."""

import random
from collections import Counter
from typing import Any

import pytest

from ludus.envs import EnvSession, make_async
from ludus.envs.families.ledger import Ledger, LedgerRelay, draw_ledger
from ludus.errors import ConfigError


def ledgers(count: int, *, registers: int, turns: int, gap: int) -> list[Ledger]:
    return [
        draw_ledger(random.Random(f"{seed}"), registers=registers, turns=turns, gap=gap)
        for seed in range(count)
    ]


SIZES = {"registers": 3, "turns": 16, "gap": 9}


def chi_square(counts: Counter[Any], cells: int) -> float:
    expected = counts.total() / cells
    missing = (cells - len(counts)) * expected
    return missing + sum((seen - expected) ** 2 / expected for seen in counts.values())


def test_the_last_write_is_where_the_ledger_says_and_no_later_than_the_gap() -> None:
    for ledger in ledgers(500, **SIZES):
        turns = [turn for turn, (name, _) in enumerate(ledger.writes) if name == ledger.asked]
        assert max(turns) == ledger.last_write <= 16 - 9
        assert len(ledger.writes) == 16


def test_every_register_is_written_in_the_first_turns() -> None:
    assert all({n for n, _ in ledger.writes[:3]} == set("abc") for ledger in ledgers(200, **SIZES))


def test_the_last_write_is_uniform() -> None:
    drawn = ledgers(4000, **SIZES)
    # 8 turns: 99.9% of a chi-square with 7 degrees of freedom is below 24.3
    assert chi_square(Counter(ledger.last_write for ledger in drawn), 8) < 24.3
    assert chi_square(Counter(ledger.asked for ledger in drawn), 3) < 13.8  # 2 degrees


def test_digits_are_uniform_and_what_is_visible_at_the_question_says_nothing() -> None:
    drawn = ledgers(4000, **SIZES)
    # 9 degrees of freedom: 27.9; 99 degrees: 148.2 (both 99.9%)
    assert chi_square(Counter(ledger.answer for ledger in drawn), 10) < 27.9
    for shown in range(1, 9):
        pairs = Counter((ledger.writes[-shown][1], ledger.answer) for ledger in drawn)
        assert chi_square(pairs, 100) < 148.2


def test_no_reader_of_the_visible_window_beats_one_in_ten() -> None:
    """Rules learned from the last `gap` - 1 writes on half of the ledgers, tested on the rest."""
    drawn = ledgers(8000, **SIZES)
    train, rest = drawn[:4000], drawn[4000:]
    for turn in range(-8, 0):
        table: dict[tuple[str, str], Counter[str]] = {}
        for ledger in train:
            table.setdefault(ledger.writes[turn], Counter())[ledger.answer] += 1
        right = sum(
            table[ledger.writes[turn]].most_common(1)[0][0] == ledger.answer for ledger in rest
        )
        assert right / len(rest) < 0.1 + 4 * (0.09 / len(rest)) ** 0.5


async def play_through(session: EnvSession, seed: int, *, spoil: int | None = None) -> float:
    await session.reset(seed=seed)
    total, over, turn = 0.0, False, 0
    while not over:
        shown = session.env.demonstrate()
        assert isinstance(shown, str)
        action = f"{shown} " if turn == spoil else shown
        _, reward, over, _, _ = await session.step(action)
        total, turn = total + reward, turn + 1
    return total


async def test_the_expert_is_always_right() -> None:
    session = make_async("ludus/ledger-v0", turns=16, doublings=1)
    assert [await play_through(session, seed) for seed in range(30)] == [1.0] * 30


@pytest.mark.parametrize("turn", [0, 5, 16, 17])
async def test_one_character_too_many_ends_with_nothing(turn: int) -> None:
    session = make_async("ludus/ledger-v0")
    assert await play_through(session, 3, spoil=turn) == 0.0


async def test_nothing_but_n_is_said_before_the_question() -> None:
    session = make_async("ludus/ledger-v0")
    for action in ("5", "N", "", "n\n", "nn", "<tool_call>", "n<tool_call>"):
        await session.reset(seed=1)
        assert (await session.step(action))[1:3] == (0.0, True)


async def written(demo: str, count: int = 300) -> tuple[float, float]:
    """How often a digit is right, and how often the newest one, where the two differ."""
    session = make_async("ludus/ledger-v0", demo=demo)
    right = recent = total = 0
    for seed in range(count):
        await session.reset(seed=seed)
        for _ in range(9):
            await session.step("n")
        env = session.env
        assert isinstance(env, LedgerRelay)
        shown = env.ledger.writes[:8]  # the ninth is the newest observation
        summary = env.demonstrate_summary(newest=False)
        assert summary[::2] == "abc"
        for name, digit in zip(summary[::2], summary[1::2], strict=True):
            truth = dict(shown)[name]
            if truth != shown[-1][1]:
                total += 1
                right += digit == truth
                recent += digit == shown[-1][1]
    return right / total, recent / total


async def test_demonstrators_err_as_often_as_they_say() -> None:
    assert await written("clean") == (1.0, 0.0)
    right, recent = await written("noisy")
    assert right == pytest.approx(0.6 + 0.4 / 10, abs=0.06)
    right, recent = await written("recency")
    assert right == pytest.approx(0.35 + 0.65 * 0.2 / 10, abs=0.06)
    assert recent == pytest.approx(0.65 * (0.8 + 0.2 / 10), abs=0.06)  # and so the likelier one


async def test_a_wordy_demonstrator_says_half_of_its_summaries_twice() -> None:
    session = make_async("ludus/ledger-v0", demo="wordy")
    twice = 0
    for seed in range(300):
        await session.reset(seed=seed)
        for _ in range(9):
            await session.step("n")
        env = session.env
        assert isinstance(env, LedgerRelay)
        summary = env.demonstrate_summary(newest=False)
        assert summary[::2] in ("abc", "abcabc")
        if len(summary) == 12:
            assert summary[:6] == summary[6:]
            twice += 1
    assert twice == pytest.approx(150, abs=35)  # four standard deviations


async def test_a_demonstrator_answers_by_what_its_summary_kept() -> None:
    session = make_async("ludus/ledger-v0", demo="recency")
    agreed = 0
    for seed in range(40):
        await session.reset(seed=seed)
        env = session.env
        assert isinstance(env, LedgerRelay)
        for _ in range(17):
            await session.step("n")
        summary = env.demonstrate_summary(newest=False)
        kept = dict(zip(summary[::2], summary[1::2], strict=True))
        agreed += env.demonstrate() == kept[env.ledger.asked]
    assert agreed == 40


def test_a_summary_that_shows_the_question_repeats_it() -> None:
    env = LedgerRelay(turns=3, gap=1, registers=2)
    env.reset()
    for _ in range(4):
        env.step("n")
    assert env.demonstrate_summary(newest=True).endswith(f"?{env.ledger.asked}")


@pytest.mark.parametrize(
    "arguments",
    [
        {"registers": 1},
        {"registers": 27},
        {"turns": 4, "gap": 5},
        {"turns": 2, "registers": 3, "gap": 1},
        {"gap": 0},
        {"doublings": -1},
        {"spread": -1},
        {"demo": "perfect"},
    ],
)
def test_sizes_that_cannot_be_drawn_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LedgerRelay(**arguments)


def test_difficulty_is_the_number_of_turns() -> None:
    tasks = LedgerRelay(turns=8, doublings=2).tasks("train")
    assert {tasks.at(index).difficulty for index in range(60)} == {8.0, 16.0, 32.0}
    tasks = LedgerRelay(turns=9, spread=3, gap=8).tasks("train")
    assert {tasks.at(index).difficulty for index in range(60)} == {9.0, 10.0, 11.0, 12.0}


async def test_a_ledger_has_as_many_writes_as_its_difficulty_says() -> None:
    session = make_async("ludus/ledger-v0", turns=8, doublings=1, spread=3)
    for seed in range(12):
        await session.reset(seed=seed)
        env = session.env
        assert isinstance(env, LedgerRelay)
        assert len(env.ledger.writes) == env.task.difficulty
