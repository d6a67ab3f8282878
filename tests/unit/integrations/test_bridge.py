"""What the bridges to other projects carry: text, and nothing that a peer would not be shown."""

import pytest

from ludus.errors import ConfigError
from ludus.integrations.bridge import as_chat, spoken
from ludus.messages import ImagePart, Message, Role, TextPart, user


def test_messages_become_one_text_and_a_chat() -> None:
    messages = [Message(role=Role.SYSTEM, content="Add."), user("2 + 2?"), user("")]
    assert spoken(messages) == "Add.\n\n2 + 2?"
    assert as_chat(messages[:1]) == [{"role": "system", "content": "Add."}]


def test_an_image_that_a_peer_would_not_be_shown_is_refused() -> None:
    shown = Message(role=Role.USER, content=[TextPart(text="What is it?"), ImagePart(data=b"x")])
    for carried in (spoken, as_chat):
        with pytest.raises(ConfigError, match="the environment shows an image"):
            carried([user("Look."), shown])
