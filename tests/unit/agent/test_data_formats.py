"""Rows in the formats that users of TRL and axolotl have, as their pages describe them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.data.conversations import ConversationReader
from ludus.agent.data.fields import FieldNames
from ludus.agent.data.preferences import PreferenceReader
from ludus.envs.problem_files import UnusableRow
from ludus.errors import ConfigError
from ludus.messages import Message
from ludus.rewards.rows import image_at

SFT, PAIRS = ConversationReader(Path()), PreferenceReader(Path())
ASKED, SAID = ("user", "hi"), ("assistant", "yo")
CALLS = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
RESULT = {"role": "tool", "content": "1"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def told(messages: list[Message]) -> list[tuple[str, str]]:
    return [(str(message.role), message.text) for message in messages]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": [user("hi"), assistant("yo")]}, [ASKED, SAID]),
        ({"prompt": "hi", "completion": "yo"}, [ASKED, SAID]),
        ({"prompt": [user("hi")], "completion": [assistant("yo")]}, [ASKED, SAID]),
        (
            {
                "messages": [
                    {"role": "developer", "content": "be kind"},
                    user("hi"),
                    assistant("yo", thinking="a greeting"),
                ]
            },
            [("system", "be kind"), ASKED, SAID],
        ),
        ({"conversation": [user("hi"), assistant("yo")]}, [ASKED, SAID]),
        ({"messages": [user("hi"), assistant("yo", tool_calls=float("nan"))]}, [ASKED, SAID]),
        (
            {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]},
            [ASKED, SAID],
        ),
        ({"instruction": "hi", "output": "yo"}, [ASKED, SAID]),
        (
            {"instruction": "hi", "input": "there", "output": "yo", "system": "s", "text": "all"},
            [("system", "s"), ("user", "hi\n\nthere"), SAID],
        ),
        ({"instruction": "hi", "input": "", "response": "yo"}, [ASKED, SAID]),
        ({"instruction": "hi", "context": "c", "response": "yo"}, [("user", "hi\n\nc"), SAID]),
        ({"question": "hi", "answer": "yo"}, [ASKED, SAID]),
        (
            {"system_prompt": "s", "question": "hi", "response": "yo"},
            [("system", "s"), ASKED, SAID],
        ),
    ],
)
def test_conversations(row: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert told(SFT.read(row).messages) == expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"question": "hi", "context": {"title": ["t"]}, "answer": "yo"},
            "with further input that is no text: context is a dict",
        ),
        ({"text": "The sky is blue."}, "of plain text: a policy learns turns"),
        ({"segments": [{"label": True, "text": "a"}]}, "of plain text"),
        ({"prompt": [user("hi")]}, "without an answer to learn: its columns are prompt"),
        (
            {"messages": [user("hi"), assistant("yo", tool_calls=3)]},
            "with tool_calls that are a int, not a list",
        ),
        (
            {"messages": [user("<image>"), assistant("yo")], "images": ["a\x00b"]},
            "embedded null byte",
        ),
        (
            {"messages": [user("<image>"), assistant("yo")], "images": ["data:image/png;base64,é"]},
            "with images that are gone: a data: URL is not base64",
        ),
        ({"chats": []}, "its columns are chats. Say what they are, such as --fields messages=NAME"),
        (
            {"messages": [{"speaker": "agent", "text": "yo"}]},
            "without a role: its fields are speaker, text; say what they are, such as --fields",
        ),
        (
            {"messages": [{"role": "agent", "content": "yo"}]},
            "an unknown role: 'agent'; say which it is, such as --fields assistant=agent",
        ),
        (
            {"messages": [user("hi"), CALLS, RESULT, RESULT, assistant("yo")]},
            "with a result that no call asked for",
        ),
        ({"messages": [user("hi"), assistant("yo", weight=0)]}, "without a turn of the assistant"),
        ({"messages": [user("hi"), assistant("yo", weight=0.5)]}, "neither 0 nor 1: 0.5"),
        (
            {"messages": [user("hi"), assistant("yo", train_detail=[{"begin_offset": 0}])]},
            "with parts of a turn marked",
        ),
    ],
)
def test_what_is_no_conversation_says_what_to_do(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusableRow, match=reason.replace(".", r"\.")):
        SFT.read(row)


@pytest.mark.parametrize("mark", ["train", "training", "weight"])
def test_turns_that_are_marked_are_given_and_not_learned(mark: str) -> None:
    turns = [assistant("no", **{mark: 0}), assistant("yo", **{mark: 1})]
    row = {"messages": [user("hi"), turns[0], user("again"), turns[1]], "system": "s"}
    conversation = SFT.read(row)
    assert [place for place in range(5) if conversation.learns(place)] == [4]
    assert told(conversation.prompt)[-1] == ("user", "again")
    pair = SFT.read({"prompt": "hi", "completion": row["messages"][1:], "system": "s"})
    assert [place for place in range(5) if pair.learns(place)] == [4]
    gap = SFT.read({"messages": [user("hi"), assistant("yo", **{mark: float("nan")})]})
    assert gap.learns(1)  # a gap in a table marks nothing


def test_an_image_without_an_end_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in ("pipe", "/dev/zero", "."):
        with pytest.raises(UnusableRow, match=f"{place}', it is no file"):
            ConversationReader(tmp_path).image(place)
        with pytest.raises(ConfigError, match="it is no file"):
            image_at(tmp_path / place)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi", "chosen": "yo", "rejected": "no"},
        {"prompt": [user("hi")], "chosen": [assistant("yo")], "rejected": [assistant("no")]},
        {"chosen": [user("hi"), assistant("yo")], "rejected": [user("hi"), assistant("no")]},
        {
            "prompt": "hi",
            "chosen": [user("hi"), assistant("yo")],
            "rejected": [user("hi"), assistant("no")],
            "score_chosen": 8.0,
            "score_rejected": 3.0,
        },
        {
            "prompt": "hi",
            "chosen": "yo",
            "rejected": "no",
            "messages": [user("hi"), assistant("yo")],
        },
        {"question": "hi", "chosen": "yo", "rejected": "no"},
        {"input": "hi", "chosen": "yo", "rejected": "no"},
        {"instruction": "hi", "chosen_response": "yo", "rejected_response": "no"},
        {"messages": [user("hi")], "chosen": assistant("yo"), "rejected": assistant("no")},
        {"conversation": [user("hi")], "chosen": "yo", "rejected": "no"},
        {"prompt": "hi", "answers": ["no", "yo"], "ranks": [2, 1]},
    ],
)
def test_pairs(row: dict[str, Any]) -> None:
    pair = PAIRS.pair(row)
    assert told(pair.prompt) == [ASKED]
    assert [told(answer) for answer in pair.answers] == [[SAID], [("assistant", "no")]]
    with_system = PAIRS.pair({**row, "system": "s"})
    assert told(with_system.prompt) == [("system", "s"), ASKED]


def test_a_prompt_that_both_texts_begin_with() -> None:
    pair = PAIRS.pair({"chosen": "The sky is blue.", "rejected": "The sky is green."})
    assert told(pair.prompt) == [("user", "The sky is")]
    assert [answer[0].text for answer in pair.answers] == [" blue.", " green."]
    with pytest.raises(UnusableRow, match="without a prompt"):
        PAIRS.pair({"chosen": "Blue.", "rejected": "Green."})


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi", "completion": "yo", "label": True},
        {"prompt": [user("hi")], "completion": [assistant("yo")], "label": True},
        {"instruction": "hi", "completion": "yo", "label": True},
        {"question": "hi", "completion": "yo", "label": 1},
    ],
)
def test_answers_that_are_good_or_bad(row: dict[str, Any]) -> None:
    rated = PAIRS.rating(row)
    assert (told(rated.prompt), told(rated.answer), rated.rating) == ([ASKED], [SAID], 1.0)
    with pytest.raises(UnusableRow, match="kto learns from labels of single answers"):
        PAIRS.pair(row)


def test_numbers_of_answers_are_read_where_a_method_wants_them() -> None:
    rewards = PreferenceReader(Path(), numbers="rewards")
    row = {"prompt": "hi", "chosen": "yo", "rejected": "no"}
    assert rewards.pair(row).numbers == []
    assert rewards.pair({**row, "rewards": [2, 1]}).numbers == [2.0, 1.0]
    scored = {**row, "score_chosen": 8.0, "score_rejected": 3.0}
    assert rewards.pair(scored).numbers == [8.0, 3.0]
    many = rewards.ranking({"prompt": "hi", "answers": ["a", "b", "c"], "rewards": [1, 3, 2]})
    assert (many.ranks, many.numbers) == ([-1.0, -3.0, -2.0], [1.0, 3.0, 2.0])
    turned = {"prompt": "hi", "answers": ["no", "yo"], "ranks": [2, 1], "rewards": [1, 2]}
    assert rewards.pair(turned).numbers == [2.0, 1.0]
    rates = PreferenceReader(Path(), numbers="win_rates")
    with pytest.raises(UnusableRow, match="no shares from 0 to 1"):
        rates.pair({**row, "win_rates": [75, 25]})
    with pytest.raises(UnusableRow, match="without preferences"):
        rewards.ranking({"prompt": "hi", "answers": ["a", "b"], "rewards": 5})
    with pytest.raises(UnusableRow, match="rewards that are not one for each answer"):
        rewards.pair({**row, "rewards": [1]})


def test_fields_and_roles_of_a_data_sets_own() -> None:
    names = FieldNames(
        ["messages=chats", "role=speaker", "content=text", "assistant=agent", "user=caller"]
    )
    chats = [{"speaker": "caller", "text": "hi"}, {"speaker": "agent", "text": "yo"}]
    assert told(SFT.read(names.row({"chats": chats, "id": 3})).messages) == [ASKED, SAID]
    pair = FieldNames(["prompt=p", "chosen=good", "rejected=bad"])
    assert told(PAIRS.pair(pair.row({"p": "hi", "good": "yo", "bad": "no"})).prompt) == [ASKED]
    # who trains what asks lets the roles trade places; a role that is missing stays missing
    turned = FieldNames(["user=assistant", "assistant=user"])
    row = turned.row({"messages": [{"role": "assistant", "content": "hi"}, user("yo")]})
    assert told(SFT.read(row).messages) == [ASKED, SAID]
    with pytest.raises(UnusableRow, match="without a role"):
        SFT.read(turned.row({"messages": [{"role": None, "content": "hi"}, user("yo")]}))
    # a field of the data set may have a name of ours
    swapped = FieldNames(["prompt=completion", "completion=prompt"])
    row = swapped.row({"completion": "hi", "prompt": "yo"})
    assert told(SFT.read(row).messages) == [ASKED, SAID]
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert FieldNames(["role=type"]).row({"tools": tools})["tools"] == tools
    with pytest.raises(ConfigError, match="no field or role named 'mesages'"):
        FieldNames(["mesages=chats"])
    with pytest.raises(ConfigError, match="messages is both 'chats' and 'turns'"):
        FieldNames(["messages=chats", "messages=turns"])
    with pytest.raises(ConfigError, match="fields are OURS=THEIRS"):
        FieldNames(["messages"])


TALK = [user("hi"), assistant("yo")]
DEEP: Any = 1
for _ in range(900):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": TALK, "tools": {"name": "look"}}, "with tools that are a dict"),
        ({"messages": TALK, "tools": '{"name": "look"}'}, "with tools that are a dict"),
        ({"messages": TALK, "tools": [{"function": "look"}]}, "with a tool that has no name"),
        ({"messages": TALK, "tools": [{"function": None}]}, "with a tool that has no name"),
        ({"messages": TALK, "tools": [{"name": "f", "parameters": 3}]}, "schema is no object"),
        ({"messages": TALK, "tools": [{"name": "f", "parameters": DEEP}]}, "nested too deeply"),
        ({"messages": [user("hi"), assistant("yo", thinking=True)]}, "reasoning that is a bool"),
        (
            {"messages": [user("hi"), assistant("yo", reasoning_content=[{"text": "a"}])]},
            "reasoning that is a list",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_and_never_left_out(
    row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnusableRow, match=reason):
        SFT.read(row)


def test_a_gap_of_a_table_is_no_text() -> None:
    gap = float("nan")
    read = SFT.read({"messages": [user("hi"), assistant("yo", thinking=gap)], "tools": gap})
    assert (read.messages[-1].reasoning, read.tools) == ("", [])
    said = SFT.read({"instruction": "hi", "input": gap, "output": "yo"})
    assert told(said.messages) == [ASKED, SAID]
