"""The client of a chat server sends a conversation and returns the answer, with retries."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import logging
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError, LudusError, RequestRejected, ServerFault, ServerUnreachable
from ludus.messages import Message
from ludus.secret import Secret, without_credentials
from ludus.wire.client import (
    AsyncTransport,
    HttpRequest,
    HttpResponse,
    Retry,
    RetryPolicy,
    trace_headers,
)

from .chat_wire import Completion, error_of, messages_row, read_models, read_reply
from .limits import CallLimits, DiskCache, TokenBudget, TokenUsage, shared_limits

logger = logging.getLogger(__name__)

API_KEY_VARIABLE = "LUDUS_API_KEY"
"""Environment variable that is read where no key is passed. OPENAI_API_KEY is not read, since that
key must not be sent to any other server.
"""
PATIENCE = RetryPolicy(timeout_s=900.0, attempt_timeout_s=300.0, first_wait_s=0.5, max_wait_s=30.0)


class ChatClient:
    """A client asks a model of an OpenAI-compatible server. A client belongs to an event loop.

    Args:
        base_url: address, up to and including `/v1`.
        model: name of the model on the server.
        api_key: None reads the environment variable LUDUS_API_KEY.
        patience: timeouts and waits between attempts.
        concurrency: largest number of requests at the same time; others wait.
        cache: a folder for answers; None keeps none.
        budget: a bound on tokens.
        limits: bounds on the calls of several clients together; by default those that all clients
            of the process share.
        send_reasoning: whether the model's thoughts are sent back in later requests, which models
            that think between tool calls need. They go into the field in which the server wrote
            them; a server that refuses the field is asked without, and not sent it again.

    Raises:
        ConfigError: the address is malformed, or the cache folder cannot be created.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | Secret | None = None,
        patience: RetryPolicy = PATIENCE,
        concurrency: int = 32,
        cache: str | Path | None = None,
        budget: TokenBudget | None = None,
        limits: CallLimits | None = None,
        send_reasoning: bool = True,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(
                "a model server's address looks like http://127.0.0.1:8000/v1, got "
                f"{without_credentials(base_url)!r}"
            )
        self._base_url = base_url.rstrip("/")
        self.url = f"{self._base_url}/chat/completions"
        self.model = model
        self.patience = patience
        self.usage = TokenUsage()
        """Tokens of all requests that the server answered; answers from the cache do not count."""
        self.retries = 0
        key = os.environ.get(API_KEY_VARIABLE, "") if api_key is None else api_key
        self._key = Secret.of(key)
        self._cache = None if cache is None else DiskCache(cache)
        self._budget = budget
        self._limits = limits or shared_limits()
        self._send_reasoning = send_reasoning
        self._reasoning_field = ""
        self._met = False  # whether the server has ever answered
        self._slots = asyncio.Semaphore(concurrency)
        self._transport = AsyncTransport()
        self._rng = random.Random()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        seed: int | None = None,
        send_seed: bool = True,
        **sampling: Any,
    ) -> Completion:
        """Return the model's answer to a conversation.

        Args:
            messages: the conversation.
            tools: tools in OpenAI's form.
            seed: seed of the sampling; part of the cache's key even where the seed is not sent.
            send_seed: False for servers that refuse the field.
            sampling: further fields of the request, such as `temperature` and `max_tokens`.

        Raises:
            BudgetExceeded: no tokens are left.
            ContextTooLong: the conversation does not fit.
            RemoteError: the server failed, or could not be asked.
        """
        options: dict[str, Any] = dict(sampling)
        if tools:
            options["tools"] = list(tools)
        if seed is not None and send_seed:
            options["seed"] = seed
        field = self._reasoning_field if self._send_reasoning else ""
        field = field if any(message.reasoning for message in messages) else ""
        try:
            return await self._complete(messages, options, seed, field)
        except RequestRejected as error:
            if not field or field not in str(error):
                raise
            logger.warning("%s refuses %r; thoughts are not sent back: %s", self.url, field, error)
            self._send_reasoning = False
        return await self._complete(messages, options, seed, "")

    async def _complete(
        self, messages: Sequence[Message], options: dict[str, Any], seed: int | None, field: str
    ) -> Completion:
        """Return the answer from the cache or the server, with thoughts sent in `field`."""
        request = {"model": self.model, "messages": messages_row(messages, field), **options}
        # The seed is part of the key even where it is not sent: samples of one prompt differ.
        key = DiskCache.key([self.url, seed, request]) if self._cache else ""
        cached = self._cache.get(key) if self._cache else None
        if cached is not None:
            with contextlib.suppress(ServerFault):  # a damaged file is asked for again
                return self._noted(msgspec.structs.replace(read_reply(cached), cached=True))
        completion, body = await self._ask(request)
        if completion.usage is not None:
            self.usage.add(completion.usage)
            if self._budget:
                self._budget.spent.add(completion.usage)
        elif self._budget:
            raise ConfigError(f"{self.url} counts no tokens, so a token budget cannot be kept")
        if self._cache:
            self._cache.put(key, body)
        return self._noted(completion)

    def _noted(self, completion: Completion) -> Completion:
        self._reasoning_field = completion.reasoning_field or self._reasoning_field
        return completion

    async def ensure_served(self, *, timeout_s: float = 10.0) -> None:
        """Check early that the server answers and serves the model.

        Raises:
            ConfigError: the server lists its models, and this model is not among them.
            RemoteError: the server does not answer, or refuses the key.
        """
        request = HttpRequest("GET", f"{self._base_url}/models", self._headers())
        response = await self._send(request, timeout_s)
        if response.status in (401, 403):
            raise error_of(response.status, response.body, None)
        models = read_models(response.body) if response.status == 200 else []
        if models and self.model not in models:
            raise ConfigError(f"{self._base_url} has no model {self.model!r}; it has {models[:5]}")

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._transport.close()

    async def _ask(self, request: dict[str, Any]) -> tuple[Completion, bytes]:
        """Return the answer, parsed and raw, and repeat the request while that may help."""
        try:
            body = msgspec.json.encode(request)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"this cannot be sent to a model: {error}") from None
        posted = HttpRequest("POST", self.url, self._headers(), body)
        async with self._slots:
            retry = Retry(self.patience, self._rng)
            while True:
                if self._budget:
                    self._budget.ensure_left()
                try:
                    return await self._attempt(posted, retry.attempt_timeout_s)
                except LudusError as error:
                    # A server that nobody has ever reached is most likely at another address.
                    met = self._met or not isinstance(error, ServerUnreachable)
                    wait_s = retry.wait_s(error, met=met)
                self.retries += 1
                await self._transport.sleep(wait_s)

    async def _attempt(self, posted: HttpRequest, timeout_s: float) -> tuple[Completion, bytes]:
        async with self._limits.place(self.url):
            response = await self._send(posted, timeout_s)
        self._met = True
        if response.status != 200:
            raise error_of(response.status, response.body, retry_after_s(response))
        return read_reply(response.body), response.body

    async def _send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        try:
            return await self._transport.send(request, timeout_s)
        except ServerUnreachable as error:
            raise ServerUnreachable(
                f"no answer from {without_credentials(self._base_url)} ({error.__cause__}); is the "
                "model's server running there?"
            ) from error

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= trace_headers()
        return headers | ({"Authorization": f"Bearer {self._key.reveal()}"} if self._key else {})


def retry_after_s(response: HttpResponse) -> float | None:
    """Return the seconds of a Retry-After header, which servers write as a number or as a date.

    A date is compared with the reply's own date: this machine's clock may differ from the server's,
    or jump.
    """
    header, sent = response.headers.get("Retry-After", ""), response.headers.get("Date", "")
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        until = email.utils.parsedate_to_datetime(header)
        return max(0.0, (until - email.utils.parsedate_to_datetime(sent)).total_seconds())
    except (ValueError, TypeError):  # no date at all, or one without a zone
        return None
