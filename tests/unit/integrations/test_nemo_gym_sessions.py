"""What NeMo Gym asks of a resources server beside playing."""

from __future__ import annotations

import asyncio

import pytest

from ludus.errors import ServerFault
from ludus.integrations.nemo_gym import SeededSessions, aggregate_metrics, last_words
from ludus.wire.faults import Refused

EPISODE = b"r1"


class Beginnings:
    """Begins sessions when it is let, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.let = asyncio.Event()
        self.error: Exception | None = None

    async def begin(self) -> str:
        self.count += 1
        number = self.count
        await self.let.wait()
        if self.error is not None:
            raise self.error
        return f"cookie {number}"


async def test_a_seed_that_is_sent_again_finds_its_session() -> None:
    sessions, beginnings = SeededSessions(), Beginnings()
    first = asyncio.ensure_future(sessions.seed("a", EPISODE, beginnings.begin))
    second = asyncio.ensure_future(sessions.seed("a", EPISODE, beginnings.begin))
    await asyncio.sleep(0)
    first.cancel()  # a client that went away ends nothing for the one that asks again
    beginnings.let.set()
    assert await second == "cookie 1"
    assert await sessions.seed("a", EPISODE, beginnings.begin) == "cookie 1"
    assert await sessions.seed("b", EPISODE, beginnings.begin) == "cookie 2"


async def test_two_clients_of_one_id_do_not_share_an_episode() -> None:
    sessions, beginnings = SeededSessions(), Beginnings()
    beginnings.let.set()
    await sessions.seed("a", b"r1", beginnings.begin)
    with pytest.raises(Refused, match="plays another episode"):
        await sessions.seed("a", b"r2", beginnings.begin)
    assert beginnings.count == 1


@pytest.mark.parametrize("error", [ServerFault("the worker was lost"), TypeError("a bug")])
async def test_a_seed_that_failed_may_be_sent_again(error: Exception) -> None:
    sessions, beginnings = SeededSessions(), Beginnings()
    beginnings.let.set()
    beginnings.error = error
    with pytest.raises(type(error)):
        await sessions.seed("a", EPISODE, beginnings.begin)
    beginnings.error = None
    assert await sessions.seed("a", EPISODE, beginnings.begin) == "cookie 2"


async def test_nothing_begins_after_the_close_of_its_session() -> None:
    sessions, beginnings = SeededSessions(), Beginnings()
    seeding = asyncio.ensure_future(sessions.seed("raced", EPISODE, beginnings.begin))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(sessions.close("raced"))
    beginnings.let.set()
    assert await closing == await seeding == "cookie 1"  # so that whoever closes can end it
    assert await sessions.close("raced") == ""
    assert await sessions.close("never seeded") == ""
    for closed in ("raced", "never seeded"):
        with pytest.raises(Refused, match="was closed"):
            await sessions.seed(closed, EPISODE, beginnings.begin)
    assert beginnings.count == 1


async def test_only_so_many_ids_are_remembered() -> None:
    sessions, beginnings = SeededSessions(most=2), Beginnings()
    beginnings.let.set()
    for name in "abc":
        await sessions.close(name)
    assert await sessions.seed("a", EPISODE, beginnings.begin) == "cookie 1"
    with pytest.raises(Refused):
        await sessions.seed("b", EPISODE, beginnings.begin)


def test_metrics_leave_out_what_is_masked_or_has_no_reward() -> None:
    samples = [
        {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0},
        {"_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.5},
        {"_ng_task_index": 1, "_ng_rollout_index": 0, "reward": 0.0, "mask_sample": False},
        {"_ng_task_index": 1, "_ng_rollout_index": 1, "reward": 0.0, "mask_sample": True},
        {"_ng_task_index": 2, "_ng_rollout_index": 0},
        {"_ng_task_index": 2, "_ng_rollout_index": 1, "reward": None},
    ]
    told = aggregate_metrics(samples)
    assert told["agent_metrics"] == {
        "mean/reward": 0.5,
        "max/reward": 1.0,
        "min/reward": 0.0,
        "median/reward": 0.5,
        "std/reward": 0.5,
        "coverage/measured_rollouts": 3,
        "coverage/masked_rollouts": 1,
        "num_repeats": 2,
    }
    assert told["key_metrics"] == {
        "mean/reward": 0.5,
        "coverage/measured_rollouts": 3,
        "coverage/masked_rollouts": 1,
    }
    means = [(one["_ng_task_index"], one["mean/reward"]) for one in told["group_level_metrics"]]
    assert means == [(0, 0.75), (1, 0.0)]


MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "4"}]}
RESULT = {"type": "function_call_output", "call_id": "call_0", "output": "3"}
THOUGHT = {"type": "reasoning", "summary": []}
EMPTY = {"type": "message", "content": [{"type": "output_text", "text": None}]}


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([], ""),
        ([MESSAGE], "4"),
        ([THOUGHT, MESSAGE], "4"),
        ([MESSAGE, THOUGHT], "4"),
        ([RESULT], None),
        ([RESULT, MESSAGE], "4"),
        ([THOUGHT], ""),  # cut before an answer
        ([RESULT, THOUGHT], ""),
        ([EMPTY], ""),
    ],
)
def test_reasoning_is_no_text_and_no_reason_to_leave_the_text_out(
    output: list[dict[str, object]], text: str | None
) -> None:
    assert last_words(output) == text


def test_metrics_of_nothing_are_no_zero() -> None:
    assert aggregate_metrics([])["agent_metrics"] == {}
    masked = aggregate_metrics([{"reward": 0.0, "mask_sample": True}])
    assert "mean/reward" not in masked["agent_metrics"]
    assert masked["group_level_metrics"] == []
