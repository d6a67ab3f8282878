"""The writing of rows: a conversation becomes ids, which then only grow.

Whoever decides what a policy reads next (the context manager of an episode, or an agent behind the
gateway) writes by these three steps: `open` renders a conversation, `extension_behind` renders
what is new behind a sampled turn, and `sample` adds the policy's turn. The sampled ids are never
decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message

from .chat import ChatFormat
from .engine import Engine, Sampling, refuse_broken
from .images import PlacedImage
from .templates.text import TemplateRefused
from .trajectory import Finish, Turn

MIN_ANSWER_TOKENS = 4
"""A row with less room than this counts as full."""


def extension_behind(
    turn: Turn, new: Sequence[Message], chat_format: ChatFormat
) -> list[int] | None:
    """Return the ids that follow `turn` so that the policy can answer `new`, or None if the
    template would rewrite earlier text.
    """
    return chat_format.extension(
        new,
        ended=chat_format.ends_turn(turn.out_ids),
        thought=turn.message is not None and turn.message.thinks,
        last=turn.out_ids[-1] if turn.out_ids else None,
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens of one answer."""

    prompt: int
    sampled: int


class PolicyWriter(Protocol):
    """Continues rows. `TokenWriter` does with an engine; the gateway's `TextWriter` with a server
    that returns no ids, for evaluation.
    """

    window: int
    """The most tokens of a prompt and its answer."""
    max_tokens: int
    """The most tokens of an answer."""
    keeps_ids: bool
    """Whether the sampled ids are known, which training needs."""
    sees_images: bool

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the ids of a whole conversation up to the point where the policy speaks.

        Raises:
            TemplateRefused: the chat template cannot show the conversation.
            ImageRefused: an image cannot be shown.
        """
        ...

    def extend(self, turn: Turn, new: Sequence[Message]) -> list[int] | None:
        """Return the ids of `new` behind `turn`; None where the conversation has to be opened
        anew.
        """
        ...

    def placed(self, ids: Sequence[int], messages: Sequence[Message]) -> list[PlacedImage]:
        """Return where the images of `messages` stand in the ids that show them."""
        ...

    def quoted(self, message: Message) -> Message:
        """Return the message without marks that could end a turn."""
        ...

    async def sample(
        self, prompt: Prompt, turn: Turn, *, budget: int, seed: int, tools: Sequence[ToolSpec]
    ) -> Spent:
        """Sample at most `budget` tokens behind `prompt` into `turn`, and parse them.

        Raises:
            LudusError: the engine or the server could not answer.
        """
        ...

    def read(self, turn: Turn, tools: Sequence[ToolSpec], ids: Sequence[int]) -> Message:
        """Return the message that the sampled `turn` says behind `ids`; calls only where there are
        `tools`.
        """
        ...

    def decode(self, ids: Sequence[int], *, marks: bool = False) -> str:
        """Return the text of ids, special tokens only with `marks`."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that the policy answers, as ids and as messages."""

    ids: Sequence[int]
    images: Sequence[PlacedImage] = ()
    """The images that stand in the ids."""
    messages: Sequence[Message] = ()
    """The same conversation for a server that takes messages."""


class TokenWriter:
    """Writes rows in a model's chat format with what an engine samples.

    Args:
        chat_format: how messages become ids and back.
        engine: the sampling engine.
        sampling: `max_tokens` is the most of one turn; the seed is replaced for each turn.
    """

    keeps_ids = True

    def __init__(self, chat_format: ChatFormat, engine: Engine, sampling: Sampling) -> None:
        self.chat_format, self.engine, self.sampling = chat_format, engine, sampling
        self.window, self.max_tokens = engine.max_length, sampling.max_tokens
        self.sees_images = chat_format.images is not None

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the ids of a whole conversation; see `PolicyWriter.open`."""
        return self.chat_format.prompt(messages, tools)

    def extend(self, turn: Turn, new: Sequence[Message]) -> list[int] | None:
        """Return the ids of what is new; see `PolicyWriter.extend`."""
        with suppress(TemplateRefused):
            return extension_behind(turn, new, self.chat_format)
        return None

    def placed(self, ids: Sequence[int], messages: Sequence[Message]) -> list[PlacedImage]:
        """Return where images stand; see `PolicyWriter.placed`."""
        return self.chat_format.placed(ids, messages)

    def quoted(self, message: Message) -> Message:
        """Return the message without marks; see `PolicyWriter.quoted`."""
        return self.chat_format.quoted(message)

    async def sample(
        self, prompt: Prompt, turn: Turn, *, budget: int, seed: int, tools: Sequence[ToolSpec]
    ) -> Spent:
        """Sample a turn; see `PolicyWriter.sample`.

        Raises:
            BrokenGeneration: the engine's answer cannot become a row.
        """
        sampling = msgspec.structs.replace(
            self.sampling,
            max_tokens=budget,
            seed=seed,
            stop_token_ids=self.chat_format.stop_token_ids,
        )
        generation = await self.engine.generate(prompt.ids, sampling, images=prompt.images)
        refuse_broken(generation, budget)
        turn.out_ids, turn.logprobs = generation.ids, generation.logprobs
        turn.versions, turn.finish = generation.versions, generation.finish
        turn.message = self.read(turn, tools, prompt.ids)
        return Spent(len(prompt.ids), len(turn.out_ids))

    def read(self, turn: Turn, tools: Sequence[ToolSpec], ids: Sequence[int]) -> Message:
        """Return what the sampled ids say; see `PolicyWriter.read`."""
        return self.chat_format.parse(
            turn.out_ids,
            complete=turn.finish is Finish.STOP,
            calls=bool(tools),
            tools=tools,
            prompt=ids,
        )

    def decode(self, ids: Sequence[int], *, marks: bool = False) -> str:
        """Return the text of ids; see `PolicyWriter.decode`."""
        return self.chat_format.tokenizer.decode(list(ids), skip_special_tokens=not marks)
