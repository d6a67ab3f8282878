"""The gateway's HTTP server: a base URL and a key for each rollout.

    async with Gateway(TokenWriter(chat_format, engine, sampling)) as gateway:
        rollout = gateway.open(seed=3)
        ... an agent calls f"{gateway.url}/v1" with the key rollout.key ...
        rollout.end(Stop.TERMINATED)

Agents send their rollout's key as a bearer token or in `x-api-key`; where only a URL can be set,
`/rollouts/KEY/v1/...` names it too. To open, reward and end rollouts takes the operator's
key: an agent that could set its own reward would.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Self

import msgspec
from aiohttp import web

from ludus.background import end_task
from ludus.errors import ConfigError, LudusError
from ludus.secret import Secret
from ludus.verdict import Verdict
from ludus.wire.address import is_loopback, listen

from ..rows import PolicyWriter
from ..trajectory import Episode, Stop
from .dialects import DIALECTS
from .dialects.fields import event
from .rollout import Rollout, RolloutLimits
from .wire import AgentRequest, Dialect, GatewayRefusal

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 20
"""The largest request; long conversations come whole with each call."""
MAX_ROLLOUTS = 4096
"""The most rollouts that run at once."""
LEASE_S = 3600.0
"""Seconds without a call after which a rollout ends by itself."""
KEEP_S = 600.0
"""Seconds for which an ended rollout can be read."""
PING_EVERY_S = 3.0
"""Seconds between two comments in a stream that waits for the policy."""
SWEEP_EVERY_S = 5.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NO_RETRY = {"x-should-retry": "false"}


class RolloutOpening(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /rollouts`."""

    seed: int = 0
    max_calls: Annotated[int, msgspec.Meta(ge=1)] = RolloutLimits().max_calls
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = RolloutLimits().max_tokens


class Reward(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /rollouts/ID/reward`."""

    reward: float


class Gateway:
    """Serves a policy to agents.

    Args:
        writer: writes the rows.
        host: the address to bind.
        port: the port to bind; 0 picks a free one, which `url` tells.
        key: the operator's key; by default a new one.
        lease_s: seconds without a call after which a rollout ends by itself.

    Raises:
        ConfigError: the host is not loopback and no key was given.
    """

    def __init__(
        self,
        writer: PolicyWriter,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        key: str | Secret = "",
        lease_s: float = LEASE_S,
    ) -> None:
        refuse_open_door(host, key)
        self.host, self.port = host, port
        self.operator_key = Secret.of(key).reveal() or f"sk-operator-{secrets.token_hex(20)}"
        self.rollouts: dict[str, Rollout] = {}
        """By id; ended ones stay for a while."""
        self._writer = writer
        self._lease_s = lease_s
        self._by_key: dict[str, Rollout] = {}
        self._runner: web.AppRunner | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address; OpenAI's clients are given `url + "/v1"`."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        for dialect in DIALECTS:
            for prefix in ("", "/rollouts/{key}"):
                handler = self._answering(dialect)
                application.router.add_post(f"{prefix}/v1{dialect.path}", handler)
                if not dialect.path.startswith("/messages"):
                    continue
                # Anthropic's base URL has no /v1. Some clients are told one with it, and the AI SDK
                # wants it there.
                for version in ("/v1/v1", ""):
                    application.router.add_post(f"{prefix}{version}{dialect.path}", handler)
                application.router.add_post(
                    f"{prefix}/v1{dialect.path}/count_tokens", self._counting(dialect)
                )
        for prefix in ("", "/rollouts/{key}"):
            application.router.add_get(f"{prefix}/v1/models", self._models)
        application.router.add_get("/health", self._health)
        application.router.add_post("/rollouts", self._operating(self._open))
        application.router.add_get(
            "/rollouts/{id}", self._operating(lambda request, _: _described(self._named(request)))
        )
        application.router.add_post("/rollouts/{id}/reward", self._operating(self._reward))
        application.router.add_post("/rollouts/{id}/end", self._operating(self._end))
        application.router.add_route("*", "/{path:.*}", self._unknown)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await self._runner.setup()
        listener = listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        await web.SockSite(self._runner, listener).start()
        self._sweeper = asyncio.create_task(self._sweep(), name="gateway-sweep")

    async def stop(self) -> None:
        """End every rollout, and stop listening."""
        for rollout in self.rollouts.values():
            rollout.end(Stop.POLICY_ERROR)
        if self._sweeper is not None:
            await end_task(self._sweeper)
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def open(self, *, seed: int = 0, limits: RolloutLimits | None = None) -> Rollout:
        """Begin a rollout; an agent calls the policy with the rollout's key.

        Raises:
            GatewayRefusal: too many run already.
        """
        running = sum(rollout.stop is None for rollout in self.rollouts.values())
        if running >= MAX_ROLLOUTS:
            raise GatewayRefusal(
                f"{running} rollouts run already, the most there may be", status=503
            )
        rollout = Rollout(self._writer, limits, seed=seed)
        self.rollouts[rollout.id] = self._by_key[rollout.key] = rollout
        return rollout

    def close(self, rollout: Rollout, stop: Stop = Stop.TERMINATED) -> None:
        """End a rollout, and remove the rollout from the gateway; the caller keeps the record."""
        rollout.end(stop)
        self.rollouts.pop(rollout.id, None)
        self._by_key.pop(rollout.key, None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            now = time.monotonic()
            for rollout in list(self.rollouts.values()):
                idle_s = now - rollout.touched
                if rollout.stop is None and idle_s > self._lease_s and not rollout.is_busy:
                    logger.warning("rollout %s had no call for %.0f s: ended", rollout.id, idle_s)
                    rollout.end(Stop.TIMEOUT)
                    rollout.touched = now  # its operator has `KEEP_S` to read it
                elif rollout.stop is not None and idle_s > max(self._lease_s, KEEP_S):
                    self.close(rollout)

    def _rollout_of(self, request: web.Request) -> Rollout:
        """Return the rollout whose key the request carries."""
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        keys = (request.match_info.get("key"), request.headers.get("x-api-key"), bearer)
        rollout = self._by_key.get(next((key for key in keys if key), ""))
        if rollout is None:
            raise GatewayRefusal(
                "no rollout has this key: use the key of a rollout that is open, as the API key "
                "or in the path /rollouts/KEY/v1",
                status=401,
                code="invalid_api_key",
            )
        return rollout

    def _answering(self, dialect: Dialect) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                rollout = self._rollout_of(request)
                body = await _body(request)
                asked = _read(dialect, _decoded(body), request)
                if asked.stream:
                    return await self._stream(dialect, rollout, asked, body, request)
                answer, calls = await rollout.answer(asked, body)
                # The client may have stopped waiting for the answer.
                arrived = request.transport is not None and not request.transport.is_closing()
                rollout.delivered(calls, arrived=arrived)
                return _json(dialect.reply(answer))
            except Exception as error:
                refusal = _refusal_of(error)
                return _json(dialect.error(refusal), refusal.status)

        return handle

    async def _stream(
        self,
        dialect: Dialect,
        rollout: Rollout,
        asked: AgentRequest,
        body: bytes,
        request: web.Request,
    ) -> web.StreamResponse:
        """Sample the answer, sending comments meanwhile, then send the answer as events."""
        sampling = asyncio.create_task(rollout.answer(asked, body))
        response: web.StreamResponse | None = None
        try:
            while not (await asyncio.wait([sampling], timeout=PING_EVERY_S))[0]:
                if response is None:
                    response = await _opened_stream(request)
                await response.write(b": the policy is sampling\n\n")
            if response is None:
                sampling.result()  # a refusal is a status as long as nothing was sent
                response = await _opened_stream(request)
            elif sampling.exception() is not None:
                refusal = _refusal_of(sampling.exception())
                await response.write(event(dialect.error(refusal)))
                return response
            answer, calls = sampling.result()
            # The record is complete before the last event, at which some agents end.
            rollout.delivered(calls, arrived=True)
            async for each in dialect.events(answer, asked):
                await response.write(each)
            await response.write_eof()
        except ConnectionError:
            rollout.delivered((await sampling)[1], arrived=False)
        return response or web.Response(status=499)

    def _counting(self, dialect: Dialect) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                rollout = self._rollout_of(request)
                body = {"max_tokens": 1} | dict(_decoded(await _body(request)))
                asked = _read(dialect, body, request)
                return _json({"input_tokens": rollout.count_tokens(asked)})
            except Exception as error:
                refusal = _refusal_of(error)
                return _json(dialect.error(refusal), refusal.status)

        return handle

    async def _models(self, request: web.Request) -> web.StreamResponse:
        try:
            self._rollout_of(request)
        except GatewayRefusal as refusal:
            return _json(DIALECTS[0].error(refusal), refusal.status)
        row = {"id": "policy", "object": "model", "created": 0, "owned_by": "ludus"}
        return _json({"object": "list", "data": [row]})

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return _json({"status": "ok"})

    def _operating(self, reply: Callable[[web.Request, bytes], dict[str, Any]]) -> Handler:
        """Return a handler that reads a body only from the operator."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
                shown = bearer.encode(errors="surrogateescape")  # a header may hold any byte
                if not hmac.compare_digest(shown, self.operator_key.encode()):
                    raise GatewayRefusal(
                        "this takes the operator's key, which no agent is given",
                        status=401,
                        code="invalid_api_key",
                    )
                return _json(reply(request, await _body(request)))
            except LudusError as error:
                refusal = _refusal_of(error)
                return _json(DIALECTS[0].error(refusal), refusal.status)

        return handle

    def _open(self, request: web.Request, body: bytes) -> dict[str, Any]:
        opening = _typed(body or b"{}", RolloutOpening)
        limits = RolloutLimits(max_calls=opening.max_calls, max_tokens=opening.max_tokens)
        rollout = self.open(seed=opening.seed, limits=limits)
        return {"id": rollout.id, "key": rollout.key, "base_url": f"{self.url}/v1"}

    def _reward(self, request: web.Request, body: bytes) -> dict[str, Any]:
        rollout = self._named(request)
        rollout.reward = Verdict.of(_typed(body, Reward).reward).reward
        return {"id": rollout.id, "reward": rollout.reward}

    def _end(self, request: web.Request, body: bytes) -> dict[str, Any]:
        rollout = self._named(request)
        rollout.end(Stop.TERMINATED)
        return _described(rollout) | {"episode": episode_of(rollout)}

    def _named(self, request: web.Request) -> Rollout:
        name = request.match_info["id"]
        rollout = self.rollouts.get(name)
        if rollout is None:
            raise GatewayRefusal(f"no rollout {name!r}", status=404, code="not_found")
        return rollout

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        paths = ", ".join(f"/v1{dialect.path}" for dialect in DIALECTS)
        refusal = GatewayRefusal(
            f"no route {request.method} {request.path}; agents call {paths} and /v1/models",
            status=404,
            code="not_found",
        )
        return _json(DIALECTS[0].error(refusal), 404)


def refuse_open_door(host: str, key: str | Secret) -> None:
    """Refuse an address that others reach, where no operator's key was given.

    Raises:
        ConfigError: with what to do.
    """
    if not is_loopback(host) and not Secret.of(key).reveal():
        raise ConfigError(
            f"refusing to serve on {host} without a key: anyone who reaches it could open "
            "rollouts and set rewards; give --key, or bind 127.0.0.1"
        )


def episode_of(rollout: Rollout) -> Episode:
    """Return a rollout as an episode with the posted reward; without a reward the verdict is
    unavailable, and never a zero.
    """
    missing = Verdict.unavailable("nobody set the reward of this rollout")
    verdict = missing if rollout.reward is None else Verdict.of(rollout.reward)
    return Episode(task=rollout.id, trajectories=[rollout.trajectory(verdict)])


def _described(rollout: Rollout) -> dict[str, Any]:
    return {
        "id": rollout.id,
        "stop": rollout.stop,
        "reward": rollout.reward,
        "sampled_tokens": rollout.tree.sampled,
        "untrained_tokens": rollout.tree.untrained(),
        "counts": dict(rollout.counts),
        "tree": list(rollout.tree.lines()),
    }


async def _opened_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    )
    await response.prepare(request)
    return response


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise GatewayRefusal(
            f"the body is larger than {MAX_BODY_BYTES >> 20} MiB; shorten the conversation",
            status=413,
        ) from None


def _decoded(body: bytes) -> Mapping[str, Any]:
    decoded = _typed(body, dict[str, Any])
    assert isinstance(decoded, dict)
    return decoded


def _typed(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GatewayRefusal(f"the body is not what this route takes: {error}") from None
    except RecursionError:
        raise GatewayRefusal("the body is nested too deeply") from None


def _read(dialect: Dialect, body: Mapping[str, Any], request: web.Request) -> AgentRequest:
    """Read a request. A field of another shape than the protocol's is the client's mistake."""
    try:
        asked = dialect.read(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, GatewayRefusal):
            raise
        raise GatewayRefusal(
            f"a field has another shape than {dialect.path} has: {error}"
        ) from None
    attempt = request.headers.get("x-stainless-retry-count", "0")
    asked.attempt = int(attempt) if attempt.isdecimal() else 0
    return asked


def _refusal_of(error: BaseException | None) -> GatewayRefusal:
    """Return any failure as what a client is told; a fault of the engine may be tried again."""
    if isinstance(error, GatewayRefusal):
        return error
    if isinstance(error, LudusError):
        return GatewayRefusal(
            f"the policy could not answer: {error}", status=503, code="unavailable"
        )
    logger.error("a call of an agent failed", exc_info=error)
    return GatewayRefusal("the gateway failed; its log says why", status=500, code="internal_error")


def _json(body: object, status: int = 200) -> web.Response:
    headers = NO_RETRY if 400 <= status < 500 else {}
    return web.Response(
        body=msgspec.json.encode(body),
        status=status,
        content_type="application/json",
        headers=headers,
    )
