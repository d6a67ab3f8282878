"""The interfaces of players: a `Policy` begins an episode as a `Player`, and the player acts.

TokenPolicy(engine, chat_format)    samples tokens; what is trained
ChatPolicy(base_url, model)         any OpenAI-compatible model; evaluation only
HumanPolicy()                       a person at the terminal
ScriptedPolicy(function)            plain Python: experts, baselines, junk
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Protocol, runtime_checkable

from ludus.envs import ToolSpec
from ludus.envs.spaces import TextSpace
from ludus.messages import Message, ToolCall, as_action, assistant

from .images import PlacedImage
from .trajectory import Segment, Stop, Turn


class Player(Protocol):
    """Plays a single episode; a policy makes a player for each."""

    segments: list[Segment]
    """The segments written so far, one per context window."""

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        """Answer the conversation `messages`, which grows by each action and the results.

        Returns:
            The turn, which is also the last of `segments[-1].turns`. A turn that is not an action
            (a summary of the context) is not sent to the environment: the next call gets the same
            messages. A `Stop` if the context leaves no room to answer.
        """
        ...


@runtime_checkable
class ReadsOn(Protocol):
    """A player that keeps the state at which an episode was cut, so that a critic can estimate the
    state's value.
    """

    state_ids: list[int]
    """The window that would have been answered next, up to the length of a row; see
    `Trajectory.state_ids`.
    """
    state_images: list[PlacedImage]
    """The images that stand in `state_ids`."""

    def read_on(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Read the messages after the last turn without answering."""
        ...


class Policy(Protocol):
    """Begins episodes by making players."""

    @property
    def trainable(self) -> bool:
        """Whether turns carry token ids and log-probabilities."""
        ...

    def begin(self, *, seed: int = 0) -> Player:
        """Return a player for an episode; `seed` fixes the sampling."""
        ...


Script = Callable[[Sequence[Message]], str | Message | Awaitable[str | Message]]


class ScriptedPolicy:
    """A Python function as a policy: conversation in, action out."""

    trainable = False

    def __init__(self, script: Script) -> None:
        self.script = script

    def begin(self, *, seed: int = 0) -> TextPlayer:
        """Return a player that calls the function."""
        return TextPlayer(self._answer)

    async def _answer(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
        message = self.script(messages)
        return as_action(await message if inspect.isawaitable(message) else message)


Answer = Callable[[Sequence[Message], Sequence[ToolSpec]], Awaitable[Message]]


class TextPlayer:
    """A player without tokens: records the conversation as turns and calls `answer` for each
    action.
    """

    def __init__(self, answer: Answer) -> None:
        self.segments: list[Segment] = [Segment()]
        self._answer = answer
        self._seen = 0

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
        """Call `answer` for an action, and record the turn."""
        message = await self._answer(messages, tools)
        turn = Turn(observation=list(messages[self._seen :]), message=message)
        self._seen = len(messages) + 1  # the loop appends this action to the messages
        self.segments[-1].turns.append(turn)
        return turn


CALL_RATE = 0.5


class RandomPolicy:
    """Says random text, or, where tools exist, calls a tool half of the time, with random
    arguments that fit the tool's JSON Schema.
    """

    trainable = False

    def begin(self, *, seed: int = 0) -> TextPlayer:
        """Return a player whose choices are fixed by `seed`."""
        rng, space = random.Random(seed), TextSpace(seed)

        async def answer(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
            if not tools or rng.random() >= CALL_RATE:
                return assistant(space.sample())
            tool = rng.choice(list(tools))
            arguments = draw_arguments(tool, rng, space)
            return assistant("", [ToolCall(name=tool.name, arguments=arguments, id="call_0")])

        return TextPlayer(answer)


def draw_arguments(tool: ToolSpec, rng: random.Random, space: TextSpace) -> dict[str, Any]:
    """Draw arguments that fit a tool's JSON Schema."""
    arguments: dict[str, Any] = _drawn(tool.parameters, tool.parameters, rng, space)
    return arguments


MAX_DEPTH = 8
"""Deeper than this, optional properties and items of arrays are left out, so that a schema that
refers to itself ends.
"""


def _drawn(
    schema: Any, root: Mapping[str, Any], rng: random.Random, space: TextSpace, depth: int = 0
) -> Any:
    """Draw a value that fits a JSON Schema, as far as `const`, `enum`, `$ref` into `root`, `anyOf`,
    `oneOf`, `allOf`, `type`, bounds, `properties`, `required` and `items` say.
    """
    if not isinstance(schema, Mapping):
        return space.sample()
    again = partial(_drawn, root=root, rng=rng, space=space, depth=depth + 1)
    if "$ref" in schema:
        keys = str(schema["$ref"]).removeprefix("#/").split("/")
        return again(reduce(lambda node, key: node[key], keys, root))
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum") or schema.get("anyOf") or schema.get("oneOf"):
        choice = rng.choice(choices if depth < MAX_DEPTH else choices[-1:])
        return choice if "enum" in schema else again(choice)
    if parts := schema.get("allOf"):
        base = {key: value for key, value in schema.items() if key != "allOf"}
        return again(reduce(lambda left, right: {**left, **right}, parts, base))
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind if isinstance(kind, str) else rng.choice(kind):
        case "object":
            needed = schema.get("required", ())
            return {
                name: again(part)
                for name, part in schema.get("properties", {}).items()
                if name in needed or (depth < MAX_DEPTH and rng.random() < 0.5)
            }
        case "array":
            least = schema.get("minItems", 0)
            most = (
                least if depth >= MAX_DEPTH else min(schema.get("maxItems", least + 3), least + 3)
            )
            return [again(schema.get("items")) for _ in range(rng.randint(least, most))]
        case "integer":
            step = schema.get("multipleOf", 1)
            least = schema.get("minimum", schema.get("exclusiveMinimum", -11) + 1)
            most = schema.get("maximum", schema.get("exclusiveMaximum", least + 101 * step) - 1)
            return step * rng.randint(math.ceil(least / step), math.floor(most / step))
        case "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", -10))
            most = schema.get("maximum", schema.get("exclusiveMaximum", least + 100))
            return rng.uniform(least, most)
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            text = space.sample().ljust(schema.get("minLength", 0), "x")
            return text[: schema.get("maxLength")]
