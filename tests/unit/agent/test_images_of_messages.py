"""Images of messages on the chat path: what a server is sent, and what managers keep."""

from __future__ import annotations

from ludus.agent.chat_policy import letters_of
from ludus.agent.chat_tools import TextTools
from ludus.agent.context.protocol import add_to_prompt, estimate_tokens
from ludus.agent.images import images_of, refuse_unseen
from ludus.agent.parsing import tool_format
from ludus.llm.chat_wire import messages_row
from ludus.messages import ImagePart, TextPart, ToolCall, assistant, system, tool_result, user

PNG, JPEG = ImagePart(data=b"\x89PNG1"), ImagePart(data=b"\xff\xd8\xff2")
URL = ImagePart(url="https://example.com/cat.png")
CALLS = [ToolCall(name="look", id="a"), ToolCall(name="read", id="b")]


def test_a_server_gets_images_as_data_urls_in_their_order() -> None:
    (row,) = messages_row([user([PNG, TextPart("and"), JPEG, URL])])
    assert row == {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORzE="}},
            {"type": "text", "text": "and"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/Mg=="}},
            {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
        ],
    }


def test_images_of_results_follow_the_results_of_their_turn() -> None:
    conversation = [
        user("look"),
        assistant("", CALLS),
        tool_result([PNG], CALLS[0]),
        tool_result([TextPart("page 2"), JPEG], CALLS[1]),
        assistant("a cat"),
        user("sure?"),
    ]
    rows = messages_row(conversation)
    assert [row["role"] for row in rows] == [
        "user", "assistant", "tool", "tool", "user", "assistant", "user"
    ]  # fmt: skip
    assert (rows[2]["content"], rows[2]["tool_call_id"]) == ("The result is shown below.", "a")
    assert rows[3]["content"] == "page 2"
    kinds = [part["type"] for part in rows[4]["content"]]
    assert kinds == ["text", "image_url", "text", "image_url"]
    assert "look" in rows[4]["content"][0]["text"]
    assert "read" in rows[4]["content"][2]["text"]
    # the last message of a conversation may be a result
    assert [row["role"] for row in messages_row(conversation[:3])][-2:] == ["tool", "user"]
    # results of text alone are as they were
    plain = [assistant("", CALLS[:1]), tool_result("text", CALLS[0])]
    assert [row["role"] for row in messages_row(plain)] == ["assistant", "tool"]


def test_results_as_text_keep_their_images() -> None:
    results = [tool_result([TextPart("1"), PNG], CALLS[0]), tool_result([JPEG], CALLS[1])]
    shown, _ = TextTools(tool_format("hermes")).request([user("go"), *results], [])
    assert [message.role.value for message in shown] == ["user", "user"]
    assert shown[1].images == [PNG, JPEG]
    assert shown[1].text.count("<tool_response>") == 2


def test_a_text_added_to_a_prompt_leaves_its_images() -> None:
    opening = [system("Look."), user([PNG, TextPart("what?")])]
    added = add_to_prompt(opening, "Summary: red.")
    assert len(added) == 2
    assert added[1].images == [PNG]
    assert added[1].text == "what?\n\nSummary: red."


def test_an_image_counts_in_estimates() -> None:
    with_image, without = [user([PNG, TextPart("a")])], [user("a")]
    assert estimate_tokens(with_image) - estimate_tokens(without) == 500
    assert letters_of(with_image) - letters_of(without) == 1500
    assert images_of(with_image) == [PNG]


def test_only_a_model_without_images_is_refused() -> None:
    import pytest

    from ludus.errors import ConfigError

    class Reads:
        placeholder, token_id = "<image>", 7

        def tokens(self, image: ImagePart) -> int:
            return 1

    refuse_unseen(Reads(), "me/a-v0", declared=True, opening=[user([PNG])])
    refuse_unseen(None, "me/a-v0", declared=False, opening=[user("text")])
    for declared, opening in ((True, [user("text")]), (False, [user([PNG])])):
        with pytest.raises(ConfigError, match="me/a-v0 shows images, and this model reads text"):
            refuse_unseen(None, "me/a-v0", declared=declared, opening=opening)
