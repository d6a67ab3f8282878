"""Splitting of long texts at spaces, by length in tokens.

    window 1     problem, chunk 1, instruction               ->  memory 1
    window 2     problem, memory 1, chunk 2, instruction     ->  memory 2
    ...
    window n+1   problem, memory n                           ->  the answer

After "MemAgent: Reshaping Long-Context LLM with Multi-Conv RL-based Memory Agent" (arXiv
2507.02259), which gives 1024 tokens to the problem, 5000 to a chunk, 1024 to the memory and 1024 to
the answer. Each chunk is a context of its own, hence a segment and a training row of its own, and
every row of a rollout has the rollout's advantage: reward minus the group's mean in the paper
(recipe `dr_grpo`), or as `supo` has it.

The document is what stands between `<document>` and `</document>` in the first prompt; the rest is
the problem. Without these tags, any message of the environment that is longer than a chunk is read
in chunks. In the paper an episode ends with the answer to one document. Here the episode may go on:
a window that fills up is a chunk too, and the memory is written anew from what the window shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role, user

from .protocol import (
    History,
    Reopen,
    Sizes,
    TrimmingManager,
    WriteSummary,
    WriteText,
    add_to_prompt,
)
from .summarize import written_overrun


def split_text(
    text: str, max_tokens: int, measure: Callable[[Sequence[Message]], int]
) -> list[str]:
    """Split a text into chunks of at most `max_tokens` tokens, as long as possible, at spaces.

    Joined, the chunks are the text again. A single word of more than `max_tokens` tokens is split
    inside; a chunk has at least one character, whatever its length in tokens.

    Args:
        text: the text.
        max_tokens: the most tokens of a chunk, as a message.
        measure: returns the length of messages in tokens.

    >>> split_text("one two three", 9, lambda messages: len(messages[0].text))
    ['one two ', 'three']
    """
    chunks: list[str] = []
    while text:
        end = _fitting(text, max_tokens, measure)
        if end < len(text):
            space = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end)) + 1
            end = space or end
        chunks.append(text[:end])
        text = text[end:]
    return chunks


def _fitting(text: str, max_tokens: int, measure: Callable[[Sequence[Message]], int]) -> int:
    """Return the most characters of the text's beginning that have at most `max_tokens` tokens."""
    fits, too_many = 1, len(text) + 1
    # Begin with a guess, since measuring a whole book many times is slow.
    guess = 4 * max_tokens
    while too_many - fits > 1:
        middle = min(guess, too_many - 1) if guess > fits else (fits + too_many) // 2
        if measure([user(text[:middle])]) <= max_tokens:
            fits = middle
            guess = 2 * middle
        else:
            too_many = middle
            guess = 0
    return fits


UPDATE = (
    "Write the memory anew, so that it holds all that the problem may need: what the memory held "
    "and still matters, and what is new. The memory is all that is kept. Do not answer yet."
)
READ = "(this part was read in sections; the memory holds what was kept)"
OPENS, CLOSES = "<document>", "</document>"


@dataclass(slots=True)
class _Reader:
    """How far the manager of an episode has read."""

    memory: str = ""
    looked_at: int = 0
    """How many messages of the conversation have been searched for documents."""
    documents: dict[int, str] = field(default_factory=dict[int, str])
    """The documents that were read, by the index of their message in the conversation."""


@dataclass(frozen=True, slots=True)
class MemAgent(TrimmingManager):
    """Reads long documents chunk by chunk into an overwritten memory.

    Args:
        chunk_tokens: the most tokens of a chunk.
        summary_tokens: the most sampled tokens of a memory.
        threshold: the share of the window from which a window is itself made into memory.
        instruction: the text that asks for the memory.
        train_summaries: False leaves the memories out of the loss: an ablation.
    """

    chunk_tokens: int = 5000
    summary_tokens: int = 1024
    threshold: float = 0.95
    instruction: str = UPDATE
    train_summaries: bool = True
    name = "memagent"
    _reader: _Reader = field(init=False, repr=False, default_factory=_Reader)

    def __post_init__(self) -> None:
        if self.chunk_tokens < 1 or self.summary_tokens < 1:
            raise ConfigError(
                "memagent needs chunk_tokens and summary_tokens of at least 1, got "
                f"{self.chunk_tokens} and {self.summary_tokens}"
            )

    def begin(self) -> MemAgent:
        """Return a manager with an empty memory."""
        return replace(self)

    def before_turn(self, history: History) -> WriteText | None:
        """Begin to read where the newest messages hold a document."""
        reader, memories = self._reader, list[str]()
        for index in range(reader.looked_at, len(history.messages)):
            document = self._document(history.messages[index], history)
            if document:
                reader.documents[index] = document
                memories += split_text(document, self.chunk_tokens, _content(history))
        reader.looked_at = len(history.messages)
        return self._read(history, memories) if memories else None

    def when_full(self, history: History) -> WriteSummary:
        """Make the window into memory; the newest exchange is shown again."""

        def resume(memory: str) -> Reopen:
            self._reader.memory = memory
            return self._act(history)

        return WriteSummary(
            instruction=user(self.instruction),
            max_tokens=self.summary_tokens,
            drop_last=False,
            show_newest=False,
            trained=self.train_summaries,
            resume=resume,
        )

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Take out the documents, and add the memory."""
        shown_messages = [self._shown(index, message) for index, message in enumerate(opening)]
        memory = self._reader.memory
        return add_to_prompt(shown_messages, f"Memory:\n{memory}") if memory else shown_messages

    def overrun(self) -> int:
        """Return what the instruction and the longest memory may take."""
        return written_overrun(self.instruction, self.summary_tokens)

    def check(self, sizes: Sizes) -> None:
        """Require that a window holds memory, chunk and a new memory, and then a step."""
        reading = sizes.reading + 2 * self.summary_tokens
        if sizes.reading and reading > sizes.window:
            raise ConfigError(
                f"memagent reads with {reading} tokens (the problem and a chunk of "
                f"{self.chunk_tokens}: {sizes.reading}; the memory, and the memory written anew: "
                f"{self.summary_tokens} each), but the window has {sizes.window}; lower "
                "context.chunk_tokens or context.summary_tokens"
            )
        TrimmingManager.check(self, sizes)  # slots leave `super()` another class

    def opens_with(self, sizes: Sizes) -> tuple[int, str]:
        """See `TrimmingManager.opens_with`."""
        made_of = f"the problem, {sizes.reopened}, and a memory of {self.summary_tokens}"
        return sizes.reopened + self.summary_tokens, made_of

    def _read(self, history: History, chunks: Sequence[str], number: int = 1) -> WriteText:
        """Open the window of the chunk with that number."""
        section = f"Section {number} of {len(chunks)}:\n{chunks[number - 1]}\n\n{self.instruction}"

        def resume(memory: str) -> Reopen | WriteText:
            self._reader.memory = memory
            if number < len(chunks):
                return self._read(history, chunks, number + 1)
            return self._act(history)

        return WriteText(
            messages=add_to_prompt(history.opening, section),
            max_tokens=self.summary_tokens,
            reason=self.name,
            resume=resume,
            trained=self.train_summaries,
        )

    def _act(self, history: History) -> Reopen:
        """Open a window with the problem, the memory and the newest exchange."""
        first = history.actions[-1] if history.actions else len(history.messages)
        newest = [
            self._shown(index, history.messages[index])
            for index in range(first, len(history.messages))
        ]
        return Reopen([*history.opening, *newest], self.name)

    def _shown(self, index: int, message: Message) -> Message:
        """Return a message of the conversation without the document that was read."""
        document = self._reader.documents.get(index)
        if document is None:
            return message
        return msgspec.structs.replace(message, content=message.text.replace(document, READ, 1))

    def _document(self, message: Message, history: History) -> str:
        """Return the part of a message that is read in chunks; empty without such a part."""
        if message.role is Role.ASSISTANT or not isinstance(message.content, str):
            return ""
        _, opens, after = message.content.partition(OPENS)
        inside, closes, _ = after.rpartition(CLOSES)
        if opens and closes and not history.actions:
            return inside if _content(history)([user(inside)]) > self.chunk_tokens else ""
        if message.role is Role.SYSTEM or _content(history)([message]) <= self.chunk_tokens:
            return ""
        return message.content


def _content(history: History) -> Callable[[Sequence[Message]], int]:
    """Return a measure of messages without what stands in every prompt, such as tools on offer."""
    around = history.measure([user("")])
    return lambda messages: history.measure(messages) - around
