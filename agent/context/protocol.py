"""The protocol of context managers: what a manager is asked, sees and may decide.

    before_turn(history)   is called before each turn: a decision, or None to play on
    when_full(history)     is called once the window is full: a decision, or None to use the room
                           that is left
    handle(action, ...)    answers calls of the manager's own tools
    hear(text, ...)        takes out of a sampled text what is meant for the manager
    opens(opening, ...)    returns the first prompt as each new window shows it

Most managers override `when_full` alone and keep no state: every decision is a function of the
history, so that the same rollout is always cut in the same way. A manager with state (files,
memories) returns a fresh one for each episode from `begin`. Managers know nothing of tokens
beyond `History.measure`: `TokenPlayer` and `ChatPlayer` measure, render and cut.

Reopen          a new window opens with given messages, and the policy acts
WriteSummary    the policy writes a summary at the end of the window, then a window opens
WriteText       a window opens in which the policy writes a text and nothing else
Delegate        somebody else than the policy writes the text, then a window opens
Stop            the episode ends
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message, Part, Role, TextPart, ToolCall, tool_result

from ..images import ESTIMATED_TOKENS, images_of
from ..trajectory import Stop


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths in tokens that a configuration is checked against."""

    window: int
    """The most tokens that the policy sees at once."""
    row: int
    """The most tokens that the engine accepts in all."""
    opening: int
    """The prompt of the first window."""
    reopened: int
    """The shortest window that the manager can open, with an empty summary."""
    instruction: int
    """The message that asks the policy for a summary; 0 where the manager asks for none."""
    answer: int
    """The most tokens of one action."""
    reading: int = 0
    """The prompt of the first window if a text is to be written there before any action, else 0."""


class ContextManager(ABC):
    """Decides what the policy sees once the whole episode no longer fits."""

    name: str = ""
    """The manager's name, which segments give as the reason of a cut."""
    tools: Sequence[ToolSpec] = ()
    """Tools offered to the policy besides the environment's; calls go to `handle`."""
    last_resort: bool = False
    """Whether a composition asks this manager about full windows after all others."""
    needs_window: bool = True
    """Whether the manager has nothing to do unless the length of the window is known."""

    def begin(self) -> ContextManager:
        """Return the manager of an episode; managers without state return themselves."""
        return self

    def limit(self, window: int) -> int:
        """Return L, the length in tokens from which the window counts as full."""
        return window

    def before_turn(self, history: History) -> Decision | None:
        """Decide before a turn, whether the window is full or not; None plays on.

        The history has no action yet when the first window opens, and its newest message has not
        been shown.
        """
        return None

    @abstractmethod
    def when_full(self, history: History) -> Decision | None:
        """Decide how to continue. The window is full and the newest exchange is complete.

        Returns:
            The decision; None uses what room the window has left, and ends the episode if there is
            none.
        """

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Return the first prompt for a new window: with a memory added, say, or without a long
        document that was read already.

        Args:
            opening: the first prompt of the episode.
            history: the episode up to the new window.
        """
        return opening

    def overrun(self) -> int:
        """Return by how many tokens a text that the policy writes for the manager, such as a
        summary, may exceed the window.
        """
        return 0

    def hear(self, text: str, history: History) -> str:
        """Return the part of an action's text that the environment hears.

        The rest is the manager's. Calls are read from the returned part alone. Called once for
        each action, before `handle`.
        """
        return text

    def handle(self, action: Message, history: History) -> Handled | None:
        """Answer an action that calls any of `tools`; None leaves the action to the environment.

        Args:
            action: the policy's latest message.
            history: the episode before that message.
        """
        return None

    def check(self, sizes: Sizes) -> None:
        """Refuse settings under which no window would hold a step.

        Raises:
            ConfigError: with the lengths, and what to change.
        """
        if sizes.opening >= sizes.window:
            raise ConfigError(
                f"the first prompt has {sizes.opening} tokens, the window {sizes.window}: make "
                "rollout.window larger"
            )

    async def close(self) -> None:  # noqa: B027, most managers hold nothing
        """Release what the manager holds, such as a connection; called once, when no episode is
        played any more.
        """

    def rehearse(self, action: Message, summarise: Callable[[], str], history: History) -> Message:
        """Return an expert's action in the form that this manager asks of the policy.

        Args:
            action: what the expert does.
            summarise: returns what the expert would write down of everything seen so far.
            history: the episode before that.
        """
        return action


def require_room_to_act(
    name: str, sizes: Sizes, limit: int, opening_tokens: int, made_of: str
) -> None:
    """Refuse windows that would be full on opening, and would be cut forever.

    Args:
        name: the manager's name, for the error.
        sizes: the lengths of the configuration.
        limit: the length from which the manager counts a window as full.
        opening_tokens: the length with which the manager opens a window.
        made_of: what that opening consists of, for the error.

    Raises:
        ConfigError: with the lengths, and what to change.
    """
    if opening_tokens + sizes.answer >= limit:
        raise ConfigError(
            f"context manager {name!r} acts from {limit} tokens on (window {sizes.window}), but a "
            f"window opens with {opening_tokens} ({made_of}) and an action may take {sizes.answer} "
            "(max_tokens): no window would hold a step; make the window (rollout.window, or "
            "--window of eval and sft) larger, or those smaller"
        )


class TrimmingManager(ContextManager):
    """A manager that opens a shorter window once a share of the window is full."""

    threshold: float = 0.95
    """The share of the window from which the window counts as full."""

    def limit(self, window: int) -> int:
        """Return `threshold` times the window."""
        return int(self.threshold * window)

    def check(self, sizes: Sizes) -> None:
        """Require that what a window opens with leaves room to act."""
        opening_tokens, made_of = self.opens_with(sizes)
        require_room_to_act(self.name, sizes, self.limit(sizes.window), opening_tokens, made_of)

    def opens_with(self, sizes: Sizes) -> tuple[int, str]:
        """Return how many tokens a window opens with as far as that is known beforehand, and what
        they are.
        """
        return sizes.opening, "the first prompt"


@dataclass(frozen=True, slots=True)
class Reopen:
    """A decision to continue in a new window."""

    messages: list[Message]
    """The new window's prompt; the policy speaks next."""
    reason: str
    """The value for `Segment.break_reason`."""


@dataclass(frozen=True, slots=True)
class WriteText:
    """A decision to open a window in which the policy writes a text, which no environment hears."""

    messages: list[Message]
    """The new window's prompt, with the request for the text."""
    max_tokens: int
    reason: str
    """The value for `Segment.break_reason`."""
    resume: Callable[[str], Reopen | WriteText]
    """Returns the window that follows, given the text."""
    trained: bool = True


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """A decision to let the policy write a summary at the end of the current window."""

    instruction: Message
    max_tokens: int
    drop_last: bool
    """Whether the last action and its answer leave the window before the instruction."""
    show_newest: bool
    """Whether the newest answer is shown before the instruction."""
    trained: bool
    resume: Callable[[str], Reopen]
    """Returns the window that follows, given the summary's text."""


@dataclass(frozen=True, slots=True)
class Delegate:
    """A decision to let another model write the summary.

    No turn is recorded, since the policy samples nothing: the text is in the prompt of the next
    window, and the break reason says where it came from.
    """

    write: Callable[[], Awaitable[str]]
    """Writes the summary.

    Raises:
        LudusError: the other model cannot answer; the episode is then left out of the training.
    """
    resume: Callable[[str], Reopen]
    """Returns the window that follows, given the summary's text."""


Decision = Reopen | WriteText | WriteSummary | Delegate | Stop


@dataclass(frozen=True, slots=True)
class Handled:
    """The answer to an action that was meant for the manager and not for the environment."""

    messages: list[Message]
    """The manager's answer to the policy; with `reopen`, the messages of the new window."""
    reopen: bool = False


LETTERS_PER_TOKEN = 3
"""Characters per token where nothing better is known."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An action and the messages that answered."""

    action: Message
    answer: list[Message]


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return an estimate of a prompt's length in tokens, from characters and a fixed price of
    images.
    """
    letters = sum(len(message.text) for message in messages)
    return letters // LETTERS_PER_TOKEN + ESTIMATED_TOKENS * len(images_of(messages))


def _as_it_is(opening: list[Message], _: object) -> list[Message]:
    return opening


@dataclass(frozen=True, slots=True)
class History:
    """An episode so far, across all windows.

    Exchanges are computed on access: episodes are long, and most managers look at the end only.
    """

    messages: tuple[Message, ...]
    actions: tuple[int, ...] = ()
    """Indices of the policy's actions in `messages`. Calls that a context manager answered are not
    actions and are not in `messages`.
    """
    summaries: int = 0
    """How many summaries have been written so far, by whomever."""
    view: tuple[Message, ...] = ()
    """The messages that the current window shows, calls answered by a context manager included;
    empty before the first window.
    """
    opens: Callable[[list[Message], History], list[Message]] = _as_it_is
    """Returns the first prompt as a new window shows it now; see `ContextManager.opens`."""
    window: int = 0
    """W in tokens; 0 if unknown."""
    length: int = 0
    """The length of the current window in tokens; 0 before a window is measured."""
    measure: Callable[[Sequence[Message]], int] = estimate_tokens
    """Returns the length of a prompt in tokens."""

    @property
    def opening(self) -> list[Message]:
        """The messages before the first action (s_1), as shown in a new window."""
        first = self.actions[0] if self.actions else len(self.messages)
        return self.opens(list(self.messages[:first]), self)

    @property
    def exchanges(self) -> list[Exchange]:
        """Return every action with the messages that answered."""
        exchange_ends = [*self.actions, len(self.messages)][1:]
        return [
            Exchange(self.messages[start], list(self.messages[start + 1 : end]))
            for start, end in zip(self.actions, exchange_ends, strict=True)
        ]

    def last(self, count: int) -> list[Message]:
        """Return the messages of the last `count` exchanges, or of all if fewer exist."""
        kept_positions = self.actions[max(0, len(self.actions) - count) :]
        return list(self.messages[kept_positions[0] :]) if kept_positions else []


def tagged(text: str, tag: str) -> tuple[list[str], str]:
    """Return what stands between tags, and the text without tags and the space behind the tags.

    The time is linear in the text, also where tags are never closed: a policy that loops writes
    thousands of them, and is read on the event loop.

    >>> tagged("<IS>a=1</IS> so <IS>b", "IS")
    (['a=1'], 'so <IS>b')
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    inside: list[str] = []
    outside: list[str] = []
    place = 0
    while (begin := text.find(opening, place)) >= 0:
        end = text.find(closing, begin)
        if end < 0:
            break
        inside.append(text[begin + len(opening) : end])
        outside.append(text[place:begin])
        place = end + len(closing)
        while text[place : place + 1].isspace():
            place += 1
    return inside, "".join([*outside, text[place:]])


def add_to_prompt(messages: Sequence[Message], text: str) -> list[Message]:
    """Return `messages` with `text` appended to the last user message, or as a new user message.

    The templates of some models refuse two user messages in a row.
    """
    last = messages[-1] if messages else None
    if last is None or last.role is not Role.USER:
        return [*messages, Message(role=Role.USER, content=text)]
    content: str | list[Part] = f"{last.content}\n\n{text}" if last.content else text
    if isinstance(last.content, list):  # parts, among them images
        content = [*last.content, TextPart(f"\n\n{text}")]
    return [*messages[:-1], Message(role=Role.USER, content=content, name=last.name)]


@dataclass(frozen=True, kw_only=True)
class TokenBounds:
    """How many tokens the windows, segments and answers of an episode may have."""

    window: int
    """W: the most tokens that the policy sees at once."""
    row: int | None = None
    """The most tokens of a segment; a summary may exceed the window up to this length. None is
    whatever a summary takes.
    """
    answer: int
    """The most tokens of one action."""


def measure_sizes(
    context: ContextManager,
    opening: Sequence[Message],
    bounds: TokenBounds,
    *,
    measure: Callable[[Sequence[Message]], int],
    measure_instruction: Callable[[Message], int],
) -> Sizes:
    """Let a manager open the first windows of an episode, and measure these.

    Args:
        context: the manager; asked as at the beginning of an episode.
        opening: the first prompt.
        bounds: the bounds of windows, segments and answers.
        measure: returns the length of a prompt in tokens, the tools on offer included.
        measure_instruction: returns the length of a message that is appended to a window.
    """
    manager = context.begin()
    history = History(tuple(opening), opens=manager.opens, measure=measure)
    first = manager.before_turn(history)
    reopened_messages = first.messages if isinstance(first, Reopen | WriteText) else history.opening
    step = manager.when_full(history)
    reopened, instruction, written_tokens = reopened_messages, 0, 0
    if isinstance(step, WriteSummary | Delegate):
        reopened = step.resume("").messages
    if isinstance(step, WriteSummary):
        instruction, written_tokens = measure_instruction(step.instruction), step.max_tokens
    return Sizes(
        window=bounds.window,
        row=bounds.window + instruction + written_tokens if bounds.row is None else bounds.row,
        opening=measure(reopened_messages),
        reopened=measure(reopened),
        instruction=instruction,
        answer=bounds.answer,
        reading=measure(first.messages) if isinstance(first, WriteText) else 0,
    )


REFUSED = "this call was not executed"


def tool_spec(
    name: str, description: str, arguments: Mapping[str, Any], *, required: Sequence[str]
) -> ToolSpec:
    """Return the description of a tool.

    Args:
        name: the name of the tool.
        description: what the tool does.
        arguments: JSON Schema of each argument, or a description of a text.
        required: the arguments that every call needs.
    """
    properties = {
        key: {"type": "string", "description": schema} if isinstance(schema, str) else schema
        for key, schema in arguments.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name=name, description=description, parameters=parameters)


def own_calls(action: Message, tools: Sequence[ToolSpec]) -> list[ToolCall]:
    """Return the calls of an action that are for `tools`."""
    names = {tool.name for tool in tools}
    return [call for call in action.tool_calls if call.name in names]


def text_missing(call: ToolCall, argument: str) -> str:
    """Return the fault of an argument that must be a non-empty text; empty without a fault."""
    value = call.arguments.get(argument)
    return "" if isinstance(value, str) and value else f"the argument {argument!r} must be text"


def spelled_out(message: Message) -> str:
    """Return a message as text, calls included."""
    calls = [
        f"{call.name}({msgspec.json.encode(call.arguments).decode()})"
        for call in message.tool_calls
    ]
    return " ".join(part for part in (message.text, *calls) if part)


def refuse(calls: Sequence[ToolCall], reason: str) -> Handled:
    """Answer every call with the reason why none was executed."""
    return Handled([tool_result(f"{REFUSED}: {reason}", call) for call in calls])
