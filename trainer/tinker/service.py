"""The routes of the Tinker API over the models of this process: `ludus serve learner`.

Every answer that takes time is a promise (`futures`). Models, samplers, promises and checkpoints
belong to whoever made them; to all others they do not exist.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from ludus.background import end_task
from ludus.errors import ConfigError
from ludus.wire.codec import decode
from ludus.wire.faults import Refused
from ludus.wire.principals import asked_by
from ludus.wire.routes import Context, Endpoint, Load, Route

from . import wire
from .futures import MAX_PROMISES, Job, OrderedJobs, PromiseOutcome, Promises
from .losses import find_loss
from .models import ModelHouse, ServedModel
from .runs import BASE, RunPages, answer_json, as_json, owner
from .sampling import answer, refuse_unserved
from .store import SAMPLER, WEIGHTS, CheckpointStore, RunCard, default_name
from .wire import PROTOBUF

POLL_S = 25.0
"""Seconds that a question for a result waits for it; the SDK gives up after 45."""
LARGE_BYTES = 4 << 20
"""The size from which a client that can is first told the size of a result."""
SESSION_S = 900.0
"""Seconds without a word after which a session ends; the SDK sends one every 10."""
SWEEP_S = 10.0
UNADAPTED = "adapters are trained in the decoder's layers; the unembedding is not adapted"


@dataclass(eq=False)
class ClientSession:
    """What a client has made."""

    id: str
    owner: str
    heard: float
    samplers: dict[str, Sampler] = field(default_factory=dict[str, Any])
    user_metadata: dict[str, Any] | None = None


@dataclass(frozen=True)
class Sampler:
    """A sampling session: some weights that stay the same."""

    id: str
    key: str
    """The weights, as `ModelHouse.engine` names them."""
    path: str | None = None
    lora: wire.LoraSpec | None = None
    folder: Path | None = None


class TinkerService:
    """Answers the clients of the Tinker API.

    Args:
        house: the models.
        store: their checkpoints.
    """

    name = "learner"

    def __init__(self, house: ModelHouse, store: CheckpointStore) -> None:
        self.house = house
        self.store = store
        self.promises = Promises()
        self.sessions: dict[str, ClientSession] = {}
        self._pages = RunPages(store, house.models)
        self._works: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        """Return no route: half of the bodies are protobuf."""
        return []

    def endpoints(self) -> list[Endpoint]:
        """Return every route of the API that is served."""
        posts: dict[str, tuple[type[Any], Callable[[Any], Awaitable[Any]]]] = {
            "client/config": (wire.AskConfig, self._config),
            "client/dynamic_config": (wire.AskConfig, self._config),
            "create_session": (wire.CreateSession, self._create_session),
            "session_heartbeat": (wire.NamesSession, self._heartbeat),
            "create_model": (wire.CreateModel, self._create_model),
            "get_info": (wire.NamesModel, self._info),
            "optim_step": (wire.OptimStep, self._optim_step),
            "save_weights": (wire.SaveWeights, self._save),
            "save_weights_for_sampler": (wire.SaveWeights, self._save_for_sampler),
            "load_weights": (wire.LoadWeights, self._load),
            "unload_model": (wire.NamesModel, self._unload),
            "create_sampling_session": (wire.CreateSampler, self._create_sampler),
            "asample": (wire.AskSamples, self._sample),
        }
        plain = {
            ("POST", "/forward_backward"): self._forward_backward,
            ("POST", "/retrieve_future"): self._retrieve,
            ("POST", "/sessions/{id}/finish"): self._finish,
            ("POST", "/telemetry"): _said({"status": "accepted"}),
            ("GET", "/healthz"): _said({"status": "ok"}),
            ("GET", "/get_server_capabilities"): self._capabilities,
            ("GET", "/samplers/{id}"): self._sampler_info,
            ("GET", "/sessions/{id}"): self._session_info,
        }
        return [
            *(
                Endpoint("POST", f"{BASE}/{path}", partial(answer_json, body, handler))
                for path, (body, handler) in posts.items()
            ),
            *(Endpoint(method, BASE + path, done) for (method, path), done in plain.items()),
            *self._pages.endpoints(),
        ]

    async def start(self, context: Context) -> None:
        """Begin to end the sessions that nobody uses."""
        self._sweeper = asyncio.create_task(self._sweep(), name="ludus-tinker-sweep")

    async def stop(self) -> None:
        """End every session, and release the models."""
        await end_task(self._sweeper)
        for work in list(self._works):
            await end_task(work)
        await self.house.close()

    def load(self) -> Load:
        """Return how many promises are not done."""
        return Load(queue_depth=self.promises.pending, limit=MAX_PROMISES)

    # --- sessions -------------------------------------------------------------------------------

    async def _config(self, request: wire.AskConfig) -> dict[str, Any]:
        refuse_old(request.sdk_version)
        return {}

    async def _create_session(self, request: wire.CreateSession) -> dict[str, Any]:
        refuse_old(request.sdk_version)
        asked_by.get().require(f"train:{self.house.base.name}")
        name = f"sess-{secrets.token_hex(6)}"
        metadata = request.user_metadata
        self.sessions[name] = ClientSession(name, owner(), time.monotonic(), user_metadata=metadata)
        return {"type": "create_session", "session_id": name, "info_message": UNADAPTED}

    async def _heartbeat(self, request: wire.NamesSession) -> dict[str, Any]:
        self._session(request.session_id)
        return {"type": "session_heartbeat"}

    async def _finish(self, request: web.Request, body: bytes) -> web.Response:
        session = self._session(request.match_info["id"])
        await self._end(session)
        return as_json({})

    async def _session_info(self, request: web.Request, body: bytes) -> web.Response:
        session = self._session(request.match_info["id"])
        mine = [name for name, each in self.house.models.items() if each.session == session.id]
        metadata = {name: str(value) for name, value in (session.user_metadata or {}).items()}
        return as_json(
            {
                "training_run_ids": mine,
                "sampler_ids": list(session.samplers),
                "user_metadata": metadata,
            }
        )

    def _session(self, name: str) -> ClientSession:
        session = self.sessions.get(name)
        if session is None or session.owner != owner():
            raise Refused(f"there is no session {name!r}, or no longer", "session_gone")
        session.heard = time.monotonic()
        return session

    async def _end(self, session: ClientSession) -> None:
        self.sessions.pop(session.id, None)
        await self.house.release(session.id)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            silent = time.monotonic() - SESSION_S
            for session in [each for each in self.sessions.values() if each.heard < silent]:
                await self._end(session)

    # --- promises -------------------------------------------------------------------------------

    def _ordered(
        self, model: ServedModel, number: int, request: object, job: Job
    ) -> dict[str, Any]:
        """Promise what a model does in the order of the numbers."""
        key = (model.card.training_run_id, number)
        self._spend(key)
        promise, new = self.promises.begin(key, owner(), _encoded(request))
        if new:
            model.jobs.submit(number, promise, job)
        return {"request_id": promise.id, "model_id": model.card.training_run_id}

    def _spend(self, key: tuple[object, ...]) -> None:
        """Count a new request, before anything is kept: one that is refused for its rate leaves no
        promise that nobody fulfils, and no place that nobody fills.
        """
        if not self.promises.has(key):
            asked_by.get().spend()

    def _unordered(self, key: tuple[object, ...], request: object, job: Job) -> dict[str, Any]:
        """Promise what depends on nothing else; the caller has spent for the request."""
        promise, new = self.promises.begin(key, owner(), _encoded(request))
        if new:
            work = asyncio.create_task(self.promises.fulfil(promise, job))
            self._works.add(work)
            work.add_done_callback(self._works.discard)
        return {"request_id": promise.id}

    async def _retrieve(self, request: web.Request, body: bytes) -> web.Response:
        asked = decode(body, wire.RetrieveFuture)
        promise = self.promises.of(asked.request_id, owner())
        try:
            outcome = await asyncio.wait_for(asyncio.shield(promise.outcome), POLL_S)
        except TimeoutError:
            return as_json({"type": "try_again", "request_id": promise.id, "queue_state": "active"})
        if outcome.error:
            return as_json({"error": outcome.error, "category": outcome.category})
        if outcome.protobuf is None:
            return as_json(outcome.value)
        if PROTOBUF not in request.headers.get("Accept", ""):
            raise Refused(f"the result is {PROTOBUF}: accept that, as SDK 0.25 does", "malformed")
        size = len(outcome.protobuf)
        if asked.allow_metadata_only and size > LARGE_BYTES:
            return as_json({"status": "complete_metadata", "response_payload_size": size})
        return web.Response(body=outcome.protobuf, content_type=PROTOBUF)

    # --- models ---------------------------------------------------------------------------------

    async def _create_model(self, request: wire.CreateModel) -> dict[str, Any]:
        session = self._session(request.session_id)
        self.house.base.refuse_other(request.base_model)
        if request.optimizer_config.type != "adamw":
            raise ConfigError(
                f"optimizer {request.optimizer_config.type!r} is not served: adamw is"
            )
        if request.lora_config is not None and request.lora_config.rank < 1:
            raise ConfigError(f"lora_config.rank must be at least 1: {request.lora_config.rank}")
        spec, metadata = request.lora_config, request.user_metadata
        key = (session.id, "model", request.model_seq_id)
        self._spend(key)
        name = self._place(session, request.model_seq_id, spec, metadata)
        return self._unordered(key, request, partial(self._creation_outcome, name))

    async def _creation_outcome(self, name: str) -> PromiseOutcome:
        await self._fill(self._placed(name))
        return PromiseOutcome({"type": "create_model", "model_id": name})

    async def _fill(self, model: ServedModel) -> None:
        """Make the learner of a model; a learner that cannot be made gives its place back."""
        try:
            model.learner = await self.house.compute(partial(self.house.make, model.card.lora))
        except BaseException:
            self.house.models.pop(model.card.training_run_id, None)
            raise

    def _place(
        self,
        session: ClientSession,
        number: int,
        spec: wire.LoraSpec | None,
        metadata: dict[str, Any] | None,
    ) -> str:
        """Give a new model its place, unless the request was sent before; return its name."""
        name = f"{session.id}:train:{number}"
        if self.promises.has((session.id, "model", number)):
            return name
        card = RunCard(
            training_run_id=name,
            base_model=self.house.base.name,
            model_owner=session.owner,
            lora=spec,
            begun=datetime.now(UTC),
            user_metadata=metadata,
        )
        model = ServedModel(card, session.id, OrderedJobs(self.promises))
        self.house.admit(model, asked_by.get().grant.sessions)
        return name

    def _placed(self, name: str) -> ServedModel:
        if name not in self.house.models:
            raise ConfigError(f"the model {name} is gone: its session has ended")
        return self.house.models[name]

    def _model(self, name: str) -> ServedModel:
        model = self.house.models.get(name)
        if model is None or model.card.model_owner != owner():
            raise Refused(f"there is no model {name!r}, or no longer", "not_found")
        if model.session in self.sessions:
            self.sessions[model.session].heard = time.monotonic()
        return model

    async def _info(self, request: wire.NamesModel) -> dict[str, Any]:
        model, base = self._model(request.model_id), self.house.base
        architecture = base.model.config.model_type
        return {
            "type": "get_info",
            "model_id": request.model_id,
            "model_name": base.name,
            "model_data": {
                "arch": architecture,
                "model_name": base.name,
                "tokenizer_id": base.name,
            },
            "is_lora": model.card.lora is not None,
            "lora_rank": model.card.lora and model.card.lora.rank,
        }

    async def _unload(self, request: wire.NamesModel) -> dict[str, Any]:
        self._model(request.model_id)
        await self.house.drop(request.model_id)
        return {"type": "unload_model", "model_id": request.model_id}

    async def _forward_backward(self, request: web.Request, body: bytes) -> web.Response:
        if request.content_type != PROTOBUF:
            raise Refused(
                f"forward_backward takes {PROTOBUF}, got {request.content_type}: use SDK 0.25 or "
                "newer",
                "unsupported_media",
            )
        asked = wire.read_forward_backward(body)
        model = self._model(asked.model_id)
        job = partial(self._passed, model, asked)
        return as_json(self._ordered(model, asked.seq_id, body, job))

    async def _passed(self, model: ServedModel, asked: wire.ForwardBackward) -> PromiseOutcome:
        try:
            find_loss(asked.loss_fn, asked.config)
            passed = await self.house.compute(partial(model.made().accumulate, asked))
        except BaseException as error:
            if not asked.forward_only:
                model.torn = f"the pass of seq_id {asked.seq_id} failed ({error})"
            raise
        return PromiseOutcome(protobuf=wire.write_passed(passed))

    async def _optim_step(self, request: wire.OptimStep) -> dict[str, Any]:
        model = self._model(request.model_id)
        if request.adam_params is None:
            raise ConfigError("optimizer_params are not served: send adam_params")
        job = partial(self._stepped, model, request.adam_params)
        return self._ordered(model, request.seq_id, request, job)

    async def _stepped(self, model: ServedModel, settings: wire.AdamParams) -> PromiseOutcome:
        learner = model.made()
        if model.torn:
            why, model.torn = model.torn, ""
            learner.forget()
            raise ConfigError(f"no step was made: {why}; the gradient was dropped")
        return PromiseOutcome(
            {"metrics": await self.house.compute(partial(learner.step, settings))}
        )

    # --- checkpoints ----------------------------------------------------------------------------

    async def _save(self, request: wire.SaveWeights) -> dict[str, Any]:
        model = self._model(request.model_id)
        return self._ordered(
            model, request.seq_id, request, partial(self._saved, model, request, WEIGHTS)
        )

    async def _save_for_sampler(self, request: wire.SaveWeights) -> dict[str, Any]:
        model = self._model(request.model_id)
        if request.path is None and request.sampling_session_seq_id is None:
            raise ConfigError("give path, or sampling_session_seq_id")
        if request.path is not None:
            job: Job = partial(self._saved, model, request, SAMPLER)
        else:
            job = partial(self._snapshot, model, request)
        return self._ordered(model, request.seq_id, request, job)

    async def _saved(
        self, model: ServedModel, request: wire.SaveWeights, kind: str
    ) -> PromiseOutcome:
        learner = model.made()
        path = await self.house.compute(
            lambda: self.store.save(
                model.card,
                kind,
                request.path or default_name(learner.updates),
                partial(self.house.write, learner, optimizer=kind == WEIGHTS),
                updates=learner.updates,
                ttl_s=request.ttl_seconds,
                overwrite=request.overwrite,
                user_metadata=request.user_metadata,
            )
        )
        type_name = "save_weights" if kind == WEIGHTS else "save_weights_for_sampler"
        return PromiseOutcome({"path": path, "type": type_name})

    async def _snapshot(self, model: ServedModel, request: wire.SaveWeights) -> PromiseOutcome:
        session = self.sessions.get(model.session)
        if session is None:
            raise Refused("the session has ended", "session_gone")
        name = f"{session.id}:sample:{request.sampling_session_seq_id}"
        inflight = f"{model.card.training_run_id}:inflight"
        key = inflight if request.kind == "inflight" else name
        await self.house.snapshot(model.made(), key)
        session.samplers[name] = Sampler(name, key)
        return PromiseOutcome({"sampling_session_id": name, "type": "save_weights_for_sampler"})

    async def _load(self, request: wire.LoadWeights) -> dict[str, Any]:
        folder, run, _ = self.store.find(request.path, owner(), kind=WEIGHTS)
        self.house.base.refuse_other(request.base_model or run.base_model)
        if request.model_id is not None:
            if request.seq_id is None:
                raise ConfigError("load_weights into a model needs its seq_id")
            model = self._model(request.model_id)
            job = partial(self._loaded, model, folder, request)
            return self._ordered(model, request.seq_id, request, job)
        if request.session_id is None or request.model_seq_id is None:
            raise ConfigError("load_weights needs model_id, or session_id and model_seq_id")
        session, number = self._session(request.session_id), request.model_seq_id
        key = (session.id, "model", number)
        self._spend(key)
        name = self._place(session, number, run.lora, request.user_metadata)
        promise = self._unordered(key, request, partial(self._made_of, name, folder, request))
        return {**promise, "model_id": name}

    async def _made_of(self, name: str, folder: Path, request: wire.LoadWeights) -> PromiseOutcome:
        model = self._placed(name)
        await self._fill(model)
        return await self._loaded(model, folder, request)

    async def _loaded(
        self, model: ServedModel, folder: Path, request: wire.LoadWeights
    ) -> PromiseOutcome:
        read = partial(self.house.read, model.made(), folder, optimizer=request.optimizer)
        await self.house.compute(read)
        model.torn = ""
        name = model.card.training_run_id
        return PromiseOutcome({"path": request.path, "model_id": name, "type": "load_weights"})

    # --- samplers -------------------------------------------------------------------------------

    async def _create_sampler(self, request: wire.CreateSampler) -> dict[str, Any]:
        session = self._session(request.session_id)
        name = f"{session.id}:sample:{request.sampling_session_seq_id}"
        if request.model_path is not None:
            path = request.model_path
            folder, run, _ = self.store.find(path, owner(), kind=SAMPLER)
            self.house.base.refuse_other(request.base_model or run.base_model)
            sampler = Sampler(name, path, path, run.lora, folder)
        else:
            self.house.base.refuse_other(request.base_model or "")
            sampler = Sampler(name, "")
        session.samplers[name] = sampler
        return {"type": "create_sampling_session", "sampling_session_id": name}

    def _sampler(self, name: str) -> Sampler:
        session = self._session(name.partition(":")[0])
        if name not in session.samplers:
            raise Refused(f"there is no sampling session {name!r}", "not_found")
        return session.samplers[name]

    async def _sampler_info(self, request: web.Request, body: bytes) -> web.Response:
        sampler = self._sampler(request.match_info["id"])
        info = {"sampler_id": sampler.id, "base_model": self.house.base.name}
        return as_json({**info, "model_path": sampler.path})

    async def _sample(self, request: wire.AskSamples) -> dict[str, Any]:
        sampler = self._sampler(request.sampling_session_id)
        refuse_unserved(request)
        key = (sampler.id, request.seq_id)
        self._spend(key)
        promise = self._unordered(key, request, partial(self._sampled, sampler, request))
        ids = [f"{promise['request_id']}-{number}" for number in range(request.num_samples)]
        return {**promise, "sample_sequence_ids": ids}

    async def _sampled(self, sampler: Sampler, request: wire.AskSamples) -> PromiseOutcome:
        async with self.house.engine(sampler.key, sampler.folder, sampler.lora) as engine:
            return PromiseOutcome(protobuf=await answer(engine, self.house.base, request))

    async def _capabilities(self, request: web.Request, body: bytes) -> web.Response:
        longest = int(self.house.base.model.config.get_text_config().max_position_embeddings)
        card = {"model_name": self.house.base.name, "max_context_length": longest}
        return as_json({"supported_models": [{**card, "trainable": True, "sampleable": True}]})


def refuse_old(version: str) -> None:
    """Refuse an SDK whose wire is JSON; a version that cannot be read passes.

    Raises:
        ConfigError: with the oldest version that can be served.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < wire.OLDEST_SDK:
        oldest = ".".join(map(str, wire.OLDEST_SDK))
        raise ConfigError(
            f"SDK {version} speaks JSON where this server speaks protobuf: pip install "
            f"'tinker>={oldest}'"
        )


def _encoded(request: object) -> bytes:
    return request if isinstance(request, bytes) else msgspec.json.encode(request)


def _said(value: Any) -> Callable[[web.Request, bytes], Awaitable[web.Response]]:
    async def say(request: web.Request, body: bytes) -> web.Response:
        return as_json(value)

    return say
