"""An episode in token space: segments that only grow, cut by the context manager.

Spans are written by a `SpanSampler`: an engine that samples, or an environment's expert. Everything
else is the same for both, so that a supervised warm start shows a policy the same windows as
later training.

The ids of a segment only ever grow. After each turn the new messages are rendered alone and
appended to the sampled ids. If the template cannot extend the ids, the whole conversation is
rendered afresh as a new segment (a drift). The context manager cuts a full window.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from functools import partial

import msgspec

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message

from .chat import ChatFormat
from .context import (
    ContextManager,
    Delegate,
    History,
    KeepEverything,
    Reopen,
    Sizes,
    TokenBounds,
    WriteSummary,
    WriteText,
    measure_sizes,
)
from .engine import Engine, Sampling
from .images import PlacedImage
from .rows import (
    MIN_ANSWER_TOKENS,
    Interruption,
    SampledRows,
    SegmentCut,
    Span,
    SpanSampler,
    TokenWriter,
)
from .trajectory import Stop, Turn, TurnKind
from .window_player import WindowPlayer


class TokenPlayer(WindowPlayer):
    """Plays an episode as token ids.

    Args:
        chat_format: how messages become ids and back.
        sampler: writes the spans.
        context: decides how to continue when the window is full.
        bounds: the bounds of windows, segments and actions.
        seed: the seed of the sampling.
        interruption: ends thoughts that outgrow a budget.
    """

    def __init__(
        self,
        chat_format: ChatFormat,
        sampler: SpanSampler,
        context: ContextManager,
        bounds: TokenBounds,
        *,
        seed: int = 0,
        interruption: Interruption | None = None,
    ) -> None:
        super().__init__(context)
        self.state_ids: list[int] = []
        self.state_images: list[PlacedImage] = []
        self._rows = SampledRows(
            chat_format, self.segments, sampler, seed=seed, interruption=interruption
        )
        self._format = chat_format
        self._window = bounds.window
        self._limit = min(context.limit(bounds.window), bounds.window)
        self._row = sys.maxsize if bounds.row is None else bounds.row
        self._max_tokens = bounds.answer
        self._opened = 0
        """Index of the segment with which the current window began. A drift continues a window in
        another segment.
        """

    @property
    def cut(self) -> SegmentCut:
        """Cuts actions into segments: `act` then returns thoughts until the action ends."""
        return self._rows.cut

    @cut.setter
    def cut(self, cut: SegmentCut) -> None:
        self._rows.cut = cut

    def fork(self, seed: int, *, answer: int = 0) -> TokenPlayer:
        """Return a player in the same state that samples by another seed. What was sampled stands
        in its record as shared.

        Args:
            seed: of its sampling.
            answer: the most tokens of its answers; 0 keeps the bound.

        Raises:
            ConfigError: the context manager has a state of its own.
        """
        if type(self._context) is not KeepEverything:
            raise ConfigError(
                "a tree of rollouts forks contexts, and only context.manager = 'none' has no state "
                f"of its own, not {type(self._context).__name__}"
            )
        twin = copy(self)
        twin._rows = self._rows.fork(seed)
        twin.segments = twin._rows.segments
        for name in ("_base", "_unread", "_actions"):
            setattr(twin, name, list(getattr(self, name)))
        twin._max_tokens = answer or self._max_tokens
        return twin

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        """Answer the conversation; see `Player.act`."""
        turn = await self._answer(messages, tools)
        if isinstance(turn, Stop):
            self._keep_state(self._rows.ids, self._rows.images)
        return turn

    def read_on(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Read the messages after the last turn without answering; see `ReadsOn`."""
        all_tools = [*tools, *self._context.tools]
        fresh = [*self._unread, *messages[self._seen :]]
        added = None if self._next is not None else self._rows.extension(fresh)
        if added is None:
            view = self._view(messages) if self._next is None else self._next.messages
            self._keep_state(*self._rows.rendered(view, all_tools))
            return
        ids, images = self._rows.ids, self._rows.images
        new = [image.moved(len(ids)) for image in self._format.placed(added, fresh)]
        self._keep_state([*ids, *added], [*images, *new])

    def _keep_state(self, ids: list[int], images: list[PlacedImage]) -> None:
        """Keep the state at which the episode was cut, up to the length of a row; an image that
        crosses the end leaves with all tokens after its first.
        """
        crossing = [image.start for image in images if image.start < self._row < image.end]
        end = min([self._row, *crossing])
        self.state_ids = ids[:end]
        self.state_images = [image for image in images if image.end <= end]

    async def _answer(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        all_tools = [*tools, *self._context.tools]
        if self._rows.begun is not None:
            return await self._say(Turn(), messages, all_tools)
        observation = [*self._unread, *messages[self._seen :]]
        obs_ids: list[int] = []
        obs_images: list[PlacedImage] = []
        decision = self._next or self._before_turn(self._history(messages, all_tools))
        fresh = False
        if decision is None:
            obs_ids, obs_images = self._rows.append(observation, self._view(messages), all_tools)
        while True:
            match decision:
                case Stop():
                    return decision
                case WriteText():
                    return await self._write_text(decision, messages)
                case WriteSummary():
                    return await self._summarize(decision, messages, observation, all_tools)
                case Delegate():
                    self._summaries += 1
                    decision = decision.resume(await decision.write())
                    continue
                case Reopen():
                    self._open(decision, messages, all_tools)
                    obs_ids, obs_images, fresh = [], [], True
                case None:
                    pass
            length = len(self._rows.ids)
            has_room = self._window - length >= MIN_ANSWER_TOKENS
            # The manager's own answer to a call is read before the window may change.
            if has_room and (length < self._limit or self._unread):
                break
            if fresh:  # a window that is full as it opens would be cut forever
                return Stop.CONTEXT_FULL
            decision = self._context.when_full(self._history(messages, all_tools))
            if decision is None and not has_room:
                return Stop.CONTEXT_FULL
            if decision is None:
                break
        turn = Turn(obs_ids=obs_ids, obs_images=obs_images, observation=observation)
        return await self._say(turn, messages, all_tools)

    async def _say(
        self, turn: Turn, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Turn:
        """Write an action, or the next segment of an action."""
        history = self._history(messages, tools)
        hear = partial(self._context.hear, history=history)
        asked = Span(turn.kind, self._max_tokens, history=history)
        turn = await self._rows.act(turn, asked, self._window, tools, hear)
        if self._rows.begun is None:
            self._after_turn(turn, history)
        return turn

    def _history(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> History:
        return History(
            messages=tuple(messages),
            actions=tuple(self._actions),
            summaries=self._summaries,
            view=tuple(self._view(messages)),
            opens=self._context.opens,
            window=self._window,
            length=len(self._rows.ids),
            measure=lambda shown_messages: len(self._format.prompt(shown_messages, tools)),
        )

    async def _summarize(
        self,
        step: WriteSummary,
        messages: Sequence[Message],
        observation: list[Message],
        tools: Sequence[ToolSpec],
    ) -> Turn | Stop:
        """Request a summary at the end of this window, and plan the next window."""
        in_window = sum(len(segment.turns) for segment in self.segments[self._opened :])
        if step.drop_last and in_window == 1:
            return Stop.CONTEXT_FULL  # nothing the environment did could ever reach a summary
        shown_messages, view = self._before_summary(step, messages, observation)
        turn = Turn(kind=TurnKind.SUMMARY, trained=step.trained)
        turn.observation = [*shown_messages, step.instruction]
        view.append(step.instruction)
        turn.obs_ids, turn.obs_images = self._rows.append(turn.observation, view, tools)
        room = self._row - len(self._rows.ids)
        if room < MIN_ANSWER_TOKENS:
            return Stop.CONTEXT_FULL
        budget = min(step.max_tokens, room)
        asked = Span(turn.kind, budget, shows_newest=step.show_newest)
        await self._rows.write(turn, asked, tools)
        return self._after_summary(step, turn)

    async def _write_text(self, step: WriteText, messages: Sequence[Message]) -> Turn | Stop:
        """Open a window in which nothing but a text is written, and plan the next window."""
        self._open(Reopen(step.messages, step.reason), messages, [])
        self._seen = len(messages)
        room = self._window - len(self._rows.ids)
        if room < MIN_ANSWER_TOKENS:
            return Stop.CONTEXT_FULL
        turn = Turn(kind=TurnKind.SUMMARY, trained=step.trained)
        await self._rows.write(turn, Span(turn.kind, min(step.max_tokens, room)), [])
        return self._after_summary(step, turn)

    def _before_summary(
        self, step: WriteSummary, messages: Sequence[Message], observation: list[Message]
    ) -> tuple[list[Message], list[Message]]:
        """Cut the window to what the summary covers.

        Returns the messages to show before the instruction, and all messages of the window before
        these.
        """
        # Go back to the end of the last sampled turn: newer messages are shown only if asked for.
        # If they caused a drift, they stand in a segment of their own, which nobody will answer.
        while not self.segments[-1].turns:
            self.segments.pop()
        segment = self.segments[-1]
        self._rows.reopen()
        view = self._view(messages)
        answered = self._last_said(view)
        self._seen = len(messages)
        if step.drop_last:  # the newest answer is never shown
            dropped = segment.turns.pop()
            segment.discarded.append(dropped)
            self._rows.reopen()
            return dropped.observation, view[:answered]
        if step.show_newest or self._unread:
            return observation, view
        self._seen = self._actions[-1] + 1
        return [], view[: answered + 1]

    def _open(self, window: Reopen, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Begin a segment whose prompt is `window`."""
        self._next, self._base, self._since = None, window.messages, len(messages)
        self._unread = []
        self._opened = len(self.segments)
        self._rows.open(window.messages, tools, window.reason)


class TokenPolicy:
    """Samples from an engine in a chat format.

    Args:
        engine: the sampling engine.
        chat_format: how messages become ids and back.
        sampling: `max_tokens` is per turn; the seed is replaced for each episode and turn.
        window: W, the working context in tokens for prompt and answers; None means the engine's.
        context: decides how to continue when the window is full; by default the episode ends. A
            summary may exceed the window, up to the engine's limit.
    """

    trainable = True

    def __init__(
        self,
        engine: Engine,
        chat_format: ChatFormat,
        sampling: Sampling,
        *,
        window: int | None = None,
        context: ContextManager | None = None,
    ) -> None:
        self.engine = engine
        self.chat_format = chat_format
        self.sampling = sampling
        self.interruption = Interruption()
        """Ends thoughts that outgrow a budget; see `asking`."""
        self.window = min(window or engine.max_length, engine.max_length)
        self.context: ContextManager = context or KeepEverything()

    def begin(self, *, seed: int = 0) -> TokenPlayer:
        """Return a player whose sampling is fixed by `seed`."""
        return TokenPlayer(
            self.chat_format,
            TokenWriter(self.chat_format, self.engine, self.sampling),
            self.context,
            self.bounds,
            seed=seed,
            interruption=self.interruption,
        )

    def asking(
        self,
        *,
        max_tokens: int = 0,
        temperature: float = 0.0,
        thoughts: float = 0.0,
        phrase: str = "",
    ) -> TokenPolicy:
        """Return the same policy with another budget per turn or temperature; 0 keeps the value.

        Args:
            max_tokens: tokens a turn.
            temperature: of the sampling.
            thoughts: the share of a turn's tokens after which `phrase` ends what was begun; the
                answer behind it has the rest.
            phrase: written as tokens that nobody has sampled, and that are not trained.
        """
        asked = copy(self)
        if phrase:
            most = max_tokens or self.sampling.max_tokens
            ids = tuple(self.chat_format.encode_text(phrase))
            asked.interruption = Interruption(max(1, round(thoughts * most)), ids)
        asked.sampling = msgspec.structs.replace(
            self.sampling,
            max_tokens=max_tokens or self.sampling.max_tokens,
            temperature=temperature or self.sampling.temperature,
        )
        return asked

    def check(self, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Refuse settings that cannot work for episodes with this opening.

        Raises:
            ConfigError: no window would hold a step, or a summary would not fit.
        """
        self.context.check(
            context_sizes(self.chat_format, self.context, opening, tools, self.bounds)
        )

    @property
    def bounds(self) -> TokenBounds:
        """The bounds of an episode's windows, segments and answers."""
        return TokenBounds(
            window=self.window, row=self.engine.max_length, answer=self.sampling.max_tokens
        )


def context_sizes(
    chat_format: ChatFormat,
    context: ContextManager,
    opening: Sequence[Message],
    tools: Sequence[ToolSpec],
    bounds: TokenBounds,
) -> Sizes:
    """Measure the lengths in tokens that `ContextManager.check` needs."""
    all_tools = [*tools, *context.tools]

    def measure_instruction(instruction: Message) -> int:
        extension = chat_format.extension([instruction], ended=False)
        return len(extension or chat_format.prompt([instruction], []))

    return measure_sizes(
        context,
        opening,
        bounds,
        measure=lambda messages: len(chat_format.prompt(messages, all_tools)),
        measure_instruction=measure_instruction,
    )
