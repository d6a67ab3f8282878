"""One episode in messages, with a model behind a server: windows of the conversation, cut where the
context manager says.

What `TokenPlayer` does with token ids is done here with messages, so that the same managers serve
both. How long a window is, the server tells after each answer; what was added since is estimated
from its letters, by the ratio the last answers showed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ludus.envs import ToolSpec
from ludus.llm import Completion, ContextTooLong
from ludus.messages import Message, Role, tool_result

from .chat_tools import ToolWire
from .context import (
    ContextManager,
    History,
    Reopen,
    WriteSummary,
    add_to_prompt,
    read_summary,
)
from .trajectory import Finish, Segment, Stop, Turn, TurnKind

LETTERS_PER_TOKEN = 3.0
"""Until a server has counted: fewer than most texts have, so that a window is rather cut early."""
MOST_LETTERS_PER_TOKEN = 8.0
"""A server that counts fewer tokens than that leaves some out, such as those it had cached."""
LETTERS_PER_MESSAGE = 16
"""Role and marks of a message, in letters."""
MIN_ANSWER_TOKENS = 16
"""A window with less room than this is full."""
ANSWER_FOLLOWS = "(the answer follows after the summary)"


class Asks(Protocol):
    """Sends a conversation to the model."""

    async def ask(
        self, messages: Sequence[Message], offer: list[dict[str, Any]], seed: int, **fields: Any
    ) -> Completion:
        """Its answer.

        Raises:
            ContextTooLong: the conversation does not fit.
        """
        ...


def letters_of(messages: Sequence[Message]) -> int:
    """The letters of a conversation, calls and marks included."""
    calls = sum(len(msgspec.json.encode(call)) for one in messages for call in one.tool_calls)
    texts = sum(len(message.text) for message in messages)
    return texts + calls + LETTERS_PER_MESSAGE * len(messages)


class Ruler:
    """Estimates tokens by letters, and learns from what a server counts."""

    def __init__(self) -> None:
        self.letters_per_token = LETTERS_PER_TOKEN

    def tokens(self, messages: Sequence[Message]) -> int:
        """About how many tokens `messages` have."""
        return round(letters_of(messages) / self.letters_per_token)

    def prompt(self, messages: Sequence[Message], offer: list[dict[str, Any]]) -> int:
        """About how many tokens a request has."""
        return round(_letters_of_request(messages, offer) / self.letters_per_token)

    def learn(self, messages: Sequence[Message], offer: list[dict[str, Any]], tokens: int) -> None:
        """A request had so many tokens."""
        ratio = _letters_of_request(messages, offer) / tokens
        self.letters_per_token = min(max(ratio, 0.5), MOST_LETTERS_PER_TOKEN)


def _letters_of_request(messages: Sequence[Message], offer: list[dict[str, Any]]) -> int:
    return letters_of(messages) + len(msgspec.json.encode(offer))


@dataclass(slots=True)
class _Measured:
    """The last request: how many messages of the window it showed, and their tokens with its
    answer.
    """

    shown: int = 0
    tokens: int = 0


class ChatPlayer:
    """Plays one episode.

    Args:
        model: who is asked.
        wire: how tools are offered and calls read.
        context: what happens when the window is full.
        window: W in tokens; None leaves it to the server to refuse what is too long.
        max_tokens: of one action, as far as that is known.
        ruler: estimates tokens; shared by the episodes of a policy.
        seed: of the sampling.
    """

    def __init__(
        self,
        model: Asks,
        wire: ToolWire,
        context: ContextManager,
        *,
        window: int | None,
        max_tokens: int | None,
        ruler: Ruler,
        seed: int = 0,
    ) -> None:
        self.segments: list[Segment] = []
        self._model, self._wire, self._context = model, wire, context
        self._window, self._max_tokens, self._ruler = window, max_tokens, ruler
        self._seed, self._asked = seed, 0
        self._base: list[Message] = []
        """What the window showed before messages[since:]."""
        self._since = 0
        self._seen = 0
        """Messages that are in some turn's `observation`."""
        self._actions: list[int] = []
        """Where in the conversation each action stands."""
        self._summaries = 0
        self._next: Reopen | None = None
        self._unread: list[Message] = []
        """Answers of the context manager that are in no turn's `observation`."""
        self._last = _Measured()

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        """Answer the conversation; see `Player.act`.

        Raises:
            LudusError: the server could not answer; see `ChatClient.complete`.
        """
        offered = [*tools, *self._context.tools]
        fresh = self._next is not None or not self.segments
        if fresh:
            self._open(self._next or Reopen(list(messages), ""), len(messages))
        refused = False
        while True:
            while refused or self._is_full(messages, offered):
                if fresh:  # a window that is full as it opens would be cut forever
                    return Stop.CONTEXT_FULL
                step = self._context.when_full(
                    History(tuple(messages), tuple(self._actions), self._summaries)
                )
                if isinstance(step, Stop):
                    return step
                if isinstance(step, WriteSummary):
                    return await self._summarize(step, messages, offered)
                self._open(step, len(messages))
                fresh, refused = True, False
            try:
                return await self._say(messages, offered, fresh=fresh)
            except ContextTooLong:
                refused = True

    def _is_full(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
        if self._window is None:
            return False
        length = self._length(self._view(messages), tools)
        limit = min(self._context.limit(self._window), self._window)
        return length >= limit or self._window - length < MIN_ANSWER_TOKENS

    def _length(self, view: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """Of a window: what the server counted, and an estimate of what came after that."""
        if self._last.tokens:
            return self._last.tokens + self._ruler.tokens(view[self._last.shown :])
        return self._ruler.prompt(*self._wire.request(view, tools))

    async def _say(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, fresh: bool
    ) -> Turn:
        """An action, or a call of one of the manager's tools."""
        view = self._view(messages)
        new = [*self._unread, *messages[self._seen :]]
        turn = Turn(observation=view if fresh else new)
        await self._write(turn, view, tools, self._room(view, tools))
        self._after(turn, view, len(messages))
        return turn

    def _room(self, view: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """A bound on the answer, where the window has less room than an answer may take."""
        if self._window is None:
            return {}
        room = self._window - self._length(view, tools)
        small = self._max_tokens is None or room < self._max_tokens
        return {"max_tokens": max(room, MIN_ANSWER_TOKENS)} if small else {}

    async def _write(
        self,
        turn: Turn,
        view: Sequence[Message],
        tools: Sequence[ToolSpec],
        fields: dict[str, Any],
    ) -> None:
        """Have the model go on from `view`, and note the turn."""
        shown, offer = self._wire.request(view, tools)
        if offer and turn.kind is TurnKind.SUMMARY:
            fields = {**fields, "tool_choice": "none"}
        seed = self._seed * 1_000 + self._asked
        completion = await self._model.ask(shown, offer, seed, **fields)
        self._asked += 1
        turn.message = self._wire.read(completion, tools)
        turn.finish = Finish.LENGTH if completion.finish == "length" else Finish.STOP
        self.segments[-1].turns.append(turn)
        said, usage = self._ruler.tokens([turn.message]), completion.usage
        if usage is None or not usage.prompt_tokens:
            tokens = self._length(view, tools) + said
        else:
            self._ruler.learn(shown, offer, usage.prompt_tokens)
            spoken = min(usage.completion_tokens, said + MIN_ANSWER_TOKENS)  # thoughts go
            tokens = max(usage.prompt_tokens, self._ruler.prompt(shown, offer)) + spoken
        self._last = _Measured(len(view) + 1, tokens)

    def _after(self, turn: Turn, view: list[Message], said_at: int) -> None:
        """Note an action, and let the context manager answer it if it was meant for that."""
        assert turn.message is not None
        handled = self._context.handle(turn.message, view)
        self._unread = []
        if handled is None:
            self._actions.append(said_at)
            self._seen = said_at + 1
            return
        turn.kind = TurnKind.FOLD
        self._seen = said_at
        if handled.reopen:
            self._next = Reopen(handled.messages, "fold")
            return
        self._base, self._since = [*view, turn.message, *handled.messages], said_at
        self._unread = handled.messages

    async def _summarize(
        self, step: WriteSummary, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Turn | Stop:
        """Have the summary written at the end of this window, and plan the next one."""
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
                before = self._without_last(before, segment)
        assert turn.message is not None
        self._summaries += 1
        self._next = step.resume(read_summary(turn.message.text))
        return turn

    @staticmethod
    def _without_last(view: list[Message], segment: Segment) -> list[Message]:
        """A window without its last action and what came after it."""
        segment.discarded.append(segment.turns.pop())
        ends = [at for at, one in enumerate(view) if one.role is Role.ASSISTANT]
        return view[: ends[-1]]

    def _before_summary(
        self, step: WriteSummary, messages: Sequence[Message], segment: Segment
    ) -> list[Message]:
        """What is summed up."""
        last = self._actions[-1]
        self._seen = len(messages)
        if step.drop_last:
            segment.discarded.append(segment.turns.pop())
            return [*self._base, *messages[self._since : last]]
        if step.show_newest:
            return self._view(messages)
        # The action's answer comes after the summary; servers want one for each call all the same.
        action = messages[last]
        stubs = [tool_result(ANSWER_FOLLOWS, call) for call in action.tool_calls]
        return [*self._base, *messages[self._since : last + 1], *stubs]

    def _open(self, window: Reopen, since: int) -> None:
        """Begin a window."""
        if self.segments:
            self.segments[-1].break_reason = window.reason
        self.segments.append(Segment())
        self._base, self._since = window.messages, since
        self._next, self._last = None, _Measured()

    def _view(self, messages: Sequence[Message]) -> list[Message]:
        """What the running window shows."""
        return [*self._base, *messages[self._since :]]
