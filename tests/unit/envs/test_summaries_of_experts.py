"""What the experts of functions and search write where a context window is full."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from ludus.agent import ChatFormat, Segment, TurnKind
from ludus.agent.context import ContextManager, MemAgent, Summarize
from ludus.agent.parsing import HermesFormat
from ludus.envs import make_async
from ludus.envs.families.functions.functions_env import Functions
from ludus.envs.families.functions.moves import Shorten, Sort
from ludus.envs.families.functions.problems import HiddenList
from ludus.envs.families.search.questions import SearchQuestion, notes_of
from ludus.messages import ToolCall
from ludus.trainer.models.tiny import build_tokenizer
from ludus.trainer.rollout.demonstrations import ExpertPolicy, demonstrate


def made(*calls: tuple[str, dict[str, object], str]) -> list[tuple[ToolCall, str]]:
    return [(ToolCall(name=name, arguments=given), said) for name, given, said in calls]


def test_a_summary_of_a_list_holds_the_calls_and_what_they_said() -> None:
    game = Functions(games=["pair"], min_calls=4, max_calls=8).tasks("train")
    pair = game.game(game.at(0))
    assert isinstance(pair, HiddenList)
    calls = made(("length", {}, "3"), ("item", {"index": 0}, "14"))
    assert pair.summary(calls) == "length() = 3; item(0) = 14"


def test_a_summary_of_a_word_holds_what_is_not_written_yet() -> None:
    letters: list[tuple[str, dict[str, object], str]] = [
        ("letter", {"index": i}, said) for i, said in enumerate("aab")
    ]
    calls = made(("length", {}, "6"), *letters, ("write", {"text": "a2"}, ""))
    assert Shorten("aabbbc").summary(calls) == "length 6; read 3; to write: b"
    assert Shorten("aabbbc").summary([]) == "length unknown; read 0; to write: "


def test_a_summary_of_a_row_holds_where_insertion_sort_stands() -> None:
    steps: list[tuple[str, dict[str, object], str]] = [
        ("length", {}, "3"),
        ("compare", {"first": 0, "second": 1}, "the one at 0 is smaller"),
        ("compare", {"first": 1, "second": 2}, "the one at 1 is larger"),
        ("swap", {"first": 1, "second": 2}, "swapped"),
        ("compare", {"first": 0, "second": 1}, "the one at 0 is larger"),
        ("swap", {"first": 0, "second": 1}, "swapped"),
    ]
    notes = [Sort([2, 5, 1]).summary(made(*steps[:count])) for count in range(len(steps) + 1)]
    assert notes == [
        "length unknown; placing 1; next length",
        "length 3; placing 1; next compare 0 1",
        "length 3; placing 2; next compare 1 2",
        "length 3; placing 2; next swap 1 2",
        "length 3; placing 2; next compare 0 1",
        "length 3; placing 2; next swap 0 1",
        "length 3; placing 3; next done",
    ]


def test_notes_of_a_comparison_hold_the_numbers() -> None:
    question = SearchQuestion("Who is older, Ann or Bob?", ("Ann",), ("Ann", "Bob"))
    found = [("Ann", "Ann was born in 1902."), ("Bob", "Bob was born in 1910.")]
    assert notes_of(question, found[:1], 1) == "Found Ann: 1902. Next: Bob."
    assert notes_of(question, found, 2) == "Found Ann: 1902; Bob: 1910. Answer: Ann."
    assert notes_of(question, [], 0) == "Next: Ann."
    assert notes_of(question, [("Ann", "")], 1) == "Found Ann: nothing. Next: Bob."


WORD = {"games": ["shorten"], "min_calls": 10, "max_calls": 14}
ROW = {"games": ["sort"], "min_calls": 14, "max_calls": 20}
PAIR = {"games": ["pair"], "min_calls": 10, "max_calls": 14, "slack": 4.0}
PAGES = {"style": "tags", "topk": 1, "min_hops": 3, "max_hops": 3, "people": 60}


@pytest.mark.parametrize(
    ("env", "arguments", "window"),
    [
        ("functions", WORD, 900),
        ("functions", ROW, 900),
        ("functions", PAIR, 1100),
        ("search", PAGES, 2200),
    ],
)
@pytest.mark.parametrize("manager", ["carry", "discard", "memagent"])
async def test_experts_solve_their_tasks_across_windows(
    env: str, arguments: dict[str, object], window: int, manager: str
) -> None:
    if manager == "discard" and arguments in (WORD, ROW):
        pytest.skip("what was changed cannot be asked for again")
    segments = await shown(env, arguments, window, manager)
    said = [turn for one in segments for turn in one.turns if turn.kind is TurnKind.SUMMARY]
    assert said


async def shown(
    env: str, arguments: dict[str, object], window: int, manager: str
) -> Sequence[Segment]:
    """The windows of a demonstration, which must be right."""
    context: ContextManager = MemAgent(threshold=0.6, summary_tokens=200)
    if manager != "memagent":
        last_pair: Literal["carry", "discard"] = "carry" if manager == "carry" else "discard"
        context = Summarize(
            threshold=0.6, max_summaries=50, summary_tokens=200, last_pair=last_pair
        )
    session = make_async(f"ludus/{env}-v0", **arguments)
    tokenizer: Any = build_tokenizer()
    chat = ChatFormat(tokenizer, HermesFormat())
    expert = ExpertPolicy(session, chat, context=context, window=window)
    segments: list[Segment] = []
    for seed in range(3):
        episode = await demonstrate(expert, split="train", seed=seed)
        trajectory = episode.trajectories[0]
        assert trajectory.verdict.unwrap() == 1, json.dumps(trajectory.verdict.detail)
        segments += trajectory.segments
    await session.close()
    return segments
