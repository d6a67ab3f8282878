"""The common form of requests, answers and refusals, which every dialect translates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ludus.envs import ToolSpec
from ludus.errors import LudusError
from ludus.messages import Message

from ..trajectory import Finish

STOPPED = "The budget of this rollout is spent; stop here."
"""What an agent is told that calls although its budget is spent."""


class GatewayRefusal(LudusError):
    """A request that the gateway refuses; the client is told why and must not try again.

    Args:
        message: what was wrong, the value, and what to do.
        status: of HTTP.
        code: OpenAI's code of the error.
        parameter: the field that was wrong.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "invalid_request",
        parameter: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status = message, status
        self.code, self.parameter = code, parameter


@dataclass(frozen=True, slots=True)
class ToolForm:
    """How a tool is written on the wire that is no plain function."""

    name: str
    namespace: str = ""
    """The group that the tool is in; the policy sees `namespace.name`."""
    is_free: bool = False
    """Whether its calls hold a text; the policy sees one argument, `input`."""


@dataclass(slots=True, kw_only=True)
class AgentRequest:
    """A request of an agent in no dialect."""

    messages: list[Message]
    tools: list[ToolSpec] = field(default_factory=list)
    forms: dict[str, ToolForm] = field(default_factory=dict)
    """By the name that the policy sees, of the tools that are no plain functions."""
    hidden: int = 0
    """Tools that only the provider could run; the policy is not offered them."""
    model: str = ""
    """The name that the client asked for; every name is the policy."""
    max_tokens: int | None = None
    samples: int = 1
    """`n`: the number of answers."""
    stop: list[str] = field(default_factory=list)
    calls: bool = True
    """Whether calls are read; not where `tool_choice` is none."""
    parallel: bool = True
    """Whether an answer may show more than one call."""
    stream: bool = False
    usage_in_stream: bool = False
    logprobs: bool = False
    schema: str = ""
    """The JSON schema that the answer must fit, as JSON; empty asks for text."""
    attempt: int = 0
    """The attempt of the client's SDK; above 0 it repeats a request that may have been answered."""
    overridden: dict[str, Any] = field(default_factory=dict)
    """Sampling fields that the client sent and that belong to the trainer."""
    unforced: bool = False
    """Whether the client demanded a call, which is not forced on the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An answer to a request."""

    message: Message
    finish: Finish
    stop: str = ""
    """The stop string that ended the answer; empty where none did."""
    tokens: list[tuple[str, float]] = field(default_factory=list)
    """Text and log-probability of each sampled token, where the client asked for them."""
    prompt: int = 0
    """Tokens of the prompt."""
    sampled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswer:
    """The answers to a request."""

    id: str
    created: int
    """Seconds since the epoch."""
    model: str
    choices: list[Choice]
    prompt_tokens: int
    forms: Mapping[str, ToolForm] = field(default_factory=dict)
    """Those of the request."""
    cached_tokens: int = 0
    """Prompt tokens that an earlier call of the rollout held already."""

    @property
    def sampled(self) -> int:
        """All sampled tokens."""
        return sum(choice.sampled for choice in self.choices)


class Dialect(Protocol):
    """Translates a provider's protocol, and decides nothing."""

    path: str
    """Behind the base URL."""

    def read(self, body: Mapping[str, Any]) -> AgentRequest:
        """Read a request.

        Raises:
            GatewayRefusal: a field is wrong, or asks for what the gateway cannot do.
        """
        ...

    def reply(self, answer: AgentAnswer) -> dict[str, Any]:
        """Return the body of a whole reply."""
        ...

    def events(self, answer: AgentAnswer, request: AgentRequest) -> AsyncIterator[bytes]:
        """Yield a reply as server-sent events; the last yield ends the answer for the client."""
        ...

    def error(self, refusal: GatewayRefusal) -> dict[str, Any]:
        """Return the body of an error."""
        ...
