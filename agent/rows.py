"""The writing of rows: a conversation becomes ids, which then only grow.

Whoever decides what a policy reads next writes by the same three steps: a conversation is rendered
whole, what is new is rendered alone behind a sampled turn, and a span is written. The sampled ids
are never decoded and encoded again. `GrowingRows` writes one conversation, for an episode and for
conversations from files; a `PolicyWriter` writes the branches of an agent behind the gateway.
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
from .context import History
from .engine import Engine, Generation, Sampling, can_constrain, refuse_broken
from .images import PlacedImage
from .templates.text import TemplateRefused
from .trajectory import Finish, Segment, Turn, TurnKind

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
class Span:
    """A request for the next span."""

    kind: TurnKind
    max_tokens: int
    seed: int
    shows_newest: bool = True
    """Whether the window shows the environment's latest answer; only used for summaries."""
    history: History | None = None
    """The episode before the span."""
    images: Sequence[PlacedImage] = ()
    """The images that stand in the ids."""
    schema: str = ""
    """The JSON schema that the span must fit; see `Sampling.schema`."""


class SpanSampler(Protocol):
    """Writes spans: samples tokens, or encodes an expert's action."""

    async def speak(self, ids: Sequence[int], span: Span) -> Generation:
        """Return a continuation of `ids`."""
        ...


async def write_span(sampler: SpanSampler, ids: Sequence[int], span: Span, turn: Turn) -> None:
    """Write the span behind `ids` into `turn`.

    Raises:
        BrokenGeneration: what was sampled cannot become a row.
    """
    generation = await sampler.speak(ids, span)
    refuse_broken(generation, span.max_tokens)
    turn.out_ids, turn.logprobs = generation.ids, generation.logprobs
    turn.versions, turn.finish = generation.versions, generation.finish


class GrowingRows:
    """The rows of one conversation, of which the last one grows.

    Args:
        chat_format: how messages become ids.
        segments: where the rows are kept.

    Attributes:
        ids: all ids of the last row.
        images: the images that stand in these ids.
    """

    def __init__(self, chat_format: ChatFormat, segments: list[Segment]) -> None:
        self.segments = segments
        self.ids: list[int] = []
        self.images: list[PlacedImage] = []
        self._format = chat_format

    def open(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], reason: str = ""
    ) -> None:
        """Begin a row whose prompt is all of `messages`; `reason` tells why the last one ended."""
        if self.segments:
            self.segments[-1].break_reason = reason
        self.ids, self.images = self.rendered(messages, tools)
        self.segments.append(Segment(prompt_ids=list(self.ids), prompt_images=list(self.images)))

    def reopen(self) -> None:
        """Let the last row, from whose end turns were taken, grow again."""
        self.segments[-1].break_reason = ""
        self.ids, self.images = self.segments[-1].ids(), self.segments[-1].images()

    def fork(self) -> GrowingRows:
        """Return rows that hold the same turns, as shared, and grow on their own."""
        copied = msgspec.structs.replace
        twin = GrowingRows(
            self._format,
            [
                copied(segment, turns=[copied(turn, shared=True) for turn in segment.turns])
                for segment in self.segments
            ],
        )
        twin.ids, twin.images = list(self.ids), list(self.images)
        return twin

    def append(
        self, new: Sequence[Message], view: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[list[int], list[PlacedImage]]:
        """Append `new`, or begin a row that renders all of `view` where the template cannot extend
        the last one: a row must be what the policy was shown.

        Returns:
            The appended ids, and the images that stand there; nothing for a new row.
        """
        added = self.extension(new)
        if added is None:
            self.open(view, tools, "drift")
            return [], []
        images = self._format.placed(added, new)
        self.images += [image.moved(len(self.ids)) for image in images]
        self.ids += added
        return added, images

    def extension(self, new: Sequence[Message]) -> list[int] | None:
        """Return the ids that append `new` to the last row, or None if the template cannot."""
        turns = self.segments[-1].turns if self.segments else []
        return extension_behind(turns[-1], new, self._format) if turns else None

    def rendered(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[list[int], list[PlacedImage]]:
        """Return a whole conversation as ids, and the images that stand there."""
        ids = self._format.prompt(messages, tools)
        return ids, self._format.placed(ids, messages)

    def add(self, turn: Turn) -> None:
        """Add a written turn to the last row."""
        self.segments[-1].turns.append(turn)
        self.ids += turn.out_ids


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
    constrains: bool
    """Whether an answer can be held to a JSON schema."""
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
    schema: str = ""
    """The JSON schema that the answer must fit; see `Sampling.schema`."""


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
        self.constrains = can_constrain(engine)

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

    async def speak(self, ids: Sequence[int], span: Span) -> Generation:
        """Sample a span; see `SpanSampler.speak`."""
        sampling = msgspec.structs.replace(
            self.sampling,
            max_tokens=span.max_tokens,
            seed=span.seed,
            stop_token_ids=self.chat_format.stop_token_ids,
            schema=span.schema,
        )
        return await self.engine.generate(ids, sampling, images=span.images)

    async def sample(
        self, prompt: Prompt, turn: Turn, *, budget: int, seed: int, tools: Sequence[ToolSpec]
    ) -> Spent:
        """Sample a turn; see `PolicyWriter.sample`.

        Raises:
            BrokenGeneration: the engine's answer cannot become a row.
        """
        span = Span(turn.kind, budget, seed, images=prompt.images, schema=prompt.schema)
        await write_span(self, prompt.ids, span, turn)
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
