"""Conversations and preferences in the forms of data sets: read, or refused with a reason."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.data.conversations import ConversationReader
from ludus.agent.data.loading import load_items
from ludus.agent.data.preferences import PreferenceReader, RankedAnswers, circles
from ludus.envs.problem_files import UnusableRow, rows_of
from ludus.errors import ConfigError, MissingExtra
from ludus.messages import Role

U, A = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def told(row: dict[str, Any], folder: Path = Path()) -> list[tuple[str, str]]:
    conversation = ConversationReader(folder).read(row)
    return [(str(message.role), message.text) for message in conversation.messages]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [U, A]},
        {"messages": [U, A, {"role": "user", "content": "thanks"}]},  # answered by nobody
        {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
        {"prompt": "2+2?", "completion": "4"},
        {"prompt": [U], "completion": [A]},
        {"instruction": "2+2?", "input": "", "output": "4"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}, A]},
    ],
)
def test_every_usual_form_says_the_same(row: dict[str, Any]) -> None:
    assert told(row) == [("user", "2+2?"), ("assistant", "4")]


def test_calls_tools_thoughts_and_what_is_learned() -> None:
    rows = [{"messages": [U, CALL, RESULT, A], "tools": json.dumps([TOOL])}]
    rows += [
        {
            "conversations": [
                {"from": "human", "value": "2+2?"},
                {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2}}'},
                {"from": "observation", "value": "4"},
                {"from": "gpt", "value": "4"},
            ],
            "tools": [TOOL],
        }
    ]
    for row in rows:
        read = ConversationReader(Path()).read(row)
        assert [tool.name for tool in read.tools] == ["add"]
        assert read.messages[1].tool_calls[0].arguments == {"a": 2}
        assert [message.role for message in read.messages][2] is Role.TOOL
    thinks = ConversationReader(Path()).read(
        {"prompt": "2+2?", "completion": "<think>\nhm\n</think>\n\n4"}
    )
    assert (thinks.messages[1].reasoning, thinks.messages[1].text) == ("hm", "4")
    history = ConversationReader(Path()).read({"prompt": [U, A, U], "completion": "4"})
    assert history.first == 3
    assert history.prompt == history.messages[:3]


def test_images_are_read_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    said = {"role": "user", "content": "<image>\nwhat?"}
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    part = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}
    for row in (
        {"messages": [said, A], "images": ["a.png"]},
        {"messages": [part, A], "images": [{"bytes": PNG, "path": None}]},
        {"messages": [{**part, "content": [{"type": "image_url", "image_url": {"url": url}}]}, A]},
    ):
        read = ConversationReader(tmp_path).read(row)
        assert [image.data for image in read.messages[0].images] == [PNG]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": [U]}, "without a turn of the assistant"),
    ({"messages": []}, "without a turn of the assistant"),
    ({"messages": [{"role": "wizard", "content": "x"}, A]}, "unknown role: 'wizard'"),
    ({"messages": [U, CALL, U, A]}, "a call without a result: 'add'"),
    ({"messages": [U, CALL, {**RESULT, "tool_call_id": "c9"}, A]}, "a call without a result"),
    ({"messages": [U, RESULT, A]}, "a result that no call asked for"),
    ({"messages": [U, A, A]}, "two turns of the assistant"),
    ({"messages": [U, {**A, "content": " "}]}, "an empty turn"),
    ({"messages": [U, {**A, "content": "4<|im_end|>"}]}, "in a chat template: '<|im_end|>'"),
    ({"messages": [U, {**A, "content": "[INST] 4"}]}, "in a chat template"),
    ({"messages": [{"role": "user", "content": "<image>?"}, A], "images": ["gone.png"]}, "gone"),
    ({"messages": [{"role": "user", "content": "<image>?"}, A]}, "shows more than it has"),
    ({"messages": [U, A], "images": ["data:image/png;base64,AAAA"]}, "images that no message"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image", "image": "http://x/a.png"}]},
                A,
            ]
        },
        "nothing is fetched",
    ),
    (
        {"messages": [U, {**A, "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
        "read",
    ),
    ({"messages": "hello"}, "without a turn of the assistant"),
    ({"messages": 7}, "without messages: a int"),
    ({"messages": [U, A], "tools": "{"}, "tools that are not JSON"),
    ({"messages": [U, A], "system": ["Be kind."]}, "a system prompt that is a list, not a text"),
    ({"text": "hello"}, "its columns are text"),
]


@pytest.mark.parametrize(("row", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_what_nothing_can_be_learned_from_is_refused_with_the_reason(
    row: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UnusableRow, match=reason.replace("|", r"\|").replace("[", r"\[")):
        ConversationReader(tmp_path).read(row)


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_a_file_tells_what_was_left_out_and_repeats_nothing(tmp_path: Path) -> None:
    same = [{"from": "human", "value": U["content"]}, {"from": "gpt", "value": A["content"]}]
    rows = [{"messages": [U, A]}, {"conversations": same}, {"messages": [U]}]
    rows += [{"messages": [U, {**A, "content": str(n)}]} for n in range(3)]
    loaded = load_items(write(tmp_path / "a.jsonl", rows), ConversationReader(tmp_path).read)
    assert (len(loaded.items), loaded.rows, loaded.repeated) == (4, 6, 1)
    report = loaded.report()
    assert "4 of 6 rows; left out 1 repeated; 1 without a turn of the assistant" in report
    with pytest.raises(ConfigError, match=r"no row of .* can be used: row 1: without a turn"):
        load_items(
            write(tmp_path / "b.jsonl", [{"messages": [U]}]), ConversationReader(tmp_path).read
        )
    with pytest.raises(ConfigError, match=r"no row of .* can be used: it is empty"):
        load_items(write(tmp_path / "c.jsonl", []), ConversationReader(tmp_path).read)


def test_a_whole_number_that_no_file_can_keep_leaves_its_row_out(tmp_path: Path) -> None:
    call = {"function": {"name": "f", "arguments": {"x": 2**70}}}
    rows = [
        {"messages": [U, A]},
        {"messages": [U, {"role": "assistant", "tool_calls": [call]}]},
        {"messages": [U, A], "tools": [{"name": "f", "parameters": {"maximum": 2**70}}]},
    ]
    loaded = load_items(write(tmp_path / "a.jsonl", rows), ConversationReader(tmp_path).read)
    assert (len(loaded.items), loaded.rows) == (1, 3)
    assert loaded.unusable == {"with a whole number that does not fit 64 bits": 2}


def test_json_and_parquet_are_read_like_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"messages": [U, A], "tools": None},
        {"messages": [U, CALL, RESULT, A], "tools": [TOOL]},
    ]
    whole = tmp_path / "a.json"
    whole.write_text(json.dumps(rows))
    assert list(rows_of(str(whole))) == rows
    whole.write_text("{}")
    with pytest.raises(ConfigError, match="not a list of JSON objects"):
        list(rows_of(str(whole)))
    table = tmp_path / "a.parquet"
    table.write_bytes(b"no parquet")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow.parquet", None)
        with pytest.raises(MissingExtra, match=r"ludus-rl\[data\]"):
            list(rows_of(str(table)))
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(ConfigError, match="cannot read"):
        list(rows_of(str(table)))
    arrow.parquet.write_table(arrow.Table.from_pylist(rows), table)
    read = [ConversationReader(tmp_path).read(row) for row in rows_of(str(table))]
    lines = [ConversationReader(tmp_path).read(row) for row in rows]
    assert read == lines


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    # A pipe gives its bytes late: the file's date changes between the two looks at it.
    path = tmp_path / "a.jsonl"
    os.mkfifo(path)

    def feed() -> None:
        with path.open("wb") as file:
            file.write(b'{"messages": []}\n')
            os.utime(path)

    writer = threading.Thread(target=feed)
    writer.start()
    with pytest.raises(ConfigError, match="changed while it was read"):
        list(rows_of(str(path)))
    writer.join()
    with pytest.raises(ConfigError, match="No such file"):
        list(rows_of(str(tmp_path / "none.jsonl")))


# --- preferences ---------------------------------------------------------------------------------

GOOD, POOR = {"role": "assistant", "content": "4"}, {"role": "assistant", "content": "5"}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {"prompt": [U], "chosen": [GOOD], "rejected": [POOR]},
        {"chosen": [U, GOOD], "rejected": [U, POOR]},
        {"prompt": "2+2?", "chosen": [U, GOOD], "rejected": [U, POOR]},
        {
            "chosen": "\n\nHuman: 2+2?\n\nAssistant: 4",
            "rejected": "\n\nHuman: 2+2?\n\nAssistant: 5",
        },
        {"prompt": "2+2?", "answers": ["5", "4"], "ranks": [2, 1]},
    ],
)
def test_every_form_of_a_pair_says_the_same(row: dict[str, Any]) -> None:
    pair = PreferenceReader(Path()).pair(row)
    assert [message.text for message in pair.prompt] == ["2+2?"]
    assert [[message.text for message in answer] for answer in pair.answers] == [["4"], ["5"]]


def test_answers_that_begin_with_the_same_call_are_answers_to_the_prompt() -> None:
    sides = [[CALL, RESULT, {"role": "assistant", "content": text}] for text in ("4", "5")]
    row = {"prompt": [U], "chosen": sides[0], "rejected": sides[1]}
    pair = PreferenceReader(Path()).pair(row)
    assert [message.text for message in pair.prompt] == ["2+2?"]
    assert [[message.text for message in answer] for answer in pair.answers] == [
        ["", "4", "4"],
        ["", "4", "5"],
    ]
    whole = {"chosen": [U, *sides[0]], "rejected": [U, *sides[1]]}
    pair = PreferenceReader(Path()).pair(whole)  # the prompt is what both begin with
    assert [message.text for message in pair.prompt] == ["2+2?", "", "4"]


BAD_PAIRS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "q", "chosen": "4", "rejected": "4"}, "with equal answers"),
    ({"prompt": "q", "chosen": "4", "rejected": "5", "preference": "tie"}, "with a tie"),
    ({"prompt": "q", "answers": ["4", "5"], "ranks": [1, 1]}, "with a tie"),
    ({"prompt": "q", "answers": ["4", "5", "6"], "ranks": [1, 2, 3]}, "with 3 answers"),
    ({"prompt": "q", "answers": ["4", "5"], "ranks": [1]}, "with 2 answers and 1 ranks"),
    ({"prompt": "q", "answers": ["4", "5"], "ranks": [1, None]}, "rank that is no number"),
    ({"prompt": "q", "answers": ["4", "5"], "ranks": [1, 10**400]}, "rank that is no number"),
    ({"chosen": "4", "rejected": "5"}, "without a prompt"),
    ({"prompt": "q", "chosen": "", "rejected": "5"}, "an empty turn"),
    ({"prompt": "q", "chosen": [], "rejected": [A]}, "without a turn of the assistant"),
    ({"prompt": "q", "completion": "4"}, "without preferences"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_PAIRS, ids=[reason for _, reason in BAD_PAIRS])
def test_what_is_no_pair_is_refused_with_the_reason(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusableRow, match=reason):
        PreferenceReader(Path()).pair(row)


def test_labels_and_ratings_are_numbers() -> None:
    reader = PreferenceReader(Path())
    assert reader.rating({"prompt": "q", "completion": "4", "label": True}).rating == 1
    assert reader.rating({"prompt": "q", "answer": "4", "rating": 3.5}).rating == 3.5
    for row, reason in (
        ({"prompt": "q", "completion": "4", "label": "yes"}, "label that is no number: 'yes'"),
        ({"prompt": "q", "completion": "4"}, "without an answer and its rating"),
    ):
        with pytest.raises(UnusableRow, match=reason):
            reader.rating(row)


def test_circles_are_counted_by_prompt() -> None:
    def pair(prompt: str, good: str, bad: str) -> RankedAnswers:
        return PreferenceReader(Path()).pair({"prompt": prompt, "chosen": good, "rejected": bad})

    line = [pair("p", "a", "b"), pair("p", "b", "c"), pair("p", "a", "c")]
    assert circles(line) == 0
    assert circles([*line, pair("p", "c", "a")]) == 1
    assert circles([*line, pair("q", "c", "a")]) == 0  # of another prompt
    assert circles([pair("p", "a", "b"), pair("p", "b", "a")]) == 1
