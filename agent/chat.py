"""Conversion of conversations to tokens and back, with the model's own chat template.

`prompt` renders a whole conversation once. `extension` renders only the new messages, to be
appended to sampled ids: the sampled part is never decoded and encoded again. Where a template
would rewrite earlier text (some drop earlier thoughts once a user speaks), `extension` returns
None, and the caller starts a new segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message, Role, TextPart, ToolCall, assistant, user
from ludus.thoughts import ALL, apart, closing_of, marks_in

from .chat_tools import break_marks
from .images import ImageFormat, PlacedImage, expand, placed, refuse_images
from .parsing import ToolFormat, read_turn, turn_text, writes_turns
from .templates.fallbacks import NO_FALLBACKS, Fallbacks, as_template_message
from .templates.text import TemplateRefused, apply_template, source_of


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that ludus uses."""

    eos_token: Any
    eos_token_id: Any

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = ...) -> str: ...

    def apply_chat_template(self, conversation: list[dict[str, Any]], **kwargs: Any) -> object: ...


K = TypeVar("K")
V = TypeVar("V")

CACHED_BYTES, CACHED = 512, 4096
"""Encodings of messages up to `CACHED_BYTES` are cached, at most `CACHED` of them, because episodes
repeat short messages and templates are slow.
"""

TOOL_TAGS = (
    "<tool_response>", "</tool_response>", "<tool_call>", "</tool_call>", "<think>", "</think>"
)  # fmt: skip
"""Tags that templates put around calls, results and thoughts."""
LONGEST_MARK = 48
"""The most tokens of a mark at the end of a prompt that opens thoughts."""


class ChatFormat:
    """A tokenizer's chat template together with the tool format that the model was trained on.

    Args:
        tokenizer: a tokenizer with a chat template.
        tool_format: how the model writes tool calls.
        stop_ids: tokens that end a turn besides the template's own and the tokenizer's
            `eos_token`, such as those of the model's generation config.
        fallbacks: repairs of what the template cannot show; see `templates.probe`.
        images: how images become tokens; None for a model that reads none.

    Raises:
        ConfigError: the template ends an assistant's turn without a special token, so that a
            sampled turn could never end; or the template refuses a question with an answer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tool_format: ToolFormat,
        *,
        stop_ids: Sequence[int] = (),
        fallbacks: Fallbacks = NO_FALLBACKS,
        images: ImageFormat | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.tool_format = tool_format
        self.fallbacks = fallbacks
        self._marks_turns = writes_turns(tool_format)
        self.images = images
        special = {str(each) for each in tokenizer.added_tokens_decoder.values() if each.special}
        self._marks = sorted(special, key=len, reverse=True)
        if images is not None and images.placeholder not in self._marks:
            self._marks.append(images.placeholder)
        self._extensions: dict[bytes, list[int] | None] = {}
        self._prompts: dict[bytes, list[int]] = {}
        self._turns: dict[bytes, str] = {}
        """Texts of a question and a turn that answers it, by the turn."""
        self._encoded: dict[str, list[int]] = {}
        self._openings: dict[tuple[int, ...], str] = {}
        """Marks with which prompts opened thoughts, by the ids behind the last turn's end."""
        self.thought_marks = marks_in(source_of(tokenizer) or "")
        """What the model writes before and after thoughts."""
        # Render a minimal conversation once, to see what the template writes around a turn.
        self.opening = self._render([_STUB_QUESTION], [], prompt=True)
        """The prompt of a minimal question, which ends with what the template writes before an
        answer.
        """
        self.ends_by_role = False
        """Whether a turn ends with the token that opens the next message, as in GLM."""
        self.end_of_turn: str = self._find_end_of_turn()
        (self.end_of_turn_id,) = self._encode(self.end_of_turn)
        self.end_of_call: str = self._find_end_of_call()
        (self.end_of_call_id,) = self._encode(self.end_of_call)
        end_ids = [self.end_of_turn_id, self.end_of_call_id]
        all_stop_ids = [*end_ids, tokenizer.eos_token_id, *stop_ids]
        self.stop_token_ids: tuple[int, ...] = tuple(
            dict.fromkeys(token for token in all_stop_ids if token is not None)
        )

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the ids of a conversation up to the point where the policy speaks."""
        # Prompts with tools are not cached: the key would have to contain all schemas.
        key = b"" if tools else msgspec.msgpack.encode(messages)
        if not 0 < len(key) <= CACHED_BYTES:
            return self._encode(self._render(messages, tools, prompt=True))
        cached = self._prompts.get(key)
        if cached is None:
            cached = self._encode(self._render(messages, tools, prompt=True))
            _keep(self._prompts, key, cached)
        return list(cached)

    def extension(
        self, new: Sequence[Message], *, ended: bool, thought: bool = False, last: int | None = None
    ) -> list[int] | None:
        """Return the ids to append after a sampled turn so that the policy can answer `new`.

        Args:
            new: the messages since that turn.
            ended: whether the sampled ids end with the end-of-turn token; if not, the token is
                prepended here.
            thought: whether that turn contains thoughts, which templates may keep or drop.
            last: the turn's last token. Only needed where a turn ends with the token that opens the
                next message: a token that was sampled is not written again.

        Returns:
            The ids, or None if the template would rewrite the earlier text instead of extending it.
        """
        if not self.ends_by_role:
            last = None
        # All that the ids depend on: the template and the tokenizer never change, and tools stand
        # in the prompt alone.
        key = msgspec.msgpack.encode((ended, thought, last, new))
        if key in self._extensions:
            cached = self._extensions[key]
            return None if cached is None else list(cached)
        text = self._suffix(new, thought=thought)
        extension_ids: list[int] | None = None
        if text is not None and self.ends_by_role:
            # The text begins with the turn's end, which opens the next message too.
            ids = self._encode(text)
            sampled = ids[0] if ids and last is None and ended else last
            extension_ids = ids[1:] if ids and ids[0] == sampled else ids
        elif text is not None:
            answers_call = bool(new) and new[0].role is Role.TOOL
            end = self.end_of_call if answers_call else self.end_of_turn
            extension_ids = self._encode(text if ended else end + text)
        if len(key) <= CACHED_BYTES:
            _keep(self._extensions, key, None if extension_ids is None else list(extension_ids))
        return extension_ids

    def placed(self, ids: Sequence[int], messages: Sequence[Message]) -> list[PlacedImage]:
        """Return where the images of `messages` stand in `ids`, the result of `prompt` or
        `extension` for these messages.
        """
        return placed(ids, messages, self.images)

    def encode_text(self, text: str) -> list[int]:
        """The ids of a given text, in which no special token can be spelled out."""
        plain = break_marks(text, self._marks)
        return self._encode(plain.encode("utf-8", "replace").decode())

    def quoted(self, message: Message) -> Message:
        """Return an assistant's message that somebody else wrote, with the marks of the template
        broken in text, thoughts and calls.
        """
        content = message.content
        if isinstance(content, str):
            content = break_marks(content, self._marks)
        else:
            content = [
                TextPart(text=break_marks(part.text, self._marks))
                if isinstance(part, TextPart)
                else part
                for part in content
            ]
        calls = [
            msgspec.structs.replace(
                call,
                name=break_marks(call.name, self._marks),
                arguments=self._broken(call.arguments),
            )
            for call in message.tool_calls
        ]
        return msgspec.structs.replace(
            message,
            content=content,
            tool_calls=calls,
            reasoning=break_marks(message.reasoning, self._marks),
        )

    def _broken(self, value: Any) -> Any:
        """Return a value of JSON with the marks broken in all texts."""
        if isinstance(value, str):
            return break_marks(value, self._marks)
        if isinstance(value, dict):
            return {self._broken(name): self._broken(each) for name, each in value.items()}
        return [self._broken(each) for each in value] if isinstance(value, list) else value

    def ends_turn(self, ids: Sequence[int]) -> bool:
        """Return whether sampled ids end as the template ends turns rather than with another stop
        token.
        """
        return bool(ids) and ids[-1] in (self.end_of_turn_id, self.end_of_call_id)

    def answer(
        self, message: Message, tools: Sequence[ToolSpec] = (), prompt: Sequence[int] = ()
    ) -> list[int]:
        """Return the ids that a policy would sample to say `message`, including the end-of-turn
        token.

        Args:
            message: the message. Where the prompt opened thoughts, a message without any ends them.
            tools: the tools on offer, which some formats need for writing calls.
            prompt: the ids that the policy would answer.
        """
        closing = closing_of(self._opened(prompt))
        if closing and not apart(message).thinks:
            message = msgspec.structs.replace(message, thought_marks=("", f"\n{closing}\n\n"))
        text = turn_text(self.tool_format, message, tools=tools)
        end = self.end_of_call if message.tool_calls else self.end_of_turn
        return self._encode(text.removesuffix(end) + end)  # harmony's calls end with the token

    def parse(
        self,
        ids: Sequence[int],
        *,
        complete: bool,
        calls: bool = True,
        tools: Sequence[ToolSpec] = (),
        marks: bool = True,
        prompt: Sequence[int] = (),
    ) -> Message:
        """Convert sampled ids to a message, with the thoughts split from the content.

        Args:
            ids: the ids as sampled.
            complete: whether the turn ended. In a turn that was cut off, the last call carries an
                error instead of being executed.
            calls: whether to look for tool calls. Where no tool was offered, text that looks like a
                call stays text, so that nothing a policy says is hidden from the environment.
            tools: the tools on offer.
            marks: whether special tokens stay in the text. They must not where the text is shown
                again as somebody else's words.
            prompt: the ids before, which may have opened the thoughts.
        """
        text_ids = [token for token in ids if token not in self.stop_token_ids]
        text = self.tokenizer.decode(text_ids, skip_special_tokens=False)
        opened = self._opened(prompt)
        message = apart(assistant(text), opened=opened)
        if calls or self._marks_turns:
            read = read_turn(self.tool_format, text, complete=complete, tools=tools, opened=opened)
            message = read if calls or not read.tool_calls else message
        if marks:
            return message
        plain = message.text
        for mark in self._marks:
            plain = plain.replace(mark, "")
        return msgspec.structs.replace(message, content=plain)

    def _opened(self, prompt: Sequence[int]) -> str:
        """Return the mark by which a prompt opens the thoughts; empty without such a mark."""
        near = list(prompt[-LONGEST_MARK:])
        # Nothing that ended with a turn is open. What the template writes behind is short, and the
        # same for most prompts, while decoding is slow.
        if self.end_of_turn_id in near:
            near = near[len(near) - near[::-1].index(self.end_of_turn_id) :]
        key = tuple(near)
        if key not in self._openings:
            text = self.tokenizer.decode(near, skip_special_tokens=False) if near else ""
            _keep(self._openings, key, ALL.opened_by(text) if text else "")
        return self._openings[key]

    def _find_end_of_turn(self) -> str:
        """Return the token that the template writes after an assistant's words.

        This is not always `eos_token`: Gemma ends turns with `<end_of_turn>`, and GLM with the
        token that opens the next message.
        """
        answered = self._render([_STUB_QUESTION, _STUB_ANSWER], [], prompt=False)
        end_mark = self._first_mark(answered.rpartition(_STUB_ANSWER.text)[2])
        if end_mark is None:
            stub_messages = [_STUB_QUESTION, _STUB_ANSWER, _STUB_QUESTION]
            after = self._render(stub_messages, [], prompt=False).rpartition(_STUB_ANSWER.text)[2]
            end_mark = self._first_mark(after)
            self.ends_by_role = end_mark is not None and after.lstrip().startswith(end_mark)
        if end_mark is None:
            raise ConfigError(
                "the chat template ends an assistant's turn with "
                f"{answered.rpartition(_STUB_ANSWER.text)[2]!r}, which holds no "
                "token of its own: a sampled turn could never end. Use a template that ends turns "
                "with a special token, such as the tokenizer's eos_token"
            )
        return end_mark

    def _find_end_of_call(self) -> str:
        """Return the token that ends a turn with calls, a special token for harmony and GLM.

        A template that cannot show a call, or a result, has none; the probe tells.
        """
        call = ToolCall(name="probe_call", id="call_0")
        call_message = assistant("", [call])
        stub_messages = [_STUB_QUESTION, call_message]
        if self.ends_by_role:
            stub_messages.append(
                Message(role=Role.TOOL, content=".", tool_call_id=call.id, name=call.name)
            )
        try:
            text = self._render(stub_messages, [], prompt=False)
        except TemplateRefused:
            return self.end_of_turn
        if self.ends_by_role:
            bare = self._render(stub_messages[:-1], [], prompt=False)
            after = text[len(bare) :] if text.startswith(bare) else ""
            return self._first_mark(after) or self.end_of_turn
        if self.end_of_turn in text.rpartition(call.name)[2]:
            return self.end_of_turn
        marks = [mark for mark in self._single_marks() if text.rstrip().endswith(mark)]
        return marks[0] if marks else self.end_of_turn

    def _first_mark(self, text: str) -> str | None:
        """Return the first of the tokenizer's own tokens in `text`."""
        present = [mark for mark in self._single_marks() if mark in text]
        return min(present, key=text.find, default=None)

    def _single_marks(self) -> list[str]:
        added = [str(token) for token in self.tokenizer.added_tokens_decoder.values()]
        return [mark for mark in added if mark.strip() and len(self._encode(mark)) == 1]

    def _suffix(self, new: Sequence[Message], *, thought: bool) -> str | None:
        """Return the text between the end of an assistant's turn and the next answer, or None if
        the template rewrites that turn.
        """
        stub = self._stub_of(new, thought=thought)
        full = self._render([_STUB_QUESTION, stub, *new], [], prompt=True)
        # The text of a turn alone is the same for every call of the same names.
        key = msgspec.msgpack.encode(stub)
        if key not in self._turns:
            _keep(self._turns, key, self._render([_STUB_QUESTION, stub], [], prompt=False))
        bare = self._turns[key]
        end = self.end_of_call if stub.tool_calls else self.end_of_turn
        sampled = self.opening.removesuffix(ALL.opened_by(self.opening))
        # Where calls alone are marked, the template's own way of writing them is as good.
        stub_text = turn_text(self.tool_format, stub) if self._marks_turns else stub.written
        sampled += stub_text.removesuffix(end)
        # Before the new messages the policy's turn stands as the template writes it alone, or as
        # it was sampled; in templates that drop thoughts these differ.
        endings = [bare.rstrip()]
        if not self.ends_by_role:
            end_position, closed = bare.rfind(end), full.find(end, len(sampled))
            endings = [bare[: end_position + len(end)]] if end_position >= 0 else []
            if full.startswith(sampled) and closed >= 0:
                endings.append(full[: closed + len(end)])
        for before in endings:
            # A template that drops thoughts rewrites such a turn, so only the sampled text will do.
            if full.startswith(before) and (not thought or before.startswith(sampled)):
                return full[len(before) :]
        return None

    def _stub_of(self, new: Sequence[Message], *, thought: bool) -> Message:
        """Return an assistant's turn that `new` may follow: results follow the calls they answer.

        Thoughts are marked as the template marks them, or apart in formats that mark whole turns.
        """
        calls: list[ToolCall] = []
        for message in new:
            if message.role is not Role.TOOL:
                break
            calls.append(ToolCall(name=message.name or "f", id=message.tool_call_id))
        stub = msgspec.structs.replace(_STUB_ANSWER, tool_calls=calls)
        if not thought:
            return stub
        marks = None if self._marks_turns else self.thought_marks
        return msgspec.structs.replace(stub, reasoning=".", thought_marks=marks)

    def _render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool
    ) -> str:
        if self.images is None:
            refuse_images(messages)
        rows, tool_rows = self.fallbacks.shape(
            [self._row(message) for message in messages], tools, self.tool_format
        )
        rendered = apply_template(self.tokenizer, rows, tool_rows, prompt=prompt)
        return expand(rendered, messages, self.images)

    def _row(self, message: Message) -> dict[str, Any]:
        """Return a message for the template, with format marks broken up (see `break_marks`) in
        text that the policy did not write.
        """
        marks = [*self._marks, *(TOOL_TAGS if message.role == Role.TOOL else ())]
        if message.role == Role.ASSISTANT:  # may write its own marks, but show no image
            marks = [self.images.placeholder] if self.images is not None else []
        row = as_template_message(message)
        if isinstance(row["content"], str):
            row["content"] = break_marks(row["content"], marks)
        for part in row["content"] if isinstance(row["content"], list) else ():
            if "text" in part:
                part["text"] = break_marks(part["text"], marks)
        return row

    def _encode(self, text: str) -> list[int]:
        cached = self._encoded.get(text)
        if cached is None:
            cached = encoded(self.tokenizer, text)
            if len(text) <= CACHED_BYTES:
                _keep(self._encoded, text, cached)
        return list(cached)


# The answer is a word that no template writes. A sign would not do: MiniMax ends turns with `[e~[`.
_STUB_QUESTION, _STUB_ANSWER = user("."), assistant("kittiwake")


def encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text, without special tokens at the beginning or the end.

    transformers packs the ids of its fast tokenizers into tensors' dictionaries, which costs more
    than encoding a message does. Where nothing is set that would change the ids (truncation,
    padding, special tokens as text), the tokenizer below is asked itself.
    """
    below = getattr(tokenizer, "backend_tokenizer", None)
    if (
        below is None
        or below.truncation is not None
        or below.padding is not None
        or below.encode_special_tokens
        or getattr(tokenizer, "split_special_tokens", False)
    ):
        return tokenizer.encode(text, add_special_tokens=False)
    ids: list[int] = below.encode(text, add_special_tokens=False).ids
    return ids


def _keep(cache: dict[K, V], key: K, value: V) -> None:
    # A full cache is emptied as a whole, since entries are cheap to compute again.
    if len(cache) >= CACHED:
        cache.clear()
    cache[key] = value
