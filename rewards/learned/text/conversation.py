"""Writes conversations by a reward model's own tokenizer and chat template.

What a policy wrote reaches a reward model as text: a special token spelled out in it (`<|im_end|>`)
is broken up by a space, so that no response can end its turn and praise itself in the next. So is a
text that the tokenizer's own normalisation makes into one: of a `[SEP]` in full-width brackets some
tokenizers make the token itself.
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
    """The conversations of a model, written by the model's tokenizer and chat template.

    Args:
        tokenizer: a transformers tokenizer.
        name: name of the verifier, for messages.
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
        rust: Any = getattr(tokenizer, "backend_tokenizer", None)
        self._normalizer: Any = getattr(rust, "normalizer", None)
        marks = {str(token) for token in tokenizer.all_special_tokens}
        added = [token for token in tokenizer.added_tokens_decoder.values() if token.special]
        marks |= {str(token) for token in added}
        marks |= {self._normalised(str(token)) for token in added if token.normalized}
        # A regular expression takes the first alternative that fits, so a token that begins with
        # another has to stand before it.
        gap = self._normalised(" ")
        marks = {mark for mark in marks if mark.strip() and mark not in gap}
        ordered = sorted(marks, key=len, reverse=True)
        spelled = "|".join(map(re.escape, ordered)) or r"(?!)"
        self._marks = re.compile(spelled)
        # Looks ahead, so that tokens that overlap in the text are found as well.
        self._first_characters = re.compile(f"(?={spelled}).", re.DOTALL)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens around the text."""
        with self._lock:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Return the ids of two texts as the tokenizer joins a pair, with special tokens."""
        with self._lock:
            ids: list[int] = self.tokenizer(self.plain(first), self.plain(second))["input_ids"]
        return ids

    def render(self, messages: Sequence[Message], *, answering: bool = False) -> str:
        """Write a conversation as text by the chat template.

        Args:
            messages: the messages of the conversation.
            answering: whether the text ends where the assistant is about to speak.

        Raises:
            UnrenderedConversation: the template refuses the conversation.
        """
        rows: list[dict[str, Any]] = []
        for message in messages:
            row: dict[str, Any] = {"role": str(message.role), "content": self.plain(message.text)}
            if message.tool_calls:
                calls = [
                    {"name": self.plain(call.name), "arguments": self._plain_json(call.arguments)}
                    for call in message.tool_calls
                ]
                row["tool_calls"] = [{"type": "function", "function": call} for call in calls]
            if message.name:
                row["name"] = self.plain(message.name)
            rows.append(row)
        try:
            with self._lock:
                text: str = self.tokenizer.apply_chat_template(
                    rows, tokenize=False, add_generation_prompt=answering
                )
        # A template is a program of the model's, and may raise anything.
        except Exception as error:
            raise UnrenderedConversation(
                f"the chat template cannot write this conversation: {error}"
            ) from error
        return text

    def plain(self, text: str) -> str:
        """Return `text` without special tokens, and with `?` for characters that UTF-8 cannot
        encode (lone surrogates).

        A special token gets a space after its first character. Where that leaves a token (of one
        character, or with spaces of its own), a space takes the place of the token. A text of which
        normalisation makes a token is returned normalised.
        """
        text = self._broken(text.encode("utf-8", "replace").decode())
        if self._marks.search(normal := self._normalised(text)):
            text = self._broken(normal)
        while self._marks.search(normal := self._normalised(text)):
            text = self._marks.sub(" ", normal)
        return text

    def _broken(self, text: str) -> str:
        text = self._first_characters.sub(lambda match: f"{match[0]} ", text)
        while self._marks.search(text):
            text = self._marks.sub(" ", text)
        return text

    def _normalised(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _plain_json(self, value: Any) -> Any:
        """Return a JSON value whose texts and keys are `plain`."""
        match value:
            case str():
                return self.plain(value)
            case list():
                return [self._plain_json(item) for item in value]
            case dict():
                return {self.plain(key): self._plain_json(item) for key, item in value.items()}
            case _:
                return value


def prompt_messages(sample: Sample) -> list[Message]:
    """Return the prompt of a sample as messages; an empty prompt gives none."""
    if isinstance(sample.prompt, str):
        return [user(sample.prompt)] if sample.prompt else []
    return list(sample.prompt)


def response_messages(sample: Sample) -> list[Message]:
    """Return the response as messages; the last is the assistant's unless tools spoke last."""
    if isinstance(sample.response, str):
        return [assistant(sample.response)]
    return list(sample.response)


def says_nothing(sample: Sample) -> bool:
    """Return whether the response has neither a word nor a tool call of the policy."""
    answers = [m for m in response_messages(sample) if m.role == Role.ASSISTANT]
    return not any(message.text.strip() or message.tool_calls for message in answers)
