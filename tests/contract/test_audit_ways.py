"""A law over what attackers make of an expert: whatever it says, no spoilt way fails to be made."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from ludus.agent.audit.attackers import Lesson
from ludus.agent.audit.farms import farms_of
from ludus.agent.audit.laws import laws_of, meddling_laws
from ludus.agent.audit.notation import Plan
from ludus.envs import Briefing, ToolSpec
from ludus.messages import Message, ToolCall, assistant

WORDS = ["ann", "12", "-3", "0.5", "", "a b c", "Ünï", "{}", "[1, 2]", "b1: Ada", "nan", "\n", "?"]
NAMES = ["send", "close", "mark", "look"]
TOLD = "You have two tries. Commands: `enter NAME`, `rate NAME POINTS`, `undo`, `close`."
Action = str | Message
TOOLS = [
    ToolSpec(
        name=name,
        description=name,
        parameters={
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        },
    )
    for name in ("look", "peek")
]


def value(draw: random.Random, depth: int = 0) -> Any:
    plain = [*WORDS, draw.randint(-5, 200), draw.random() * 9, True, None]
    if depth == 2 or draw.random() < 0.7:
        return draw.choice(plain)
    inner = [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return inner if draw.random() < 0.5 else dict(zip("abc", inner, strict=False))


def call(draw: random.Random, name: str, keys: str) -> ToolCall:
    return ToolCall(name=name, arguments={key: value(draw) for key in keys}, id="call_0")


def likes(draw: random.Random) -> Callable[[random.Random], Action]:
    """Return a kind of deed, of which each task has its own."""
    name, keys = draw.choice(NAMES), "".join(draw.sample("abc", draw.randrange(1, 4)))
    kinds: list[Callable[[random.Random], Action]] = [
        lambda draw: f"{name} {draw.choice(WORDS)} {draw.randint(0, 99)}",
        lambda draw: json.dumps({"do": name, **{key: value(draw) for key in keys}}),
        lambda draw: assistant("", [call(draw, name, keys)]),
        lambda draw: assistant("", [call(draw, each, keys) for each in ("send", name)]),
        lambda draw: "\n".join(f"{name} {draw.choice(WORDS)}" for _ in range(3)),
        lambda draw: " ".join(draw.choices(WORDS, k=draw.randrange(4))),
    ]
    return draw.choice(kinds)


def lesson(
    draw: random.Random, task: int, kinds: list[Callable[[random.Random], Action]]
) -> Lesson:
    slips = [draw.random() < 0.3 for _ in kinds]
    actions = [
        (likes(draw) if slip else kind)(draw) for slip, kind in zip(slips, kinds, strict=True)
    ]
    told = "\n".join(" ".join(draw.choices(WORDS, k=3)) for _ in range(draw.randrange(6)))
    replies = [draw.choice([*WORDS, "sent it", "ok"]) for _ in actions]
    rewards = [draw.choice([0.0, 0.5, 1.0]) for _ in actions]
    return Lesson(f"t{task}", told, tuple(actions), tuple(replies), tuple(rewards))


@pytest.mark.parametrize("seed", range(8))
def test_ways_of_an_expert_that_says_anything_are_made_without_a_fault(seed: int) -> None:
    for nth in range(6):
        draw = random.Random(100 * seed + nth)
        kinds = [likes(draw) for _ in range(draw.randrange(1, 6))]
        lessons = [lesson(draw, task, kinds) for task in range(draw.randrange(1, 5))]
        briefing = Briefing(tools=TOOLS) if draw.random() < 0.5 else Briefing()
        meddling = itertools.islice(meddling_laws(briefing, lessons, TOLD), 400)
        for law, known in itertools.product(
            [*laws_of(lessons, TOLD, ["look"]), *meddling], lessons[:2]
        ):
            for way in itertools.islice(law.ways(known), 6):
                actions = list(way)
                if law.took:
                    law.took(known, actions, draw.choices(WORDS, k=len(actions)))
            if law.without:
                list(law.without(known))
        for farm, known in itertools.product(
            itertools.islice(farms_of(lessons[0], []), 300), lessons
        ):
            farm.actions(known)
        Plan.of(lessons)
