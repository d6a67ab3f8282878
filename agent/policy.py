"""Who plays: a `Policy` begins an episode as a `Player`, and the player acts.

TokenPolicy(engine, chat_format)    samples tokens; what is trained
ChatPolicy(base_url, model)         any OpenAI-compatible model; evaluation only
HumanPolicy()                       a person at the terminal
ScriptedPolicy(function)            plain Python: experts, baselines, junk
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from ludus.envs import ToolSpec
from ludus.messages import Message, as_action

from .trajectory import Segment, Stop, Turn


class Player(Protocol):
    """Plays one episode."""

    segments: list[Segment]
    """What it has written so far, one per context window."""

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        """Answer the conversation `messages`, which grows by each action and what came back.

        Returns:
            The turn, which is also the last of `segments[-1].turns`. One that is no action (a
            summary of the context) is not for the environment: the next call gets the same
            messages. A `Stop` if the context leaves no room to answer.
        """
        ...


@runtime_checkable
class ReadsOn(Protocol):
    """A player that keeps the state an episode was cut in, for whoever estimates its value."""

    state_ids: list[int]
    """The window it would have answered next, as far as a row may go; see
    `Trajectory.state_ids`.
    """

    def read_on(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Take in what came after the last turn, without answering."""
        ...


class Policy(Protocol):
    """Begins episodes."""

    @property
    def trainable(self) -> bool:
        """Whether its turns carry token ids and log-probabilities."""
        ...

    def begin(self, *, seed: int = 0) -> Player:
        """A player for one episode; `seed` is of its sampling."""
        ...


Script = Callable[[Sequence[Message]], str | Message | Awaitable[str | Message]]


class ScriptedPolicy:
    """A Python function as a policy: conversation in, action out."""

    trainable = False

    def __init__(self, script: Script) -> None:
        self.script = script

    def begin(self, *, seed: int = 0) -> TextPlayer:
        """A player that asks the function."""
        return TextPlayer(self._answer)

    async def _answer(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        said = self.script(messages)
        return as_action(await said if inspect.isawaitable(said) else said)


Answer = Callable[[Sequence[Message], Sequence[ToolSpec]], Awaitable[Message]]


class TextPlayer:
    """A player without tokens: keeps the conversation in turns, asks `answer` for each action."""

    def __init__(self, answer: Answer) -> None:
        self.segments: list[Segment] = [Segment()]
        self._answer = answer
        self._seen = 0

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
        """Ask for an action."""
        message = await self._answer(messages, tools)
        turn = Turn(observation=list(messages[self._seen :]), message=message)
        self._seen = len(messages) + 1
        self.segments[-1].turns.append(turn)
        return turn
