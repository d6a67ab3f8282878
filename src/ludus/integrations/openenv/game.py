"""The episodes of one OpenEnv client, whichever way the client speaks to the server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from ludus.envs.serving.env_wire import EnvCard
from ludus.envs.serving.server import EnvService
from ludus.messages import Message
from ludus.wire.faults import Refused
from ludus.wire.strict import read_item

from ..hosted import HostedEpisode
from .shapes import (
    CALL_TOOL,
    LIST_TOOLS,
    SAY,
    SAY_TOOL,
    EpisodeState,
    ResetRequest,
    Result,
    as_message,
    opening_result,
    read_action,
    tools_result,
    turn_result,
)


class Game:
    """Plays episodes for a client, one operation at a time.

    Args:
        service: the started service of environments.
        card: what the service says of the environment.
    """

    def __init__(self, service: EnvService, card: EnvCard) -> None:
        self.card = card
        self.touched = time.monotonic()
        self.turn = asyncio.Lock()
        """Held by whoever plays, where requests of one client may come at the same time."""
        self._service = service
        self._episode = HostedEpisode(service, card.id)
        self._label: str | None = None
        self._tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in card.briefing.tools
        ]

    async def reset(self, parameters: dict[str, Any]) -> Result:
        """Begin an episode. What is neither `seed` nor `episode_id` is an option of the
        environment; options that are None count as not given.

        Raises:
            LudusError: the episode cannot begin; see `shapes.error_data`.
        """
        self.touched = time.monotonic()
        own = {
            name: parameters[name]
            for name in ("seed", "episode_id")
            if parameters.get(name) is not None
        }
        request = read_item(own, ResetRequest)
        options = {
            name: value
            for name, value in parameters.items()
            if name not in ("seed", "episode_id") and value is not None
        }
        opening = await self._episode.reset(seed=request.seed, options=options, carries_images=True)
        self._label, self._tools = request.episode_id, opening.tools
        return opening_result(opening)

    async def step(self, message: object, *, carries_images: bool = True) -> Result:
        """Play an action, or answer a request for the list of tools.

        Args:
            message: the action.
            carries_images: whether the client is told more of the observation than its text.

        Raises:
            RewardUnavailable: the verdict is not ok, or there is an image that is not carried.
            LudusError: the action cannot be played; see `shapes.error_data`.
        """
        self.touched = time.monotonic()
        action = read_action(message)
        if action.type == LIST_TOOLS:
            return tools_result(self.tools)
        if action.type == CALL_TOOL and action.tool_name == SAY and not self._declares_say:
            text = action.arguments.get("text")
            if not isinstance(text, str):
                raise Refused(f"{SAY} takes 'text', a text; got {text!r:.80}", "invalid")
            played: str | Message = text
        else:
            played = as_message(action)
        turn = await self._episode.step(played, carries_images=carries_images)
        return turn_result(turn, action)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools for a client that can call tools and nothing else: those of the episode (or
        of every episode, where none has begun), and `say` for what the policy says.
        """
        return self._tools if self._declares_say else [*self._tools, SAY_TOOL]

    @property
    def _declares_say(self) -> bool:
        return any(tool["name"] == SAY for tool in self._tools)

    def state(self) -> EpisodeState:
        """Return which episode is played, and how far it is."""
        self.touched = time.monotonic()
        episode = self._episode
        begun = bool(episode.task)
        return EpisodeState(
            episode_id=self._label,
            step_count=episode.turn,
            task=episode.task,
            done=begun and episode.over,
        )

    def another(self) -> Game:
        """Return a new game of the same environment, for a client that has given this one up."""
        return Game(self._service, self.card)

    async def close(self) -> None:
        """Release the session."""
        await self._episode.close()


def as_plain(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as plain values that JSON can hold."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
