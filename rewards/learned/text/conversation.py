"""Conversations as a reward model's own tokenizer and chat template write them.

What a policy wrote reaches a reward model as text: a special token spelled out in it (`<|im_end|>`)
is broken up by a space, so that no response can end its turn and praise itself in the next.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

from ludus.errors import ConfigError, LudusError
from ludus.messages import Message, Role, assistant, user

from ...protocol import Sample


class UnrenderedConversation(LudusError, ValueError):
    """A chat template cannot write this conversation."""


class Conversations:
    """Writes conversations for one model.

    Args:
        tokenizer: a transformers tokenizer.
        name: of the model, for messages.
        needs_template: whether a tokenizer without a chat template is refused.

    Raises:
        ConfigError: there is no chat template, and one is needed.
    """

    def __init__(self, tokenizer: Any, name: str, *, needs_template: bool = True) -> None:
        if needs_template and not tokenizer.chat_template:
            raise ConfigError(
                f"{name}: the tokenizer has no chat template; put chat_template.jinja into the "
                "folder, or use template=pair for a model that reads a question and an answer"
            )
        self.tokenizer = tokenizer
        self._lock = threading.Lock()  # a fast tokenizer may not be used by two threads at once
        marks = {str(token) for token in tokenizer.all_special_tokens}
        marks |= {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}
        ordered = sorted((mark for mark in marks if mark.strip()), key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")

    def encode(self, text: str) -> list[int]:
        """The ids of a text, nothing added."""
        with self._lock:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def encode_pair(self, first: str, second: str) -> list[int]:
        """The ids of two texts as the tokenizer joins them, special tokens and all."""
        with self._lock:
            ids: list[int] = self.tokenizer(self.plain(first), self.plain(second))["input_ids"]
        return ids

    def render(self, messages: Sequence[Message], *, answering: bool = False) -> str:
        """The text of a conversation.

        Args:
            messages: of the conversation.
            answering: whether it ends where the assistant is about to speak.

        Raises:
            UnrenderedConversation: the template refuses the conversation.
        """
        rows = [self._row(message) for message in messages]
        try:
            with self._lock:
                text: str = self.tokenizer.apply_chat_template(
                    rows, tokenize=False, add_generation_prompt=answering
                )
        except Exception as error:  # whatever a template raises: it is a program of the model's
            raise UnrenderedConversation(
                f"the chat template cannot write this conversation: {error}"
            ) from error
        return text

    def plain(self, text: str) -> str:
        """`text` in which no special token is spelled out, and that every tokenizer can encode."""
        broken = self._marks.sub(lambda found: f"{found[0][:1]} {found[0][1:]}", text)
        return broken.encode("utf-8", "replace").decode()

    def _row(self, message: Message) -> dict[str, Any]:
        row: dict[str, Any] = {"role": str(message.role), "content": self.plain(message.text)}
        if message.tool_calls:
            row["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
        if message.name:
            row["name"] = message.name
        return row


def prompt_messages(sample: Sample) -> list[Message]:
    """What the policy was asked, as messages; none of an empty prompt."""
    if isinstance(sample.prompt, str):
        return [user(sample.prompt)] if sample.prompt else []
    return list(sample.prompt)


def response_messages(sample: Sample) -> list[Message]:
    """What followed, as messages; the last is the assistant's unless tools spoke last."""
    if isinstance(sample.response, str):
        return [assistant(sample.response)]
    return list(sample.response)


def says_nothing(sample: Sample) -> bool:
    """Whether the policy said and called nothing."""
    said = [m for m in response_messages(sample) if m.role == Role.ASSISTANT]
    return not any(message.text.strip() or message.tool_calls for message in said)
