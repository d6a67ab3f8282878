"""The writing of rows: a conversation becomes ids, which then only grow.

Whoever decides what a policy reads next writes by the same three steps: a conversation is rendered
whole, what is new is rendered alone behind a sampled turn, and a span is written. The sampled ids
are never decoded and encoded again. `GrowingRows` writes one conversation, as files hold them,
`SampledRows` that of an episode, and a `PolicyWriter` the branches of an agent behind the gateway.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import THOUGHT_MARKS, Message, assistant

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
class Interruption:
    """A phrase that ends thoughts which outgrow a budget."""

    after: int = 0
    """Tokens after which the phrase is written."""
    ids: tuple[int, ...] = ()
    """The phrase; empty interrupts nothing."""

    def fitting(self, budget: int) -> int:
        """Return the tokens of thoughts in a turn of `budget` tokens; 0 means no interruption,
        since the phrase is empty, or phrase and answer would take more than half of the thoughts.

        >>> phrase = Interruption(after=70, ids=(1, 2, 3))
        >>> phrase.fitting(100), phrase.fitting(60), phrase.fitting(30)
        (70, 53, 0)
        """
        thoughts = min(self.after, budget - len(self.ids) - MIN_ANSWER_TOKENS)
        return thoughts if self.ids and 2 * thoughts >= self.after else 0


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """Where an action is cut into segments, between which the action can be forked."""

    tokens: int = 0
    """Tokens of a segment; 0 cuts nothing."""
    below: float = 1.0
    """Only tokens that were sampled with less probability count."""

    def counted(self, logprobs: Sequence[float]) -> int:
        """Return how many of the tokens count."""
        return sum(math.exp(each) < self.below or self.below >= 1 for each in logprobs)


WHOLE = SegmentCut()
"""Cuts nothing."""


@dataclass(frozen=True, slots=True)
class Span:
    """A request for the next span."""

    kind: TurnKind
    max_tokens: int
    seed: int = 0
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
    """The rows of a conversation, of which only the last grows.

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
        """Begin a row whose prompt is all of `messages`; `reason` is why the previous row ended."""
        if self.segments:
            self.segments[-1].break_reason = reason
        self.ids, self.images = self.rendered(messages, tools)
        self.segments.append(Segment(prompt_ids=list(self.ids), prompt_images=list(self.images)))

    def reopen(self) -> None:
        """Let the last row, from whose end turns were taken, grow again."""
        self.segments[-1].break_reason = ""
        self.ids, self.images = self.segments[-1].ids(), self.segments[-1].images()

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
        """Return a whole conversation as ids, with the images and the place of each."""
        ids = self._format.prompt(messages, tools)
        return ids, self._format.placed(ids, messages)

    def add(self, turn: Turn) -> None:
        """Add a written turn to the last row."""
        self.segments[-1].turns.append(turn)
        self.ids += turn.out_ids


class SampledRows(GrowingRows):
    """The rows of an episode, whose turns a sampler writes.

    Args:
        chat_format: how messages become ids and back.
        segments: where the rows are kept.
        sampler: writes the spans.
        seed: the seed of the sampling.
        interruption: ends thoughts that outgrow a budget.

    Attributes:
        cut: cuts actions into segments.
        begun: where in the ids an action began whose end is not yet written; None between actions.
    """

    def __init__(
        self,
        chat_format: ChatFormat,
        segments: list[Segment],
        sampler: SpanSampler,
        *,
        seed: int = 0,
        interruption: Interruption | None = None,
    ) -> None:
        super().__init__(chat_format, segments)
        self.cut = WHOLE
        self.begun: int | None = None
        self._sampler, self._seed, self._sampled = sampler, seed, 0
        self._interruption = interruption or Interruption()

    def fork(self, seed: int) -> SampledRows:
        """Return rows that hold the same turns, as shared, and grow by another seed."""
        twin, with_fields = copy(self), msgspec.structs.replace
        twin.segments = [
            with_fields(segment, turns=[with_fields(turn, shared=True) for turn in segment.turns])
            for segment in self.segments
        ]
        twin.ids, twin.images, twin._seed = list(self.ids), list(self.images), seed
        return twin

    async def act(
        self,
        turn: Turn,
        span: Span,
        window: int,
        tools: Sequence[ToolSpec],
        hear: Callable[[str], str],
    ) -> Turn:
        """Write an action, or the next segment of thoughts, with `begun` set until the action ends.
        Thoughts that outgrow their budget are ended by the forced phrase, which nobody has sampled,
        and the answer is a turn behind it. Thoughts that have ended by then are not interrupted.

        Args:
            turn: what was observed before; the sampled tokens are written into it.
            span: the kind of the action, its most tokens, and the episode before it.
            window: the most ids of a row at the end of an action.
            tools: those that can be called.
            hear: returns what the environment hears of a text; called once for each action.

        Returns:
            The turn that ends what was written.
        """
        begun = len(self.ids) if self.begun is None else self.begun
        budget = min(span.max_tokens, window - begun) - (len(self.ids) - begun)
        thoughts = 0 if self.cut.tokens else self._interruption.fitting(budget)
        await self._sample(turn, replace(span, max_tokens=thoughts or budget), self.cut)
        if thoughts and turn.finish is Finish.LENGTH and self._thoughts_ended(turn, begun):
            await self._sample(turn, replace(span, max_tokens=budget))
        self._end(turn, tools, begun)
        self.begun = None
        if turn.finish is Finish.LENGTH and len(turn.out_ids) < budget:
            turn.kind, turn.message = TurnKind.THOUGHT, None
            if not thoughts:
                self.begun = begun
                return turn
            phrase = self._interruption.ids
            turn = Turn(obs_ids=list(phrase))
            self.ids += phrase
            asked = replace(span, max_tokens=budget - thoughts - len(phrase))
            await self.write(turn, asked, tools, begun=begun)
        self._keep_what_is_heard(turn, begun, tools, hear)
        return turn

    async def write(
        self, turn: Turn, span: Span, tools: Sequence[ToolSpec], *, begun: int | None = None
    ) -> None:
        """Sample a turn, append the turn to the last row, and read the action, which starts at
        `begun` if begun earlier.
        """
        begun = len(self.ids) if begun is None else begun
        await self._sample(turn, span)
        self._end(turn, tools, begun)

    async def _sample(self, turn: Turn, span: Span, cut: SegmentCut = WHOLE) -> None:
        """Sample behind what the turn holds already, up to a cut or to the tokens of the span."""
        before = list(self.ids)
        while True:
            left = cut.tokens - cut.counted(turn.logprobs) if cut.tokens else sys.maxsize
            asked = replace(
                span,
                max_tokens=min(span.max_tokens - len(turn.out_ids), left),
                # A seed of its own for each request makes a repeated episode sample the same;
                # engines take 31 bits.
                seed=(self._seed * 1_000_003 + self._sampled) & 0x7FFFFFFF,
                images=tuple(self.images),
            )
            part = Turn()
            await write_span(self._sampler, [*before, *turn.out_ids], asked, part)
            turn.out_ids = [*turn.out_ids, *part.out_ids]
            turn.logprobs = [*turn.logprobs, *part.logprobs]
            turn.versions = [*turn.versions, *part.versions]
            turn.finish = part.finish
            self._sampled += len(part.out_ids)
            full = len(turn.out_ids) >= span.max_tokens or cut.counted(turn.logprobs) >= cut.tokens
            if turn.finish is not Finish.LENGTH or full:
                break

    def _thoughts_ended(self, turn: Turn, begun: int) -> bool:
        """Return whether the sampled ids of an unfinished turn end behind its thoughts."""
        ids, prompt = [*self.ids[begun:], *turn.out_ids], self.ids[:begun]
        said = self._format.parse(ids, complete=False, calls=False, prompt=prompt)
        _, behind = said.thought_marks or THOUGHT_MARKS
        return said.thinks and bool(behind.strip())

    def _end(self, turn: Turn, tools: Sequence[ToolSpec], begun: int) -> None:
        """Append a sampled turn to the last row, and read the action, which starts at `begun`."""
        self.add(turn)
        summary = turn.kind is TurnKind.SUMMARY
        turn.message = self._format.parse(
            self.ids[begun:],
            complete=turn.finish is Finish.STOP,
            calls=bool(tools) or summary,
            tools=tools,
            marks=not summary,
            prompt=self.ids[:begun],
        )

    def _keep_what_is_heard(
        self, turn: Turn, begun: int, tools: Sequence[ToolSpec], hear: Callable[[str], str]
    ) -> None:
        """Keep the part of the action that the environment hears, where the policy said more."""
        complete, prompt = turn.finish is Finish.STOP, self.ids[:begun]
        said = self._format.parse(self.ids[begun:], complete=complete, calls=False, prompt=prompt)
        heard = hear(said.text)
        if heard == said.text:
            return
        action = assistant(heard)
        if tools:
            action = self._format.tool_format.parse(heard, complete=complete, tools=tools)
        turn.action = msgspec.structs.replace(
            action, reasoning=said.reasoning, thought_marks=said.thought_marks
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens of an answer."""

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
        """Return the place of each image of `messages` in `ids`."""
        ...

    def quoted(self, message: Message) -> Message:
        """Return the message without marks that could end a turn."""
        ...

    async def sample(
        self, prompt: Prompt, turn: Turn, *, budget: int, seed: int, tools: Sequence[ToolSpec]
    ) -> Spent:
        """Sample at most `budget` tokens behind `prompt` into `turn`, and parse the answer.

        Raises:
            LudusError: the engine or the server could not answer.
        """
        ...

    def read(self, turn: Turn, tools: Sequence[ToolSpec], ids: Sequence[int]) -> Message:
        """Return the message of the sampled `turn`, which follows `ids`; calls are read only where
        there are `tools`.
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
