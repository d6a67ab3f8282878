"""Episodes on a server's own session table, for protocols that number nothing themselves.

A `HostedEpisode` keeps the session's name and `seq`, so that such a protocol gets the leases, the
limits, the worker processes and the metrics of `/v1`.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ludus.envs.serving.env_wire import (
    Beginning,
    Create,
    Delete,
    Operation,
    Reply,
    Reset,
    ResetReply,
    Step,
    StepReply,
    read_outcome,
)
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import (
    ConfigError,
    EpisodeEnded,
    LudusError,
    Overloaded,
    RewardUnavailable,
    SessionGone,
)
from ludus.messages import Message, Observation, refuse_images
from ludus.verdict import Verdict
from ludus.wire.faults import Fault, QueueFull, error_of, status_of


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of an episode, with what a policy may see and nothing else."""

    task: str
    observation: Observation
    system_prompt: str
    answer_format: str
    tools: list[dict[str, Any]]
    """Each tool as `name`, `description` and `input_schema`, the form of MCP."""
    max_turns: int | None


class PlayedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an action, without `info`: info may hold the gold at the end of an episode."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    turn: int
    """How many actions of the episode were played, this one included."""

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


class HostedEpisode:
    """Plays one episode after another in a session of `service`.

    Args:
        service: the started service.
        env: the id of the environment, as served.
    """

    def __init__(self, service: EnvService, env: str) -> None:
        self.env = env
        self.turn = 0
        self.task = ""
        self.over = True
        self._service = service
        self._session = ""
        self._seq = 0

    async def reset(
        self, *, seed: int | None, options: dict[str, Any], carries_images: bool = False
    ) -> Opening:
        """Begin an episode, in a new session if none is open.

        Args:
            seed: the seed of the episode's random numbers.
            options: the task or the split, and options of the environment.
            carries_images: whether the protocol shows images to the policy.

        Raises:
            ConfigError: it begins with an image, and the protocol carries none.
            LudusError: as `ludus.connect` raises it for the same fault.
        """
        self.turn, self.over = 0, True
        try:
            reply = await self._begin(seed, options)
        except SessionGone:  # its lease is over, or its worker process was lost
            self._session = ""
            reply = await self._begin(seed, options)
        assert isinstance(reply, ResetReply)
        self._seq += 1
        if not carries_images:
            try:
                refuse_images(reply.observation)
            except ConfigError:
                await self.close()
                raise
        self.task, self.over = reply.task, False
        briefing = reply.briefing
        return Opening(
            task=reply.task,
            observation=reply.observation,
            system_prompt=briefing.system_prompt,
            answer_format=briefing.answer_format,
            tools=[
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in briefing.tools
            ],
            max_turns=briefing.max_turns,
        )

    async def step(self, action: str | Message, *, carries_images: bool = False) -> PlayedTurn:
        """Play an action.

        Args:
            action: what the policy does.
            carries_images: whether the protocol shows images to the policy. Without it an image is
                refused, unless the episode ends with it, so that nobody has to answer it.

        Raises:
            RewardUnavailable: the verdict is not ok, or the environment shows an image that the
                protocol does not carry; the episode is over and counts for nothing.
            EpisodeEnded: no episode has begun, or it is over.
            LudusError: as `ludus.connect` raises it for the same fault.
        """
        if self.over:
            raise EpisodeEnded(f"{self.env}: the episode is over or has not begun; reset first")
        try:
            reply = await self._run(Step(session=self._session, seq=self._seq, action=action))
        except LudusError as error:
            if not isinstance(error, Overloaded):  # else it was not begun, and may be sent again
                await self.close()
            raise
        assert isinstance(reply, StepReply)
        self._seq += 1
        self.turn += 1
        self.over = reply.terminated or reply.truncated
        if not carries_images and not self.over:
            try:
                refuse_images(reply.observation)
            except ConfigError as error:
                await self.close()
                raise RewardUnavailable(Verdict.error(str(error))) from error
        return PlayedTurn(
            observation=reply.observation,
            reward=reply.reward,
            terminated=reply.terminated,
            truncated=reply.truncated,
            turn=self.turn,
        )

    def touch(self) -> None:
        """Let the lease of the session begin anew, without playing."""
        if self._session:
            self._service.sessions.touch(self._session)

    async def close(self) -> None:
        """Release the session; harmless without a session."""
        name, self._session, self.over = self._session, "", True
        if name:
            await self._run(Delete(session=name))

    async def _begin(self, seed: int | None, options: dict[str, Any]) -> Reply:
        try:
            if self._session:
                again = Reset(session=self._session, seq=self._seq, seed=seed, options=options)
                return await self._run(again)
            self._session, self._seq = f"p-{secrets.token_hex(8)}", 0
            beginning = Beginning(seed=seed, options=options)
            return await self._run(Create(env=self.env, session=self._session, reset=beginning))
        except SessionGone:
            raise
        except LudusError:
            await self.close()
            raise

    async def _run(self, operation: Operation) -> Reply:
        # Shielded: a client that disconnects does not cancel the work half way.
        outcome = read_outcome(await asyncio.shield(self._service.sessions.begin(operation)))
        if isinstance(outcome, Fault):
            raise error_of(outcome, status_of(outcome))
        return outcome


def retry_headers(fault: Fault) -> dict[str, str]:
    """Return the header that says when a refused request may be sent again; empty for others."""
    wait_s = fault.retry_after_s
    return {} if wait_s is None else {"Retry-After": str(math.ceil(wait_s))}


class HostedClient(Protocol):
    """What a server keeps for a client that speaks plain HTTP."""

    touched: float
    """When the client was last heard, on the monotonic clock."""
    turn: asyncio.Lock
    """Held by whoever plays, since requests of one client may come at the same time."""


C = TypeVar("C", bound=HostedClient)
T = TypeVar("T")


class ClientTable(Generic[C]):
    """Keeps clients of plain HTTP, by the name that a client's cookie or header carries.

    Args:
        limits: bounds how many there are, and how long one that is silent is kept; the session
            behind it has the same lease.
    """

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._clients: dict[str, C] = {}

    def find(self, name: str) -> C | None:
        """Return the client of this name, or None."""
        return self._clients.get(name)

    def remove(self, name: str) -> C | None:
        """Remove and return the client of this name; None for an unknown name."""
        return self._clients.pop(name, None)

    async def begin(self, client: C, begin: Callable[[], Awaitable[T]]) -> tuple[str, T]:
        """Keep a client that begins an episode, and return the client's name and what `begin` gave.

        A full table refuses the client before the episode begins, since nobody would end the
        episode. A client that cannot begin is forgotten.

        Raises:
            QueueFull: see `add`.
            LudusError: as `begin` raises it.
        """
        name = self.add(client)
        try:
            async with client.turn:
                return name, await begin()
        except BaseException:
            self.remove(name)
            raise

    def add(self, client: C) -> str:
        """Keep a client, and return a name that nobody can guess.

        Raises:
            QueueFull: there are as many clients as the server has sessions.
        """
        over = time.monotonic() - self._limits.lease_s
        for name, old in list(self._clients.items()):
            if old.touched < over and not old.turn.locked():
                del self._clients[name]  # the lease of its session ended as well
        most = self._limits.max_sessions
        if len(self._clients) >= most:
            message = f"{len(self._clients)} of {most} sessions are open"
            raise QueueFull(message, depth=len(self._clients), limit=most, cause="sessions")
        name = secrets.token_urlsafe(16)
        self._clients[name] = client
        return name
