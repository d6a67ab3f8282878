"""An episode with a model behind a server: windows of messages, cut by the context manager.

`TokenPlayer` does the same with token ids, so that the same context managers serve both. The
server reports a window's length after each answer; the length of newer messages is estimated
from characters, with the ratio seen in earlier answers.

Such a server returns text and not the sampled tokens, so the turns carry no tokens and the
trainer refuses this policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.llm.chat_wire import Completion, ContextTooLong
from ludus.llm.client import ChatClient
from ludus.messages import Message, Role, tool_result
from ludus.thoughts import AUTO, marks_of

from .chat_tools import ServerTools, TextTools, ToolWire
from .context import (
    ContextManager,
    Delegate,
    History,
    KeepEverything,
    Reopen,
    TokenBounds,
    WriteSummary,
    WriteText,
    add_to_prompt,
    measure_sizes,
)
from .images import ESTIMATED_TOKENS, images_of
from .parsing import tool_format as find_format
from .trajectory import Finish, Segment, Stop, Turn, TurnKind
from .window_player import WindowPlayer

LETTERS_PER_TOKEN = 3.0
"""Characters per token until a server has reported a count. The value is lower than for most texts,
so that a window is cut too early rather than too late.
"""
MAX_LETTERS_PER_TOKEN = 8.0
"""The largest credible ratio. A server that reports fewer tokens leaves some out, such as cached
ones.
"""
LETTERS_PER_MESSAGE = 16
"""The cost of a message's role and marks, in characters."""
MIN_ANSWER_TOKENS = 16
"""A window with less room than this counts as full."""
ANSWER_FOLLOWS = "(the answer follows after the summary)"


class ModelCaller(Protocol):
    """Sends a conversation to the model; `ChatPolicy` does."""

    @property
    def answer_tokens(self) -> int | None:
        """The most tokens of an action; None where the limit is unknown."""
        ...

    @property
    def ruler(self) -> Ruler:
        """Estimates tokens; shared by the episodes of a policy."""
        ...

    async def ask(
        self, messages: Sequence[Message], offer: list[dict[str, Any]], seed: int, **fields: Any
    ) -> Completion:
        """Return the model's answer.

        Raises:
            ContextTooLong: the conversation does not fit.
        """
        ...


def letters_of(messages: Sequence[Message]) -> int:
    """Return the length of a conversation in characters, including calls, thoughts and message
    marks.
    """
    calls = sum(
        len(msgspec.json.encode(call)) for message in messages for call in message.tool_calls
    )
    texts = sum(len(message.text) + len(message.reasoning) for message in messages)
    images = ESTIMATED_TOKENS * LETTERS_PER_TOKEN * len(images_of(messages))
    return texts + calls + round(images) + LETTERS_PER_MESSAGE * len(messages)


class Ruler:
    """Estimates token counts from characters, and learns the ratio from the server's counts."""

    def __init__(self) -> None:
        self.letters_per_token = LETTERS_PER_TOKEN

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return an estimate of the number of tokens in `messages`."""
        return round(letters_of(messages) / self.letters_per_token)

    def prompt(self, messages: Sequence[Message], offer: list[dict[str, Any]]) -> int:
        """Return an estimate of the number of tokens in a request, including the tools on offer."""
        return round(_letters_of_request(messages, offer) / self.letters_per_token)

    def learn(self, messages: Sequence[Message], offer: list[dict[str, Any]], tokens: int) -> None:
        """Update the ratio from a request whose token count the server has reported."""
        ratio = _letters_of_request(messages, offer) / tokens
        self.letters_per_token = min(max(ratio, 0.5), MAX_LETTERS_PER_TOKEN)


def _letters_of_request(messages: Sequence[Message], offer: list[dict[str, Any]]) -> int:
    return letters_of(messages) + len(msgspec.json.encode(offer))


@dataclass(slots=True)
class _Measured:
    """The last request: how many messages of the window were shown, and the tokens including the
    answer.
    """

    shown: int = 0
    tokens: int = 0


class ChatPlayer(WindowPlayer):
    """Plays an episode with a model behind a server.

    Args:
        model: sends requests to the model, and knows how long its answers may be.
        wire: how tools are offered and calls are read.
        context: decides how to continue when the window is full.
        window: W in tokens; None leaves refusing long conversations to the server.
        seed: the seed of the sampling.
    """

    def __init__(
        self,
        model: ModelCaller,
        wire: ToolWire,
        context: ContextManager,
        *,
        window: int | None,
        seed: int = 0,
    ) -> None:
        super().__init__(context)
        self._model, self._wire = model, wire
        self._window, self._max_tokens, self._ruler = window, model.answer_tokens, model.ruler
        self._seed, self._asked = seed, 0
        self._last = _Measured()

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        """Answer the conversation; see `Player.act`.

        Raises:
            LudusError: the server could not answer; see `ChatClient.complete`.
        """
        all_tools = [*tools, *self._context.tools]
        decision = self._next or self._before_turn(self._history(messages, all_tools))
        fresh = was_refused = False
        while True:
            match decision:
                case Stop():
                    return decision
                case WriteText():
                    return await self._write_text(decision, messages)
                case WriteSummary():
                    return await self._summarize(decision, messages, all_tools)
                case Delegate():
                    self._summaries += 1
                    decision = decision.resume(await decision.write())
                    continue
                case Reopen():
                    self._open(decision, len(messages))
                    fresh, was_refused = True, False
                case None:
                    pass
            if was_refused or self._is_full(messages, all_tools):
                if fresh:  # a window that is full as it opens would be cut forever
                    return Stop.CONTEXT_FULL
                decision = self._context.when_full(self._history(messages, all_tools))
                if decision is not None:
                    continue
                if was_refused or not self._has_room(messages, all_tools):
                    return Stop.CONTEXT_FULL
            try:
                return await self._take_turn(messages, all_tools, fresh=fresh)
            except ContextTooLong:
                decision, was_refused = None, True

    def _history(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> History:
        view = self._view(messages)
        return History(
            messages=tuple(messages),
            actions=tuple(self._actions),
            summaries=self._summaries,
            view=tuple(view),
            opens=self._context.opens,
            window=self._window or 0,
            length=self._length(view, tools) if view else 0,
            measure=lambda shown_messages: self._ruler.prompt(
                *self._wire.request(shown_messages, tools)
            ),
        )

    def _is_full(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
        if self._window is None:
            return False
        limit = min(self._context.limit(self._window), self._window)
        # The manager's own answer to a call is read before the window may change.
        full = self._length(self._view(messages), tools) >= limit and not self._unread
        return full or not self._has_room(messages, tools)

    def _has_room(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
        if self._window is None:
            return True
        return self._window - self._length(self._view(messages), tools) >= MIN_ANSWER_TOKENS

    def _length(self, view: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """Return the length of a window in tokens: the server's last count plus an estimate for
        newer messages.
        """
        if self._last.tokens:
            return self._last.tokens + self._ruler.tokens(view[self._last.shown :])
        return self._ruler.prompt(*self._wire.request(view, tools))

    async def _take_turn(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, fresh: bool
    ) -> Turn:
        """Ask for an action, or for a call of a tool of the context manager."""
        view = self._view(messages)
        new = [*self._unread, *messages[self._seen :]]
        turn = Turn(observation=view if fresh else new)
        history = self._history(messages, tools)
        fields: dict[str, Any] = {}
        if self._window is not None:
            # An answer is bounded where the window has less room than an answer may take.
            room = self._window - self._length(view, tools)
            if self._max_tokens is None or room < self._max_tokens:
                fields = {"max_tokens": max(room, MIN_ANSWER_TOKENS)}
        await self._write(turn, view, tools, fields)
        assert turn.message is not None
        heard = self._context.hear(turn.message.text, history)
        if heard != turn.message.text:
            turn.action = msgspec.structs.replace(turn.message, content=heard)
        self._after_turn(turn, history)
        return turn

    async def _write(
        self, turn: Turn, view: Sequence[Message], tools: Sequence[ToolSpec], fields: dict[str, Any]
    ) -> None:
        """Let the model continue from `view`, and record the turn."""
        rows, offer = self._wire.request(view, tools)
        if offer and turn.kind is TurnKind.SUMMARY:
            fields = {**fields, "tool_choice": "none"}
        # Servers take 31 bits: numpy's generators 32, some interfaces a signed integer.
        seed = (self._seed * 1_000 + self._asked) & 0x7FFFFFFF
        completion = await self._model.ask(rows, offer, seed, **fields)
        self._asked += 1
        turn.message = self._wire.read(completion, tools)
        turn.finish = Finish.LENGTH if completion.finish == "length" else Finish.STOP
        turn.tokens = 0 if completion.usage is None else completion.usage.completion_tokens
        self.segments[-1].turns.append(turn)
        answer_tokens, usage = self._ruler.tokens([turn.message]), completion.usage
        if usage is None or not usage.prompt_tokens:
            tokens = self._length(view, tools) + answer_tokens
        else:
            self._ruler.learn(rows, offer, usage.prompt_tokens)
            # Thoughts that stand in the text may be dropped from later requests by the server.
            max_answer = min(usage.completion_tokens, answer_tokens + MIN_ANSWER_TOKENS)
            # A count below the estimate leaves tokens out (see MAX_LETTERS_PER_TOKEN).
            tokens = max(usage.prompt_tokens, self._ruler.prompt(rows, offer)) + max_answer
        self._last = _Measured(len(view) + 1, tokens)

    async def _summarize(
        self, step: WriteSummary, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Turn | Stop:
        """Request a summary at the end of this window, and plan the next window."""
        segment = self.segments[-1]
        if step.drop_last and len(segment.turns) <= 1:
            return Stop.CONTEXT_FULL  # nothing the environment did could ever reach a summary
        before = self._before_summary(step, messages, segment)
        turn = Turn(kind=TurnKind.SUMMARY, trained=step.trained, observation=[step.instruction])
        while True:
            view = add_to_prompt(before, step.instruction.text)
            try:
                await self._write(turn, view, tools, {"max_tokens": step.max_tokens})
                break
            except ContextTooLong:  # the server takes less than the window that was set
                if len(segment.turns) <= 1:
                    return Stop.CONTEXT_FULL
                # Without the last action and everything after, there is more room.
                segment.discarded.append(segment.turns.pop())
                answers = [n for n, message in enumerate(before) if message.role is Role.ASSISTANT]
                before = before[: answers[-1]]
        return self._after_summary(step, turn)

    async def _write_text(self, step: WriteText, messages: Sequence[Message]) -> Turn | Stop:
        """Open a window in which nothing but a text is written, and plan the next window."""
        self._open(Reopen(step.messages, step.reason), len(messages))
        self._seen = len(messages)
        turn = Turn(kind=TurnKind.SUMMARY, trained=step.trained, observation=step.messages)
        try:
            await self._write(turn, step.messages, [], {"max_tokens": step.max_tokens})
        except ContextTooLong:
            return Stop.CONTEXT_FULL
        return self._after_summary(step, turn)

    def _before_summary(
        self, step: WriteSummary, messages: Sequence[Message], segment: Segment
    ) -> list[Message]:
        """Return the messages that the summary covers."""
        self._seen = len(messages)
        view = self._view(messages)
        answered = self._last_said(view)
        if step.drop_last:
            segment.discarded.append(segment.turns.pop())
            return view[:answered]
        if step.show_newest or self._unread:
            return view
        # The action's answer comes after the summary; servers want one for each call all the same.
        stubs = [tool_result(ANSWER_FOLLOWS, call) for call in view[answered].tool_calls]
        return [*view[: answered + 1], *stubs]

    def _open(self, window: Reopen, first_turn: int) -> None:
        """Begin a window with the messages of `window`."""
        if self.segments:
            self.segments[-1].break_reason = window.reason
        self.segments.append(Segment())
        self._base, self._since, self._unread = window.messages, first_turn, []
        self._next, self._last = None, _Measured()


ANSWER_TOKENS = 256
"""Tokens assumed for one action when a window is checked and `max_tokens` is not given."""


class ChatPolicy:
    """Asks a model behind a server for each action.

    Args:
        base_url: the server's address including `/v1`.
        model: the model's name on the server.
        temperature: the sampling temperature; None leaves the choice to the server.
        max_tokens: the most tokens of one answer; None leaves the choice to the server.
        send_seed: False for servers that refuse the field `seed`.
        sampling: further fields of the request, such as `top_p`.
        tool_format: how the model writes calls into its text, such as `hermes`, for servers without
            tool support; empty leaves tools and calls to the server.
        thoughts: the marks around thoughts that the server leaves in the text, a name of
            `ludus.thoughts.MARKS`. `auto` knows those of most models, `none` leaves thoughts in
            what is said; what a name other than `auto` left is not split again.
        window: the working context in tokens, approximately; None uses what the server accepts.
        context: decides how to continue when the window is full; by default the episode ends.
        client: a client to share; `base_url`, `model` and `client_options` are then ignored.
        client_options: options of `ChatClient`: api_key, patience, concurrency, cache, budget,
            send_reasoning.

    Raises:
        ConfigError: a context manager that needs a window was given none, or no marks have this
            name.
    """

    trainable = False

    def __init__(
        self,
        base_url: str = "",
        model: str = "",
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        send_seed: bool = True,
        sampling: dict[str, Any] | None = None,
        tool_format: str = "",
        thoughts: str = AUTO,
        window: int | None = None,
        context: ContextManager | None = None,
        client: ChatClient | None = None,
        **client_options: Any,
    ) -> None:
        self.context: ContextManager = context or KeepEverything()
        self.window = window
        if window is None and self.context.needs_window:
            raise ConfigError(
                f"context manager {self.context.name!r} needs a window: say how many tokens it has "
                "(--window)"
            )
        self.client = client or ChatClient(base_url, model, **client_options)
        self.send_seed = send_seed
        self.tool_format = find_format(tool_format) if tool_format else None
        marks_of(thoughts)
        self.thoughts = thoughts
        defaults = {"temperature": temperature, "max_tokens": max_tokens, **(sampling or {})}
        self.sampling = {name: value for name, value in defaults.items() if value is not None}
        self.ruler = Ruler()

    def begin(self, *, seed: int = 0) -> ChatPlayer:
        """Return a player whose requests carry `seed`, so that samples differ and can be
        repeated.
        """
        return ChatPlayer(self, self.wire(), self.context, window=self.window, seed=seed)

    async def ask(
        self, messages: Sequence[Message], offer: list[dict[str, Any]], seed: int, **fields: Any
    ) -> Completion:
        """Send a conversation; see `ChatClient.complete`."""
        if "max_tokens" in fields and "max_completion_tokens" in self.sampling:
            # This server knows the bound on an answer by its other name.
            fields["max_completion_tokens"] = fields.pop("max_tokens")
        request = {**self.sampling, **fields}
        return await self.client.complete(
            messages, tools=offer, seed=seed, send_seed=self.send_seed, **request
        )

    def check(self, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Refuse settings that cannot work for episodes with this opening; lengths are estimates.

        Raises:
            ConfigError: no window would hold a step, or a summary would not fit.
        """
        if self.window is None:
            return
        all_tools, wire = [*tools, *self.context.tools], self.wire()
        sizes = measure_sizes(
            self.context,
            opening,
            TokenBounds(  # without a row: a summary may run past the working context
                window=self.window,
                answer=min(self.answer_tokens or ANSWER_TOKENS, ANSWER_TOKENS, self.window // 4),
            ),
            measure=lambda messages: self.ruler.prompt(*wire.request(messages, all_tools)),
            measure_instruction=lambda instruction: self.ruler.tokens([instruction]),
        )
        self.context.check(sizes)

    async def close(self) -> None:
        """Close the connections to the model's server, and what the context manager holds."""
        await self.context.close()
        await self.client.close()

    @property
    def answer_tokens(self) -> int | None:
        """The most tokens of an action; None where the limit is unknown."""
        max_tokens = self.sampling.get("max_tokens", self.sampling.get("max_completion_tokens"))
        return max_tokens if isinstance(max_tokens, int) else None

    def wire(self) -> ToolWire:
        """Return the format in which tools are offered to this model and calls are read."""
        if self.tool_format is None:
            return ServerTools(self.thoughts)
        return TextTools(self.tool_format, self.thoughts)
