"""What a step tells: each notice on numbers of its own, and silence on those of a good step."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.metrics import LineFile
from ludus.trainer.config import RolloutConfig, TrainConfig
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.run.notices import (
    NOTICES,
    NoticeBoard,
    StepFacts,
    ToldNotice,
    counts_of,
    notices_of,
    read_notices,
)

GOOD = {
    "episode/count": 32.0,
    "episode/tokens": 40.0,
    "episode/turns": 2.0,
    "episode/tool_calls": 1.0,
    "group/count": 4.0,
    "group/tasks": 4.0,
    "group/equal": 0.25,
    "reward/mean": 0.5,
    "stop/terminated": 0.9,
    "stop/max_turns": 0.1,
    "turn/cut": 0.1,
    "update/tokens": 1280.0,
    "update/signal": 0.7,
    "update/positive": 0.4,
    "update/grad_norm": 0.3,
    "update/lr": 1e-6,
    "update/clip_low": 0.01,
    "update/clip_high": 0.02,
}
"""Of a step that learns."""


def facts(recipe: str = "grpo", /, **changes: float) -> StepFacts:
    numbers = {name: changes.pop(name, value) for name, value in GOOD.items()} | changes
    return StepFacts(numbers=numbers, config=TrainConfig(), recipe=load_recipe(recipe))


def test_a_step_that_learns_tells_nothing() -> None:
    assert notices_of(facts()) == {}


NOTHING = {"update/tokens": 0.0, "update/signal": 0.0, "update/grad_norm": 0.0}
CASES: dict[str, tuple[dict[str, float], list[str]]] = {
    "without_reward": (
        {"reward/unavailable": 10.0},
        ["10 of 32 episodes have no reward", "reward.timeout_s"],
    ),
    "verifiers_asked_again": (
        {"episode/verifier_retries": 0.5, "episode/verifier_gave_up": 0.125},
        ["asked again 16 times in 32 episodes", "4 episodes are lost"],
    ),
    "nothing_trained": (
        {**NOTHING, "update/dropped_overlong": 1.0},
        ["no token of 32 episodes", "algorithm.overlong", "rollout.max_turns"],
    ),
    "no_signal": (
        {"update/signal": 0.0, "update/grad_norm": 0.0, "group/equal": 1.0, "reward/mean": 0.0},
        ["every advantage is zero", "each of the 4 groups", "mean reward 0.000", "warm start"],
    ),
    "context_full": (
        {"stop/context_full": 1.0},
        ["100% of 32 episodes ended context_full after 2.0 turns", "Raise rollout.window"],
    ),
    "cut_turns": ({"turn/cut": 0.8}, ["80% of the turns", "rollout.max_tokens = 256"]),
    "unread_calls": ({"episode/parse_errors": 0.9}, ["90% of the tool calls", "'auto'"]),
    "no_calls": ({"stop/no_calls": 0.75}, ["75% of the episodes ended no_calls", "ludus view"]),
    "lone_groups": ({"group/lone": 0.5}, ["50% of 4 groups", "grpo_advantages compares"]),
    "all_alike": ({"group/identical": 1.0}, ["in 100% of the groups", "collapsed", "trainer.lr"]),
    "repeated_tasks": (
        {"group/tasks": 3.0},
        ["4 groups of the step play 3 different tasks", "rollout.tasks_per_step"],
    ),
    "clipped": (
        {"update/clip_low": 0.5, "update/clip_high": 0.45},
        ["stops 95% of the tokens", "trainer.lr"],
    ),
    "one_sided": ({"update/positive": 1.0}, ["every advantage that reached the loss is positive"]),
    "no_gradient": ({"update/grad_norm": 0.0}, ["exactly zero", "70% of the trained tokens"]),
    "no_rate": ({"update/lr": 0.0}, ["the learning rate is 0"]),
    "samplers_gap": ({"update/old_sampler_gap": 0.4}, ["differ by 0.400 nats per token"]),
}


def test_every_notice_has_a_case() -> None:
    assert set(CASES) | {"refused"} == set(NOTICES)


@pytest.mark.parametrize("name", CASES)
def test_each_notice_is_told_alone_with_its_numbers_and_a_remedy(name: str) -> None:
    changes, words = CASES[name]
    found = notices_of(facts(**changes))
    assert set(found) == {name}
    for word in words:
        assert word in found[name]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"update/dropped_filter": 1.0}, "group filter drops every group"),
        ({"update/dropped_correction": 1.0}, "corrections drop every token"),
        ({"update/dropped_excluded": 1.0}, "excluded from the loss"),
        ({"episode/tokens": 0.0, "stop/context_full": 0.4}, "the policy sampled none"),
        (
            {"update/dropped_filter": 0.5, "update/dropped_overlong": 0.5},
            "50% by the group filter, 50% by the overlong mask",
        ),
    ],
)
def test_nothing_trained_says_why(changes: dict[str, float], says: str) -> None:
    assert says in notices_of(facts(**NOTHING, **changes))["nothing_trained"]


def test_a_window_that_was_set_is_named_with_its_size() -> None:
    config = TrainConfig(rollout=RolloutConfig(window=96))
    told = StepFacts(
        numbers={**GOOD, "stop/context_full": 0.6}, config=config, recipe=load_recipe("grpo")
    )
    assert "rollout.window = 96 tokens is too small" in notices_of(told)["context_full"]


def test_refused_updates_are_told_with_their_reasons() -> None:
    told = StepFacts(
        numbers={"update/refused": 1.0, "episode/count": 32.0, "episode/tokens": 40.0},
        config=TrainConfig(),
        recipe=load_recipe("grpo"),
        refusals=("the gradient is not finite (norm nan, loss 1); from task a",),
    )
    found = notices_of(told)
    assert set(found) == {"refused"}
    assert "1 update(s) were refused, and the weights kept: the gradient" in found["refused"]
    assert "After 3 in a row the run stops (trainer.max_refused)" in found["refused"]


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        # a recipe that does not compare rollouts has nothing to be told of groups
        ("reinforce_pp", {"update/positive": 1.0}),
        ("spo", {"group/lone": 1.0, "group/equal": 0.0}),
        ("spo", {"group/identical": 0.0}),
        ("grpo", {"stop/context_full": 0.4}),
        ("grpo", {"episode/parse_errors": 0.4}),
    ],
)
def test_what_is_as_it_should_be_is_not_told(recipe: str, changes: dict[str, float]) -> None:
    assert notices_of(facts(recipe, **changes)) == {}


class Watcher:
    def __init__(self) -> None:
        self.told: list[ToldNotice] = []

    def on_notice(self, told: ToldNotice) -> None:
        self.told.append(told)


def test_a_notice_that_holds_on_is_told_ever_more_seldom_and_counted(tmp_path: Path) -> None:
    watcher = Watcher()
    board = NoticeBoard(LineFile(tmp_path / "notices.jsonl"), watcher, {})
    for step in range(1, 41):
        board.post(step, {"no_signal": "nothing"} if step != 2 else {"clipped": "all"})
    assert [(told.step, told.name, told.count) for told in watcher.told] == [
        (1, "no_signal", 1),
        (2, "clipped", 1),
        (4, "no_signal", 3),
        (11, "no_signal", 10),
        (31, "no_signal", 30),
    ]
    assert watcher.told[2].text == "in 3 steps so far: nothing"
    assert read_notices(tmp_path) == watcher.told


def test_a_run_that_goes_on_goes_on_counting(tmp_path: Path) -> None:
    rows = [{"step": 1.0, "notice/no_signal": 1.0}, {"step": 2.0, "notice/no_signal": 1.0}]
    watcher = Watcher()
    board = NoticeBoard(LineFile(tmp_path / "notices.jsonl"), watcher, counts_of(rows))
    board.post(3, {"no_signal": "nothing"})
    assert [told.count for told in watcher.told] == [3]


def test_a_run_without_a_watcher_that_listens_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    NoticeBoard(LineFile(tmp_path / "notices.jsonl"), None, {}).post(7, {"clipped": "all of them"})
    assert [record.message for record in caplog.records] == ["step 7: all of them"]


def test_a_distance_to_the_sampler_is_told_with_what_the_servers_probe_found() -> None:
    numbers = {"update/old_sampler_gap": 0.4, "engine/probe_gap": 0.0012}
    assert (
        "the last probe of the server found 0.0012 nats"
        in notices_of(facts(**numbers))["samplers_gap"]
    )


def test_a_distance_to_the_sampler_is_told_beside_older_tokens_by_those_of_the_own_version() -> (
    None
):
    stale = {"update/old_sampler_gap": 0.4, "staleness/max": 2.0}
    assert "samplers_gap" not in notices_of(facts(**stale))
    assert "samplers_gap" not in notices_of(facts(**stale, **{"update/fresh_sampler_gap": 0.01}))
    told = notices_of(facts(**stale, **{"update/fresh_sampler_gap": 0.3}))["samplers_gap"]
    assert "differ by 0.300 nats per token on the tokens that its own weights have sampled" in told
