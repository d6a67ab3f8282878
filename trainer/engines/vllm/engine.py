"""An engine over HTTP: a vLLM server whose weights are replaced during sampling."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ludus.agent import Generation, Sampling, WeightSource
from ludus.agent.images import PlacedImage
from ludus.errors import ConfigError, RequestTimeout, ServerFault

from ...config import VLLMConfig
from ...models.images import ImageReader
from ...models.loading import CausalLM
from ...models.weight_files import as_file
from ...models.weights import SteadyWeights
from .calls import (
    ENGINE_PREFIX,
    GENERATE,
    GenerateBody,
    GenerateReply,
    SamplingBody,
    features_of,
    read_generation,
    read_scores,
    sampling_body,
    version_of,
)
from .client import VllmClient
from .served import (
    TOLERANCE,
    Probe,
    Scorer,
    Served,
    WeightInfo,
    compare,
    inspect,
    probe_prompt,
    scorer_of,
)
from .server import Launch, ServerProcess, VllmServer, until_healthy
from .transfer import WeightTransfer, refuse_without_gpu

ABORT_TIMEOUT_S = 60.0
ABORT_AGAIN_S = 0.05
"""Seconds between abort requests. A generation request still in transit is unknown to the server,
so the abort is repeated.
"""


class Loaded(msgspec.Struct):
    """A worker's report on loading weights."""

    tensors: int = 0
    error: str = ""


class LoadReply(msgspec.Struct):
    """The reply of `/collective_rpc`, with a result for each worker."""

    results: list[Loaded]


class Ignored(msgspec.Struct):
    """A reply of which only the status matters."""


@dataclass(frozen=True, kw_only=True)
class LearnerSide:
    """What an engine behind a server shares with the learner."""

    probe: Probe | None = None
    """The comparison to make after publishing weights."""
    images: ImageReader | None = None
    """Reads the images of prompts, as the learner does; None for a model that reads none."""


DEFAULT_SETTINGS = VLLMConfig()
ALONE = LearnerSide()


class VLLMEngine:
    """Samples from a vLLM server.

    The seed does not fix the samples here; only the local engine guarantees that. Answers can be
    held to a JSON schema.

    Args:
        client: the client of the server.
        served: what the server serves.
        settings: the folder of weights, the time limits, and whether running requests keep keys
            and values of older weights after a publish.
        server: the server's process, if this engine should end it.
        learner: what the engine shares with the learner.
    """

    constrains = True

    def __init__(
        self,
        client: VllmClient,
        served: Served,
        settings: VLLMConfig = DEFAULT_SETTINGS,
        *,
        server: ServerProcess | None = None,
        learner: LearnerSide = ALONE,
    ) -> None:
        self.client = client
        self.served = served
        self.probe = learner.probe
        self.keep_cache = settings.keep_cache
        self.request_timeout_s = settings.request_timeout_s
        self.startup_timeout_s = settings.startup_timeout_s
        self.images = learner.images
        self.publishes = 0
        self.probed: float | None = None
        """The difference the last probe found, in nats; None before the first."""
        self.weights_folder = settings.weights_folder
        self._transfer = (
            None
            if settings.transfer == "file"
            else WeightTransfer(client, settings.transfer, timeout_s=settings.request_timeout_s)
        )
        self._server = server
        self._version = served.version
        self._salt = uuid.uuid4().hex
        self._control = asyncio.Lock()
        self._held = False
        """Whether `pause` was called; a publish then leaves the server paused."""
        self._unproved = False
        """Whether a comparison with the learner is due that could not be made yet."""
        self._running: dict[str, int] = {}
        """The requests under way, and the lowest version that was current meanwhile."""

    @property
    def version(self) -> int:
        """The version of the current weights."""
        return self._version

    @property
    def max_length(self) -> int:
        """The most tokens of prompt and answer together.

        The value is one less than the server's limit, since the server needs room for a token
        even when scoring.
        """
        return self.served.max_model_len - 1

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, *, images: Sequence[PlacedImage] = ()
    ) -> Generation:
        """Sample a continuation of `ids`; see `Engine.generate`. The seed is ignored.

        Raises:
            ConfigError: the request cannot be served.
            RemoteError: the server failed, or did not answer in time; `EngineLost` if it was
                started again since the last publish.
            StaleWeights: a token was sampled from weights older than those at the request.
        """
        if not ids:
            raise ConfigError("cannot continue an empty prompt; give at least one token")
        if len(ids) + sampling.max_tokens > self.max_length:
            raise ConfigError(
                f"{len(ids)} prompt tokens and {sampling.max_tokens} to sample exceed the engine's "
                f"{self.max_length}"
            )
        # Read before the request is made: a request that is under way during the first publish may
        # have tokens that carry the server's first label, which is a word.
        published = self.publishes > 0
        reply, oldest = await self._generate(ids, sampling_body(sampling), images)
        if not published:
            return read_generation(reply, unlabelled=self.served.version)
        return read_generation(reply, unlabelled=None, oldest=oldest)

    async def logprobs(
        self, ids: Sequence[int], *, images: Sequence[PlacedImage] = ()
    ) -> list[float]:
        """Return the log-probability of each id at temperature 1; the first is 0."""
        if len(ids) > self.max_length:
            raise ConfigError(f"{len(ids)} tokens exceed the engine's {self.max_length}")
        # The server samples at least one token, which is not read.
        scoring = SamplingBody(max_tokens=1, prompt_logprobs=0)
        reply, _ = await self._generate(ids, scoring, images)
        return read_scores(reply, ids)

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Install new weights while requests run; these continue with the new weights.

        Raises:
            ServerFault: the server could not load the weights.
            StaleWeights: the server reported success but samples from other weights.
        """
        async with self._control:
            if self._transfer is not None:
                await self._swap(self._transfer.send(source), version)
            else:
                async with as_file(source, folder=self.weights_folder) as file:
                    await self._swap(self._load(str(file.path)), version)
            self.publishes += 1
            await self._prove()

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"the vLLM server at {self.client.url}"

    async def check(self) -> None:
        """Return if the server is alive and still has published weights.

        Raises:
            RemoteError: the server does not answer, or (`EngineLost`) was started again.
        """
        await self.client.healthy()
        if self.publishes:
            info = await self.client.get("/weight_info", WeightInfo)
            version_of(info.weight_version, None)  # called for the error of a restarted server

    async def revive(self) -> None:
        """Start a server of our own again, or wait until another server answers again; the next
        publish is probed.

        Raises:
            RequestTimeout: the server did not come back in time.
            ConfigError: the server that came back cannot be trained with.
        """
        if self._server is not None:
            await self._server.restart()
            self.client.move(self._server.url)  # on a cluster it may be elsewhere now
            await self._server.ready(self.client, self.startup_timeout_s)
        else:
            await until_healthy(self.client, self.startup_timeout_s)
        self.served = await inspect(self.client)
        # A server that was lost during a publish or a pause may still be paused.
        await self._act("/resume")
        self.publishes, self._held, self._unproved = 0, False, False

    async def pause(self) -> None:
        """Stop sampling until `resume`; requests wait."""
        async with self._control:
            self._held = True
            await self._pause(clear_cache=False)

    async def resume(self) -> None:
        """Continue the sampling that `pause` stopped."""
        async with self._control:
            self._held = False
            await self._act("/resume")

    async def abort(self) -> None:
        """End the requests of this engine; each returns the tokens sampled so far. Requests of
        other clients continue.
        """
        deadline = time.monotonic() + ABORT_TIMEOUT_S
        ours = set(self._running)
        while remaining := ours & set(self._running):
            if time.monotonic() > deadline:
                raise RequestTimeout(
                    f"{len(remaining)} requests did not end within {ABORT_TIMEOUT_S:g} s of their "
                    "abort"
                )
            # An empty list would abort the requests of all clients; it is never empty here.
            names = [ENGINE_PREFIX + request_id for request_id in remaining]
            await self._act("/abort_requests", {"request_ids": names})
            await asyncio.sleep(ABORT_AGAIN_S)

    async def close(self) -> None:
        """End a server that this engine started, else end only this engine's requests."""
        try:
            if self._server is None and self._running:
                await self.abort()
        finally:
            await self.client.close()
            if self._server is not None:
                await self._server.close()

    async def _generate(
        self, ids: Sequence[int], sampling: SamplingBody, images: Sequence[PlacedImage]
    ) -> tuple[GenerateReply, int]:
        """Return the server's reply, and the lowest version that was current meanwhile."""
        request_id = uuid.uuid4().hex
        # Images are decoded and resized here, which may take a while.
        features = await asyncio.to_thread(features_of, images, self.images) if images else None
        body = GenerateBody(
            request_id=request_id,
            model=self.served.model,
            token_ids=ids,
            cache_salt=self._salt,
            sampling_params=sampling,
            features=features,
        )
        self._running[request_id] = self._version
        try:
            reply = await self.client.post(
                GENERATE, body, GenerateReply, timeout_s=self.request_timeout_s
            )
            return reply, self._running[request_id]
        finally:
            self._running.pop(request_id)

    async def _swap(self, load: Coroutine[Any, Any, None], version: int) -> None:
        """Load new weights between two steps of the server, and label later samples with the new
        version.

        The server is paused meanwhile, so that no token is sampled between load and label. In
        any case, the server is not left paused.
        """
        try:
            await self._pause(clear_cache=not self.keep_cache)
        except BaseException:
            load.close()  # Python would warn of a coroutine that nobody has awaited
            raise
        try:
            await load
            await self._act("/update_weight_version", {"new_version": str(version)})
            self._version = version
            for request, oldest in self._running.items():
                self._running[request] = min(oldest, version)
            # With a new salt, no request can find cached prefixes of the older weights.
            self._salt = f"{uuid.uuid4().hex}-{version}"
        finally:
            if not self._held:
                await self._act("/resume")

    async def _prove(self) -> None:
        """Compare the server with the learner when due. The comparison is postponed to a later
        publish while sampling is paused, and where the learner has other weights by now.
        """
        if self.probe is None:
            return
        self._unproved |= self.probe.due(self.publishes)
        if self._unproved and not self._held:
            difference = await compare(self, self.probe)
            self.probed = self.probed if difference is None else difference
            self._unproved = difference is None

    async def _load(self, path: str) -> None:
        reply = await self.client.post(
            "/collective_rpc",
            {"method": "ludus_load", "kwargs": {"path": path}},
            LoadReply,
            timeout_s=self.request_timeout_s,
        )
        failed = [result.error for result in reply.results if result.error]
        if failed:
            raise ServerFault(
                f"a vLLM worker could not load {path!r} ({failed[0]}); a server elsewhere needs "
                "vllm.weights_folder on a disk that both see"
            )

    async def _pause(self, *, clear_cache: bool) -> None:
        # Contrary to vLLM's documentation, `keep` alone also drops caches, so `clear_cache` is
        # always given.
        params = {"mode": "keep", "clear_cache": str(clear_cache).lower()}
        await self._act("/pause", params=params)

    async def _act(
        self, path: str, body: object = None, *, params: Mapping[str, str] | None = None
    ) -> None:
        await self.client.post(path, body or {}, Ignored, params=params)


@dataclass(frozen=True, kw_only=True)
class ServerSite:
    """What a server is started with, besides the settings of the engine."""

    folder: str
    """The folder of the model; config and tokenizer are read."""
    dtype: str
    """The number format."""
    cpu: bool
    """Whether the server runs without a GPU."""
    log: Path
    """The file for the server's output."""
    gpus: str = ""
    """The devices that the server sees; empty shows it all."""
    opened: Callable[[Launch], Awaitable[ServerProcess]] | None = None
    """Starts the server elsewhere; None starts it on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerView:
    """How a server sees the learner, besides the shape of its model."""

    images: ImageReader | None = None
    """The learner's image reader; None for a model that reads no images."""
    steady: SteadyWeights | None = None
    """Says which version the learner has; None if it always has the engine's."""
    score: Scorer | None = None
    """Scores tokens with the learner's weights, with which the server is compared. None runs the
    model, which must hold whole weights.
    """


async def start_vllm(
    settings: VLLMConfig, site: ServerSite, model: CausalLM, view: LearnerView | None = None
) -> VLLMEngine:
    """Return an engine that is ready except for weights: a server started here begins with random
    weights.

    Args:
        settings: the settings of the engine.
        site: what a server started here gets besides.
        model: the learner's.
        view: how the server sees the learner; by default the model is compared with it.

    Raises:
        LudusError: the server cannot be started, or cannot be used for training.
    """
    view = view or LearnerView()
    text_config = model.config.get_text_config()
    if settings.transfer != "file":
        refuse_without_gpu(settings.transfer)
    server: ServerProcess | None = None
    if not settings.url:
        launch = Launch(
            model=site.folder,
            dtype=site.dtype,
            max_model_len=min(settings.max_model_len, int(text_config.max_position_embeddings)),
            log=site.log,
            cpu=site.cpu,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            python=settings.python,
            arguments=settings.arguments,
            transfer=settings.transfer,
            gpus=site.gpus,
            environment=settings.environment,
        )
        server = VllmServer(launch) if site.opened is None else await site.opened(launch)
    client = VllmClient(
        settings.url if server is None else server.url,
        api_key=settings.api_key,
        hint=None if server is None else server.hint,
    )
    try:
        if server is not None:
            await server.ready(client, settings.startup_timeout_s)
        served = await inspect(client)
        # A run that was killed during a publish may have left the server paused.
        await client.post("/resume", {}, Ignored)
        probe = Probe(
            learner=view.score or scorer_of(model),
            prompt=probe_prompt(int(text_config.vocab_size)),
            tolerance=settings.probe_tolerance or TOLERANCE[served.dtype],
            every=settings.probe_every,
            steady=view.steady,
        )
        return VLLMEngine(
            client,
            served,
            settings,
            server=server,
            learner=LearnerSide(probe=probe, images=view.images),
        )
    except BaseException:
        await client.close()
        if server is not None:
            await server.close()
        raise
