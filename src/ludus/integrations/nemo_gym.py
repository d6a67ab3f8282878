"""The protocol of NeMo Gym's resources servers, by which its agents and trainers play environments.

The paths below are at the root for the first environment, and under `/nemo-gym/ID` for each one:

* `POST /seed_session` begins the episode that a row names (`rows` makes rows) and sets a cookie;
* `POST /TOOL` plays a call of a declared tool in the episode of the cookie;
* `POST /verify` plays what the policy said last, and answers with the row and the reward;
* `POST /close_session` ends an episode that nobody will verify;
* `POST /aggregate_metrics` and `GET /reverify_mode` are what the collection of rollouts asks;
* `POST /run` plays a whole episode with the model server that `--nemo-gym-model` names.

A verdict that is not ok is a 500, as every failure is in this protocol, and never a reward: the
collection of NeMo Gym then keeps a row of the failure, without a reward, beside the rollouts. The
protocol also has a mask (`mask_sample`) beside a placeholder of 0.0, which is a number to whoever
does not read the mask (decision 0217).
"""

from __future__ import annotations

import asyncio
import logging
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from ludus.background import run_on_loop
from ludus.envs.serving.env_wire import EnvCard
from ludus.envs.serving.server import EnvService
from ludus.errors import LudusError, Overloaded, ServerFault, UnknownEnv
from ludus.messages import Message, ToolCall, assistant
from ludus.wire.codec import decode
from ludus.wire.faults import Refused, fault_of, status_of
from ludus.wire.resolver import SharedResolver
from ludus.wire.routes import Context, Endpoint, Load, Route

from .bridge import tool_call
from .hosted import ClientTable, HostedEpisode, retry_headers
from .openenv.protocol import text_of
from .rows import EpisodeChoice, EpisodeRow, row_writer

TASK = "_ng_task_index"
ROLLOUT = "_ng_rollout_index"
REMEMBERED = 10_000


class SeededSessions:
    """Maps the session ids of an environment server to the cookies of the episodes.

    A seed that is sent again finds the session that the first seed has begun; a seed that arrives
    after the session was closed begins nothing.

    Args:
        most: how many open and how many closed ids are remembered; past it the oldest are
            forgotten, whose sessions have long been reaped.
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._open: dict[str, tuple[bytes, asyncio.Future[str]]] = {}
        self._closed: dict[str, None] = {}

    async def seed(self, session: str, episode: bytes, begin: Callable[[], Awaitable[str]]) -> str:
        """Return the cookie of a session, which `begin` makes for a new session.

        Args:
            session: the id.
            episode: names the episode; a seed of the same id for another one is somebody else's.
            begin: begins the episode and returns its cookie.

        Raises:
            Refused: the session was closed, or has another episode.
            LudusError: as `begin` raises it; the seed may be sent again.
        """
        if session in self._closed:
            message = f"the session {session!r} was closed; seed one with another id"
            raise Refused(message, "sequence_conflict")
        if session not in self._open:
            self._open[session] = (episode, asyncio.ensure_future(begin()))
            _forget_oldest(self._open, self._most)
        first, beginning = self._open[session]
        if first != episode:
            message = f"the session {session!r} plays another episode; seed one with another id"
            raise Refused(message, "sequence_conflict")
        try:
            return await asyncio.shield(beginning)  # whoever else waits for it is not cancelled
        except Exception:
            if self._open.get(session, (b"", None))[1] is beginning:
                del self._open[session]
            raise

    async def close(self, session: str) -> str:
        """Close a session for good, and return the cookie; empty for a session without a cookie."""
        self._closed[session] = None
        _forget_oldest(self._closed, self._most)
        begun = self._open.pop(session, None)
        if begun is None:
            return ""
        try:
            return await asyncio.shield(begun[1])
        except Exception:
            return ""  # nothing had begun, which `seed` has told


def _forget_oldest(kept: dict[str, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]


def aggregate_metrics(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return NeMo Gym's aggregate of verified samples: statistics of the reward, for each task and
    over all.

    A masked sample, and one without a reward, is counted as such and is in no statistic.

    Args:
        answers: the answers of `/verify`, with the indices that the collection of NeMo Gym adds.
    """
    masked = sum(bool(answer.get("mask_sample")) for answer in answers)
    rewards: dict[int, list[float]] = {}
    for answer in answers:
        reward = answer.get("reward")
        if answer.get("mask_sample") or isinstance(reward, bool):
            continue
        if isinstance(reward, int | float):
            rewards.setdefault(answer.get(TASK, 0), []).append(float(reward))
    measured = sum(map(len, rewards.values()))
    over_all = _statistics([reward for task in rewards.values() for reward in task])
    coverage: dict[str, int] = {}
    if measured < len(answers):  # NeMo Gym's own aggregate says nothing where all were measured
        coverage = {"coverage/measured_rollouts": measured, "coverage/masked_rollouts": masked}
    repeats = len({answer.get(ROLLOUT, 0) for answer in answers})
    return {
        "group_level_metrics": [
            {TASK: task, **_statistics(rewards[task]), "num_rollouts": len(rewards[task])}
            for task in sorted(rewards)
        ],
        "agent_metrics": {**over_all, **coverage, **({"num_repeats": repeats} if measured else {})},
        "key_metrics": {
            **{name: value for name, value in over_all.items() if name.startswith("mean/")},
            **coverage,
        },
    }


def _statistics(rewards: Sequence[float]) -> dict[str, float]:
    if not rewards:
        return {}
    return {
        "mean/reward": statistics.fmean(rewards),
        "max/reward": max(rewards),
        "min/reward": min(rewards),
        "median/reward": statistics.median(rewards),
        "std/reward": statistics.stdev(rewards) if len(rewards) > 1 else 0.0,
    }


logger = logging.getLogger(__name__)
COOKIE = "ludus___nemo_gym"
RESERVED = (
    "verify", "seed_session", "close_session", "aggregate_metrics", "reverify_mode", "mcp", "run"
)  # fmt: skip
"""Names that the protocol itself has taken."""
_IN_PATHS = re.compile(r"[\w.-]+")
"""Names that can be a part of a path."""
TAKEN_AT_ROOT = ("reset", "step", "submit", "run_code", "run_jupyter", "execute_batch")
"""Names that other protocols have taken at the root: such a tool has a path by id only."""
MODEL_TIMEOUT_S = 600.0
"""The limit in seconds of one answer of the model server."""
MAX_TURNS = 64
"""The most answers of the model in an episode of `/run`; more where the environment grants more
turns.
"""
EnvHandler = Callable[[EnvCard, web.Request, bytes], Awaitable[web.StreamResponse]]


class _Player:
    """A client's episode."""

    def __init__(self, service: EnvService, env: str) -> None:
        self.touched = time.monotonic()
        """When the client was last heard, by `time.monotonic`."""
        self.turn = asyncio.Lock()
        """Held while a request of the client is served, since steps of an episode cannot overlap.
        """
        self.episode = HostedEpisode(service, env)
        self.earned = 0.0
        """The sum of the rewards so far."""
        self.failure: LudusError | None = None
        """The failure that ended the episode; every later request is answered with it."""

    async def begin(self, row: Mapping[str, Any]) -> None:
        try:
            choice = msgspec.convert(row.get("ludus") or {}, EpisodeChoice)
        except msgspec.ValidationError as error:
            raise Refused(
                f"the row's 'ludus' names task, split and seed: {error}", "invalid"
            ) from None
        self.earned, self.failure = 0.0, None
        await self.episode.reset(seed=choice.seed, options=choice.options())

    async def act(self, action: str | Message) -> str:
        """Play an action, and return what the policy is told; a failure is kept for the verdict.

        Raises:
            Overloaded: the server is busy, and the action may be sent again.
            LudusError: the failure that ended the episode.
        """
        self.touched = time.monotonic()
        if self.failure is not None:
            raise self.failure
        if self.episode.over:
            return "the episode is over"
        try:
            turn = await self.episode.step(action)
        except Overloaded:
            raise
        except LudusError as error:
            self.failure = error
            raise
        finally:
            self.touched = time.monotonic()  # the lease of the session begins with the answer
        self.earned += turn.reward
        return text_of(turn.observation)


class NemoGymService:
    """Lets NeMo Gym's agents and trainers play the environments of another service.

    Args:
        envs: the service of environments, which the server starts before this one.
        model_url: the model server for `/run`, such as `http://127.0.0.1:8000`; empty leaves `/run`
            out.
    """

    name = "nemo-gym"

    def __init__(self, envs: EnvService, *, model_url: str = "") -> None:
        self._envs = envs
        self._model_url = model_url.rstrip("/")
        self._players: ClientTable[_Player] = ClientTable(envs.limits)
        self._seeded = SeededSessions()

    def routes(self) -> list[Route]:
        """Return no route: every request needs a cookie, which routes do not see."""
        return []

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints at the root and by id; call after the environments are loaded."""
        cards = [env.card for env in self._envs.served if env.card is not None]
        first = [("", card, True) for card in cards[:1]]
        named = [(f"/nemo-gym/{card.id}", card, False) for card in cards]
        return [endpoint for at in [*first, *named] for endpoint in self._at(*at)]

    def _at(self, root: str, card: EnvCard, is_root: bool) -> list[Endpoint]:
        def post(path: str, handler: EnvHandler) -> Endpoint:
            async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
                try:
                    return await handler(card, request, body)
                except LudusError as error:
                    # The protocol answers errors with a JSON text: a mistake of the client keeps
                    # its status, and any failure on our side is a 500 (decision 0217).
                    fault = fault_of(error)
                    status = status_of(fault)
                    reason = f"{type(error).__name__}: {fault.message}"
                    return web.Response(
                        body=msgspec.json.encode(reason),
                        status=status if status in (400, 404, 409, 413, 422, 429) else 500,
                        content_type="application/json",
                        headers=retry_headers(fault),
                    )

            return Endpoint("POST", f"{root}/{path}", answer, token_in_path=True)

        endpoints = [
            post("seed_session", self._seed),
            post("verify", self._verify),
            post("close_session", self._close),
            post("aggregate_metrics", _aggregate),
            Endpoint("GET", f"{root}/reverify_mode", _reverify_mode, token_in_path=True),
        ]
        if self._model_url:
            endpoints.append(post("run", self._run))
        for tool in card.briefing.tools:
            if tool.name in RESERVED or not _IN_PATHS.fullmatch(tool.name):
                logger.warning("%s: NeMo Gym cannot call a tool named %r", card.id, tool.name)
            elif not (is_root and tool.name in TAKEN_AT_ROOT):
                endpoints.append(post(tool.name, self._tool(tool.name)))
        return endpoints

    async def start(self, context: Context) -> None:
        """Begin with no client; the service of environments has started before."""

    async def stop(self) -> None:
        """Do nothing: the sessions belong to the service of environments."""

    def load(self) -> Load:
        """Report no load: every operation is counted by the service of environments."""
        return Load(queue_depth=0, limit=0)

    # --- endpoints ------------------------------------------------------------------------------

    async def _seed(self, card: EnvCard, request: web.Request, body: bytes) -> web.StreamResponse:
        fields = decode(body or b"{}", dict[str, Any])
        session = fields.get("resources_session_id")
        row = fields if session is None else fields.get("task_data")
        if not isinstance(row, dict) or not isinstance(session, str | None):
            raise Refused(
                "a session with a resources_session_id has its row in task_data", "invalid"
            )

        async def begin() -> str:
            player = _Player(self._envs, card.id)
            cookie, _ = await self._players.begin(player, lambda: player.begin(row))
            return cookie

        if session is None:
            cookie = await begin()
        else:
            episode = msgspec.json.encode(fields.get("episode_id"), order="sorted")
            cookie = await self._seeded.seed(session, episode, begin)
        answer = web.json_response({} if session is None else {"resources_session_id": session})
        answer.set_cookie(COOKIE, cookie, httponly=True)
        return answer

    async def _close(self, card: EnvCard, request: web.Request, body: bytes) -> web.StreamResponse:
        """End an episode by session id or cookie; harmless for an ended episode."""
        session = decode(body or b"{}", dict[str, Any]).get("resources_session_id")
        cookie = request.cookies.get(COOKIE, "")
        if isinstance(session, str):
            cookie = await self._seeded.close(session) or cookie
        player = self._players.remove(cookie)
        if player is not None:
            async with player.turn:
                await player.episode.close()
        return web.json_response({} if session is None else {"resources_session_id": session})

    def _tool(self, name: str) -> EnvHandler:
        async def call(card: EnvCard, request: web.Request, body: bytes) -> web.StreamResponse:
            arguments = decode(body or b"{}", dict[str, Any])
            player = self._of(request, card)
            async with player.turn:
                action = assistant("", [ToolCall(name=name, arguments=arguments, id="call_0")])
                return web.Response(text=await player.act(action))

        return call

    async def _verify(self, card: EnvCard, request: web.Request, body: bytes) -> web.StreamResponse:
        row = decode(body, dict[str, Any])
        output = _output_of(row.get("response"))
        if output is None:
            raise Refused(
                "the body of /verify has the model's 'response', whose 'output' is a list of items",
                "invalid",
            )
        player, cookie = self._of(request, card), request.cookies.get(COOKIE, "")
        async with player.turn:
            last_text = last_words(output)
            try:
                if player.failure is not None:
                    raise player.failure
                # An output that ends with a call or a result holds nothing more to play: its calls
                # were played when the tools were called.
                if last_text is not None and not player.episode.over:
                    await player.act(last_text)
            except Overloaded:
                raise
            except LudusError:
                self._players.remove(cookie)  # whose episode is over, so that others may begin
                raise
            self._players.remove(cookie)
            await player.episode.close()
        return web.json_response({**row, "reward": player.earned})

    async def _run(self, card: EnvCard, request: web.Request, body: bytes) -> web.StreamResponse:
        row = decode(body, dict[str, Any])
        parameters = row.get("responses_create_params")
        if not isinstance(parameters, dict) or not isinstance(
            prompt := parameters.get("input") or [], str | list
        ):
            raise Refused(
                "a row needs 'responses_create_params', an object whose 'input' is a text or a "
                "list of items",
                "invalid",
            )
        player = _Player(self._envs, card.id)
        await player.begin(row)
        opening = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        output: list[dict[str, Any]] = []
        response: dict[str, Any] = {}
        try:
            for _ in range(max(MAX_TURNS, card.briefing.max_turns or 0)):
                response = await self._ask({**parameters, "input": [*opening, *output]})
                items = response["output"]
                output += items
                calls = [item for item in items if item.get("type") == "function_call"]
                if not calls:
                    reply = await player.act(last_words(items) or "")
                    if not player.episode.over:
                        output.append({"type": "message", "role": "user", "content": reply})
                for item in calls:
                    identity = str(item.get("call_id") or "call_0")
                    arguments = str(item.get("arguments") or "{}")
                    call = tool_call(str(item.get("name")), arguments, identity)
                    result = await player.act(assistant("", [call]))
                    output.append(
                        {"type": "function_call_output", "call_id": identity, "output": result}
                    )
                if player.episode.over:
                    break
        finally:
            await player.episode.close()
        whole = {**response, "output": output}
        return web.json_response({**row, "response": whole, "reward": player.earned})

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=MODEL_TIMEOUT_S)
        connector = aiohttp.TCPConnector(resolver=SharedResolver())
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, connector=connector) as client,
                client.post(f"{self._model_url}/v1/responses", json=body) as answer,
            ):
                answer.raise_for_status()
                reply: dict[str, Any] = await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ServerFault(f"the model server {self._model_url}: {error!r}") from error
        if _output_of(reply) is None or reply.get("error"):
            excerpt = msgspec.json.encode(reply)[:200].decode("utf-8", "replace")
            raise ServerFault(f"the model server {self._model_url} answers no response: {excerpt}")
        return reply

    def _of(self, request: web.Request, card: EnvCard) -> _Player:
        player = self._players.find(request.cookies.get(COOKIE, ""))
        if player is None:
            raise Refused(
                "no session: POST /seed_session begins one, and sets a cookie", "unknown_session"
            )
        if player.episode.env != card.id:
            raise UnknownEnv(f"this session plays {player.episode.env}, not {card.id}")
        return player


async def _aggregate(card: EnvCard, request: web.Request, body: bytes) -> web.StreamResponse:
    answers = decode(body, dict[str, Any]).get("verify_responses")
    if not isinstance(answers, list) or not all(
        isinstance(row, dict)
        and isinstance(row.get(TASK, 0), int)
        and isinstance(row.get(ROLLOUT, 0), int)
        for row in answers
    ):
        raise Refused(
            "the body of /aggregate_metrics has 'verify_responses', a list of rows whose "
            f"{TASK} and {ROLLOUT} are whole numbers",
            "invalid",
        )
    try:
        return web.json_response(aggregate_metrics(answers))
    except OverflowError as error:
        raise Refused(f"rewards too large to be averaged: {error}", "invalid") from None


async def _reverify_mode(request: web.Request, body: bytes) -> web.StreamResponse:
    """Say that a stored rollout cannot be verified again: the episode is over."""
    return web.json_response("unsupported")


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Item(msgspec.Struct):
    type: str = "message"
    content: str | list[_Part] | None = None


class _Response(msgspec.Struct):
    output: list[_Item]


def _output_of(response: object) -> list[dict[str, Any]] | None:
    """Return the output items of a model's response; None where the value is no response."""
    try:
        msgspec.convert(response, _Response)
    except msgspec.ValidationError:
        return None
    output: list[dict[str, Any]] = response["output"]  # type: ignore[index]
    return output


def last_words(output: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the policy's last text; None if the output ends with a call or a tool's result.

    Reasoning is no text. After it the policy was asked, so a policy that only thought said "".
    """
    said = [item for item in output if item.get("type") != "reasoning"]
    last = said[-1] if said else {}
    if last.get("type", "message") != "message":
        return None if output[-1] is last else ""
    content = last.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if part.get("type") == "output_text")


@row_writer
def rows(row: EpisodeRow, index: int) -> dict[str, Any]:
    """Return rows of a NeMo Gym data set: what the policy is told, the tools, and the episode under
    `ludus`; see `rows.RowWriter`.
    """
    episode = row.episode()
    try:
        opening = run_on_loop(row.begin(episode))
        episode.verdict.unwrap()  # raises where the episode could not begin
        tools = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in episode.tools
        ]
    finally:
        run_on_loop(episode.close())
    prompt = [{"role": message.role.value, "content": message.text} for message in opening]
    parameters = {"input": prompt, **({"tools": tools} if tools else {})}
    return {"responses_create_params": parameters, "ludus": {"task": row.task, "seed": row.seed}}
