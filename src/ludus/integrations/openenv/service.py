"""The routes of OpenEnv's protocol, for each environment that a server offers.

At the root they play the first environment; under `/openenv/ID` any one of them. Over HTTP, where
OpenEnv's own server forgets everything between two requests, a reset names its episode in a cookie
and in the header `X-Session-Id`, and a step brings back either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from ludus.envs.serving.env_wire import EnvCard
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError, LudusError, UnknownEnv
from ludus.wire.codec import decode
from ludus.wire.faults import Refused, fault_of, status_of
from ludus.wire.routes import Context, Endpoint, Load, Nothing, Path, Route

from ..hosted import ClientTable, retry_headers
from .playing import ListeningSocket, play_over_socket
from .protocol import (
    EpisodeState,
    Game,
    Healthy,
    Metadata,
    ResetRequest,
    Result,
    RpcError,
    Schemas,
    StepRequest,
    answer_json_rpc,
    as_plain,
    read_call,
    refusal,
    response,
    schemas,
)

PAGES = Environment(
    loader=PackageLoader("ludus.integrations.openenv"), autoescape=True, undefined=StrictUndefined
)
COOKIE, HEADER = "ludus_episode", "X-Session-Id"
CREATE, CLOSE = "openenv/session/create", "openenv/session/close"
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
)
Handler = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
Shape = type[msgspec.Struct]
"""The struct that a request or an answer is documented with."""


class OpenEnvService:
    """Lets OpenEnv's clients play the environments of another service of the same server.

    Args:
        envs: the service of environments, which the server starts before this one.
        max_message_bytes: the largest message on a WebSocket.
    """

    name = "openenv"

    def __init__(self, envs: EnvService, *, max_message_bytes: int = 16 << 20) -> None:
        self._envs = envs
        self._max_message_bytes = max_message_bytes
        self._games: ClientTable[Game] = ClientTable(envs.limits)
        self._sockets: set[ListeningSocket] = set()

    def routes(self) -> list[Route]:
        """Return no route: a step needs cookies, which routes do not see."""
        return []

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints at the root and the endpoints of each environment, by id."""
        roots = ["", "/openenv/{id:.+}"]
        return [endpoint for root in roots for endpoint in self._at(root)]

    def _at(self, root: str) -> list[Endpoint]:
        def get(
            path: str, handler: Handler, reply: Shape | None = None, summary: str = ""
        ) -> Endpoint:
            documented = (
                _documented_route("GET", root + path, Nothing, reply, summary) if reply else None
            )
            return Endpoint("GET", root + path, handler, documented, token_in_path=True)

        def post(path: str, handler: Handler, body: Shape, reply: Shape, summary: str) -> Endpoint:
            documented = _documented_route("POST", root + path, body, reply, summary)
            return Endpoint("POST", root + path, handler, documented, token_in_path=True)

        return [
            get("/ws", self._play),
            get("/mcp", self._play),
            get("/web", self._page),
            get("/health", _always(Healthy), Healthy, "Alive, in OpenEnv's words"),
            get("/schema", _always(schemas), Schemas, "JSON Schemas of action, observation, state"),
            get("/metadata", self._metadata, Metadata, "What the environment is"),
            get("/state", self._state, EpisodeState, "How far the episode of this client is"),
            post("/reset", self._reset, ResetRequest, Result, "Begin an episode"),
            post("/step", self._step, StepRequest, Result, "Play one action"),
            post("/mcp", self._rpc, RpcRequest, RpcResponse, "List and call tools by JSON-RPC"),
        ]

    async def start(self, context: Context) -> None:
        """Begin with no game; the service of environments has started before."""

    async def stop(self) -> None:
        """Close every connection; the sessions belong to the service of environments."""
        for socket in list(self._sockets):
            await socket.close()

    def load(self) -> Load:
        """Report no load: every operation is counted by the service of environments."""
        return Load(queue_depth=0, limit=0)

    # --- endpoints ------------------------------------------------------------------------------

    async def _play(self, request: web.Request, body: bytes) -> web.StreamResponse:
        if not web.WebSocketResponse().can_prepare(request):
            raise Refused(f"{request.path} is a WebSocket; ask for an upgrade", "upgrade_required")
        # Browsers ask no leave for a WebSocket that a page of another site opens.
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            raise Refused(f"a page of {origin} may not connect to {request.host}", "misdirected")
        limits = self._envs.limits
        socket = ListeningSocket(max_bytes=self._max_message_bytes, idle_s=limits.lifetime_s)
        self._sockets.add(socket)
        try:
            await play_over_socket(self._new_game(request), socket, request)
        finally:
            self._sockets.discard(socket)
        return socket.response

    async def _page(self, request: web.Request, body: bytes) -> web.StreamResponse:
        card = self._card(request)
        page = PAGES.get_template("play.html.j2").render(env=card.id, card=card)
        return web.Response(
            text=page, content_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY}
        )

    async def _metadata(self, request: web.Request, body: bytes) -> web.StreamResponse:
        card = self._card(request)
        version = card.id.rpartition("-v")[2]
        return _json(
            Metadata(name=card.id, description=card.description or card.id, version=version)
        )

    async def _state(self, request: web.Request, body: bytes) -> web.StreamResponse:
        game = self._games.find(_session_of(request))
        return _json(game.state() if game else EpisodeState(episode_id=None, step_count=0))

    async def _reset(self, request: web.Request, body: bytes) -> web.StreamResponse:
        parameters = decode(body or b"{}", dict[str, Any])
        name = _session_of(request)
        known = self._games.find(name)
        game = known or self._new_game(request)
        try:
            if known is None:
                name, begun = await self._games.begin(game, lambda: game.reset(parameters))
            else:
                async with game.turn:
                    begun = await game.reset(parameters)
        except LudusError as error:
            return _failure(error)
        answer = _json(begun)
        answer.headers[HEADER] = name
        answer.set_cookie(COOKIE, name, httponly=True, samesite="Strict")
        return answer

    async def _step(self, request: web.Request, body: bytes) -> web.StreamResponse:
        step = decode(body, StepRequest)
        game = self._games.find(_session_of(request))
        if game is None:
            raise Refused(
                "which episode? POST /reset begins one, and answers with the header "
                f"{HEADER} and a cookie; send either back",
                "unknown_session",
            )
        async with game.turn:
            try:
                return _json(await game.step(step.action))
            except LudusError as error:
                return _failure(error)

    async def _rpc(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Answer a request of JSON-RPC, always with status 200, as clients expect."""
        message: Any = None
        try:
            message = decode(body, dict[str, Any])
            method, parameters = read_call(message)
            if method == CREATE:
                new_game = self._new_game(request)
                name, opening = await self._games.begin(
                    new_game, lambda: new_game.reset(parameters)
                )
                return _json(
                    response(message, {"session_id": name, "observation": opening.observation})
                )
            name = str(parameters.get("session_id", "")) or _session_of(request)
            if method == CLOSE:
                closed = self._games.remove(name)
                if closed is not None:
                    await closed.close()
                return _json(response(message, {"session_id": name, "closed": closed is not None}))
            existing = self._games.find(name)
            if existing is None and method != "tools/list":
                raise RpcError(-32602, f"no session {name!r}; {CREATE} makes one")
            game = existing or self._new_game(request)
            async with game.turn:
                return _json(await answer_json_rpc(game, message))
        except (LudusError, RpcError) as error:
            return _json(refusal(message, error))

    # --- games ----------------------------------------------------------------------------------

    def _card(self, request: web.Request) -> EnvCard:
        served = {env.id: env for env in self._envs.served}
        env_id = request.match_info.get("id", next(iter(served), ""))
        if env_id not in served:
            raise UnknownEnv.near(env_id, served, hint="served here")
        card = served[env_id].card
        assert card is not None
        return card

    def _new_game(self, request: web.Request) -> Game:
        return Game(self._envs, self._card(request))


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of JSON-RPC 2.0."""

    jsonrpc: str
    method: str
    params: dict[str, Any] = {}
    id: int | str | None = None


class RpcResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response of JSON-RPC 2.0."""

    jsonrpc: str
    id: int | str | None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


def _documented_route(method: str, path: str, body: Shape, reply: Shape, summary: str) -> Route:
    return Route(method, path, _documents_only, body, reply, summary)


async def _documents_only(path: Path, payload: object) -> object:
    raise ConfigError(f"{path} is answered by an endpoint")


def _session_of(request: web.Request) -> str:
    return request.headers.get(HEADER) or request.cookies.get(COOKIE, "")


def _always(make: Callable[[], msgspec.Struct]) -> Handler:
    """Return the handler of an answer that depends on nothing in the request."""

    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        return _json(make())

    return answer


def _json(value: Any) -> web.Response:
    plain = as_plain(value) if isinstance(value, msgspec.Struct) else value
    return web.Response(body=msgspec.json.encode(plain), content_type="application/json")


def _failure(error: LudusError) -> web.Response:
    fault = fault_of(error)
    answer = _json({"detail": fault.message, "error": msgspec.to_builtins(fault)})
    answer.set_status(status_of(fault))
    answer.headers.update(retry_headers(fault))
    return answer
