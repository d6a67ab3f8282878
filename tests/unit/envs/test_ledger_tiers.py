"""The tiers of LedgerRelay: an independent reading of what was shown, and the proofs' premises."""

import random
import re
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from ludus.envs import EnvSession, make_async
from ludus.envs.checks import check_env
from ludus.envs.families.ledger import Ledger, LedgerRelay, Tier, draw_ledger
from ludus.errors import ConfigError

DIGITS = "0123456789"
SIZES = {"registers": 4, "turns": 20, "gap": 9}
TIERS = list(Tier)


@cache
def ledgers(tier: Tier, count: int) -> list[Ledger]:
    return [draw_ledger(random.Random(f"{seed}"), tier=tier, **SIZES) for seed in range(count)]


def read(lines: list[str]) -> str:
    """The answer, from the lines of an episode alone: a reader of its own, by searching back."""
    *written, question = [line for line in lines if not line.startswith("#")]
    name = question[1]
    for _ in range(len(written)):
        total = 0
        for line in reversed(written):
            if line[0] != name:
                continue
            value = line[1:]
            if value.isalpha():
                name = value
                break
            total += int(value.lstrip("+"))
            if "+" not in value:
                return str(total % 10)
    raise AssertionError("the chain has no end")


async def episode(session: EnvSession, seed: int, *, spoil: int | None = None) -> Any:
    """The lines shown after `go`, what was done, and the return of the expert."""
    await session.reset(seed=seed)
    lines, actions, total, over = list[str](), list[str](), 0.0, False
    while not over:
        action = session.env.demonstrate()
        assert isinstance(action, str)
        actions.append(f"{action} " if len(actions) == spoil else action)
        line, reward, over, _, _ = await session.step(actions[-1])
        assert isinstance(line, str)
        lines, total = [*lines, *([] if over else [line])], total + reward
    return lines, actions, total


def test_the_reader_of_these_tests_reads() -> None:
    assert read(["a7", "b4", "a1", "?a"]) == "1"
    assert read(["a7", "b4", "a+5", "b+1", "a+0", "?a"]) == "2"  # 7 + 5 + 0 = 12
    assert read(["a7", "b4", "c1", "ac", "cb", "?a"]) == "4"  # a -> c -> b -> 4


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_keeps_the_contract(tier: Tier) -> None:
    check_env(f"ludus/ledger-v0?tier={tier}", max_return=1.0)


@pytest.mark.parametrize("tier", TIERS)
async def test_the_expert_says_what_an_independent_reader_reads(tier: Tier) -> None:
    session = make_async("ludus/ledger-v0", tier=tier, doublings=1, registers=4, gap=5)
    for seed in range(60):
        lines, actions, total = await episode(session, seed)
        assert (actions[-1], total) == (read(lines), 1.0)
        assert session.env.gold() == read(lines)


@pytest.mark.parametrize("tier", TIERS)
async def test_nothing_wrong_earns_anything(tier: Tier) -> None:
    session = make_async("ludus/ledger-v0", tier=tier, requeries=0)
    lines, _, _ = await episode(session, 5)
    for turn in range(len(lines) + 1):
        assert (await episode(session, 5, spoil=turn))[2] == 0.0


@pytest.mark.parametrize("tier", TIERS)
def test_splits_share_no_ledger(tier: Tier) -> None:
    seen: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    env = LedgerRelay(tier=tier)
    for split in ("train", "validation", "test"):
        for index in range(100):
            env.task = env.tasks(split).at(index)
            env.reset()
            seen.setdefault(split, set()).add(env.ledger.writes)
    assert len(set().union(*seen.values())) == sum(len(one) for one in seen.values()) == 300


def test_sums_are_computed_and_chains_are_followed() -> None:
    for ledger in ledgers(Tier.SUM, 200):
        assert ledger.writes[ledger.last_write][1].startswith("+")
        assert ledger.last_write == ledger.deciding >= 4
    for ledger in ledgers(Tier.POINTER, 200):
        assert ledger.writes[ledger.last_write][1] in "abcd"
        assert ledger.deciding < ledger.last_write


@pytest.mark.parametrize("tier", TIERS)
def test_the_digit_that_decides_is_out_of_sight_and_makes_any_answer(tier: Tier) -> None:
    """The lemma of `drawing.py`: same view, and each of ten digits gives another answer."""
    for ledger in ledgers(tier, 500):
        name, value = ledger.writes[ledger.deciding]
        assert ledger.deciding <= ledger.last_write <= 20 - 9
        answers: set[str] = set()
        for digit in DIGITS:
            changed = list(ledger.writes)
            changed[ledger.deciding] = (name, value[:-1] + digit)
            answers.add(read([*(n + v for n, v in changed), f"?{ledger.asked}"]))
        assert answers == set(DIGITS)


class Rotated(random.Random):
    """Draws every digit one higher, and all else alike."""

    def choice(self, seq: Any) -> Any:
        drawn = super().choice(seq)
        return str((int(drawn) + 1) % 10) if seq == DIGITS else drawn


@pytest.mark.parametrize("tier", TIERS)
def test_names_turns_and_targets_never_look_at_a_digit(tier: Tier) -> None:
    for seed in range(300):
        plain = draw_ledger(random.Random(seed), tier=tier, **SIZES)
        other = draw_ledger(Rotated(seed), tier=tier, **SIZES)
        assert (plain.asked, plain.last_write) == (other.asked, other.last_write)
        raised = [
            (name, re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), value))
            for name, value in plain.writes
        ]
        assert raised == list(other.writes)


@pytest.mark.parametrize("tier", TIERS)
def test_no_reader_of_the_visible_suffix_beats_one_in_ten(tier: Tier) -> None:
    """Rules learned from each visible line on half of the ledgers, tested on the rest."""
    drawn = [(ledger.writes, ledger.answer) for ledger in ledgers(tier, 4000)]
    train, rest = drawn[:2000], drawn[2000:]
    for turn in range(-8, 0):
        table: dict[object, Counter[str]] = {}
        for writes, answer in train:
            table.setdefault(writes[turn], Counter())[answer] += 1
        right = sum(
            writes[turn] in table and table[writes[turn]].most_common(1)[0][0] == answer
            for writes, answer in rest
        )
        assert right / len(rest) < 0.1 + 4 * (0.09 / len(rest)) ** 0.5


@pytest.mark.parametrize("tier", TIERS)
def test_answers_and_last_writes_are_uniform(tier: Tier) -> None:
    drawn = ledgers(tier, 4000)
    answers = Counter(ledger.answer for ledger in drawn)
    # 9 degrees of freedom: 99.9% of a chi-square is below 27.9
    assert sum((answers[digit] - 400) ** 2 / 400 for digit in DIGITS) < 27.9
    first = 4 if tier in (Tier.SUM, Tier.POINTER) else 0
    turns = Counter(ledger.last_write for ledger in drawn)
    expected = 4000 / (12 - first)  # turns first .. 11: 7 or 11 degrees, 24.3 or 31.3
    assert set(turns) == set(range(first, 12))
    assert sum((seen - expected) ** 2 / expected for seen in turns.values()) < 24.3


@pytest.mark.parametrize("tier", TIERS)
async def test_the_view_the_bound_speaks_of_shows_no_write_that_decides(tier: Tier) -> None:
    session = make_async("ludus/ledger-v0", tier=tier, gap=5, registers=4, requeries=0)
    env = session.env
    assert isinstance(env, LedgerRelay)
    assert env.bound == Fraction(1, 10)
    closest = 99
    for seed in range(300):
        lines, _, _ = await episode(session, seed)
        items = [place for place, line in enumerate(lines) if line[0] not in "#?"]
        closest = min(closest, len(lines) - 1 - items[env.ledger.deciding])
    # in pointer the digit is written before the question's own register is
    assert closest == env.hidden_from + (tier is Tier.POINTER)


def test_no_bound_is_claimed_where_steps_can_be_repeated() -> None:
    assert LedgerRelay(tier="fetch", requeries=1).bound is None
    assert LedgerRelay(tier="fetch", requeries=0).bound == Fraction(1, 10)


async def test_a_policy_that_repeats_steps_carries_notes_past_its_window() -> None:
    """Why fetch claims no bound: an item shown twice is a bit, written again every turn. The policy
    looks at this turn and at the one before.
    """
    session = make_async("ludus/ledger-v0", tier="fetch", gap=8, requeries=64)
    env = session.env
    assert isinstance(env, LedgerRelay)
    for seed in range(50):
        await session.reset(seed=seed)
        twice = False
        while (line := str((await session.step("n"))[0])).startswith("#"):
            item = str((await session.step(f"g{line[1]}"))[0])
            twice = int(item[1]) >= 5 if item[0] == "a" else twice
            if twice:
                await session.step(f"g{line[1]}")
        assert twice == (int(env.ledger.state["a"]) >= 5)


async def play(actions: str, **more: Any) -> list[tuple[str, float, bool]]:
    """Actions by word, `g` being the number last announced and `x` another."""
    session = make_async("ludus/ledger-v0", tier="fetch", **more)
    await session.reset(seed=2)
    made, number = list[tuple[str, float, bool]](), "0"
    for word in actions.split():
        said = {"g": f"g{number}", "x": f"g{(int(number) + 1) % 10}"}.get(word, word)
        shown, reward, over, _, _ = await session.step(said)
        line = str(shown)
        made.append((line, reward, over))
        number = line[1] if line.startswith("#") else number
    return made


async def test_items_are_shown_to_whoever_asks_for_them() -> None:
    first, item, again, second = await play("n g g n")
    assert re.fullmatch(r"#\d", first[0])
    assert re.fullmatch(r"[abc]\d", item[0])
    assert again == item
    assert re.fullmatch(r"#\d", second[0])


async def test_a_line_that_was_lost_is_shown_again() -> None:
    first, again, item = await play("n n g")
    assert again == first
    assert re.fullmatch(r"[abc]\d", item[0])


@pytest.mark.parametrize("actions", ["g", "n x", "n g x", "n 5", "n g 5", "n G", "n gg"])
async def test_anything_else_ends_the_episode(actions: str) -> None:
    assert (await play(actions))[-1] == ("", 0.0, True)


async def test_repeats_are_counted() -> None:
    assert not (await play("n n n g", requeries=2))[-1][2]
    assert (await play("n n n n", requeries=2))[-1] == ("", 0.0, True)
    assert (await play("n g g n n", requeries=1))[-1] == ("", 0.0, True)


async def test_the_numbers_of_items_say_nothing_of_them() -> None:
    session = make_async("ludus/ledger-v0", tier="fetch")
    pairs: Counter[tuple[str, str]] = Counter()
    for seed in range(200):
        lines, _, _ = await episode(session, seed)
        pairs.update((one[1], two[1]) for one, two in zip(lines[::2], lines[1::2], strict=False))
    expected = pairs.total() / 100  # 99 degrees of freedom: 148.2 (99.9%)
    assert sum((pairs[a, b] - expected) ** 2 / expected for a in DIGITS for b in DIGITS) < 148.2


@pytest.mark.parametrize("tier", TIERS)
async def test_summaries_say_the_state_that_was_seen(tier: Tier) -> None:
    session = make_async("ludus/ledger-v0", tier=tier, registers=3, requeries=0)
    for seed in range(30):
        await session.reset(seed=seed)
        lines = list[str]()
        for _ in range(19):
            action = session.env.demonstrate()
            assert isinstance(action, str)
            line = str((await session.step(action))[0])
            lines.append(line)
            if line.startswith("?"):
                break
        summary = str(session.env.demonstrate_summary(newest=True))
        written = [line for line in lines if line[0] not in "#?"]
        for name in "abc":
            held = summary[2 * "abc".index(name) + 1]
            last = next(line for line in reversed(written) if line[0] == name)
            assert held == (last[1] if last[1].isalpha() else read([*written, f"?{name}"]))


@pytest.mark.parametrize("demo", ["noisy", "recency"])
async def test_demonstrators_of_pointers_err_in_digits_alone(demo: str) -> None:
    session = make_async("ludus/ledger-v0", tier="pointer", demo=demo)
    wrong = 0
    for seed in range(100):
        await session.reset(seed=seed)
        env = session.env
        assert isinstance(env, LedgerRelay)
        for _ in range(12):
            await session.step("n")
        env.demonstrate_summary(newest=True)
        for name, value in env.memory.known.items():
            truth = [text for written, text in env.ledger.writes[:12] if written == name][-1]
            assert value.isalpha() == truth.isalpha()
            assert not value.isalpha() or value == truth
            wrong += value != truth
    assert wrong > 20


@pytest.mark.parametrize(
    "arguments",
    [
        {"tier": "product"},
        {"tier": "pointer", "registers": 2},
        {"tier": "sum", "turns": 10, "gap": 8},
        {"tier": "pointer", "turns": 10, "gap": 8},
        {"tier": "fetch", "requeries": -1},
    ],
)
def test_tiers_that_cannot_be_drawn_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LedgerRelay(**arguments)
